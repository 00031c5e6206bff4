"""The monitor in a loop of torch: it changes nothing, waits for nothing, and its log is what happened."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from reading import events, kinds, logged_rows, steps_of, values

from dataaudit.base.errors import ConfigError, CorpusRefused, TagsError
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.attribution.step_detector import StepDetector
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.packing import EPOCH, OFFSET, ROW, SHARD, START, TARGETS, PackedDocuments, empty_tags

torch = pytest.importorskip("torch", reason="the monitor's tensors are torch's")
from torch import nn  # noqa: E402 - after the skip
from torch.nn import functional  # noqa: E402 - after the skip
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 - after the skip

pytestmark = pytest.mark.torch
ROWS, CONTEXT, STEPS = 4, 64, 12


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT, epochs=2)


class Model(nn.Module):
    """Embedding, dropout, a normalisation with buffers, a head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.drop = nn.Embedding(256, 16), nn.Dropout(0.2)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 256)

    def hidden(self, tokens):
        found = self.drop(self.tokens(tokens))
        return self.norm(found.transpose(1, 2)).transpose(1, 2)

    def forward(self, tokens):
        return self.head(self.hidden(tokens))


def batches(rows, first=0, workers=0):
    """Yield batches of a loader, the same for any number of workers."""
    subset = torch.utils.data.Subset(rows, range(first * ROWS, len(rows)))
    yield from torch.utils.data.DataLoader(subset, ROWS, num_workers=workers, drop_last=True)


def run(rows, monitor=None, how="losses", steps=STEPS, optimizer=torch.optim.AdamW, feed=None, keep=False):
    """Train; return losses, gradients and random states, as bytes."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - global state is what is compared
    model, seen = Model(), []
    update = optimizer(model.parameters(), lr=1e-3)
    feed = feed or batches(rows)
    for _ in range(steps):
        update.zero_grad()
        batch = next(feed)
        hidden = model.hidden(batch["input_ids"])
        logits = model.head(hidden)
        labels = batch["labels"]
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        if monitor is not None:
            given = {
                "losses": {"losses": losses},
                "labelled": {"losses": losses, "labels": labels},
                "logits": {"logits": logits, "labels": labels},
                "hidden": {"hidden": hidden, "head": model.head, "labels": labels},
                "weight": {"hidden": hidden, "head": model.head.weight, "labels": labels},
                "none": {},
            }[how]
            monitor.batch(batch["tags"], keep=batch if keep else None, **given)
        losses.mean().backward()
        update.step()
        if monitor is not None:
            monitor.step(losses.mean(), learning_rate=1e-3)
        seen.append(losses.detach().numpy().tobytes())
    state = [parameter.grad.numpy().tobytes() for parameter in model.parameters()]
    state += [buffer.numpy().tobytes() for buffer in model.buffers()]
    return seen, state, torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state())  # noqa: NPY002 - global state is what is compared


@pytest.mark.parametrize("how", ["losses", "labelled", "logits", "hidden", "none"])
def test_monitoring_changes_no_bit(rows, corpus, tmp_path, how):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        assert run(rows, monitor, how) == run(rows)


def test_scoring_again_changes_no_bit(rows, corpus, tmp_path, monkeypatch):
    class Flags(StepDetector):
        def see(self, step, value, segments=None):
            return super().see(step, float("nan") if step in (5, 9) else value, segments)

    monkeypatch.setattr("dataaudit.training.run_start.StepDetector", Flags)
    torch.manual_seed(1)
    scored, other = [], Model()

    def score(batch):
        scored.append(torch.rand(3))
        np.random.random()  # noqa: NPY002 - global state is what is compared
        logits = other(batch["input_ids"])
        other.norm.running_mean.add_(1)
        losses = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        return losses.view(ROWS, CONTEXT)

    before = other.norm.running_mean.clone()
    torch.manual_seed(0)
    with TrainingMonitor(tmp_path / "run", corpus, score=score, model=other) as monitor:
        found = run(rows, _Patient(monitor), "none", steps=20, keep=True)
    assert found == run(rows, steps=20)
    assert len(scored) == 3
    assert torch.equal(other.norm.running_mean, before)
    assert other.training
    log = load_run(tmp_path / "run")
    steps = log.table("stretches").filter(log.table("stretches")["loss"].is_valid())["step"].unique().to_pylist()
    assert steps == [5, 9, 16]
    said = [detail for _, detail in events(tmp_path / "run", "scored")]
    assert [one["step"] for one in said] == [5, 9, 16]
    assert all(0 <= one["updates"] <= 3 for one in said)


class _Patient:
    """A monitor whose steps wait until the log's thread has seen them."""

    def __init__(self, monitor):
        self._monitor = monitor

    def batch(self, *given, **named):
        self._monitor.batch(*given, **named)

    def step(self, *given, **named):
        self._monitor.step(*given, **named)
        time.sleep(0.02)


