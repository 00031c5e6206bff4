"""What a run was trained on, what it did, and what stands out of both, as blocks of a page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dataaudit.base.render.blocks import Block, Cell, Declared, Facts, Point, Points, Prose, Tone, table_of, toned
from dataaudit.base.render.line import Interval, Line, Name, Number, decimal, join, nats, say, share, size
from dataaudit.base.text import plural
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_findings import (
    LanguageTrained,
    LengthsTrained,
    RunFacts,
    SourceTrained,
    Times,
    TrainedOn,
)

STALL = 0.1
"""Share of the time waited for batches from which on it is pointed out; a rule of thumb, as the next."""
SLOW = 1.2
"""Ratio of the slowest rank's time to the median from which on it is pointed out."""
_LANGUAGES = 8
_MARKS = {"": "", "beyond": "beyond chance", "perhaps": "as chance could give", "unknown": "chance not known"}


_DRIFT_TONES: dict[str, Tone] = {"beyond": "bad", "unknown": "warn", "perhaps": "", "": ""}
_UNKNOWN = {
    "other_tokenizer": "they are those of another tokenizer than the manifest's",
    "no_labels": "`labels` were not handed over",
    "no_histogram": "the manifest holds no token counts",
    "folded_sources": "the manifest counts several sources as one",
}
table = partial(table_of, most=None)
"""Makes a table of all items, by its columns."""


def rounded(value: float | None, digits: int = 3) -> Number:
    """Return a number with decimals, rounded."""
    return decimal(None if value is None else round(value, digits))


def share_line(source: str, trained: Line, declared: float | None) -> Line:
    """Return that a source has another share of what was trained on than the mixture declares."""
    return say("{} is {} of the tokens trained on; the mixture declares {}.", Name(source), trained, share(declared))


def steps_line(first: int, last: int) -> str:
    """Return "Steps 3 to 5", or "Step 3"."""
    return f"Step {first:,}" if first == last else f"Steps {first:,} to {last:,}"


def short(value: float | None) -> str:
    """Return a number with two digits; a dash for None."""
    return "-" if value is None else f"{value:.2g}"


def run_blocks(result: Attribution) -> Iterator[Block]:
    """Return what the terminal shows of a run, under the episodes."""
    points = [
        *(data_points(result.trained_on) if result.trained_on else ()),
        *(run_points(result.run) if result.run else ()),
    ]
    if points:
        yield Points(items=tuple(points), title="To look at")
    if result.trained_on is not None and result.trained_on.tokens:
        yield from data_blocks(result.trained_on)
    if result.run is not None and result.run.tokens_seen:
        yield Facts(title="The run", pairs=tuple(run_pairs(result.run)))


def data_points(result: TrainedOn) -> Iterator[Point]:
    """Return what stands out of what was trained on."""
    for source in result.sources:
        name = Name(source.source)
        if source.off:
            yield _point(share_line(source.source, _part(source), source.declared), "trained", "bad")
        if source.over and source.declared_epochs is not None:
            declared = f"{source.declared_epochs:g} {'is' if source.declared_epochs == 1 else 'are'}"
            words = "{} was passed over {} times; {} declared."
            yield _point(say(words, name, rounded(source.passes, 2), declared), "trained")
    for drift in result.drift:
        if tone := _DRIFT_TONES[drift.mark]:
            of: Line = say(" of {}", Name(drift.source)) if drift.source else ""
            words = "Tokens trained on{} are {} from those audited, {}: they are not of these documents, or of a"
            words += " tokenizer that `TrainingMonitor(tokenizer=)` does not name."
            chance = "chance not known" if drift.kl_bias is None else say("chance gives {}", nats(drift.kl_bias))
            yield _point(say(words, of, nats(drift.kl), chance), "trained", tone)
    if result.outside:
        verb = "is" if result.outside == 1 else "are"
        words = f"{result.outside:,} of the tokens trained on {verb} not in the manifest's vocabulary."
        yield _point(words, "trained", "bad")


