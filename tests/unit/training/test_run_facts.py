"""What a log says of a run, against other ways to compute it, with faults that must be found and runs without any."""

from types import SimpleNamespace

import numpy as np
import pytest
from lanes import thinned
from made_manifest import make, shard
from made_run import BLOCK_ROWS, SOURCES, begin_run, value_row

from dataaudit.base.divergence import clump_size, divergences, kl_null_of_passes
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, event
from dataaudit.training.attribution.attribute import attribute, write_attribution
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_data import Data, load_data
from dataaudit.training.attribution.run_facts import BETA, divergence_step, ema, reported_of, run_facts
from dataaudit.training.attribution.trained_on import language_shares, share_bounds, source_tokens, trained_on
from dataaudit.training.pages.blocks import render_text
from dataaudit.training.pages.page import run_page
from dataaudit.training.pages.run_blocks import data_points, run_points
from dataaudit.training.timing import Window, fractions

VOCAB = 1_000
SPECIAL = [0]
"""Of the made tokenizer: the manifest does not count them."""
STEPS, TARGETS = 120, 64


def said(points):
    """Return what stands out, as one text."""
    return repr(list(points))


class Run:
    """A log of steps in which each stretch is of one source, shard and token, as told."""

    def __init__(self, folder, manifest, *, ranks=1, told=None):
        self.folder = folder
        begin_run(folder, load_manifest(manifest), ranks=ranks)
        self.logs = [RankWriter(folder, rank, 1, BLOCK_ROWS) for rank in range(ranks)]
        self.logs[0].add("events", event(0, "started", {"told": told or {}}))

    def step(self, step, source, shard_, *, rank=0, targets=TARGETS, loss=2.0, **values):
        """Write the stretches of a step, one a row."""
        number = len(source)
        self.logs[rank].add(
            "stretches",
            {
                "step": np.full(number, step),
                "micro_batch": np.zeros(number),
                "batch_row": np.arange(number),
                "start": np.zeros(number),
                "shard": np.asarray(shard_),
                "row": np.arange(number),
                "offset": np.zeros(number),
                "source": np.asarray(source),
                "epoch": np.zeros(number),
                "targets": np.full(number, targets),
                "loss": np.full(number, loss),
            },
        )
        for name, value in values.items():
            self.logs[rank].add("values", value_row(step, value, name, "value"))
        row = {"step": step, "time": 0.0, "micro_batches": 1, "targets": number * targets, "scored": number * targets}
        row |= {"loss_sum": loss * number * targets, "merged": 0}
        self.logs[rank].add_step(step, {name: [one] for name, one in row.items()} | {"user_loss": None})

    def tokens(self, step, source, counts, half):
        """Write counts by token."""
        ids = np.flatnonzero(counts)
        columns = {"step": np.full(len(ids), step), "source": np.full(len(ids), source), "token": ids}
        self.logs[0].add("tokens", {**columns, "count": counts[ids], "half": half[ids]})

    def close(self):
        """Return the log, which says that it has ended."""
        for one in self.logs:
            one.add("events", event(0, "closed", {"lost_steps": 0}))
            one.close()
        return load_run(self.folder)


@pytest.fixture
def manifest(tmp_path):
    shards = [
        shard(f"part-{place}.jsonl", documents=40, tokens=4_000, sources={SOURCES[place % 2]: 4_000})
        for place in range(8)
    ]
    make(tmp_path / "m", shards, mixture={"code": 3.0, "web": 1.0})
    return tmp_path / "m"


def mixed(folder, manifest, share):
    """Return what a run was trained on in which a row is code with some probability."""
    random = np.random.default_rng(0)
    run = Run(folder, manifest)
    for step in range(1, STEPS + 1):
        source = (random.random(16) > share).astype(int)
        run.step(step, source, source)
    return trained_on(Data(run.close(), load_manifest(manifest)))


def test_a_wrong_mixture_is_found_and_the_declared_one_is_not(tmp_path, manifest):
    right, wrong = mixed(tmp_path / "right", manifest, 0.75), mixed(tmp_path / "wrong", manifest, 0.6)
    assert not said(data_points(right)).count("declares")
    assert [one.off for one in wrong.sources] == [True, True]
    assert "mixture declares" in said(data_points(wrong))
    code = right.sources[0]
    assert (code.source, code.declared, code.corpus_share) == ("code", 0.75, 0.5)
    assert code.low < code.share < code.high
    assert right.tokens == STEPS * 16 * TARGETS == sum(one.tokens for one in right.sources)