class NoWaiting(TorchDispatchMode):
    """Refuses whatever brings a number from a device to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(func), f"{func} waits for the device"
        assert "nonzero" not in str(func), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("how", ["losses", "labelled", "logits", "hidden", "weight", "none"])
def test_no_operator_of_a_step_waits_for_the_device(rows, corpus, tmp_path, how):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        run(rows, monitor, how, steps=1)  # the first step's tags are held against the corpus
        feed = iter(list(batches(rows))[:18])
        with NoWaiting():  # neither a loader nor AdamW in it: torch's own wait
            run(rows, monitor, how, steps=18, optimizer=torch.optim.SGD, feed=feed)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_log_holds_the_losses_of_its_stretches(documents, corpus, tmp_path, inner, workers):
    rows = PackedDocuments(documents, CONTEXT, stretches=1, shift="inner" if inner else "outer")
    random, expected, total = np.random.default_rng(0), [], 0.0
    with TrainingMonitor(tmp_path / "run", corpus, shift="inner" if inner else "outer") as monitor:
        feed = batches(rows, workers=workers)
        for step in range(1, 4):
            for micro in range(2):
                batch = next(feed)
                losses = random.gamma(9, 0.3, (ROWS, CONTEXT - inner)).astype(np.float32)
                monitor.batch(batch["tags"], losses=torch.from_numpy(losses), labels=batch["labels"])
                for row, tags in enumerate(batch["tags"].numpy()):
                    used = tags[tags[:, SHARD] != UNUSED]
                    for tag, stop in zip(used, [*used[1:, START], CONTEXT], strict=True):
                        own = losses[row, max(0, tag[START] - inner) : stop - inner].astype(float)
                        assert len(own) == tag[TARGETS]
                        named = tuple(int(tag[place]) for place in (START, SHARD, ROW, OFFSET, TARGETS))
                        expected.append((step, micro, row, *named, own.mean() if len(own) else None))
                        total += own.sum()
            monitor.step(torch.tensor(float(step)), grad_global_norm=torch.tensor(2.0), learning_rate=0.5)
    log = load_run(tmp_path / "run")
    found = log.table("stretches").drop(["rank"]).to_pylist()
    names = ("step", "micro_batch", "batch_row", "start", "shard", "row", "offset", "targets")
    assert [tuple(row[name] for name in names) for row in found] == [one[:-1] for one in expected]
    for row, one in zip(found, expected, strict=True):
        assert row["loss"] == (None if one[-1] is None else pytest.approx(one[-1], rel=1e-6))
    steps = log.table("steps").to_pylist()
    assert sum(row["loss_sum"] for row in steps) == pytest.approx(total, rel=1e-9)
    assert [row["scored"] for row in steps] == [row["targets"] for row in steps] == [2 * ROWS * (CONTEXT - inner)] * 3
    assert sum(row["merged"] for row in steps) == sum(one[7] for one in expected if one[4] == MERGED) > 0
    assert [row["user_loss"] for row in steps] == [1.0, 2.0, 3.0]
    named = [(row["step"], row["metric"], row["value"]) for row in log.table("values").to_pylist()[:2]]
    assert named == [(1, "grad_global_norm", 2.0), (1, "learning_rate", 0.5)]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("stretches", [1, 16])
def test_what_two_workers_read_is_their_documents(made, held, stretches):
    quarantine = made.hold("train/b.jsonl", "train/c.parquet:3", "train/a.jsonl:7") if held else None
    documents = Documents(made.open(quarantine=quarantine), "train", byte_encoder(end=0))
    rows = PackedDocuments(documents, CONTEXT, epochs=2, stretches=stretches)
    random = np.random.default_rng(0).permutation(len(rows))[:1_100].tolist()
    subset, found, epochs = torch.utils.data.Subset(rows, random), 0, set()
    for batch in torch.utils.data.DataLoader(subset, 10, num_workers=2):
        for row in range(10):
            one = {name: column[row].numpy() for name, column in batch.items()}
            found += made.check(one, documents.corpus.sources)[0]
            epochs |= set(one["tags"][one["tags"][:, SHARD] != UNUSED, EPOCH].tolist())
            for shard, place in one["tags"][:, :2].tolist():
                assert not held or shard < 0 or not made.uris[shard].startswith("b.jsonl")
                assert not held or shard < 0 or (made.uris[shard], place) not in {("c.parquet", 3), ("a.jsonl", 7)}
    assert found >= 1_000
    assert epochs == {0, 1}


def test_losses_from_logits_and_from_hidden_states_are_the_loops_own(rows, corpus, tmp_path):
    found = {}
    for how in ("losses", "logits", "hidden", "weight"):
        with TrainingMonitor(tmp_path / how, corpus) as monitor:
            run(rows, monitor, how, steps=16)
        table = load_run(tmp_path / how).table("stretches")
        found[how] = table.filter(np.asarray(table["step"]) == 16)["loss"].to_numpy(zero_copy_only=False)
        if how in {"hidden", "weight"}:
            assert table["loss"].null_count == sum(step != 16 for step in table["step"].to_pylist())
    assert found["logits"] == pytest.approx(found["losses"], rel=1e-6)
    assert found["hidden"] == pytest.approx(found["losses"], rel=1e-6)
    assert np.isfinite(found["weight"]).all()


def test_masked_labels_are_no_targets(rows, corpus, tmp_path):
    tags = empty_tags(1, 4)
    tags[0, 0] = (0, 1, 0, 0, 0, 0, 5)
    tags[0, 1] = (1, 2, 0, 0, 8, 3, 8)
    first, second = (rows.documents.tokens_of(shard, row) for shard, row in ((0, 1), (1, 2)))
    labels = torch.from_numpy(np.concatenate([first[:8], second[3:11]]).astype(np.int64))[None]
    labels[0, 5:8] = -100
    losses = torch.arange(16, dtype=torch.float32)[None]
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(torch.from_numpy(tags), losses=losses, labels=labels)
        monitor.step()
    found = load_run(tmp_path / "run").table("stretches").to_pylist()
    assert [row["loss"] for row in found] == [2.0, 11.5]


def test_nan_stays_in_its_stretch(corpus, tmp_path):
    tags = empty_tags(1, 4)
    tags[0, 0] = (0, 1, 0, 0, 0, 0, 8)
    tags[0, 1] = (1, 2, 0, 0, 8, 3, 8)
    losses = torch.ones(1, 16)
    losses[0, 9] = float("nan")
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(tags, losses=losses)
        monitor.step(float("nan"))
    log = load_run(tmp_path / "run")
    found = log.table("stretches")["loss"].to_pylist()
    assert found[0] == 1.0
    assert np.isnan(found[1])
    assert events(tmp_path / "run", "flagged") == [(1, {"first_step": 1, "kind": "not_finite"})]


def edited(place, change):
    """Return what changes the numbers at a place of the tags of a batch."""

    def spoil(batch):
        tags = batch["tags"].clone()
        tags[place] = change(tags[place])
        return tags

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda batch: None, "the batch has no tags"),
        (lambda batch: batch["tags"].double(), r"expected int64\[B, K, 7\], found float64"),
        (lambda batch: batch["tags"].flatten(1), r"expected int64\[B, K, 7\], found"),
        (edited((0, 0, SHARD), lambda _: 99), "they name shard 99, the manifest has 7"),
        (lambda batch: torch.from_numpy(empty_tags(ROWS)), "name no document"),
        (edited((1, 0, TARGETS), lambda own: own + 1), "row 1 of the batch has 64 targets, its tags say 65"),
        (lambda batch: batch.pop("labels") is not None and batch["tags"][:2], "they do not belong together"),
    ],
)
def test_tags_that_do_not_fit_stop_the_run_at_its_first_step(rows, corpus, tmp_path, spoil, message):
    batch = next(batches(rows))
    tags = spoil(batch)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor, pytest.raises(TagsError, match=message):
        monitor.batch(tags, losses=torch.zeros(ROWS, CONTEXT), labels=batch.get("labels"))


@pytest.mark.parametrize(
    ("columns", "spoil"),
    [
        *((columns, edited(..., lambda own: own)) for columns in (32, 65, 128)),
        (CONTEXT, edited((..., TARGETS), lambda own: own // 2)),
        (CONTEXT, edited((..., START), lambda own: own + 500)),
        (CONTEXT, edited(..., lambda own: 0)),
    ],
)
def test_losses_that_do_not_fit_the_tags_stop_the_run_at_its_first_step(rows, corpus, tmp_path, columns, spoil):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor, pytest.raises(TagsError):
        monitor.batch(spoil(next(batches(rows))), losses=torch.zeros(ROWS, columns))


def test_losses_that_were_padded_for_a_model_that_shifts_need_labels(documents, corpus, tmp_path):
    rows = PackedDocuments(documents, CONTEXT, shift="inner")
    batch, losses = next(batches(rows)), torch.rand(ROWS, CONTEXT)
    losses[:, 0] = 0
    with TrainingMonitor(tmp_path / "run", corpus, shift="inner") as monitor:
        with pytest.raises(TagsError, match="row 0 of the batch has 64 targets, its tags say 63"):
            monitor.batch(batch["tags"], losses=losses)
        monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
        monitor.batch(batch["tags"], losses=losses[:, 1:])
        monitor.step(1.0)
    table = load_run(tmp_path / "run").table("stretches")
    first, second = (table.filter(np.asarray(table["micro_batch"]) == one)["loss"].to_pylist() for one in (0, 1))
    assert first == pytest.approx(second)


def test_ignored_labels_are_no_targets_of_their_stretches(rows, corpus, tmp_path):
    batch, losses = next(batches(rows)), torch.rand(ROWS, CONTEXT)
    labels = batch["labels"].clone()
    labels[:, ::3] = -100
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(batch["tags"], losses=losses, labels=labels)
        monitor.step(1.0)
    log = load_run(tmp_path / "run")
    kept = labels != -100
    assert log.table("steps")["targets"].to_pylist() == [int(kept.sum())]
    assert log.table("steps")["loss_sum"].to_pylist() == [pytest.approx(float(losses[kept].double().sum()))]
    stretches = log.table("stretches").to_pylist()
    assert sum(row["targets"] for row in stretches) == int(kept.sum())


def test_later_tags_that_do_not_fit_are_lost_and_counted(rows, corpus, tmp_path, caplog):
    feed = batches(rows)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for number in range(5):
            batch = next(feed)
            tags = torch.full_like(batch["tags"], 999) if number == 2 else batch["tags"]
            monitor.batch(tags, losses=torch.ones(ROWS, CONTEXT))
            monitor.step(1.0)
        monitor.state_dict()
        assert monitor.lost_steps == 1
    assert steps_of(tmp_path / "run") == [1, 2, 4, 5]
    assert events(tmp_path / "run", "lost")[0][0] == 3
    assert any("the tags of a batch do not fit" in one.message for one in caplog.records)


@pytest.mark.parametrize("value", [torch.tensor([1.0, 2.0]), [1e-3], None, "high", np.zeros(2)])
def test_a_value_that_is_no_number_is_refused_first_and_left_out_later(rows, corpus, tmp_path, caplog, value):
    feed = batches(rows)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        monitor.batch(next(feed)["tags"])
        with pytest.raises(ConfigError, match="learning_rate: expected a number, or a tensor of one"):
            monitor.step(1.0, learning_rate=value)
        for given in (0.5, value, 0.25):
            monitor.batch(next(feed)["tags"])
            monitor.step(torch.ones(1), learning_rate=given)
    assert list(values(tmp_path / "run", "learning_rate").values()) == [0.5, 0.25]
    assert [row["user_loss"] for row in logged_rows(tmp_path / "run", "steps")] == [1.0, 1.0, 1.0]
    assert [detail["refused_values"] for _, detail in events(tmp_path / "run", "closed")] == [1]
    assert len(caplog.records) == 1


def test_a_score_that_fails_does_not_stop_the_run(rows, corpus, tmp_path, caplog):
    def score(batch):
        raise RuntimeError("out of memory")

    with TrainingMonitor(tmp_path / "run", corpus, score=score) as monitor:
        run(rows, monitor, "none", steps=40, keep=True)
    assert steps_of(tmp_path / "run") == list(range(1, 41))
    assert [step for step, _ in events(tmp_path / "run", "not_scored")] == [16, 32]
    assert "cannot be scored again" in caplog.records[0].message


def test_the_losses_that_are_watched_are_of_one_kind(rows, corpus, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for number, batch in enumerate(list(batches(rows))[:120]):
            hidden = torch.zeros(ROWS, CONTEXT, 16)
            monitor.batch(batch["tags"], hidden=hidden, head=torch.zeros(256, 16), labels=batch["labels"])
            monitor.step(9.0 + 0.01 * (number % 7))  # smoothed labels: not what the head's logits come to
        monitor.state_dict()
        assert monitor.flagged == []


def test_wrong_use_is_said(rows, corpus, tmp_path, monkeypatch):
    def expect(message, error=ConfigError, **how):
        with pytest.raises(error, match=message):
            TrainingMonitor(tmp_path / "run", corpus, **how)

    expect("shift: expected outer", shift="Inner")
    expect("rank 2 of 2: expected 0 to 1", rank=2, ranks=2)
    expect("rank -1 of 2", rank=-1, ranks=2)
    for state in ({}, {"step": "x"}, 7):
        expect("expected what `state_dict", state=state)
    monkeypatch.setenv("RANK", "1")
    expect("rank 1 of 1: expected 0 to 0")
    monkeypatch.setenv("RANK", "one")
    expect("RANK=one: expected a whole number")
    monkeypatch.delenv("RANK")
    monitor = TrainingMonitor(tmp_path / "run", corpus)
    with pytest.raises(ConfigError, match="`keep` is for `score`"):
        monitor.batch(rows[0]["tags"][None], keep=1)
    with pytest.raises(TagsError, match=r"expected one for each label, \[B, T\], found \[64\]"):
        monitor.batch(rows[0]["tags"][None], losses=torch.zeros(64))
    monitor.close()
    monitor.close()
    for call in (lambda: monitor.batch(rows[0]["tags"][None]), lambda: monitor.step(1.0)):
        with pytest.raises(ConfigError, match="the monitor is closed"):
            call()


def test_batches_without_a_step_are_said(rows, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("dataaudit.training.monitor.MOST_BATCHES", 3)
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for _ in range(3):
            monitor.batch(rows[0]["tags"][None])
        with pytest.raises(TagsError, match="3 batches and no step"):
            monitor.batch(rows[0]["tags"][None])


def test_a_first_step_without_a_batch_stops_the_run(corpus, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor, pytest.raises(TagsError, match="without a batch"):
        monitor.step(1.0)


def test_too_few_places_for_stretches_stop_the_run(documents, corpus, tmp_path):
    rows = PackedDocuments(documents, 2_048, stretches=2)

    def train(monitor):
        for batch in batches(rows):
            monitor.batch(batch["tags"])
            monitor.step(1.0)
            monitor.state_dict()

    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        with pytest.raises(TagsError, match=r"\d\d\.\d% of the targets lie"):
            train(monitor)
        assert monitor.steps * ROWS * 2_048 > 50_000


def test_a_run_goes_on_from_its_checkpoint(rows, corpus, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus, digests={"code": "sha256:1"}) as monitor:
        run(rows, monitor, steps=7)
        state = monitor.state_dict()
        run(rows, monitor, steps=3)
    with pytest.raises(ConfigError, match="holds a run log already"):
        TrainingMonitor(tmp_path / "run", corpus)
    with pytest.raises(ConfigError, match="other digests"):
        TrainingMonitor(tmp_path / "run", corpus, state=state, digests={"code": "sha256:2"})
    with pytest.raises(CorpusRefused, match="quarantine"):
        TrainingMonitor(tmp_path / "run", corpus, state={**state, "corpus": {**state["corpus"], "quarantine": "x"}})
    for other in ({"line": []}, {**state["detector"], "composition": {}}, []):  # as older versions had them
        with pytest.raises(ConfigError, match="its detector is not that of this version"):
            TrainingMonitor(tmp_path / "run", corpus, state={**state, "detector": other}, digests=state["digests"])
    state = json.loads(json.dumps(state))
    allowed = {"digests": {"code": "sha256:2"}, "allow": ("code", "library")}
    with TrainingMonitor(tmp_path / "run", corpus, state=state, **allowed) as monitor:
        assert monitor.steps == 7
        run(rows, monitor, steps=2)
    assert steps_of(tmp_path / "run") == list(range(1, 10))
    assert {row["step"] for row in logged_rows(tmp_path / "run", "stretches")} == set(range(1, 10))
    assert kinds(tmp_path / "run")[:3] == ["started", "resumed", "closed"]


def test_a_log_that_is_begun_again_reports_the_steps_that_it_hides(rows, corpus, tmp_path, caplog):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        run(rows, monitor, steps=7)
    with pytest.raises(ConfigError, match="already") as raised:
        TrainingMonitor(tmp_path / "run", corpus)
    assert "`resume=True` begins it again from step 1: what it holds is not shown any more" in raised.value.hint
    with TrainingMonitor(tmp_path / "run", corpus, resume=True) as monitor:
        run(rows, monitor, steps=2)
    assert "begun again from step 1: the 7 steps that it holds are not shown any more" in caplog.text
    assert [detail.get("hidden_steps") for _, detail in events(tmp_path / "run", "started")] == [None, 7]
    assert steps_of(tmp_path / "run") == [1, 2]
    caplog.clear()
    TrainingMonitor(tmp_path / "other", corpus, resume=True).close()
    assert "begun again" not in caplog.text


def test_a_killed_run_leaves_whole_steps(made, tmp_path):
    code = f"""
