"""A corpus that was built, opened for training and read: the rows and sources are those of the audit."""

from collections import Counter
from pathlib import Path

import pytest

from dataaudit.manifest.locate import decode_path
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.training.opening import open_manifest

pytestmark = pytest.mark.stores


def test_what_a_loader_reads_is_what_was_audited(expected, tmp_path):
    manifest, root = expected, Path(expected.run.roots["train"])
    opened = open_manifest(
        manifest.folder, require="verified", check="all", splits=["train", "val"], cache=tmp_path / "cache"
    )
    assert opened.sources == tuple(sorted({row["source"] for row in manifest.table("sources").to_pylist()}))
    for row in manifest.table("shards").to_pylist():
        assert opened.path(row["shard"]) == str(root / decode_path(row["uri"]))
        path = opened.path(row["shard"])
        (part,) = plan_parts(path, row["format"], row["compression"], row["size"], 1 << 40)
        request = ReadRequest(
            path=path,
            format=row["format"],
            compression=row["compression"],
            part=part,
            fields=opened.fields(row["shard"]),
            batch_bytes=1 << 16,
        )
        documents, sizes, rows, stats = Counter(), Counter(), [], PartStats()
        for batch in read_part(request, LossLog(), stats):
            names = [batch.source_names[code] for code in batch.source_codes]
            documents.update(names)
            for name, size in zip(names, batch.num_bytes().tolist(), strict=True):
                sizes[name] += size
            rows += batch.rows.tolist()
        assert [(one["source"], one["documents"], one["bytes"]) for one in row["sources"]] == [
            (name, documents[name], sizes[name]) for name in sorted(documents)
        ]
        assert (stats.records, len(rows), rows) == (row["rows"], row["documents"], sorted(set(rows)))
