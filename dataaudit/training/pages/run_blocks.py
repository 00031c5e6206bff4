"""What people read of a run besides its episodes: what it was trained on, what it did, and what stands out of both."""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Point,
    Points,
    Prose,
    Row,
    Table,
    Tone,
    names,
    numbers,
    toned,
)
from dataaudit.base.render.line import Interval, Line, Name, decimal, join, nats, say, share, size
from dataaudit.base.text import plural
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_findings import (
    HeldOut,
    LanguageTrained,
    LengthsTrained,
    RunFacts,
    SourceTrained,
    Times,
    TokenDrift,
    TrainedOn,
)

STALL = 0.1
"""Share of the time waited for batches from which on it is pointed out; a rule of thumb, as the next."""
SLOW = 1.2
"""Ratio of the slowest rank's time to the median from which on it is pointed out."""
_LANGUAGES = 8
_MARKS = {
    "": "",
    "beyond": "beyond chance",
    "perhaps": "as chance could give",
    "unknown": "chance not known",
}


def run_blocks(found: Attribution) -> Iterator[Block]:
    """Return what the terminal shows of a run, under the episodes."""
    points = [
        *(data_points(found.trained_on) if found.trained_on else ()),
        *(run_points(found.run) if found.run else ()),
    ]
    if points:
        yield Points(items=tuple(points), title="To look at")
    if found.trained_on is not None and found.trained_on.tokens:
        yield from data_blocks(found.trained_on)
    if found.run is not None and found.run.tokens_seen:
        yield Facts(title="The run", pairs=tuple(run_pairs(found.run)))


def data_points(found: TrainedOn) -> Iterator[Point]:
    """Return what stands out of what was trained on."""
    for source_trained in found.sources:
        if source_trained.off:
            words = "{} is {} of the tokens trained on; the mixture declares {}."
            yield _point(
                say(words, Name(source_trained.source), _part(source_trained), share(source_trained.declared)),
                "trained",
                "bad",
            )
        if source_trained.over:
            words = "{} was passed over {} times; {} declared."
            times = say(
                words,
                Name(source_trained.source),
                decimal(_two(source_trained.passes)),
                _times(source_trained.declared_epochs),
            )
            yield _point(times, "trained")
    for drift in found.drift:
        if drift.mark in ("beyond", "unknown"):
            of: Line = say(" of {}", Name(drift.source)) if drift.source else ""
            words = "Tokens trained on{} are {} from those audited, {}: they are not of these documents, or of a"
            words += " tokenizer that `TrainingMonitor(tokenizer=)` does not name."
            chance = "chance not known" if drift.kl_bias is None else say("chance gives {}", nats(drift.kl_bias))
            tone = "bad" if drift.mark == "beyond" else "warn"
            yield _point(say(words, of, nats(drift.kl), chance), "trained", tone)
    if found.outside:
        words = "{} of the tokens trained on {} not in the manifest's vocabulary."
        yield _point(say(words, f"{found.outside:,}", "is" if found.outside == 1 else "are"), "trained", "bad")


def run_points(found: RunFacts) -> Iterator[Point]:
    """Return what stands out of what a run did."""
    for held_out in found.held_out:
        if held_out.divergence_step is not None:
            of: Line = say(" of {}", Name(held_out.name)) if held_out.name else ""
            words = "The loss on held-out data{} keeps leaving that of training since step {}."
            yield _point(say(words, of, f"{held_out.divergence_step:,}"), "run")
    times = found.times
    if times is not None and (times.dataloader_stall_frac or 0.0) > STALL:
        yield _point(say("{} of the time is waiting for batches.", share(times.dataloader_stall_frac)), "run")
    if times is not None and times.straggler is not None and times.straggler.ratio > SLOW:
        slow = times.straggler
        words = f"Rank {slow.rank} works {slow.ratio:.2f} times as long as the median rank before ranks meet."
        yield _point(words, "run")


