"""What the monitor records besides: each number against the loop's own, faults that are found, bits that stay."""

import json
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from reading import events, logged_rows, values

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.attribution.trained_on import trained_on
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.packing import OFFSET, SHARD, SOURCE, START, PackedDocuments

torch = pytest.importorskip("torch", reason="the monitor's tensors are torch's")
from test_monitor import CONTEXT, ROWS, NoWaiting  # noqa: E402 - after the skip
from torch import nn  # noqa: E402 - after the skip

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT, epochs=2, stretches=6)


class Loop:
    """A loop over packed rows with everything that is recorded, or without a monitor.

    Args:
        rows: Of the corpus.
        spoil: Step whose gradients overflow.
        unscale: Whether it unscales before it clips.
        schedule: From step to factor of the rate.
    """

    def __init__(self, rows, *, amp=False, spoil=(), unscale=True, schedule=lambda step: 1.0, fused=None):
        torch.manual_seed(0)
        self.rows, self.spoil, self.unscale = rows, spoil, unscale
        self.model = nn.Sequential(nn.Embedding(256, 8), nn.Dropout(0.1), nn.Linear(8, 256))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=fused)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, schedule)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4, enabled=amp)
        self.seen, self.norms, self.scales, self.rates = [], [], [], []

    def watched(self, **more):
        """What a monitor is handed."""
        return {"optimizer": self.optimizer, "scaler": self.scaler, "scheduler": self.scheduler, **more}

    def run(self, steps, monitor=None, *, micro=2, rank=0, ranks=1, hook=None):
        """Train from a first to a last step."""
        for step in steps:
            for part in range(micro):
                first = (((step - 1) * micro + part) * ranks + rank) * ROWS
                found = [self.rows[first + row] for row in range(ROWS)]
                batch = {name: torch.from_numpy(np.stack([one[name] for one in found])) for name in found[0]}
                if step % 3 == 0:
                    batch["labels"][:, -5:] = -100
                logits = self.model(batch["input_ids"])
                loss = nn.functional.cross_entropy(logits.transpose(1, 2), batch["labels"])
                if monitor is not None:
                    monitor.arrived()
                    monitor.batch(batch["tags"], logits=logits, labels=batch["labels"])
                self.seen.append((step, batch))
                self.scaler.scale(loss / micro).backward()
            if step in self.spoil:
                self.model[0].weight.grad[3, 2] = float("inf")
            if hook is not None:
                hook(step, self)
            if self.unscale:
                self.scaler.unscale_(self.optimizer)
            clip = torch.nn.utils.clip_grad_norm_ if monitor is None else monitor.clip_grad_norm_
            norm = clip(self.model.parameters(), 0.05)
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.norms.append(float(norm))
            self.scales.append(self.scaler.get_scale())
            if monitor is not None:
                monitor.step(loss)
        return self

    def bits(self):
        """Weights, random state and norms, as bytes."""
        weights = [one.detach().numpy().tobytes() for one in self.model.parameters()]
        return weights, torch.get_rng_state().numpy().tobytes(), np.array(self.norms).tobytes()


WRONG = ("learning_rate_jump", "clip_before_unscale", "nan_inf", "not_seen", "flagged", "lost")


@pytest.mark.parametrize("amp", [False, True])
def test_recording_changes_no_bit(rows, corpus, tmp_path, amp):
    bare = Loop(rows, amp=amp, spoil=(4,) if amp else ()).run(range(1, 19)).bits()
    loop = Loop(rows, amp=amp, spoil=(4,) if amp else ())
    with TrainingMonitor(tmp_path / "run", corpus, profile_every=8, **loop.watched()) as monitor:
        assert loop.run(range(1, 19), monitor).bits() == bare
        assert len(loop.optimizer._optimizer_step_post_hooks) == 1
    assert not loop.optimizer._optimizer_step_post_hooks
    assert events(tmp_path / "run", *WRONG) == []
    assert set(values(tmp_path / "run", "compute_time_frac")) == {8, 16}


class Strict:
    """A monitor none of whose calls may wait."""

    def __init__(self, monitor):
        self._monitor = monitor

    def __getattr__(self, name):
        def call(*given, **named):
            with NoWaiting():
                return getattr(self._monitor, name)(*given, **named)

        return call