def test_the_interval_of_a_share_holds_it():
    random, held = np.random.default_rng(1), 0
    times = thinned(400, 100)
    for _ in range(times):
        step = np.repeat(np.arange(200), 6)
        targets = random.integers(1, 300, len(step))
        source = (random.random(len(step)) > 0.3).astype(np.int64)
        low, high = share_bounds(step, source, targets, 2)
        held += low[0] <= 0.3 <= high[0]
    assert held >= 0.9 * times
    assert share_bounds(np.arange(19), np.zeros(19, int), np.ones(19, int), 1) is None


def test_the_interval_of_a_language_holds_what_was_read():
    random, held, times = np.random.default_rng(2), 0, thinned(400, 150)
    for _ in range(times):
        truth, trained, tokens, documents, table = 0.0, [], [], [], []
        for part in random.uniform(0.05, 1.0, 12):
            lengths = random.gamma(2.0, 200.0, 80)
            german = random.random(80) < random.uniform(0.1, 0.9)
            read = random.permutation(80)[: max(1, int(part * 80))]
            trained.append(lengths[read].sum())
            truth += lengths[read][german[read]].sum()
            tokens.append(lengths.sum())
            documents.append(80)
            table.append([lengths[german].sum(), lengths[~german].sum()])
        share, error = language_shares(
            *(np.array(one, float) for one in (trained, tokens, documents, table)), spread=0.5, sampled=True
        )
        held += abs(share[0] - truth / sum(trained)) <= 1.96 * error[0]
        assert share.sum() == pytest.approx(1)
    assert held >= 0.9 * times


def clumps(seed=0, documents=1_500):
    """Return int64[documents, VOCAB] counts of documents in which each word stands four times."""
    random = np.random.default_rng(seed)
    chance = 1 / np.arange(1, VOCAB + 1) ** 1.1
    words = random.choice(VOCAB, (documents, 12), p=chance / chance.sum())
    return np.stack([np.bincount(np.repeat(one, 4), minlength=VOCAB) for one in words])


@pytest.mark.parametrize("passes", [0.05, 0.4, 0.9, 1.5])
def test_what_chance_gives_a_part_of_a_pass_is_what_dealing_documents_gives(passes):
    counts, random = clumps(), np.random.default_rng(3)
    whole, (done, part) = counts.sum(0), divmod(passes, 1)
    found, inside = [], []
    expected = kl_null_of_passes(whole, passes, 4.0)
    for _ in range(thinned(200, 40)):
        read = random.permutation(len(counts))[: int(part * len(counts))]
        now = int(done) * whole + counts[read].sum(0)
        found.append(divergences(now, whole)[0])
        inside.append(expected / 2 < found[-1] < 2 * expected)
    assert np.mean(found) == pytest.approx(expected, rel=0.05)
    assert np.mean(inside) >= 0.95
    half = random.random(len(counts)) < 0.5
    one = int(done) * counts[half].sum(0) + counts[read[half[read]]].sum(0)
    assert clump_size(one, now - one) / max(1.0, passes) == pytest.approx(4.0, rel=0.25)


@pytest.mark.parametrize("passes", [1, 2])
def test_at_the_end_of_a_pass_chance_gives_nothing(passes):
    whole = clumps(documents=200).sum(0)
    assert kl_null_of_passes(whole, float(passes), 3.0) == pytest.approx(
        divergences(passes * whole, whole)[0], rel=0.02
    )


@pytest.fixture
def counted(tmp_path):
    """A manifest whose histogram is that of some documents, and these."""
    counts = clumps()
    whole = counts.sum(0)
    rows = [
        {"split": "train", "source": "web", "token": int(token), "count": int(whole[token])}
        for token in np.flatnonzero(whole)
    ]
    total = int(whole.sum())
    make(
        tmp_path / "m",
        [shard("a.jsonl", documents=len(counts), tokens=total, sources={"web": total})],
        tables={"histogram": rows},
    )
    return tmp_path / "m", counts


