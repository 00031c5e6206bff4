"""Every test is in a lane or a part that CI runs, and what a change reaches is found by its paths."""

import re
from pathlib import Path

import families
import lanes
import pytest
import reached

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("*.py"))
OUTSIDE = re.compile(r"^(?:    )?def test_|^class Test", re.MULTILINE)


def test_no_test_file_is_in_no_lane():
    """A file with tests has a name that pytest collects, and the part that it names is run by a command."""
    run = {*families.parts(), lanes.ALWAYS, lanes.BENCHMARKS}
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if path.name.startswith("test_"):
            assert lanes.part_of_file(source) in run, path
        else:
            assert path.name in {"check.py", "dist_check.py"} or not OUTSIDE.search(source), path


def test_ci_runs_the_lane_and_the_parts():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "step make test\n" in script
    assert 'step make test-ci PART="$parts" MINUTES=' in script
    assert "parts=$(.venv/bin/python tests/reached.py)" in script
    assert len(lanes.PARTS) <= 10


def test_a_release_run_repeats_every_lane():
    assert {f"whole {lane}" for lane in (lanes.ALWAYS, *lanes.PARTS)} <= families.release().keys()


def test_every_path_of_the_package_is_reached_by_a_part():
    paths = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "dataaudit").rglob("*.py")
        if len(path.relative_to(ROOT).parts) > 2
    ]
    assert [path for path in paths if not reached.reached([path])] == []


def test_every_path_that_a_part_names_is_there():
    named = {path for beginnings in reached.REACHED_BY.values() for path in beginnings.split()}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("dataaudit/vitals/alarms.py", {"vitals", "runs"}),
        ("dataaudit/metrics/near_dup/stage.py", {"tables", "builds"}),
        ("dataaudit/scan/corpus/readers/arrow.py", {"inputs", "children"}),
        ("tests/e2e/test_remote_faults.py", {"stores"}),
        ("tests/unit/test_cli.py", set()),
        ("README.md", set()),
        ("dataaudit/live/sinks/wandb.py", {"torch", "children", "runs", "frameworks"}),
        ("pyproject.toml", set(reached.EVERY)),
    ],
)
def test_a_change_reaches_the_parts_that_guard_against_it(path, parts):
    assert reached.reached([path]) == parts


def test_each_part_has_its_turn_within_as_many_days():
    every = set(reached.EVERY)
    for by_change in (set(), {"torch"}, {"torch", "kills", "stores"}, every):
        runs = [reached.in_turn(by_change, turn) for turn in range(len(every))]
        assert {part for run, _ in runs for part in run} == every
        assert all(len(run) <= reached.MOST and by_change <= {*run, *left} for run, left in runs)
        assert all(len({*run, *left}) == min(len(by_change) + 1, len(every)) for run, left in runs)


def test_a_case_beyond_the_sample_is_of_a_part_and_none_is_lost():
    cases = lanes.sample([("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)], 3, kind=lambda case: case[0])
    marked = [getattr(case, "marks", ()) for case in cases]
    assert [[mark.name for mark in marks] for marks in marked] == [[], [], ["tables"], [], ["tables"]]
    assert [getattr(case, "values", case) for case in cases] == [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]


def test_a_part_that_does_not_exist_is_refused(capsys):
    assert families.main(["parts", "kills,kits"]) == 2
    assert "found kits" in capsys.readouterr().err


def test_no_part_begins_when_time_is_up_but_the_first_does(monkeypatch, capsys):
    monkeypatch.setattr(families, "parts", lambda: dict.fromkeys(("first", "second", "third"), (("true",), {})))
    monkeypatch.setattr(families, "write_down", lambda *_: pytest.fail("not all parts have passed"))
    assert families.main(["parts", "all", "-3"]) == 0
    printed = capsys.readouterr().out
    assert "== first: passed" in printed
    assert printed.endswith("no part begins: make test-ci PART=second,third\n")


def test_a_release_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    """A family that failed is run again, those that passed are not; the record has a line for each."""
    record = tmp_path / "passed.txt"
    monkeypatch.setattr(families, "RECORD", record)
    record.write_text("test-ci: all passed, 9.0 min\ntest-all: all passed, 1.0 min\n", encoding="utf-8")
    two = {"first": (("true",), {}), "second": (("test", "-e", str(tmp_path / "mended")), {})}
    assert families.run("test-all", two, resume=True) == 1
    lines = record.read_text("utf-8").splitlines()
    assert lines[:2] == ["test-ci: all passed, 9.0 min", "test-all: 1 of 2 passed, 0.0 min"]
    (tmp_path / "mended").touch()
    assert families.run("test-all", two, resume=True) == 0
    assert "first: passed before" in capsys.readouterr().out
    lines = record.read_text("utf-8").splitlines()
    assert lines[:2] == ["test-ci: all passed, 9.0 min", "test-all: all passed, 0.0 min"]
    assert [line.split(": ")[1] for line in lines[2:]] == ["first", "second"]
    assert families.run("test-all", two, resume=True) == 0
    assert "passed before" not in capsys.readouterr().out
