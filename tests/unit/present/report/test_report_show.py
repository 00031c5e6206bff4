"""`dataaudit show`, and what a build ends with."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError, ManifestError
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.peers import robust
from dataaudit.present.report.show import build_summary, show_manifest

DEMO = Path(__file__).parents[4] / "manifests/demo"
HOSTILE = "::error::\x1b[31m\u202eweb\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A manifest with two splits, an outlier, duplicates, lost shards and a hostile source."""
    shards = [shard(f"t{index}.jsonl", bytes_per_token=4.0 + index / 1000) for index in range(6)]
    shards.append(
        shard("far.jsonl", bytes_per_token=1.25, exact_dup_rate=0.5, sources={HOSTILE: 30, "code": 10, "web": 60})
    )
    shards.append(shard("gone.parquet", status="quarantined", reason="not_parquet", size=1234))
    shards.append(shard("part.jsonl", status="partial", reason="invalid_json", bad=3))
    shards.append(shard("v.jsonl", split="val", tokens=55_963_661))
    ledger = [
        (7, "not_parquet", "", -1, 1234),
        (8, "invalid_json", "record 1", 1, 9),
        (8, "invalid_json", "further records", 2, 18),
    ]
    made = tmp_path_factory.mktemp("show") / "m"
    make(made, shards, ledger=ledger, mixture={"web": 3, "absent": 1}, odd=True)
    return made


def _result(folder, code=0):
    return SimpleNamespace(manifest=load_manifest(folder), exit_code=code, planned=4, scanned=1, unread=())


def _id(folder):
    return json.loads((folder / "manifest.json").read_text())["id"]


def test_the_overview_holds_the_facts(folder):
    """Totals, splits, sources, coverage, lost shards and outliers are all there in the whole text."""
    shown = show_manifest(folder, whole=True, as_json=False)
    for expected in (
        "made 1.0.0",
        _id(folder),
        "55,963,661",
        "Sources of train",
        "Sources of val",
        "not_parquet   the file has no readable Parquet footer",
        "1.2 kB",
        "3 records invalid_json",
        "unread: 1,234 stored bytes (1.2 kB)",
    ):
        assert expected in shown, expected
    assert "Held out: val." in " ".join(shown.split())  # wherever the line breaks
    outliers = shown.split("Shards over 6 robust sd")[1].split("\n\n")[0]
    assert "train/far.jsonl" in outliers
    assert "t0.jsonl" not in outliers
    assert "train/far.jsonl" in shown.split("highest exact-duplicate rate")[1].split("\n\n")[0]


def test_a_hostile_source_steers_nothing(folder, monkeypatch):
    """No control character, bidirectional control or runner command of the data reaches the terminal."""
    monkeypatch.setenv("COLUMNS", "120")
    shown = show_manifest(folder, whole=True, as_json=False)
    assert not set(shown) & {"\x1b", "\u202e", "\r", "\t"}
    assert "\\x1b[31m\\u202eweb" in re.sub(r"\s+", "", shown)
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())