def run_points(result: RunFacts) -> Iterator[Point]:
    """Return what stands out of what a run did."""
    for held_out in result.held_out:
        if held_out.divergence_step is not None:
            of: Line = say(" of {}", Name(held_out.name)) if held_out.name else ""
            words = "The loss on held-out data{} keeps leaving that of training since step {}."
            yield _point(say(words, of, f"{held_out.divergence_step:,}"), "run")
    times = result.times
    if times is not None and (times.dataloader_stall_frac or 0.0) > STALL:
        yield _point(say("{} of the time is waiting for batches.", share(times.dataloader_stall_frac)), "run")
    if times is not None and times.straggler is not None and times.straggler.ratio > SLOW:
        slow = times.straggler
        words = f"Rank {slow.rank} works {slow.ratio:.2f} times as long as the median rank before ranks meet."
        yield _point(words, "run")


def data_blocks(result: TrainedOn) -> Iterator[Block]:
    """Return the tables of what was trained on."""
    declares = any(source.declared is not None for source in result.sources)
    declared: Declared = ("declared", "number", lambda row: share(row.declared))
    counted = result.lengths.tokens
    less = f" Passes and lengths are of {counted:,} tokens alone." if counted < result.tokens else ""
    merged = f" {result.merged:,} more lie in segments that were merged." if result.merged else ""
    yield table(
        "What was trained on, by source",
        result.sources,
        ("source", "name", lambda row: toned(Name(row.source), "bad" if row.off else "warn" if row.over else "")),
        ("tokens", "number", lambda row: f"{row.tokens:,}"),
        ("share", "value", _part),
        *([declared] if declares else []),
        ("of the corpus", "number", lambda row: share(row.corpus_share)),
        ("passes", "number", lambda row: rounded(row.passes, 2)),
        noun="source",
        note="Share: with its 95 % interval. Passes: documents begun over documents opened." + less + merged,
    )
    if result.drift:
        of = "" if result.counted_tokens == result.tokens else f" Counted were {result.counted_tokens:,} of them."
        yield table(
            "Token drift from what was audited, nats",
            result.drift,
            (
                "source",
                "name",
                lambda row: Cell(text=Name(row.source) if row.source else "all", tone=_DRIFT_TONES[row.mark]),
            ),
            ("KL", "number", lambda row: short(row.kl)),
            ("by chance", "number", lambda row: short(row.kl_bias)),
            ("up to", "number", lambda row: short(row.kl_bias_high)),
            ("JS", "number", lambda row: short(row.js)),
            ("", "word", lambda row: _MARKS[row.mark]),
            noun="source",
            note=f"Special tokens are left out.{of}",
        )
    elif result.drift_reason:
        yield Prose(text=f"Whether tokens are those that were audited is not known: {_UNKNOWN[result.drift_reason]}.")
    if result.languages:
        left = len(result.languages[_LANGUAGES:])
        more = f" {plural(left, 'more language')} in attribution.json." if left else ""
        yield table(
            "Languages, estimated",
            result.languages[:_LANGUAGES],
            ("language", "name", lambda row: Name(row.language)),
            ("share", "value", _part),
            ("of the corpus", "number", lambda row: share(row.corpus_share)),
            noun="language",
            note="From the shares of each shard, weighted by what was trained on of it: what was read of a shard is"
            f" taken to be a random part.{more}",
        )
    yield Facts(title="Lengths", pairs=tuple(_lengths(result.lengths)))


def _lengths(result: LengthsTrained) -> Iterator[tuple[Line, Line]]:
    if result.mean is not None:
        mean = f"{result.mean:,.0f} tokens in the mean"
        yield "stretches", f"{result.stretches:,}, {mean}, p50 {result.p50:,}, p95 {result.p95:,}"
    if result.document_p50 is not None and result.document_p95 is not None:
        yield "documents, as audited", f"p50 {result.document_p50:,.0f}, p95 {result.document_p95:,.0f}"
    if result.tokens_per_document is not None:
        audited = result.tokens_per_document_audited
        beside = "" if audited is None else f", audited {audited:,.1f}"
        yield "tokens a document", f"{result.tokens_per_document:,.1f}{beside}"
    if result.pad_fraction is not None:
        ways = join(", ", (say("{} {}", way, share(value)) for way, value in result.audited_pad_fraction.items()))
        padded: Line = say("; as audited at {}: {}", result.context, ways) if result.audited_pad_fraction else ""
        yield "padding", say("{}{}", share(result.pad_fraction), padded)