@pytest.mark.parametrize("fault", ["", "other ids", "outside"])
def test_ids_of_another_tokenizer_are_found_and_a_part_of_the_corpus_is_not(tmp_path, counted, fault):
    folder, counts = counted
    random = np.random.default_rng(4)
    read = random.random(len(counts)) < 0.2
    half = random.random(len(counts)) < 0.5
    now, of_half = counts[read].sum(0), counts[read & half].sum(0)
    if fault == "other ids":
        order = random.permutation(VOCAB)
        now, of_half = now[order], of_half[order]
    elif fault == "outside":
        now, of_half = (np.append(np.zeros(VOCAB, np.int64), one) for one in (now, of_half))
    run = Run(tmp_path / "run", folder)
    run.step(1, [1], [0])
    run.tokens(1, 1, now, of_half)
    found = trained_on(Data(run.close(), load_manifest(folder)))
    (drift,) = found.drift
    assert drift.source == ""
    assert drift.mark == ("beyond" if fault else "perhaps" if drift.kl > 0.05 else "")
    assert bool(said(data_points(found)).count("from those audited")) == bool(fault)
    assert found.outside == (int(now.sum()) if fault == "outside" else 0)
    assert found.counted_tokens == now.sum()
    if not fault:
        reference = counts.sum(0)
        reference[SPECIAL], now[SPECIAL] = 0, 0
        p, q = ((one + 0.5) / (one.sum() + 0.5 * VOCAB) for one in (now, reference))
        assert drift.kl == pytest.approx(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True)), abs=1e-9)