@pytest.mark.parametrize("columns", [80, 120])
def test_the_overview_fits_common_terminals(folder, monkeypatch, columns):
    """No line but a digest or a path is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = show_manifest(folder, whole=True, as_json=False).splitlines()
    wide = [line for line in lines if len(line) > columns and "sha256:" not in line and str(folder) not in line]
    assert wide == []


def test_the_json_holds_the_same_facts_and_more(folder):
    """Programs get exact numbers, all sources and the list of metrics."""
    shown = json.loads(show_manifest(folder, None, as_json=True))
    assert shown["totals"]["tokens"] == 800 + 55_963_661
    assert [split["name"] for split in shown["splits"]] == ["train", "val"]
    assert shown["ledger"]["unread_bytes"] == 1234
    assert shown["unread"][0] | {"place": ""} == {
        "shard": 7,
        "split": "train",
        "uri": "gone.parquet",
        "status": "quarantined",
        "size": 1234,
        "reasons": {"not_parquet": -1},
        "bad_bytes": 0,
        "place": "",
    }
    assert shown["partial"][0]["reasons"] == {"invalid_json": 3}
    assert [one["uri"] for one in shown["outliers"]] == ["far.jsonl"]
    assert {one["name"] for one in shown["sources_by_split"]["train"]} == {"web", "code", HOSTILE}
    assert "bytes_per_token" in shown["metrics"]


def test_shares_are_of_training_tokens_beside_the_declared_ones(folder):
    """Held-out splits do not count, and a declared source without a document has a share of 0."""
    shares = {one["source"]: one for one in json.loads(show_manifest(folder, None, as_json=True))["sources"]}
    assert shares["web"]["share"] == pytest.approx(760 / 800)
    assert shares["web"]["declared"] == 0.75
    assert shares["absent"] | {"source": ""} == {
        "source": "",
        "documents": 0,
        "bytes": 0,
        "tokens": 0,
        "share": 0.0,
        "declared": 0.25,
    }
    lines = show_manifest(folder, part="mixture", as_json=False).splitlines()
    line = next(one for one in lines if one.startswith("  absent"))
    assert "-0.2500" in line
    assert line.endswith("<--")


def test_every_record_of_a_metric_is_shown_widest_scope_first(tmp_path):
    """Percentiles stand in the order of their numbers, bounds and reasons are shown."""
    low = Metric(
        metric="drift", stat="p5", unit="nats", value=0.5, low=0.25, high=1.0, confidence=0.95, n=7, method="sampled"
    )
    none = Metric(
        metric="drift",
        stat="p50",
        scope=Scope(source="a"),
        unit="nats",
        value=None,
        status="not_evaluated",
        reason="empty_denominator",
    )
    wide = Metric(metric="drift", stat="p10", unit="nats", value=2.0, n=9)
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[none, wide, low])
    lines = show_manifest(tmp_path / "m", "drift", as_json=False).splitlines()
    assert lines[0] == "drift: 3 records"
    rows = [line.split() for line in lines[-3:]]
    assert rows[0] == ["(all)", "p5", "0.500", "0.250", "1", "0.95", "7", "sampled", "ok"]
    assert rows[1][:3] == ["(all)", "p10", "2"]
    assert rows[2][:3] == ["source=a", "p50", "-"]
    assert rows[2][-2:] == ["not_evaluated:", "empty_denominator"]
    records = json.loads(show_manifest(tmp_path / "m", "drift", as_json=True))["records"]
    assert [(one["stat"], one["scope"]) for one in records] == [("p5", {}), ("p10", {}), ("p50", {"source": "a"})]


def test_an_unknown_metric_names_the_nearest(folder):
    """A slip of the fingers is answered with the name that was meant."""
    with pytest.raises(ConfigError, match="did you mean `bytes_per_token`"):
        show_manifest(folder, "bytes_per_tokn", as_json=False)


def test_no_manifest_is_an_error_that_says_how_to_make_one(tmp_path):
    """The message names the folder and the command."""
    with pytest.raises(ManifestError, match="no manifest") as caught:
        show_manifest(tmp_path / "none", None, as_json=False)
    assert "dataaudit build" in str(caught.value)


def test_nothing_read_is_shown_without_numbers(tmp_path):
    """A manifest whose every shard was lost has dashes, not zeros, where nothing was measured."""
    lost = shard("a.jsonl", status="skipped", reason="unknown_format")
    make(tmp_path / "m", [lost], ledger=[(0, "unknown_format", "", -1, 50)], odd=True)
    shown = show_manifest(tmp_path / "m", whole=True, as_json=False)
    row = next(line.split() for line in shown.splitlines() if line.startswith("  train "))
    assert row == ["train", "0", "0", "0", "B", "0", "-", "-", "-", "-", "-"]


def test_a_build_ends_with_facts_reasons_and_the_next_commands(folder):
    """The summary says what was lost and why, what the exit code means and what to do."""
    shown = build_summary(_result(folder, 3), as_json=False)
    assert "not_parquet" in shown
    assert "Exit code 3: could not evaluate" in shown
    assert re.search(rf"dataaudit inspect ({re.escape(str(folder))}|DIR) 7\b", shown), "a path that is too long is DIR"
    whole = build_summary(_result(folder, 0), as_json=False)
    assert "Exit code" not in whole


@pytest.mark.parametrize(("second", "cause"), [("bad_json", "most bad_json"), ("bad_utf8", "some bad_json")])
def test_what_most_records_are_is_counted_in_all_shards_of_a_line(tmp_path, second, cause):
    """It was that of the largest shard, though the line counts five."""
    shards = [shard(f"{at}.jsonl", status="quarantined", reason="too_many_bad_records", size=9 - at) for at in (0, 1)]
    ledger = [(at, "too_many_bad_records", "", -1, 9 - at) for at in (0, 1)]
    ledger += [(0, "bad_json", "line 1", 2, 4), (1, second, "line 1", 2, 4)]
    make(tmp_path / "m", shards, ledger=ledger)
    assert f"2 of 2 shards not read, too_many_bad_records, {cause} (" in build_summary(
        _result(tmp_path / "m", 4), as_json=False
    )


def test_a_long_note_keeps_its_beginning(folder, monkeypatch):
    """`1 note (--section notes), the fir...r text` told neither."""
    monkeypatch.setenv("COLUMNS", "80")
    result = _result(folder, 0)
    note = "the splits read differently named columns as their text: train `text`, val `body`"
    monkeypatch.setitem(vars(result.manifest.run), "notes", (note,))
    (line,) = [line for line in build_summary(result, as_json=False).splitlines() if "--section notes" in line]
    assert line == "1 note (--section notes), the first: the splits read differently named..."


def test_the_list_of_lost_shards_is_capped_and_says_so(tmp_path):
    """Twenty are listed, the others are counted; the JSON has all, and so has the end of the build."""
    shards = [shard(f"{index:02}.bin", status="skipped", reason="unknown_format") for index in range(25)]
    make(tmp_path / "m", shards, ledger=[(index, "unknown_format", "", -1, 50) for index in range(25)])
    shown = show_manifest(tmp_path / "m", part="coverage", as_json=False)
    assert "and 5 more shards" in shown
    assert "09.bin" in shown
    assert "20.bin" not in shown
    ended = build_summary(_result(tmp_path / "m", 4), as_json=False)
    assert "25 of 25 shards not read, unknown_format" in ended
    assert "Exit code 4: nothing was evaluated" in ended
    listed = json.loads(build_summary(_result(tmp_path / "m", 4), as_json=True))
    assert len(listed["unread"]) == 25
    assert (listed["exit_code"], listed["parts_planned"], listed["parts_scanned"]) == (4, 4, 1)


def test_robust_spread_by_hand():
    """Median 3, median distance 1: the sd is 1.4826; equal values have the floor of 0.5 %."""
    assert robust([1, 2, 3, 4, 100]) == (3, pytest.approx(1.4826))
    assert robust([4.0, 4.0, 4.0]) == (4.0, pytest.approx(0.08))


@pytest.mark.parametrize(("split", "kind"), [("train", "training"), ("val", "held-out")])
def test_the_heading_of_sources_says_of_which_tokens_they_are_shares(tmp_path, split, kind):
    """Without a training split the shares are those of held-out data."""
    make(tmp_path / "m", [shard("a.jsonl", split=split)], mixture={"web": 1.0}, odd=True)
    assert f"Sources, by share of {kind} tokens" in show_manifest(tmp_path / "m", whole=True, as_json=False)


def test_a_command_that_reads_manifests_imports_no_pandas():
    """Where pandas is installed pyarrow would import it for a quarter of a second; in the caller's process it may."""
    program = "import sys; from dataaudit import cli\ntry: cli.main()\nfinally: print('pandas' in sys.modules)"
    for command in (["show"], ["diff", str(DEMO)]):
        call = [sys.executable, "-c", program, *command, str(DEMO)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.stdout.endswith("False\n"), done.stderr
