"""A corpus in every format, with bad records, blank lines, row groups and a twin; its truth read by no code of ours."""

import datetime as dt
import gzip
import hashlib
import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from made_manifest import make, shard

from dataaudit.decide.quarantine.changes import Author, add, add_requests
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import OFFSET, ROW, SHARD, SOURCE, START, TARGETS

SHARES = {"code": 50, "web": 30, "wiki": 20}
WORDS = ["alpha", "beta", "Öl", "straße", "東京", "naïve", "🚀", "zeta", "quick", "brown", "fox", "tensor", "gradient"]
CONFIG = {
    "splits": {"train": {"text": "text", "source": {"column": "source"}, "held_out": False}},
    "reader": {"max_line_bytes": 1_000_000, "text_document": "file"},
}
AUTHOR = Author(who="ana@example.org", now=dt.datetime(2026, 11, 21, tzinfo=dt.UTC))


def records(draw, number):
    """Return documents, one of them empty."""
    made = [
        {
            "text": " ".join(f"{draw.choice(WORDS)}{draw.randrange(999)}" for _ in range(draw.randrange(2, 90))),
            "source": draw.choice(list(SHARES)),
        }
        for _ in range(number)
    ]
    made[number // 2]["text"] = ""
    return made


def lines(made):
    """Return JSON lines with broken and blank ones, and {row: (text, source)}."""
    held, truth, row = [], {}, 0
    for index, record in enumerate(made):
        if index % 17 == 5:
            held.append(b"{broken")
            row += 1
        if index % 23 == 9:
            held.append(b"  ")
        held.append(json.dumps(record, ensure_ascii=index % 2 == 0).encode())
        truth[row] = (record["text"], record["source"])
        row += 1
    return b"\n".join(held) + b"\n", truth, row


class MadeCorpus:
    """Files in ``data`` and a manifest ``m`` of them.

    Args:
        folder: Where to make it.
    """

    def __init__(self, folder):
        self.folder, data = folder, folder / "data"
        data.mkdir()
        self.truth, rows = {}, []
        draw = random.Random(0)
        schema = pa.schema([("text", pa.string()), ("source", pa.string())])

        def put(uri, truth, number, **more):
            found = (data / uri.partition("#")[0]).read_bytes()
            digest = hashlib.sha256(found).hexdigest()
            counted = {"documents": len(truth), "bad": number - len(truth), "size": len(found)}
            rows.append(shard(uri, sources=SHARES, sha256=digest, **counted) | {"rows_digest": digest} | more)
            self.truth[uri] = truth

        for name in ("a.jsonl", "b.jsonl"):
            content, truth, number = lines(records(draw, 60))
            (data / name).write_bytes(content)
            put(name, truth, number)
        put("b.jsonl#copy=2", self.truth["b.jsonl"], number)
        shutil.copy(data / "a.jsonl", data / "twin.jsonl")
        put("twin.jsonl", self.truth["a.jsonl"], number)
        made = records(draw, 70)
        pq.write_table(pa.Table.from_pylist(made, schema=schema), data / "c.parquet", row_group_size=16)
        put("c.parquet", {row: (one["text"], one["source"]) for row, one in enumerate(made)}, 70, format="parquet")
        made = records(draw, 40)
        with pa.ipc.new_file(data / "d.arrow", schema) as stream:
            stream.write_table(pa.Table.from_pylist(made, schema=schema), max_chunksize=9)
        put("d.arrow", {row: (one["text"], one["source"]) for row, one in enumerate(made)}, 40, format="arrow")
        content, truth, number = lines(records(draw, 30))
        (data / "e.jsonl.gz").write_bytes(gzip.compress(content, mtime=0))
        put("e.jsonl.gz", truth, number, compression="gzip")
        rows.sort(key=lambda row: row["uri"])
        self.uris = [row["uri"] for row in rows]
        make(folder / "m", rows, roots=data, config=CONFIG)

    def open(self, **how):
        """Open it."""
        return open_manifest(self.folder / "m", **{"require": "verified", "cache": self.folder / "cache"} | how)

    def text(self, ordinal, row):
        """Return text and source of a document."""
        return self.truth[self.uris[ordinal]][row]

    def hold(self, *names):
        """Return a quarantine list that holds shards or documents."""
        requests, _ = add_requests(names, load_manifest(self.folder / "m"), reason="manual", metric=None, run=None)
        path = self.folder / "list.jsonl"
        path.unlink(missing_ok=True)
        path.touch()
        add(path, requests, AUTHOR)
        return path

    def check(self, row, sources, *, inner=False):
        """Hold a row's stretches against the texts; return how many there are, and their targets."""
        used = [[int(one) for one in tag] for tag in row["tags"] if tag[SHARD] != UNUSED]
        starts = [tag[START] for tag in used]
        assert starts == sorted(starts)
        assert starts[0] == 0
        for tag, stop in zip(used, [*starts[1:], len(row["labels"])], strict=True):
            assert tag[TARGETS] == stop - max(tag[START], int(inner))
            if tag[SHARD] == MERGED:
                continue
            text, source = self.text(tag[SHARD], tag[ROW])
            expected = (text.encode() + b"\0")[tag[OFFSET] : tag[OFFSET] + stop - tag[START]]
            assert bytes(np.asarray(row["labels"][tag[START] : stop]).astype(np.uint8)) == expected
            assert sources[tag[SOURCE]] == source
        return len(used), sum(tag[TARGETS] for tag in used)
