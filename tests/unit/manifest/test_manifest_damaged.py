"""Damaged, strange and forged folders: every command says so, with an exit code of ours and never as its own fault."""

import json
import os
import random
import shutil
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from forged import forge, hold_bytes
from lanes import sample

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

pytestmark = pytest.mark.usefixtures("policies_parsed_once")

GOLDEN = Path(__file__).parents[2] / "golden/manifest"
KINDS = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "a byte in the middle": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
    "a byte in the footer": lambda data: data[:-60] + b"\x7f" + data[-59:],
    "a footer of 2 GB": lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
    "text": lambda data: b"hello\n" * 100,
    "another table": lambda data: (GOLDEN / "pairs.parquet").read_bytes(),
    "nested too deep": lambda data: b"[" * 100_000,
}
PLACES = {
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "nothing": lambda path: None,
    "link to itself": lambda path: path.symlink_to(path.name),
}


def commands(folder, out):
    """Return every command that reads a manifest."""
    return [
        ("show", folder, "--all"),
        ("inspect", folder, "0"),
        ("verify", folder),
        ("gate", folder, "--policy", "release-gate"),
        ("diff", folder, GOLDEN),
        ("diff", GOLDEN, folder),
        ("report", folder, "--policy", "release-gate", "--out", out / "report.html"),
        ("export", "card", folder),
        ("export", "croissant", folder, "--out", out / "croissant.json"),
        ("export", "openlineage", folder, "--out", out / "event.json"),
        ("export", "verdict", folder, "--policy", "release-gate", "--out", out / "verdict.json"),
        ("quarantine", "add", out / "added.jsonl", "--manifest", folder, "0", "--reason", "spike"),
        ("quarantine", "apply", out / "list.jsonl", "--manifest", folder, "--out", out / "clean", "--documents"),
    ]


def tell(folder, out):
    """Run every command; return the exit codes. A fault of the program would be raised as it is."""
    (out / "list.jsonl").write_text("")
    codes = []
    for command in commands(folder, out):
        shutil.rmtree(out / "clean", ignore_errors=True)
        done = CliRunner().invoke(main, [str(part) for part in command], env={"DATAAUDIT_DEBUG": "1"})
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.exit_code in {0, 1, 2, 3, 4}, command
        codes.append(done.exit_code)
    return codes


def write_cells(folder, table, **cells):
    """Forge a manifest in which the first row of a table has other cells."""
    rows = pq.read_table(folder / f"{table}.parquet").to_pylist()
    rows[0] |= cells
    forge(folder, {table: pa.Table.from_pylist(rows, schema=TABLES[table].schema)})


def codes_of(folder):
    """Return the codes of all problems."""
    return [problem.code for problem in verify(load_manifest(folder))]


FILES = ("manifest.json", "shards.parquet", "metrics.parquet", "clusters.parquet")


@pytest.mark.parametrize(("kind", "name"), sample(product([*KINDS, *PLACES], FILES), 10))
def test_no_damage_is_a_fault_of_the_program(folder, tmp_path, kind, name):
    """Whether the run holds the bytes as they are now or not: the parser meets them, or is not asked."""
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if kind in PLACES:
        PLACES[kind](path)
    else:
        path.write_bytes(KINDS[kind](data))
    codes = tell(folder, tmp_path)
    if name == "manifest.json":
        assert set(codes) <= {1, 2} or kind == "a byte in the footer"  # which is in the run, and may be any text
        return
    assert set(codes) & {1, 2}
    if kind in KINDS:
        hold_bytes(folder)
        assert set(tell(folder, tmp_path)) & {1, 2}


BROKEN = {
    "clusters": {"shard": 99, "row": -1, "kind": "alike", "cluster": -3},
    "pairs": {"left_shard": -1, "right_shard": 10**6, "right_row": 2**50},
    "findings": {"shard": 2**31 - 1, "row": -(2**63)},
    "overlap": {"shard": 5000, "start": -1},
    "hotspots": {"documents": -1, "shards": [], "sources": []},
    "hotspot_members": {"shard": -7},
    "ledger": {"shard": 44, "records": -2},
    "judged": {"level": -2},
    "lengths": {"documents": -1},
    "histogram": {"token": -1},
    "shards": {"status": "fine", "tokens": -1, "sources": [dict.fromkeys(("documents", "bytes", "tokens"), -1)]},
    "metrics": {"method": "guessed", "status": "maybe", "n": -1, "value": None},
}


@pytest.mark.tables
@pytest.mark.parametrize(
    ("name", "column"), sample([(name, column) for name, cells in BROKEN.items() for column in cells], 4)
)
def test_values_that_no_build_writes_are_refused_by_their_column(folder, tmp_path, name, column):
    """Digests, id and bytes fit: who wrote it had all the means, and readers index by these numbers."""
    rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
    value = BROKEN[name][column]
    if column == "sources" and value:
        value = [{"source": "web", **value[0]}]
    place = next(index for index, row in enumerate(rows) if row[column] is not None)
    rows[place][column] = value
    forge(folder, {name: pa.Table.from_pylist(rows, schema=TABLES[name].schema)})
    assert set(tell(folder, tmp_path)) & {1, 2}
    if name != "metrics":
        with pytest.raises(ManifestError, match=f"table {name} of .*: column {column}"):
            load_manifest(folder).table(name)
        assert "table_values" in codes_of(folder)
    elif column != "n":
        with pytest.raises(ManifestError, match="table metrics"):
            load_manifest(folder).metrics()


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"shards"}))
def test_two_rows_with_one_key_are_refused(folder, name):
    table = pq.read_table(folder / f"{name}.parquet")
    forge(folder, {name: pa.concat_tables([table, table.slice(0, 1)])})
    with pytest.raises(ManifestError, match="1 rows have the same"):
        load_manifest(folder).table(name)


