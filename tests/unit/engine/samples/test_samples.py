"""Samples of findings: which are chosen, and how their documents are read again."""

import hashlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Outcome, ScanSettings
from dataaudit.engine.samples import choose, prepare_samples, sample_manifest
from dataaudit.engine.scan import Scan
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.stages import STAGES
from dataaudit.scan.annotators import MATCHES, Findings
from dataaudit.scan.detectors import Registry

pytestmark = pytest.mark.judges

TEXTS = [f"Number {number}: write to person{number}@riverbank-letters.org today." for number in range(20)]
CLASS = "EMAIL_ADDRESS"


def finding(shard_, row, start, end, **more):
    """Return a row of the table of findings."""
    return {
        "detector": "pii",
        "class": CLASS,
        "tier": "validated",
        "shard": shard_,
        "row": row,
        "start": start,
        "end": end,
        "score": 0.9,
        "reserved": False,
        "hmac": None,
        **more,
    }


def table(rows):
    return pa.Table.from_pylist(rows, schema=TABLES["findings"].schema)


def found_in(texts, shard_):
    """Return the findings of texts."""
    return [finding(shard_, row, text.index("person"), text.index(" today")) for row, text in enumerate(texts)]


@pytest.fixture
def folder(tmp_path):
    """A manifest of two shards, and its findings."""
    data = tmp_path / "data"
    data.mkdir()
    lines = "".join(f'{{"text": "{text}"}}\n' for text in TEXTS).encode()
    (data / "a.jsonl").write_bytes(lines)
    pq.write_table(pa.table({"text": TEXTS}), data / "b.parquet", row_group_size=7)
    columns = hashlib.sha256((data / "b.parquet").read_bytes()).hexdigest()
    shards = [
        shard("a.jsonl", size=len(lines), sha256=hashlib.sha256(lines).hexdigest(), documents=20),
        shard("b.parquet", format="parquet", documents=20, sha256=columns),
    ]
    config = {"splits": {"train": {"text": "text"}}, "reader": {"max_line_bytes": 10**6, "text_document": "file"}}
    rows = found_in(TEXTS, 0) + found_in(TEXTS, 1)
    make(tmp_path / "m", shards, roots=data, tables={"findings": rows}, config=config)
    return tmp_path / "m"


def sample(folder, place, number=3, to="samples"):
    """Return the text of the files that are written."""
    asked = prepare_samples(number, folder.parent / to, folder)
    with Progress(quiet=True) as progress:
        sample_manifest(folder, asked, progress, place=place)
    return {path.name: path.read_text() for path in asked.folder.glob("*.txt")}


@pytest.mark.parametrize("place", ["a.jsonl", "b.parquet"])
def test_documents_are_read_again_and_masked(folder, place):
    """As many as were asked for; the words around the finding are there, the finding is not."""
    (text,) = sample(folder, place).values()
    entries = text.split("\n#\n")[-1].strip().split("\n\n")
    assert len(entries) == 3
    assert all(entry.endswith("write to <<EMAIL_ADDRESS>> today.") for entry in entries)
    assert "person" not in text


def test_of_one_document_its_findings_alone_are_written(folder):
    """SHARD:ROW."""
    (text,) = sample(folder, "a.jsonl:7").values()
    assert text.count("shard 0 (train/a.jsonl), row 7, bytes 19 to 48: EMAIL_ADDRESS, validated, score 0.90") == 1
    assert sample(folder, "a.jsonl:99", to="none") == {}


def test_a_shard_that_has_changed_gives_no_sample(folder, capsys):
    """Places mean something else now, so masks would be wrong; what is missing is said."""
    path = folder.parent / "data" / "a.jsonl"
    path.write_bytes(b" " + path.read_bytes())
    assert sample(folder, "a.jsonl") == {}
    assert "samples: 3 not written: a shard has changed since the build" in capsys.readouterr().err


