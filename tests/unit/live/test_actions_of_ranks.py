"""Four processes that train together by gloo act at the same step; where a rank hangs it is named, and nobody waits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
RANKS, ASKED = 4, 4
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Return what the ranks did in each case; of those with a rank that hangs the three others."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("ranks")
    environment = {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    names = ["loop", "file", "rule", "hung-go-on", "hung-stop", "hung-unseen"]
    command = [sys.executable, str(Path(__file__).with_name("ranks_that_act.py")), str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    results = {}
    for name in names:
        files = sorted((folder / name).glob("result-*.json"))
        assert len(files) == RANKS - name.startswith("hung"), done.stderr[-3_000:]
        results[name] = [json.loads(file.read_text()) for file in files]
    return folder, results


@pytest.mark.parametrize("case", ["loop", "file"])
def test_all_ranks_act_at_the_same_step(cases, case):
    """Two ranks ask for the same: it is done once, two steps later, everywhere; the schedule goes on as it would."""
    results = cases[1][case]
    own = results[0]
    assert all(other == own | {"records": other["records"]} for other in results)
    at = ASKED + 2
    expected = [1 / (1 + step) * (0.5 if step >= at else 1.0) for step in range(len(own["rates"]))]
    assert own["rates"] == expected
    assert own["saved"] == [at]
    assert own["batches"] == [*range(at), *range(at + 2, at + 2 + len(own["rates"]) - at)]
    for result in results:
        done = [record[:3] for record in result["records"] if record[1] == "done"]
        assert done == [[name, "done", at] for name in ("lower_rate", "save_checkpoint", "skip_batches")]


def test_an_alert_of_a_rank_stops_all_of_them(cases):
    """The rule fires on rank 2 alone."""
    folder, results = cases[0] / "rule", cases[1]["rule"]
    assert len({result["step"] for result in results}) == 1
    assert all(result["stop"].startswith("high: loss is 9") for result in results)
    assert len({tuple(result["saved"]) for result in results}) == 1
    assert len(results[0]["saved"]) == 1
    (incident,) = (folder / "run/alerts").iterdir()
    records = [json.loads(line) for line in (incident / "actions.jsonl").read_text().splitlines()]
    assert {own["rank"] for own in records if own["action"] == "stop"} == set(range(RANKS))
    assert {own["asked_by"] for own in records} == {2}


@pytest.mark.parametrize(("case", "stops"), [("hung-go-on", False), ("hung-stop", True)])
def test_a_rank_that_hangs_is_named_and_the_others_do_as_configured(cases, case, stops):
    """It saw the request, and hangs before the pause: the others wait two seconds, not for ever."""
    for result in cases[1][case]:
        (record,) = [own for own in result["records"] if own[0] == "pause"]
        assert record[1:3] == ["done", ASKED + 2]
        assert record[3].startswith("rank 3 did not answer within 2 s")
        assert bool(result["stop"]) == stops


def test_a_rank_that_never_saw_the_request_is_named_and_nothing_is_done_by_some(cases):
    """The rate is lowered nowhere, and the pause ends as configured."""
    results = cases[1]["hung-unseen"]
    assert len({result["step"] for result in results}) == 1
    for result in results:
        lowered, paused = result["records"]
        assert lowered[:2] == ["lower_rate", "abandoned"]
        assert "rank 3 did not answer" in lowered[3]
        assert paused[:2] == ["pause", "done"]
        assert result["rates"] == [1 / (1 + step) for step in range(result["step"])]
        assert result["stop"]