@pytest.mark.parametrize("fused", [None, True])
def test_no_call_waits_for_the_device(rows, corpus, tmp_path, fused):
    loop = Loop(rows, amp=True, spoil=(4,), fused=fused)
    with TrainingMonitor(tmp_path / "run", corpus, **loop.watched()) as monitor:
        loop.run(range(1, 2), monitor)  # the first step's tags are held against the corpus
        loop.run(range(2, 18), Strict(monitor))
        Strict(monitor).validation(torch.ones(()))
    assert sorted(values(tmp_path / "run", "skipped_updates")) == [4]
    assert sorted(values(tmp_path / "run", "val_loss")) == [17]


def test_numbers_of_the_optimizer_are_the_loops_own(rows, corpus, tmp_path):
    loop = Loop(rows, amp=True, spoil=(2, 5, 6), schedule=lambda step: 1 / (1 + step))
    with TrainingMonitor(tmp_path / "run", corpus, planned_tokens=10_000, **loop.watched()) as monitor:
        loop.run(range(1, 13), monitor)
    folder = tmp_path / "run"
    assert list(values(folder, "grad_global_norm").values()) == pytest.approx(loop.norms, nan_ok=True)
    assert list(values(folder, "learning_rate").values()) == pytest.approx(
        [0.0 if step in loop.spoil else rate for step, rate in enumerate(loop.rates, 1) if step not in loop.spoil]
    )
    assert sorted(values(folder, "skipped_updates")) == [2, 5, 6]
    changed = {step: one for step, one in enumerate(loop.scales, 1) if step == 1 or one != loop.scales[step - 2]}
    assert values(folder, "loss_scale") == changed
    found = run_facts(load_run(folder))
    assert (found.steps_seen, found.skipped_updates, found.planned_tokens) == (9, 3, 10_000)
    targets = sum(int((batch["labels"] != -100).sum()) for _, batch in loop.seen)
    assert found.tokens_seen == targets
    applied = [one for step, one in enumerate(loop.norms, 1) if step not in loop.spoil]
    assert found.clipping.clipped == sum(one + 1e-6 > 0.05 for one in applied)
    assert found.clipping.updates == 9
    assert found.mixed_precision.overflow_rate == pytest.approx(3 / 12)
    assert events(folder, *WRONG) == []


def test_a_fused_optimizer_that_skips_on_the_device_is_seen(rows, corpus, tmp_path):
    loop = Loop(rows, amp=True, spoil=(3,), fused=True)
    with TrainingMonitor(tmp_path / "run", corpus, **loop.watched()) as monitor:
        loop.run(range(1, 7), monitor)
    assert values(tmp_path / "run", "skipped_updates") == {3: 1.0}


def test_clipping_before_unscaling_is_found(rows, corpus, tmp_path, caplog):
    loop = Loop(rows, amp=True, unscale=False)
    with TrainingMonitor(tmp_path / "run", corpus, **loop.watched()) as monitor:
        loop.run(range(1, 5), monitor)
    assert [step for step, _ in events(tmp_path / "run", "clip_before_unscale")] == [1, 2, 3, 4]
    assert caplog.text.count("scaler.unscale_(optimizer)") == 1


def test_what_is_not_finite_is_said_once(rows, corpus, tmp_path):
    def spoil(step, loop):
        if step >= 5:
            loop.optimizer.state[loop.model[2].bias]["exp_avg"].fill_(float("nan"))
        if step in (6, 7):
            loop.model[0].weight.grad[3, 2] = float("nan")

    loop = Loop(rows)
    with TrainingMonitor(tmp_path / "run", corpus, **loop.watched()) as monitor:
        loop.run(range(1, 18), monitor, hook=spoil)
    named = [(step, detail["metric"]) for step, detail in events(tmp_path / "run", "nan_inf")]
    assert named[0] == (6, "grad_global_norm")
    assert (16, "opt_state_finite") in named
    assert len(named) == 2


