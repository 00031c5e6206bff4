"""Token counts of a build, document by document, against `tokenizers` over the same text."""

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpus import documents, rows, write_parquet
from running import build
from tokenizers import Tokenizer

from dataaudit.scan.annotators import SAMPLE_ONE_IN
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import Part, PartStats, ReadRequest, read_part
from dataaudit.scan.corpus.shards import format_of
from dataaudit.scan.corpus.texts import text_digests
from dataaudit.scan.corpus.tokens import inspect_risks, load_encoder, resolve_tokenizer

pytestmark = pytest.mark.builds

CORPUS = "DATAAUDIT_CORPUS"


def test_published_lengths_are_those_of_tokenizers(tmp_path):
    """The manifest's histogram of lengths is that of `tokenizers` on every document."""
    texts = [
        *documents(300, seed=9),
        "",
        " ",
        "\u0f0b\U0001f9d1\u200d\U0001f680 e\u0301 <|endoftext|>",
        "\u0378\ufdd0 x",
    ]
    write_parquet(tmp_path / "a.parquet", rows(texts, "s"))
    _, manifest = build("a.parquet", manifest=tmp_path / "m", cwd=tmp_path)
    tokenizer = resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path / "t")
    reference = Tokenizer.from_file(str(tokenizer.path))
    read = pq.read_table(tmp_path / "a.parquet")["text"].to_pylist()
    expected = sorted(len(encoded.ids) for encoded in reference.encode_batch_fast(read, add_special_tokens=False))
    found = [row["low"] for row in manifest.table("lengths").to_pylist() for _ in range(row["documents"])]
    assert sorted(found) == expected
    assert manifest.core.totals.tokens == sum(expected)
    assert manifest.core.tokenizer.encoder == "gigatoken"


@pytest.mark.builds
@pytest.mark.timeout(1800)
@pytest.mark.skipif(CORPUS not in os.environ, reason=f"set {CORPUS} to a folder of shards with a column `text`")
def test_a_whole_corpus_document_by_document(tmp_path):
    tokenizer = resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path)
    risks = inspect_risks(tokenizer, cache_dir=tmp_path)
    encoder = load_encoder(tokenizer, risks, force_reference=False, sample_one_in=SAMPLE_ONE_IN, seed=0)
    reference = Tokenizer.from_file(str(tokenizer.path))
    fields = FieldRule(text="text", source_column=None, source_constant="x", max_record_bytes=1 << 30)
    checked = routed = 0
    for path in sorted(path for path in Path(os.environ[CORPUS]).rglob("*") if format_of(str(path))[0] != "unknown"):
        format_, compression = format_of(str(path))
        stop = pq.ParquetFile(path).num_row_groups if format_ == "parquet" else path.stat().st_size
        request = ReadRequest(
            path=str(path),
            format=format_,
            compression=compression,
            part=Part(0, stop),
            fields=fields,
            batch_bytes=4 << 20,
        )
        for batch in read_part(request, LossLog(), PartStats()):
            keys = np.ascontiguousarray(text_digests(batch.texts)[:, :8]).view("<u8").reshape(-1)
            found = encoder.encode(batch.texts, keys)
            truth = reference.encode_batch_fast(batch.texts.to_pylist(), add_special_tokens=False)
            for number, encoded in enumerate(truth):
                ids = found.ids[found.offsets[number] : found.offsets[number + 1]]
                assert ids.tolist() == encoded.ids, f"{path} record {batch.rows[number]}"
            checked += len(batch)
            routed += int(found.by_reference.sum())
            assert found.differing == 0
    print(f"{checked} documents equal, {routed} of them routed to the reference")
    assert checked