def data_blocks(found: TrainedOn) -> Iterator[Block]:
    """Return the tables of what was trained on."""
    yield _sources(found)
    if found.drift:
        yield _drift(found)
    elif found.drift_reason:
        yield Prose(text=f"Whether tokens are those that were audited is not known: {_WHY[found.drift_reason]}.")
    if found.languages:
        yield _languages(found)
    yield Facts(title="Lengths", pairs=tuple(_lengths(found.lengths)))


_WHY = {
    "other_tokenizer": "they are those of another tokenizer than the manifest's",
    "no_labels": "`labels` were not handed over",
    "no_histogram": "the manifest holds no token counts",
    "folded_sources": "the manifest counts several sources as one",
}


def _sources(found: TrainedOn) -> Table:
    declares = any(source_trained.declared is not None for source_trained in found.sources)
    counted = found.lengths.tokens
    less = f" Passes and lengths are of {counted:,} tokens alone." if counted < found.tokens else ""
    merged = f" {found.merged:,} more lie in segments that were merged." if found.merged else ""
    return Table(
        title="What was trained on, by source",
        columns=(
            *names("source"),
            *numbers("tokens"),
            Column("share", "value"),
            *numbers(*(["declared"] if declares else []), "of the corpus", "passes"),
        ),
        rows=tuple(
            (
                toned(
                    Name(source_trained.source), "bad" if source_trained.off else "warn" if source_trained.over else ""
                ),
                f"{source_trained.tokens:,}",
                _part(source_trained),
                *([share(source_trained.declared)] if declares else []),
                share(source_trained.corpus_share),
                decimal(_two(source_trained.passes)),
            )
            for source_trained in found.sources
        ),
        noun="source",
        note="Share: with its 95 % interval. Passes: documents begun over documents opened." + less + merged,
    )


def _drift(found: TrainedOn) -> Table:
    counted = "" if found.counted_tokens == found.tokens else f" Counted were {found.counted_tokens:,} of them."
    return Table(
        title="Token drift from what was audited, nats",
        columns=(*names("source"), *numbers("KL", "by chance", "up to", "JS"), Column("", "word")),
        rows=tuple(_drift_row(token_drift) for token_drift in found.drift),
        noun="source",
        note=f"Special tokens are left out.{counted}",
    )


def _drift_row(drift: TokenDrift) -> Row:
    tone: Tone = "bad" if drift.mark == "beyond" else "warn" if drift.mark == "unknown" else ""
    return (
        Cell(text=Name(drift.source) if drift.source else "all", tone=tone),
        *(_short(value) for value in (drift.kl, drift.kl_bias, drift.kl_bias_high, drift.js)),
        _MARKS[drift.mark],
    )


def _languages(found: TrainedOn) -> Table:
    most = found.languages[:_LANGUAGES]
    left = len(found.languages) - len(most)
    more = f" {plural(left, 'more language')} in attribution.json." if left else ""
    return Table(
        title="Languages, estimated",
        columns=(*names("language"), Column("share", "value"), *numbers("of the corpus")),
        rows=tuple((Name(trained.language), _part(trained), share(trained.corpus_share)) for trained in most),
        noun="language",
        note="From the shares of each shard, weighted by what was trained on of it: what was read of a shard is taken"
        f" to be a random part.{more}",
    )


def _lengths(found: LengthsTrained) -> Iterator[tuple[Line, Line]]:
    if found.mean is not None:
        yield (
            "stretches",
            f"{found.stretches:,}, {found.mean:,.0f} tokens in the mean, p50 {found.p50:,}, p95 {found.p95:,}",
        )
    if found.document_p50 is not None and found.document_p95 is not None:
        yield "documents, as audited", f"p50 {found.document_p50:,.0f}, p95 {found.document_p95:,.0f}"
    if found.tokens_per_document is not None:
        audited = found.tokens_per_document_audited
        beside = "" if audited is None else f", audited {audited:,.1f}"
        yield "tokens a document", f"{found.tokens_per_document:,.1f}{beside}"
    if found.pad_fraction is not None:
        ways = join(", ", (say("{} {}", way, share(value)) for way, value in found.audited_pad_fraction.items()))
        padded: Line = say("; as audited at {}: {}", found.context, ways) if found.audited_pad_fraction else ""
        yield "padding", say("{}{}", share(found.pad_fraction), padded)


