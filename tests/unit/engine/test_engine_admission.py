"""Workers that may not work: those of other versions, or without the state folder, whenever they join."""

from __future__ import annotations

import pytest
from distributed.comm import CommClosedError

from dataaudit.engine import admission, dask_runner
from dataaudit.engine.admission import check_workers, problem_here, terms_of, worker_identity, worker_versions
from dataaudit.engine.keys import library_versions
from dataaudit.engine.units import Outcome
from dataaudit.errors import ClusterError


def check(client, folder):
    """Ask the workers of a client."""
    with terms_of(folder) as terms:
        check_workers(client, terms)


class OneWorker:
    """A client with one worker that answers what it is told to."""

    def __init__(self, seen, versions):
        self.answer = (seen, versions)

    def wait_for_workers(self, *_, **__):
        """It is there."""

    def run(self, function, path, *, on_error):
        """Ask every worker."""
        assert on_error == "return"
        seen, versions = function(path)
        return {"tcp://w": (seen if self.answer[0] else "", versions | self.answer[1])}


class LeavingWorkers(OneWorker):
    """A client whose workers leave while they are asked; after some times one stays."""

    def __init__(self, gone, error):
        super().__init__(True, {})
        self.gone, self.error = gone, error

    def run(self, function, path, *, on_error):
        """Return an error for who has left."""
        self.gone -= 1
        return {"tcp://left": self.error, **(super().run(function, path, on_error=on_error) if self.gone < 0 else {})}


def test_workers_have_to_see_the_state_folder_and_run_the_same_versions(tmp_path):
    """A worker elsewhere, or of another lock file, is refused by name; the probe file is taken away."""
    check(OneWorker(True, {}), tmp_path)
    with pytest.raises(ClusterError, match="cannot see the state folder"):
        check(OneWorker(False, {}), tmp_path)
    with pytest.raises(ClusterError, match=r"numpy .* here, 0\.1 there"):
        check(OneWorker(True, {"numpy": "0.1"}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_leaves_while_it_is_asked_is_no_error(tmp_path):
    """On clusters whose workers come and go; none that stays is said, and so is one that cannot run us."""
    gone = CommClosedError("in <TCP>: Stream is closed")
    for times in (0, 1, 2):
        check(LeavingWorkers(times, gone), tmp_path)
    with pytest.raises(ClusterError, match="no worker of the cluster answers: all have left"):
        check(LeavingWorkers(3, gone), tmp_path)
    with pytest.raises(ClusterError, match="worker tcp://left cannot run dataaudit: ModuleNotFoundError: No module"):
        check(LeavingWorkers(0, ModuleNotFoundError("No module named 'dataaudit'")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_says_what_it_reads_and_runs(tmp_path):
    """An unreadable probe is an empty answer, not an error."""
    (tmp_path / "probe").write_text("token")
    assert worker_identity(str(tmp_path / "probe")) == ("token", worker_versions())
    assert worker_identity(str(tmp_path / "none"))[0] == ""
    assert set(library_versions()) < set(worker_versions())


@pytest.fixture
def nothing_met(monkeypatch):
    """This process has met no terms yet."""
    monkeypatch.setattr(admission, "_met", set())


@pytest.mark.usefixtures("nothing_met")
def test_a_worker_that_joins_later_looks_at_itself(tmp_path, monkeypatch):
    """Once for each build: what it met it need not look at again, what it did not meet it looks at again."""
    with terms_of(tmp_path / ".") as terms:
        monkeypatch.setattr(admission, "worker_versions", lambda: worker_versions() | {"numpy": "0.1"})
        said, remedy = problem_here(terms)
        assert "runs other versions: numpy " in said
        assert "here, 0.1 there" in said
        assert "lock file" in remedy
        monkeypatch.undo()
        assert problem_here(terms) is None
        terms.probe.unlink()
        assert problem_here(terms) is None
    with terms_of(tmp_path) as other:
        other.probe.unlink()
        assert "cannot see the state folder" in problem_here(other)[0]


@pytest.mark.usefixtures("nothing_met")
def test_no_unit_runs_on_a_worker_that_may_not_work(tmp_path, monkeypatch):
    """Its faults end the build, by the worker's name."""
    monkeypatch.setattr(dask_runner, "_tell_start", lambda key: "tcp://late")
    options = {"alone": False, "memory_limit": 0, "unit_seconds": 1.0}
    ran = []
    with terms_of(tmp_path) as terms:
        monkeypatch.setattr(admission, "worker_versions", lambda: worker_versions() | {"pyarrow": "1.0"})
        found = dask_runner.run_batch(ran.append, ["a", "b"], "key", **options, terms=terms)
    assert ran == []
    assert all(isinstance(one, Outcome) for one in found)
    assert [one.fault[0][:36] for one in found] == ["worker tcp://late runs other version"] * 2