import os, signal, sys, time
sys.path[:0] = {sys.path!r}
import torch
from made_corpus import MadeCorpus
from dataaudit.runlog.reader import load_run
from dataaudit.training import *
from dataaudit.training import logthread
logthread.BATCH_STEPS = 5
corpus = open_manifest({str(made.folder / "m")!r}, require="verified", cache={str(tmp_path / "cache")!r})
rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), {CONTEXT})
monitor = TrainingMonitor({str(tmp_path / "run")!r}, corpus)
for step in range(1000):
    batch = torch.utils.data.default_collate([rows[step * 2], rows[step * 2 + 1]])
    monitor.batch(batch["tags"], losses=torch.full((2, {CONTEXT}), float(step)))
    monitor.step(step)
    if step == 123:
        end = time.monotonic() + 60
        while time.monotonic() < end and len(load_run(monitor.folder).table("steps")) < 110:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    steps = steps_of(tmp_path / "run")
    assert steps == list(range(1, len(steps) + 1))
    assert 110 <= len(steps) <= 124
    assert set(steps) <= {row["step"] for row in logged_rows(tmp_path / "run", "stretches")}


NODE = {"dataaudit", "numpy", "orjson", "pyarrow", "pydantic", "pydantic-core", "pyyaml", "rfc8785"}
NODE |= {"annotated-types", "typing-extensions", "typing-inspection"}  # what pydantic needs
NODE |= {
    "torch", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy",
}  # and torch  # fmt: skip