@pytest.mark.parametrize("place", ["id", "core", "totals", "files"])
def test_a_key_that_stands_twice_is_refused(folder, place):
    path = folder / "manifest.json"
    text = path.read_text()
    document = json.loads(text)
    parents = {"id": document, "core": document, "totals": document["core"], "files": document["run"]}
    value = json.dumps(parents[place][place])
    at = text.index(f'"{place}": ')
    path.write_text(f'{text[:at]}"{place}": {value}, {text[at:]}')
    with pytest.raises(ManifestError, match=f"the key `{place}` stands twice"):
        load_manifest(folder)


@pytest.mark.parametrize("uri", ["../secret", "/etc/passwd", "a/%2e%2e/%2e%2e/b", ""])
def test_a_uri_that_leaves_the_root_is_a_problem_without_reading_the_data(folder, uri):
    write_cells(folder, "shards", uri=uri)
    assert codes_of(folder) == ["uri_outside_root"]


@pytest.mark.parametrize(
    "uri", [".", "./", "./a", "a//b", "%ff%fe", "a?b", "a#copy=1", "a#copy=0x2", "a\n::error::", "x" * 200_000]
)
def test_a_uri_that_no_build_writes_is_a_problem(folder, uri):
    """Each file and copy has one URI, so that no two manifests name it in two ways."""
    write_cells(folder, "shards", uri=uri)
    (problem,) = verify(load_manifest(folder))
    assert problem.code in {"uri_form", "uri_outside_root"}
    assert len(problem.text) < 300


@pytest.mark.tables
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("shards", "sha256", "nothex"),
        ("shards", "rows_digest", "AB" * 32),
        ("shards", "format", "\x1b[31m"),
        ("shards", "compression", "rar"),
        ("shards", "seq_len_p50", -1.0),
        ("shards", "exact_dup_rate", 1.5),
        ("pairs", "jaccard", 2.0),
        ("overlap", "tier", "alike"),
        ("findings", "tier", ""),
    ],
)
def test_words_and_shares_that_no_build_writes_are_refused(folder, tmp_path, table, column, value):
    write_cells(folder, table, **{column: value})
    assert set(tell(folder, tmp_path)) & {1, 2}
    with pytest.raises(ManifestError, match=f"column {column}"):
        load_manifest(folder).table(table)


@pytest.mark.parametrize("uri", ["", "x" * 200_000])
def test_a_shard_that_no_entry_can_name_is_refused(folder, tmp_path, uri):
    write_cells(folder, "shards", uri=uri)
    add = ["quarantine", "add", str(tmp_path / "q.jsonl"), "--manifest", str(folder), "0", "--reason", "x"]
    done = CliRunner().invoke(main, add)
    assert done.exit_code == 2
    assert "no build writes" in " ".join(done.output.split())


@pytest.mark.parametrize("name", ["", "a\n::error::", "<b>"])
def test_a_name_of_the_dataset_that_no_config_has_is_a_problem(folder, name):
    forge(folder, core=lambda core: core["dataset"].update(name=name))
    assert codes_of(folder) == ["dataset"]


def test_a_time_that_is_none_is_a_problem(folder):
    pointer = folder / "manifest.json"
    document = json.loads(pointer.read_text())
    document["run"]["started"] = "garbage"
    pointer.write_text(json.dumps(document))
    assert codes_of(folder) == ["run_time"]


def test_parquet_in_large_letters_is_a_stranger_too(folder):
    (folder / "extra.PARQUET").write_bytes(b"PAR1")
    assert codes_of(folder) == ["unknown_table"]


@pytest.mark.tables
@pytest.mark.parametrize("forged", [False, True], ids=["its bytes are published", "its bytes are forged"])
def test_four_hundred_flips_of_a_footer_are_no_fault_of_the_program(tmp_path, forged):
    """Bytes are compared before they are parsed. Who writes them into the run, too, has the parser meet them.

    A row group with fewer columns than the schema was an IndexError of pyarrow, and a broken name a UnicodeDecodeError.
    """
    folder = shutil.copytree(GOLDEN, tmp_path / "m")
    manifest, drawn, parsed = load_manifest(folder), random.Random(19), 0
    for name in ("sources", "ledger"):
        path = folder / f"{name}.parquet"
        data = path.read_bytes()
        for _ in range(200):
            wrong = bytearray(data)
            wrong[-drawn.randrange(1, len(data) // 2)] ^= 1 << drawn.randrange(8)
            path.write_bytes(wrong)
            if forged:
                hold_bytes(folder)
                manifest = load_manifest(folder)
            try:
                manifest.reader.read_unchecked(name)
                manifest.reader.wrong_statistics(name)
                parsed += 1
            except ManifestMismatch:
                assert not forged
            except ManifestError:
                assert forged
        path.write_bytes(data)
    assert forged or not parsed