def test_a_finding_that_the_table_does_not_hold_is_masked_too(folder):
    """The shipped patterns look again: the stage may have been off, or the document full."""
    shards = pq.read_table(folder / "shards.parquet").to_pylist()
    line = '{"text": "' + TEXTS[0] + ' Ring +44 20 8123 4567 or anna.berg@letters-of-the-sea.org."}\n'
    (folder.parent / "data" / "a.jsonl").write_text(line)
    shards[0] |= {"sha256": hashlib.sha256(line.encode()).hexdigest()}
    config = {"splits": {"train": {"text": "text"}}, "reader": {"max_line_bytes": 10**6, "text_document": "file"}}
    make(
        folder.parent / "n",
        shards,
        roots=folder.parent / "data",
        config=config,
        tables={"findings": found_in(TEXTS[:1], 0)},
    )
    (text,) = sample(folder.parent / "n", "a.jsonl", to="more").values()
    assert "<<EMAIL_ADDRESS>> today. Ring [PHONE_NUMBER] or [EMAIL_ADDRESS]." in text


def test_the_state_folder_beside_the_manifest_is_no_place_for_samples(folder):
    """Inspect knows it by its name."""
    with pytest.raises(ConfigError, match="apart from the state folder"):
        prepare_samples(1, folder.parent / ".dataaudit" / "s", folder)


def test_of_each_kind_at_most_so_many_are_chosen_whatever_the_order():
    """By a hash of the place: any order of the table chooses the same, another seed others."""
    rng = random.Random(1)
    rows = [
        finding(number % 3, number, 5, 9, **{"class": rng.choice("ABC")}, reserved=number % 7 == 0)
        for number in range(500)
    ]
    chosen = choose(table(rows), 4, seed=1)
    kinds = {}
    for row in chosen.to_pylist():
        kinds.setdefault((row["class"], row["reserved"]), []).append(row["row"])
    assert {key: len(found) for key, found in kinds.items()} == dict.fromkeys(
        [(a, b) for a in "ABC" for b in (0, 1)], 4
    )
    rng.shuffle(rows)
    assert sorted(choose(table(rows), 4, seed=1)["row"].to_pylist()) == sorted(chosen["row"].to_pylist())
    assert sorted(choose(table(rows), 4, seed=2)["row"].to_pylist()) != sorted(chosen["row"].to_pylist())
    assert choose(table([]), 4, seed=1).num_rows == 0


def test_neither_key_nor_windows_are_in_a_repr(tmp_path):
    """Dask logs the repr of a call that fails, and a traceback of ours would show them."""
    key = b"a-key-that-nobody-may-see"
    stages = tuple(kind() for kind in STAGES if MATCHES not in kind.needs)
    patterns = Registry(entities=(), validators={}, reserved={}, versions={})
    findings = Findings(patterns=patterns, digests={}, key=key)
    settings = ScanSettings(state=tmp_path, stages=stages, annotators=(findings,))
    options = BuildOptions(target=tmp_path, hmac_key=key)
    task, outcome = Scan(settings), Outcome(windows=("some words",))
    for value in (task, settings, findings.load(), options, outcome):
        assert "nobody" not in repr(value)
        assert "some words" not in repr(value)


def test_of_a_verdict_of_a_whole_document_its_beginning_is_shown(folder):
    """What else was found in it is masked."""
    rows = [
        *found_in(TEXTS, 0),
        finding(0, 3, 0, len(TEXTS[3]), detector="tiny", tier="judged", **{"class": "toxicity"}),
    ]
    make_again(folder, rows)
    texts = sample(folder.parent / "again", "a.jsonl:3", to="whole")
    assert texts["tiny.toxicity.judged.txt"].endswith("\n    Number *: write to [EMAIL_ADDRESS] today.\n")


def make_again(folder, rows):
    """Publish the same manifest with other findings, as `again`."""
    shards = pq.read_table(folder / "shards.parquet").to_pylist()
    config = {"splits": {"train": {"text": "text"}}, "reader": {"max_line_bytes": 10**6, "text_document": "file"}}
    make(folder.parent / "again", shards, roots=folder.parent / "data", config=config, tables={"findings": rows})