class Plain:
    """Counts of what a loop trained on, one label at a time."""

    def __init__(self):
        self.tokens, self.lengths, self.begun = Counter(), Counter(), 0

    def add(self, seen, steps):
        for step, batch in seen:
            for tags, labels in zip(batch["tags"].tolist(), batch["labels"].tolist(), strict=True):
                if step not in steps:
                    continue
                used = [tag for tag in tags if tag[SHARD] != -2]
                for tag, stop in zip(used, [*(one[START] for one in used[1:]), CONTEXT], strict=True):
                    own = [one for one in labels[tag[START] : stop] if one != -100]
                    self.tokens.update((tag[SOURCE], one) for one in own)
                    self.lengths[(tag[SOURCE], len(own))] += 1
                    self.begun += tag[OFFSET] == 0 and tag[SHARD] >= 0
        return self


def counted(folder):
    """Return the same from a log."""
    found = Plain()
    for one in logged_rows(folder, "tokens"):
        found.tokens[one["source"], one["token"]] += one["count"]
    for one in logged_rows(folder, "lengths"):
        found.lengths[one["source"], one["length"]] += one["stretches"]
        found.begun += one["begun"]
    return found


@pytest.mark.parametrize("often", [False, True])
def test_counts_are_exact_over_ranks_accumulation_and_a_resume(rows, corpus, tmp_path, monkeypatch, often):
    if often:
        monkeypatch.setattr("dataaudit.training.segment_losses.LEAST_STEPS", 2)
    expected = Plain()
    for rank in range(2):
        loop, again = Loop(rows), Loop(rows)
        how = {"rank": rank, "ranks": 2}
        with TrainingMonitor(tmp_path / "run", corpus, **how, **loop.watched()) as monitor:
            loop.run(range(1, 5), monitor, **how)
            state = json.loads(json.dumps(monitor.state_dict()))
            loop.run(range(5, 8), monitor, **how)
        with TrainingMonitor(tmp_path / "run", corpus, state=state, **how, **again.watched()) as monitor:
            again.run(range(5, 10), monitor, **how)
        expected.add(loop.seen, range(1, 5)).add(again.seen, range(5, 10))
    found = counted(tmp_path / "run")
    assert found.tokens == expected.tokens
    assert found.lengths == expected.lengths
    assert found.begun == expected.begun
    log = load_run(tmp_path / "run")
    facts = run_facts(log)
    assert facts.tokens_seen == sum(expected.tokens.values()) == sum(log.table("tokens")["count"].to_pylist())
    assert facts.steps_seen == 9
    trained = trained_on(Data(log, load_manifest(corpus_folder(tmp_path, corpus))))
    by_source = Counter()
    for (source, _), number in expected.tokens.items():
        by_source[source] += number
    assert {one.source: one.tokens for one in trained.sources} == {
        corpus.sources[place]: number for place, number in by_source.items() if place >= 0
    }
    assert trained.merged == by_source[-1]
    places = 2 * 2 * ROWS * CONTEXT * 9
    assert trained.lengths.positions == places
    assert trained.lengths.pad_fraction == pytest.approx(1 - facts.tokens_seen / places)
    assert trained.lengths.context == CONTEXT


def corpus_folder(_, corpus):
    """Return the folder of the manifest of the made corpus."""
    return corpus.file.parent.parent / "m"


def warmed(step):
    return min(1.0, (step + 1) / 20)


@pytest.mark.parametrize("fault", ["", "schedule forgotten", "rate", "no scheduler"])
def test_a_rate_that_jumps_at_a_resume_is_found(rows, corpus, tmp_path, caplog, fault):
    first, then = Loop(rows, schedule=warmed), Loop(rows, schedule=warmed)
    with TrainingMonitor(tmp_path / "run", corpus, **first.watched()) as monitor:
        first.run(range(1, 11), monitor)
        state = json.loads(json.dumps(monitor.state_dict()))
    then.model.load_state_dict(first.model.state_dict())
    then.optimizer.load_state_dict(first.optimizer.state_dict())
    if fault != "schedule forgotten":
        then.scheduler.load_state_dict(first.scheduler.state_dict())
    else:
        then.optimizer.param_groups[0]["lr"] = then.scheduler.get_last_lr()[0]
    if fault == "rate":
        then.scheduler.base_lrs = [0.5]
        then.optimizer.param_groups[0]["lr"] = 0.3
    watched = then.watched(**({"scheduler": None} if fault in ("no scheduler", "rate") else {}))
    with TrainingMonitor(tmp_path / "run", corpus, state=state, **watched) as monitor:
        then.run(range(11, 14), monitor)
    found = events(tmp_path / "run", "learning_rate_jump")
    if fault in ("", "no scheduler"):
        assert found == []
        return
    ((step, detail),) = found
    assert step == 11
    assert detail["before"] == pytest.approx(1e-2 * 10 / 20)
    assert detail["after"] == pytest.approx(then.rates[0])
    assert "learning rate is" in caplog.text


