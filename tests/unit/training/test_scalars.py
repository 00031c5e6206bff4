"""Numbers of a step in whatever type a loop has them: each is kept, and one that is none costs itself."""

import json
import sys
import time
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from reading import events, steps_of

from dataaudit.base.async_copy import AsyncCopy, scalar
from dataaudit.base.errors import ConfigError
from dataaudit.runlog.format import TABLES
from dataaudit.runlog.parts import PartWriter
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.logthread import LogThread
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.optimizer_watch import OptimizerWatch, RateWatch
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.pages.blocks import headline, render_text
from dataaudit.training.pages.page import run_page
from dataaudit.training.timing import GpuUse, StepClock, device_number

torch = pytest.importorskip("torch", reason="the numbers are torch's")
pytestmark = pytest.mark.torch
FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
FLOATS += [
    one for name in dir(torch) if name.startswith("float8_e") and (one := getattr(torch, name)).is_floating_point
]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
WHOLE += [torch.uint16, torch.uint32, torch.uint64]


@pytest.fixture(scope="module")
def tags(documents):
    row = PackedDocuments(documents, 64)[0]
    return torch.from_numpy(row["tags"])[None]


def read(value):
    """Return a number as the log's thread reads it."""
    found = scalar(value)
    return float(found.numpy() if isinstance(found, AsyncCopy) else found)


@pytest.mark.parametrize("dtype", FLOATS + WHOLE, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_tensor_of_one_is_its_number_whatever_its_type(dtype, shape):
    assert read(torch.ones(shape, dtype=dtype)) == 1.0
    if dtype.is_floating_point and dtype.itemsize > 1:
        for kept in (float("nan"), float("inf"), -0.5):
            assert read(torch.full(shape, kept, dtype=dtype, requires_grad=True)) == pytest.approx(kept, nan_ok=True)


TWO = [2, 2.0, True + 1, "2", Decimal(2), Fraction(2), np.float16(2), np.longdouble(2), np.int8(2), np.uint64(2)]
TWO += [np.array(2.0), np.array([2]), np.array([[2.0]]), torch.nn.Parameter(torch.tensor(2.0))]
TWO += [torch.tensor([[2.0]])[0].expand(1), torch.tensor([0.0, 2.0])[1:], torch.tensor(2 - 2j).real]
TWO += [torch.tensor(1 - 2j).conj().imag]  # a view that is negated where it is read


@pytest.mark.parametrize("value", TWO, ids=repr)
def test_other_numbers_are_theirs(value):
    assert read(value) == 2.0


NONE = [None, "high", [1e-3], {}, 2j, np.complex64(2), 10**400, np.zeros(2), np.zeros(0), np.array("x"), object()]
NONE += [torch.ones(2), torch.ones(0), torch.ones((), dtype=torch.complex64), torch.ones((), device="meta")]


@pytest.mark.parametrize("value", NONE, ids=lambda one: type(one).__name__)
def test_what_is_no_number_is_named_at_the_first_step_and_costs_itself_later(corpus, tags, tmp_path, value, caplog):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(tags)
        with pytest.raises(ConfigError, match="rate: expected a number, or a tensor of one"):
            monitor.step(1.0, rate=value)
        for given in (0.5, value, value, 0.25):
            monitor.batch(tags)
            monitor.norm_is_taken(value, 1.0)
            monitor.step(1.0 if isinstance(given, float) else value, rate=given)
    log = load_run(tmp_path / "run")
    assert log.table("steps")["step"].to_pylist() == [1, 2, 3, 4]
    assert [one["value"] for one in log.table("values").to_pylist() if one["metric"] == "rate"] == [0.5, 0.25]
    assert json.loads(log.table("events").to_pylist()[-1]["detail"])["lost_steps"] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, *FLOATS[4:]], ids=str)
