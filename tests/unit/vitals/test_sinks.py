"""A run log that cannot be written ends no run: what is lost is counted."""

import subprocess
import sys

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.runlog.reader import load_run
from dataaudit.vitals.sinks import RunLogSink

FULL = """
import resource, signal, sys
from dataaudit.vitals.sinks import RunLogSink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with RunLogSink(sys.argv[1]) as sink:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    for step in range(1, 41):
        sink.add_step(step, 1.0)
print(sink.lost_steps)
"""


@pytest.mark.vitals
def test_a_full_disk_ends_no_run_and_is_counted(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run")], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "40\n"), done.stderr
    assert "cannot be written" in done.stderr
    assert load_run(tmp_path / "run").table("steps").num_rows == 0


@pytest.mark.vitals
def test_a_loss_is_a_number_or_a_tensor_that_may_need_a_gradient(tmp_path):
    import torch

    with RunLogSink(tmp_path / "run") as sink:
        for step, loss in enumerate(
            (1.0, torch.tensor(2.0, requires_grad=True), torch.ones(1, dtype=torch.bfloat16)), 1
        ):
            sink.add_step(step, loss)
        for wrong in ("low", [1.0], torch.ones(2)):
            with pytest.raises(ConfigError, match="loss: expected a number, or a tensor of one, found"):
                sink.add_step(4, wrong)
    assert load_run(tmp_path / "run").table("steps")["user_loss"].to_pylist() == [1.0, 2.0, 1.0]


@pytest.mark.vitals
def test_a_log_has_its_start_its_end_and_the_error_that_ended_it(tmp_path):
    def fail():
        with RunLogSink(tmp_path / "run", ranks=2) as sink:
            sink.add_step(1, 1.0)
            raise RuntimeError("as planned")

    with pytest.raises(RuntimeError, match="as planned"):
        fail()
    with RunLogSink(tmp_path / "run", ranks=2, first_step=2) as sink:
        sink.add_step(2, None)
    log = load_run(tmp_path / "run")
    found = [(row["step"], row["kind"]) for row in log.table("events").to_pylist()]
    assert found == [(0, "started"), (1, "failed"), (1, "closed"), (1, "resumed"), (2, "closed")]
    assert log.table("steps")["user_loss"].to_pylist() == [1.0, None]
    RunLogSink(tmp_path / "other", first_step=2).close()
    assert load_run(tmp_path / "other").run.ranks == 1, "a run that goes on in a folder of its own has its record there"