def run_pairs(result: RunFacts) -> Iterator[tuple[Line, Line]]:
    """Return what a run did, in names and values."""
    planned: Line = ""
    if result.planned_tokens:
        planned = say(", {} of {} planned", share(result.tokens_seen / result.planned_tokens), result.planned_tokens)
    repeated = f", {result.repeated_tokens:,} of rows dealt twice" if result.repeated_tokens else ""
    yield "tokens seen", say("{}{}{}", result.tokens_seen, planned, repeated)
    skipped = f", {result.skipped_updates:,} skipped" if result.skipped_updates else ""
    each = "" if result.tokens_per_update is None else f", {result.tokens_per_update:,.0f} tokens each"
    yield "updates", f"{result.steps_seen:,}{skipped}{each}"
    if result.clipping is not None:
        clipped = result.clipping
        newest = f"the newest {clipped.newest_updates:,} (to {clipped.max_norm:g})"
        words = f"{{}} of {clipped.updates:,} updates, {{}} of {newest}"
        yield "clipped", say(words, share(clipped.rate), share(clipped.newest_rate))
    if result.mixed_precision is not None:
        scaler = result.mixed_precision
        yield "loss scale", say(f"{scaler.loss_scale:g}, {{}} of updates skipped", share(scaler.overflow_rate))
    for held_out in result.held_out:
        known = [point for point in held_out.points if point.train_val_gap is not None]
        if known:
            name: Line = say("gap to {}", Name(held_out.name)) if held_out.name else "train_val_gap"
            yield name, f"{known[-1].train_val_gap:+.3f} nats/token at step {known[-1].step:,}"
    if result.times is not None:
        yield from _times_pairs(result.times)


def _times_pairs(result: Times) -> Iterator[tuple[Line, Line]]:
    yield "step time", f"p50 {_seconds(result.step_time_p50)}, p95 {_seconds(result.step_time_p95)}"
    if result.tokens_per_sec is not None:
        yield "tokens a second", f"{result.tokens_per_sec:,.0f}"
    if result.utilisation:
        yield "MFU, HFU", _utilisation(result)
    if result.dataloader_stall_frac is not None:
        yield "waiting for batches", share(result.dataloader_stall_frac)
    if result.comm_time_frac is not None and result.compute_time_frac is not None:
        alone: Line = "" if not result.comm_exposed_frac else say(" ({} alone)", share(result.comm_exposed_frac))
        words = f"communication {{}}{{}}, computing {{}}, of {plural(result.profiled_steps, 'step')}"
        yield "profiled", say(words, share(result.comm_time_frac), alone, share(result.compute_time_frac))
    if result.straggler is not None:
        yield "slowest rank", f"{result.straggler.rank}, {result.straggler.ratio:.2f} times the median"
    if result.gpu_util is not None:
        yield "GPU", say("{} busy, {} of memory", share(result.gpu_util), size(int(result.gpu_mem_used or 0)))


def _utilisation(result: Times) -> Line:
    counted = {name: str(value).replace("_", " ") for name, value in result.utilisation.items()}
    if "why" in counted or result.mfu is None:
        return say("not evaluated: {}", Name(counted.get("why", "no window of 16 steps has ended"), 200))
    how = "attention {attention}, embeddings {embeddings}, recomputed: {recomputed}".format_map(counted)
    peak, device = f"{float(counted['peak']) / 1e12:,.5g}", Name(counted["device"], 60)
    return say("{}, {} of {} TFLOP/s ({}); {}", share(result.mfu), share(result.hfu), peak, device, how)


def _point(text: Line, section: str, tone: Tone = "warn") -> Point:
    return Point(text=text, tone=tone, section=section)


def _part(trained: SourceTrained | LanguageTrained) -> Line:
    if trained.low is None or trained.high is None:
        return share(trained.share)
    return say("{} ({})", share(trained.share), Interval(trained.low, trained.high))


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"