def test_another_tokenizer_that_was_said_is_not_compared(tmp_path, counted):
    folder, counts = counted
    run = Run(tmp_path / "run", folder, told={"tokenizer": "bytes"})
    run.step(1, [1], [0])
    run.tokens(1, 1, counts.sum(0), counts.sum(0) // 2)
    found = trained_on(Data(run.close(), load_manifest(folder)))
    assert (found.drift, found.drift_reason) == ((), "other_tokenizer")


def test_clipped_and_skipped_updates_are_counted(tmp_path, manifest):
    run, random = Run(tmp_path / "run", manifest, told={"planned_tokens": 10**6}), np.random.default_rng(5)
    norms, skipped, limits = random.gamma(2, 1, STEPS), random.random(STEPS) < 0.1, np.repeat([1.0, 2.5], STEPS // 2)
    norms[skipped] = np.inf
    for step in range(1, STEPS + 1):
        place = step - 1
        more = {"skipped_updates": 1.0} if skipped[place] else {}
        more |= {"grad_max_norm": limits[place]} if place in (0, STEPS // 2) else {}
        more |= {"loss_scale": 2.0**place} if place < 3 else {}
        run.step(step, [0], [0], grad_global_norm=norms[place], **more)
    found = run_facts(run.close())
    assert (found.steps_seen, found.skipped_updates) == (STEPS - skipped.sum(), skipped.sum())
    assert (found.tokens_seen, found.planned_tokens) == (STEPS * TARGETS, 10**6)
    assert found.tokens_per_update == pytest.approx(STEPS * TARGETS / (STEPS - skipped.sum()))
    clipped = sum(norm > limit for norm, limit in zip(norms[~skipped], limits[~skipped], strict=True))
    assert (found.clipping.clipped, found.clipping.updates) == (clipped, STEPS - skipped.sum())
    assert found.mixed_precision.overflow_rate == pytest.approx(skipped.mean())
    assert found.mixed_precision.loss_scale == 4.0


def test_the_moving_average_is_that_of_a_plain_loop():
    random = np.random.default_rng(6)
    step, value = np.arange(1, 300), random.normal(3, 1, 299)
    value[7] = np.nan
    at = np.array([1, 8, 9, 250, 400])
    for asked, found in zip(at, ema(step, value, at), strict=True):
        held = [(BETA ** (299 - place), one) for place, one in enumerate(value) if place < asked and np.isfinite(one)]
        held = [(BETA**k, one) for k, (_, one) in enumerate(reversed(held))]
        assert found == pytest.approx(sum(w * one for w, one in held) / sum(w for w, _ in held), rel=1e-9)


def test_a_gap_that_keeps_widening_is_found_and_noise_seldom_is():
    random = np.random.default_rng(7)
    gap = np.concatenate([random.normal(0, 0.01, 20), 0.1 + 0.05 * np.arange(8)])
    step = np.arange(1, 29) * 50
    assert divergence_step(step, gap) in (19 * 50, 20 * 50, 21 * 50)
    assert divergence_step(step[:23], gap[:23]) is None
    times = thinned(7_200, 3_600)
    false = sum(divergence_step(step, random.normal(size=28)) is not None for _ in range(times))
    assert false <= times / 720 + 4 * np.sqrt(times / 720)


def timed(folder, manifest, *, slow=1.0, wait=0.0, ranks=2):
    """Return what a run says whose last rank is slow, or whose loader is."""
    run, random = Run(folder, manifest, ranks=ranks), np.random.default_rng(8)
    for step in range(1, 41):
        work = [0.1 * random.uniform(0.9, 1.1) * (slow if rank == ranks - 1 else 1.0) for rank in range(ranks)]
        for rank in range(ranks):
            times = {"step_time": max(work) + 0.05 + wait, "dataloader_wait": wait, "rank_time": work[rank]}
            run.step(step, [0], [0], rank=rank, **times)
    return run_facts(run.close())


def test_a_run_that_goes_on_with_fewer_ranks_is_judged_by_those(tmp_path, manifest):
    """The third, which was slow, has left; of the two rank 1 is the slower."""
    run = Run(tmp_path / "run", manifest, ranks=3)
    for step in range(1, 21):
        for rank in range(3):
            run.step(step, [0], [0], rank=rank, step_time=0.3, rank_time=0.3 if rank == 2 else 0.1)
    run.close()
    logs = [RankWriter(tmp_path / "run", rank, 21, BLOCK_ROWS) for rank in range(2)]
    for rank, log in enumerate(logs):
        log.add("events", event(20, "resumed", {"ranks": 2}))
        run.logs[rank] = log
    for step in range(21, 41):
        for rank in range(2):
            run.step(step, [0], [0], rank=rank, step_time=0.3, rank_time=0.2 if rank == 1 else 0.1)
    straggler = run_facts(run.close()).times.straggler
    assert (straggler.rank, straggler.ranks) == (1, 2)


def test_what_the_newest_start_reports_counts_though_its_clock_is_behind(tmp_path, manifest, monkeypatch):
    monkeypatch.setattr("dataaudit.runlog.writer.time.time", lambda: 2e9)
    Run(tmp_path / "run", manifest, told={"planned_tokens": 1}).close()
    monkeypatch.setattr("dataaudit.runlog.writer.time.time", lambda: 1e9)
    log = RankWriter(tmp_path / "run", 0, 1, BLOCK_ROWS)
    log.add("events", event(0, "started", {"told": {"planned_tokens": 2}}))
    log.add("events", event(1, "reads", {"told": {"tokenizer": "bytes"}}))
    log.close()
    reported = reported_of(load_run(tmp_path / "run").table("events"))
    assert reported == {"planned_tokens": 2, "tokenizer": "bytes"}


def test_a_slow_rank_and_a_slow_loader_are_found(tmp_path, manifest):
    fine = timed(tmp_path / "fine", manifest)
    assert list(run_points(fine)) == []
    assert fine.times.straggler.ratio == pytest.approx(1.0, abs=0.05)
    slow = timed(tmp_path / "slow", manifest, slow=2.0, ranks=3)
    assert (slow.times.straggler.rank, slow.times.straggler.ranks) == (2, 3)
    assert slow.times.straggler.ratio == pytest.approx(2.0, rel=0.1)
    assert "Rank 2 works" in said(run_points(slow))
    stalled = timed(tmp_path / "stalled", manifest, wait=0.1)
    assert stalled.times.dataloader_stall_frac == pytest.approx(0.1 / 0.26, rel=0.05)
    assert "waiting for batches" in said(run_points(stalled))
    assert fine.times.step_time_p50 < fine.times.step_time_p95
    assert fine.times.tokens_per_sec == pytest.approx(2 * TARGETS / 0.155, rel=0.1)


def test_parts_of_a_profiled_step_are_unions_of_its_events():
    random = np.random.default_rng(9)
    names = ("gloo:all_reduce", "aten::mm", "Optimizer.step#AdamW", "c10d::allreduce_", "something else")
    spans = [
        (names[one], int(start), int(length))
        for one, start, length in zip(
            random.integers(0, 5, 60), random.integers(0, 900, 60), random.integers(0, 60, 60), strict=True
        )
    ]
    events = [
        SimpleNamespace(
            name=lambda name=name: name,
            start_ns=lambda start=start: start,
            duration_ns=lambda length=length: length,
            device_type=lambda: SimpleNamespace(name="CPU"),
        )
        for name, start, length in spans
    ]
    comm, compute = (
        {tick for name, start, length in spans if name.startswith(chosen) for tick in range(start, start + length)}
        for chosen in (("gloo:",), ("aten::", "Optimizer"))
    )
    found = fractions(Window(1, 1e-6, events))
    assert found == pytest.approx(
        {
            ("comm_time_frac", "value"): len(comm) / 1_000,
            ("comm_time_frac", "exposed"): len(comm - compute) / 1_000,
            ("compute_time_frac", "value"): len(compute) / 1_000,
        }
    )


@pytest.fixture
def faulty(tmp_path, manifest):
    """A run with a wrong mixture and an optimizer that is handled wrongly."""
    run, random = Run(tmp_path / "run", manifest, told={"planned_tokens": 1_000_000}), np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        source = (random.random(16) > 0.6).astype(int)
        run.step(step, source, source, loss=2 + 0.01 * random.normal(), step_time=0.1, dataloader_wait=0.05)
    jump = {"before": 1e-3, "after": 1e-6, "usual_change": 0.0}
    run.logs[0].add("events", event(61, "learning_rate_jump", jump))
    run.logs[0].add("events", event(62, "clip_before_unscale", {"stage": "READY"}))
    run.close()
    return tmp_path / "run"


def test_page_and_terminal_say_what_was_trained_on(faulty, manifest):
    page = run_page(load_run(faulty))
    trained = next(one for one in page.sections if one.id == "trained")
    assert "dataaudit attribute" in trained.blocks[0].note
    assert [row[1] for row in trained.blocks[0].rows] == [
        f"{one:,}" for one in source_tokens(load_run(faulty)).values()
    ]
    data = load_data(faulty, manifest)
    found = attribute(data)
    assert found.exit_code == 0
    shown = render_text(found, data, width=120)
    for words in (
        "mixture declares 0.7500",
        "waiting for batches",
        "What was trained on, by source",
        "1,000,000 planned",
    ):
        assert words in shown
    write_attribution(faulty, found)
    page = run_page(load_run(faulty))
    told = repr(page.findings)
    for words in ("another learning rate", "before they were unscaled", "mixture declares", "waiting for batches"):
        assert words in told
    trained = next(one for one in page.sections if one.id == "trained")
    assert trained.tone == "bad"
    assert trained.blocks[0].title == "What was trained on, by source"
    assert Attribution.model_validate_json((faulty / "attribution.json").read_bytes()) == found


def test_a_log_of_before_has_no_record_and_is_read(faulty, manifest):
    for name in ("tokens", "lengths", "values"):
        (faulty / "ranks" / "00000" / f"{name}-00000.arrows").unlink()
    found = attribute(load_data(faulty, manifest))
    assert found.run.times is None
    assert found.run.clipping is None
    assert found.trained_on.drift_reason == "no_labels"
    assert [one.passes for one in found.trained_on.sources] == [None, None]
    assert found.trained_on.lengths.pad_fraction is None


def spoken(german, english):
    """Return the languages of a shard, by tokens."""
    names = (("de", german), ("en", english))
    return [{"language": name, "documents": 20, "bytes": 4 * one, "tokens": one} for name, one in names]


def test_languages_are_those_of_the_shards_weighted_by_what_was_read_of_each(tmp_path):
    shards = [
        shard("a.jsonl", documents=40, tokens=4_000, sources={"code": 4_000}, languages=spoken(1_000, 3_000)),
        shard("b.jsonl", documents=40, tokens=4_000, sources={"web": 4_000}, languages=spoken(4_000, 0)),
    ]
    make(tmp_path / "m", shards)
    run = Run(tmp_path / "run", tmp_path / "m")
    run.step(1, [0, 1], [0, 1], targets=4_000)  # a whole pass over both
    whole = trained_on(Data(load_run(run.folder), load_manifest(tmp_path / "m")))
    assert whole.languages == ()
    assert run.logs[0].flush()
    whole = trained_on(Data(load_run(run.folder), load_manifest(tmp_path / "m")))
    assert [(one.language, one.share, one.low, one.high) for one in whole.languages] == [
        ("de", 5 / 8, 5 / 8, 5 / 8),
        ("en", 3 / 8, 3 / 8, 3 / 8),
    ]
    run.step(2, [0], [0], targets=2_000)
    found = trained_on(Data(run.close(), load_manifest(tmp_path / "m")))
    german = found.languages[0]
    assert (german.share, german.corpus_share) == (pytest.approx((1_500 + 4_000) / 10_000), 5 / 8)
    assert german.low < german.share < german.high
    assert found.languages_of == 1


@pytest.mark.parametrize("passes", [1, 2])
def test_a_source_that_was_read_more_often_than_declared_is_said(tmp_path, manifest, passes):
    run = Run(tmp_path / "run", manifest)
    run.step(1, [0, 1], [0, 1])
    columns = {"step": [1, 1], "source": [0, 1], "length": [100, 100], "stretches": [400, 400]}
    begun = np.array([160 * passes, 160])
    run.logs[0].add("lengths", {**{name: np.array(one) for name, one in columns.items()}, "begun": begun})
    found = trained_on(Data(run.close(), load_manifest(manifest)))
    assert {one.source: (one.passes, one.over) for one in found.sources} == {
        "code": (passes, passes > 1),
        "web": (1.0, False),
    }
    assert ("was passed over" in said(data_points(found))) == (passes > 1)
    assert found.lengths.mean == 100
    assert found.lengths.p95 == 100