def run_pairs(found: RunFacts) -> Iterator[tuple[Line, Line]]:
    """Return what a run did, in names and values."""
    planned: Line = ""
    if found.planned_tokens:
        planned = say(", {} of {} planned", share(found.tokens_seen / found.planned_tokens), found.planned_tokens)
    repeated = f", {found.repeated_tokens:,} of rows dealt twice" if found.repeated_tokens else ""
    yield "tokens seen", say("{}{}{}", found.tokens_seen, planned, repeated)
    skipped = f", {found.skipped_updates:,} skipped" if found.skipped_updates else ""
    each = "" if found.tokens_per_update is None else f", {found.tokens_per_update:,.0f} tokens each"
    yield "updates", f"{found.steps_seen:,}{skipped}{each}"
    if found.clipping is not None:
        held = found.clipping
        words = f"{{}} of {held.updates:,} updates, {{}} of the newest {held.newest_updates:,} (to {held.max_norm:g})"
        yield "clipped", say(words, share(held.rate), share(held.newest_rate))
    if found.mixed_precision is not None:
        scaler = found.mixed_precision
        yield "loss scale", say(f"{scaler.loss_scale:g}, {{}} of updates skipped", share(scaler.overflow_rate))
    for held_out in found.held_out:
        yield from _held_out(held_out)
    if found.times is not None:
        yield from _times_pairs(found.times)


def _held_out(out: HeldOut) -> Iterator[tuple[Line, Line]]:
    known = [point for point in out.points if point.train_val_gap is not None]
    if known:
        newest = known[-1]
        name: Line = say("gap to {}", Name(out.name)) if out.name else "train_val_gap"
        yield name, f"{newest.train_val_gap:+.3f} nats/token at step {newest.step:,}"


def _times_pairs(found: Times) -> Iterator[tuple[Line, Line]]:
    yield "step time", f"p50 {_seconds(found.step_time_p50)}, p95 {_seconds(found.step_time_p95)}"
    if found.tokens_per_sec is not None:
        yield "tokens a second", f"{found.tokens_per_sec:,.0f}"
    if found.dataloader_stall_frac is not None:
        yield "waiting for batches", share(found.dataloader_stall_frac)
    if found.comm_time_frac is not None and found.compute_time_frac is not None:
        alone: Line = "" if not found.comm_exposed_frac else say(" ({} alone)", share(found.comm_exposed_frac))
        words = f"communication {{}}{{}}, computing {{}}, of {plural(found.profiled_steps, 'step')}"
        yield "profiled", say(words, share(found.comm_time_frac), alone, share(found.compute_time_frac))
    if found.straggler is not None:
        yield "slowest rank", f"{found.straggler.rank}, {found.straggler.ratio:.2f} times the median"
    if found.gpu_util is not None:
        yield "GPU", say("{} busy, {} of memory", share(found.gpu_util), size(int(found.gpu_mem_used or 0)))


def _point(text: Line, section: str, tone: str = "warn") -> Point:
    return Point(text=text, tone="bad" if tone == "bad" else "warn", section=section)


def _part(trained: SourceTrained | LanguageTrained) -> Line:
    if trained.low is None or trained.high is None:
        return share(trained.share)
    return say("{} ({})", share(trained.share), Interval(trained.low, trained.high))


def _times(value: float | None) -> str:
    return f"{value:g} {'is' if value == 1 else 'are'}"


def _two(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"