def printed_alone(code):
    """Return what Python prints that sees these packages alone, below tests and the project."""
    begin = f"import sys\nsys.path[:0] = {sys.path!r}\nfrom base_only import hide\nhide({NODE!r})\n"
    done = subprocess.run([sys.executable, "-c", begin + code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Layered(nn.Module):
    """Two layers of torch's own."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(256, 16), nn.Linear(16, 256)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens)))


def test_a_monitor_takes_what_vitals_see_and_a_resumed_run_replaces_it(rows, corpus, tmp_path):
    """The values of steps that are done again stand in the log once, as those of the last attempt."""
    from dataaudit.vitals import Vitals, VitalsConfig

    def train(first, last, *, monitor, seen=None):
        torch.manual_seed(first)
        model = Layered()
        optimizer = torch.optim.AdamW(model.parameters())
        feed = torch.utils.data.DataLoader(torch.utils.data.Subset(rows, range((first - 1) * 2, last * 2)), 2)
        with Vitals(model, optimizer, VitalsConfig(adapt=False, interval=3), [monitor]) as vitals:
            if seen is not None:
                vitals.load_state_dict(seen)
            for batch in feed:
                with vitals.step():
                    losses = functional.cross_entropy(model(batch["input_ids"]).transpose(1, 2), batch["labels"])
                    monitor.batch(batch["tags"])
                    losses.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    vitals.log(train_loss=losses)
                monitor.step(losses)
                if monitor.steps == 5:
                    kept = monitor.state_dict(), vitals.state_dict()
        return kept if first == 1 else None

    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        state, seen = train(1, 8, monitor=monitor)
    with TrainingMonitor(tmp_path / "run", corpus, state=state) as monitor:
        train(6, 10, monitor=monitor, seen=seen)
    written = logged_rows(tmp_path / "run", "values")
    assert [row["step"] for row in written if row["metric"] == "train_loss"] == list(range(1, 11))
    losses = {row["step"]: row["user_loss"] for row in logged_rows(tmp_path / "run", "steps")}
    assert values(tmp_path / "run", "train_loss") == pytest.approx(losses, rel=1e-6)
    of_rows = {("attn_entropy", "mean"), ("attn_entropy", "normalised")}
    assert sum((row["metric"], row["stat"]) in of_rows for row in written) == 10 * 2 * 2 * 2


def test_every_module_of_the_loop_and_of_vitals_imports_beside_a_few_packages():
    """But for those that are named after a library, the server of pages, and the kernel that is Triton's."""
    code = """
import importlib, pkgutil
import dataaudit.training, dataaudit.vitals
for package in (dataaudit.training, dataaudit.vitals):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            print(module.name, error.name)
"""
    assert printed_alone(code).splitlines() == [
        "dataaudit.training.loaders.lightning lightning",
        "dataaudit.training.loaders.olmo_core olmo_core",
        "dataaudit.training.loaders.torchtitan torchtitan",
        "dataaudit.training.loaders.torchtitan_trainer torchtitan",
        "dataaudit.training.loaders.trainer transformers",
        "dataaudit.training.pages.serving bokeh",
        "dataaudit.vitals.attention_triton triton",
    ]


def test_vitals_run_beside_torch_and_a_few_packages_alone(tmp_path):
    code = f"""
import torch
from dataaudit.vitals import RunLogSink, Vitals
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters())
with RunLogSink({str(tmp_path / "run")!r}) as sink, Vitals(model, optimizer, sinks=[sink]) as vitals:
    for step in range(20):
        with vitals.step():
            model(torch.randn(2, 8, 16)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
print(vitals.steps, sorted(name for name in ("click", "rich", "numba", "scipy", "transformers") if name in sys.modules))
"""
    assert printed_alone(code) == "20 []\n"
    written = logged_rows(tmp_path / "run", "values")
    assert {row["step"] for row in written} == set(range(1, 21))
    assert "update_to_weight" in {row["metric"] for row in written}


def test_the_loop_runs_beside_torch_and_a_few_packages_alone(made, tmp_path):
    code = f"""
from dataaudit.training import Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
corpus = open_manifest({str(made.folder / "m")!r}, require="verified", cache={str(tmp_path / "cache")!r})
rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), {CONTEXT})
import torch
model = torch.nn.Sequential(torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with TrainingMonitor({str(tmp_path / "run")!r}, corpus) as monitor:
    for number, batch in enumerate(torch.utils.data.DataLoader(rows, 4)):
        logits, labels = model(batch["input_ids"]), batch["labels"]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        monitor.batch(batch["tags"], logits=logits, labels=labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss)
        if number == 19:
            break
print(monitor.steps, sorted(name for name in ("click", "rich", "numba", "scipy", "pandas") if name in sys.modules))
"""
    assert printed_alone(code) == "20 []\n"
    steps = logged_rows(tmp_path / "run", "steps")
    assert [row["step"] for row in steps] == list(range(1, 21))
    assert [row["loss_sum"] / row["scored"] for row in steps] == pytest.approx(
        [row["user_loss"] for row in steps], rel=1e-5
    )


def test_a_full_disk_does_not_stop_the_run(rows, corpus, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("dataaudit.training.logthread.BATCH_STEPS", 2)
    monitor = TrainingMonitor(tmp_path / "run", corpus)
    run(rows, monitor, steps=4)
    monitor.state_dict()
    write, parts = os.write, str(tmp_path / "run" / "ranks")

    def full(descriptor, data):
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(parts):
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr("dataaudit.runlog.parts.os.write", full)
        run(rows, monitor, steps=5)
        monitor.state_dict()
    run(rows, monitor, steps=3)
    assert monitor.lost_steps == 5
    monitor.close()
    assert any("No space left on device; training goes on" in one.message for one in caplog.records)
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4, 10, 11, 12]
    assert [detail["steps"] for _, detail in events(tmp_path / "run", "lost")] == [5]


def test_a_folder_that_cannot_be_written_is_said(corpus, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        TrainingMonitor(tmp_path / "file", corpus)
    with pytest.raises(ConfigError, match="order: expected documents, rows or nothing, found 'shuffled'"):
        TrainingMonitor(tmp_path / "run", corpus, order="shuffled")
    with pytest.raises(ConfigError, match="a power of two, found 48"):
        TrainingMonitor(tmp_path / "run", corpus, block_rows=48)


def test_a_log_of_another_manifest_is_not_gone_on_with(corpus, tmp_path):
    TrainingMonitor(tmp_path / "run", corpus).close()
    other = load_run(tmp_path / "run").run.model_copy(update={"manifest": "sha256:" + "0" * 64})
    (tmp_path / "run/run.json").write_bytes(other.sealed((tmp_path / "run/shards.arrow").read_bytes()).to_json())
    with pytest.raises(ConfigError, match="is the log of a run on sha256:0"):
        TrainingMonitor(tmp_path / "run", corpus, resume=True)


def test_ranks_write_beside_each_other(rows, corpus, tmp_path):
    for rank in (0, 1):
        with TrainingMonitor(tmp_path / "run", corpus, rank=rank, ranks=2) as monitor:
            run(rows, monitor, steps=2)
    log = load_run(tmp_path / "run")
    assert log.ranks == [0, 1]
    assert log.run.ranks == 2
    assert log.table("steps")["rank"].to_pylist() == [0, 0, 1, 1]


def test_a_step_without_a_batch_is_no_update(rows, corpus, tmp_path, caplog):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for place, batch in zip(range(4), batches(rows), strict=False):
            if place != 2:
                monitor.batch(batch["tags"], labels=batch["labels"])
            monitor.step(None if place == 2 else 1.0)
    facts = run_facts(load_run(tmp_path / "run"))
    assert (facts.steps_seen, facts.skipped_updates) == (3, 1)
    assert facts.tokens_per_update == ROWS * CONTEXT
    assert events(tmp_path / "run", "no_batch") == [(3, {"step": 3})]
    assert "step 3: the step ended without a batch" in caplog.text