def test_a_step_of_the_schedule_at_a_resume_is_no_jump(rows, corpus, tmp_path):
    first, then = (
        Loop(rows, schedule=lambda step: 0.1 ** (step // 10)),
        Loop(rows, schedule=lambda step: 0.1 ** (step // 10)),
    )
    with TrainingMonitor(tmp_path / "run", corpus, **first.watched()) as monitor:
        state = first.run(range(1, 11), monitor) and monitor.state_dict()
    then.optimizer.load_state_dict(first.optimizer.state_dict())
    then.scheduler.load_state_dict(first.scheduler.state_dict())
    with TrainingMonitor(tmp_path / "run", corpus, state=state, **then.watched()) as monitor:
        then.run(range(11, 13), monitor)
    assert then.rates[0] == pytest.approx(first.rates[-1] / 10)
    assert events(tmp_path / "run", "learning_rate_jump") == []


def test_what_a_loop_waits_for_its_loader_is_kept(rows, corpus, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("dataaudit.training.timing.time.perf_counter", lambda: now[0])

    def slow():
        for step in range(5):
            now[0] += 0.3
            found = [rows[step * ROWS + row] for row in range(ROWS)]
            yield {name: torch.from_numpy(np.stack([one[name] for one in found])) for name in found[0]}

    with TrainingMonitor(tmp_path / "run", corpus, ranks=2, rank=0) as monitor:
        for batch in monitor.loader(slow()):
            now[0] += 0.2
            monitor.batch(batch["tags"])
            now[0] += 0.5
            monitor.step(1.0)
    for name, seconds in {"step_time": 1.0, "dataloader_wait": 0.3, "rank_time": 0.5}.items():
        assert values(tmp_path / "run", name) == pytest.approx(dict.fromkeys(range(2, 6), seconds))


def test_losses_on_held_out_data_stand_beside_those_of_training(rows, corpus, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for step in range(1, 41):
            tags = torch.from_numpy(np.stack([rows[step * ROWS + row]["tags"] for row in range(ROWS)]))
            monitor.batch(tags)
            monitor.step(2.0)
            if step % 5 == 0:
                monitor.validation(torch.tensor(2.5 + 0.01 * step))
                monitor.validation(2.0 - 0.01 * step, "code")
        with pytest.raises(ConfigError, match="validation: expected a number"):
            monitor.validation("low")
    whole, code = run_facts(load_run(tmp_path / "run")).held_out
    assert [one.train_val_gap for one in whole.points] == pytest.approx([0.5 + 0.01 * step for step in range(5, 41, 5)])
    assert (whole.name, whole.divergence_step) == ("", 5)
    assert (code.name, code.divergence_step) == ("code", None)


@pytest.mark.parametrize("wrong", [{"planned_tokens": 0}, {"profile_every": -1}, {"optimizer": object()}])
def test_what_cannot_be_recorded_is_refused(corpus, tmp_path, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TrainingMonitor(tmp_path / "run", corpus, **wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("installed", [True, False])
def test_a_gpu_is_looked_at_where_there_is_one_and_its_library(rows, corpus, tmp_path, monkeypatch, installed):
    use = SimpleNamespace(gpu=37)
    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: {"GPU-one": 7}[name],
        nvmlDeviceGetUtilizationRates=lambda handle: use if handle == 7 else None,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5 << 30),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library if installed else None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="one"))
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        Loop(rows).run(range(1, 4), monitor)
    found = run_facts(load_run(tmp_path / "run")).times
    assert (found.gpu_util, found.gpu_mem_used) == ((0.37, 5 << 30) if installed else (None, None))
    said = [detail["why"] for _, detail in events(tmp_path / "run", "not_seen")]
    assert said == ([] if installed else ["pip install nvidia-ml-py"])