def test_numbers_of_a_model_of_few_bits_keep_the_whole_log(corpus, tags, tmp_path, dtype):
    """Norm, loss, rate and validation: what `from_pretrained` gives is bfloat16."""
    one = torch.ones((), dtype=dtype)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for _ in range(5):
            monitor.batch(tags, losses=torch.ones(1, 64, dtype=torch.bfloat16))
            monitor.norm_is_taken(one, 1.0)
            monitor.step(one, learning_rate=one)
            monitor.validation(one)
    log = load_run(tmp_path / "run")
    steps = log.table("steps").to_pylist()
    assert [(one["step"], one["user_loss"], one["loss_sum"]) for one in steps] == [
        (step, 1.0, 64.0) for step in range(1, 6)
    ]
    names = [one["metric"] for one in log.table("values").to_pylist()]
    for name in ("grad_global_norm", "learning_rate", "val_loss"):
        assert names.count(name) == 5


class Broken(AsyncCopy):
    """A number whose way to the host fails."""

    def numpy(self):
        raise RuntimeError("CUDA error: the tensor is gone")


def test_a_number_that_fails_on_its_way_costs_itself_and_is_counted(corpus, tags, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("dataaudit.base.async_copy.AsyncCopy", Broken)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for step in range(6):
            monitor.batch(tags)
            monitor.step(torch.ones(()) if step % 2 else 1.0, kept=2.0, **{"lost": torch.ones(())} if step > 1 else {})
            monitor.validation(torch.ones(()))
    log = load_run(tmp_path / "run")
    assert log.table("steps")["user_loss"].to_pylist() == [1.0, None] * 3
    assert {one["metric"] for one in log.table("values").to_pylist()} >= {"kept"}
    assert not {"lost", "val_loss"} & {one["metric"] for one in log.table("values").to_pylist()}
    events = log.table("events").to_pylist()
    assert [json.loads(one["detail"])["what"] for one in events if one["kind"] == "not_seen"] == [
        "val_loss",
        "loss",
        "lost",
    ]
    assert json.loads(events[-1]["detail"]) == {"lost_steps": 0, "refused_values": 3 + 4 + 6}
    assert len(caplog.records) == 3


def test_an_optimizer_that_chooses_its_own_rate_is_followed_without_it():
    """Adafactor's groups have the rate None, others' none at all; a hook that fails would end the run."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [parameter]}, {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.5}])
    watch = OptimizerWatch(optimizer, SimpleNamespace(_scale=2.0, is_enabled=lambda: False))
    for rate, said in ((None, {}), ("fast", {}), (torch.tensor(0.25, dtype=torch.bfloat16), {"learning_rate": 0.25})):
        optimizer.param_groups[0]["lr"] = rate
        watch._before(optimizer)
        numbers, events = watch.end_step(1, {})
        met = {name: float(one.numpy() if isinstance(one, AsyncCopy) else one) for name, one in numbers.items()}
        assert met == {"learning_rate.1": 0.5, "loss_scale": 2.0, "skipped_updates": 1.0, **said}
        assert [one for one, _ in events] == (["not_seen"] if rate == "fast" else [])
    del optimizer.param_groups[0]["lr"]
    watch._before(optimizer)
    assert "learning_rate" not in watch.end_step(2, {})[0]


class Spoilt(torch.optim.SGD):
    """An optimizer of which something cannot be read by who follows it."""

    spoilt = ""

    def __getattribute__(self, name):
        if name == type(self).spoilt and "optimizer_watch" in sys._getframe(1).f_code.co_filename:
            raise RuntimeError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ["param_groups", "found_inf"])
def test_an_optimizer_that_raises_where_it_is_followed_goes_on_and_is_named_once(name, monkeypatch):
    parameter = torch.nn.Parameter(torch.ones(1))
    watch, said = OptimizerWatch(optimizer := Spoilt([parameter], lr=0.5)), []
    monkeypatch.setattr(Spoilt, "spoilt", name)
    for step in (1, 2):
        parameter.grad = torch.ones(1)
        optimizer.step()
        said += watch.end_step(step, {})[1]
    assert parameter.item() == 0.0
    assert [(kind, one["what"]) for kind, one in said] == [("not_seen", "optimizer")]
    assert "RuntimeError at test_scalars.py" in said[0][1]["why"]


def of_six_steps(folder, corpus, tags):
    """Train six steps, each of which is written before the next; return the monitor, which has ended."""
    with TrainingMonitor(folder / "run", corpus) as monitor:
        for _ in range(6):
            monitor.batch(tags)
            monitor.step(1.0)
            monitor.state_dict()
    return monitor


@pytest.mark.parametrize("fails", ["_judge", "_write_step", "_numbers_of", "_write_counts", "_sample_gpu"])
def test_the_logs_thread_outlives_what_fails_in_it(made, corpus, tags, tmp_path, monkeypatch, fails):
    """A fault of ours at step 3 costs that step at most, and the steps after it are there."""
    right, calls = getattr(LogThread, fails), []

    def wrong(self, *given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyError(fails)
        return right(self, *given)

    monkeypatch.setattr(LogThread, fails, wrong)
    monitor = of_six_steps(tmp_path, corpus, tags)
    steps = steps_of(tmp_path / "run")
    assert set(steps) >= {1, 2, 4, 5, 6}
    lost = 6 - len(steps)
    assert monitor.lost_steps == lost
    found = attribute(load_data(tmp_path / "run", made.folder / "m"))
    assert (found.missing_steps, found.missing_among, found.open_ranks) == (lost, 6, 0)


def test_rows_that_cannot_be_written_are_lost_and_no_others(corpus, tags, tmp_path, monkeypatch):
    right = PartWriter.append

    def wrong(self, batch):
        if self.schema.equals(TABLES["steps"].schema) and 3 in batch["step"].to_pylist():
            raise OverflowError("int too large")
        return right(self, batch)

    monkeypatch.setattr(PartWriter, "append", wrong)
    monitor = of_six_steps(tmp_path, corpus, tags)
    assert steps_of(tmp_path / "run") == [1, 2, 4, 5, 6]
    assert monitor.lost_steps == 1


def test_a_log_that_has_no_end_says_so_in_words_record_and_exit_code(made, corpus, tags, tmp_path):
    monitor = TrainingMonitor(tmp_path / "run", corpus)
    for _ in range(120):
        monitor.batch(tags, losses=torch.ones(1, 64))
        monitor.step(1.0)
    monitor.state_dict()
    found = attribute(load_data(tmp_path / "run", made.folder / "m"))
    assert (found.exit_code, found.reason, found.open_ranks, found.steps) == (3, "not_closed", 1, 120)
    assert headline(found) == (
        "Cannot tell: its end is missing; of the 120 steps in the log, none has a loss above its band."
    )
    said = " ".join(render_text(found, load_data(tmp_path / "run", made.folder / "m")).split())
    assert "The log of 1 rank has no end" in said
    assert "What came after step 120 is not in it" in said
    assert "end of the log" in repr(run_page(load_run(tmp_path / "run")))
    assert attribute(load_data(tmp_path / "run", made.folder / "m"), step=60).exit_code == 0
    monitor.close()
    found = attribute(load_data(tmp_path / "run", made.folder / "m"))
    assert (found.exit_code, found.reason, found.open_ranks) == (0, "", 0)
    assert "end of the log" not in repr(run_page(load_run(tmp_path / "run")))


def test_rows_of_others_that_do_not_fit_cost_themselves(corpus, tags, tmp_path, caplog):
    """Values without a column, of a name that is no UTF-8, or without any column: the steps of their batch stay."""
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(tags)
        monitor.step(1.0)
        monitor.validation(2.0, "\ud800")
        monitor.add_values({"step": np.array([1]), "metric": ["x"]})
        monitor.add_values({})
        monitor.validation(3.0, "web")
    assert monitor.lost_steps == 0
    assert steps_of(tmp_path / "run") == [1]
    assert "val_loss.web" in load_run(tmp_path / "run").table("values")["metric"].to_pylist()
    assert [detail["what"] for _, detail in events(tmp_path / "run", "not_seen")] == ["rows of values"]
    assert "do not fit" in caplog.text
    assert "cannot be written" not in caplog.text


def test_a_rank_that_may_not_begin_hides_nothing(corpus, tags, tmp_path):
    """Every rank of a start refuses the log of another run, and not the first alone."""

    def train(rank, **how):
        with TrainingMonitor(tmp_path / "run", corpus, rank=rank, ranks=2, **how) as monitor:
            for _ in range(2):
                monitor.batch(tags)
                monitor.step(1.0)
            return monitor.state_dict()

    states = [train(rank) for rank in (0, 1)]
    for rank in (1, 0):
        with pytest.raises(ConfigError, match="holds a run log already"):
            train(rank)
    for rank, state in enumerate(states):
        train(rank, state=state)
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4] * 2


def test_numbers_of_a_resumed_run_are_of_its_steps(corpus, tags, tmp_path, monkeypatch):
    """A GPU is sampled before the first step ends."""
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(tags)
        monitor.step(1.0)
        state = monitor.state_dict()
    monkeypatch.setattr(GpuUse, "sample", lambda gpu: {"gpu_util": 0.5})
    TrainingMonitor(tmp_path / "run", corpus, state=state).close()
    assert set(load_run(tmp_path / "run").table("values")["step"].to_pylist()) == {1}


def test_a_torch_that_is_being_imported_has_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    gpu = GpuUse()
    assert (gpu.sample(), gpu.missing, device_number()) == ({}, "", 0)


def test_the_state_of_every_optimizer_is_checked():
    """The second has NaN in its moments; by whichever it is, the number is below 1."""
    weights = [torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2)]
    optimizers = [torch.optim.AdamW([weight]) for weight in weights]
    watch = OptimizerWatch(optimizers)
    for weight, optimizer in zip(weights, optimizers, strict=True):
        weight.grad = torch.full((4, 4), 1.0 if weight is weights[0] else float("nan"))
        optimizer.step()
    numbers, _ = watch.end_step(16, {})
    assert read(numbers["opt_state_finite"].numpy()) == 0.5


def test_a_single_rate_before_a_checkpoint_shows_no_jump():
    """A schedule that warms up changes it in each step, and by how much nobody knows; a schedule that is known does."""
    state = {"rates": [1e-5], "schedule": 1, "factor": 1.0}
    assert RateWatch(state).see(2e-5) is None
    assert RateWatch(state, schedule=0).see(2e-5)["schedule_now"] == 0


@pytest.mark.parametrize("other", [{"digests": None}, {"rates": {"rates": []}}, {"rates": []}])
def test_a_state_of_another_version_is_refused_by_name(corpus, tmp_path, other):
    monitor = TrainingMonitor(tmp_path / "run", corpus)
    monitor.close()
    with pytest.raises(ConfigError, match="expected what `state_dict"):
        TrainingMonitor(tmp_path / "run", corpus, state={**monitor.state_dict(), **other})


@pytest.mark.parametrize("set_by", [8 * 3_600, -3_600])
def test_a_step_ends_by_the_clock_that_others_have(monkeypatch, set_by):
    """The machine slept, or its clock was set: what was heard of the run is not hours old, and no step takes hours."""
    clock = StepClock(1)
    clock.end_step()
    now = time.time()
    monkeypatch.setattr("dataaudit.training.timing.time.time", lambda: now + set_by)
    ended, numbers = clock.end_step()
    assert ended == pytest.approx(now + set_by, abs=5)
    assert numbers["step_time"] < 5


@pytest.mark.parametrize("fails", ["stretch_loss_sums", "ids_of", "AsyncCopy"])
def test_memory_that_runs_out_for_the_log_stops_no_run(corpus, tags, tmp_path, monkeypatch, fails):
    """A batch is there without its losses: these were to be summed, or copied to the host."""

    def full(*_, **__):
        raise RuntimeError("CUDA error: out of memory")

    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for step in range(1, 5):
            with monkeypatch.context() as patch:
                if step == 3:
                    patch.setattr(f"dataaudit.training.monitor.{fails}", full)
                monitor.batch(tags.numpy(), losses=torch.ones(1, 64))
            monitor.step(1.0)
    steps = load_run(tmp_path / "run").table("steps").to_pylist()
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert [row["scored"] for row in steps] == [64, 64, 0, 64]
    assert [row["targets"] for row in steps] == [64] * 4
