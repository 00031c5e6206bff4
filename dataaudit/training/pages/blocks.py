"""The terminal's view of an attribution: the answer, the curve, what was divided, and what it does not say.

Where no episode is, the headline names the least rise that would have been seen, and what changed in the run.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dataaudit.base.render.blocks import Block, Declared, Facts, Point, Points, Prose, Section, Table, column, toned
from dataaudit.base.render.line import Line, Name, join, say, share, spell
from dataaudit.base.render.terminal import page, parts_of, plot_lines, prose, section, terminal_width
from dataaudit.base.statistics import LEAST_STEPS, Floats, Ints
from dataaudit.base.text import plural, some_of
from dataaudit.present.report.highlights import LIMIT_SD
from dataaudit.training.attribution.findings import Attribution, Change, Detector, Document, Episode, Share, Span
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import beside
from dataaudit.training.attribution.step_detector import YOUNG
from dataaudit.training.pages.evidence_blocks import evidence_blocks, proposed, replay_blocks, unit_line
from dataaudit.training.pages.run_blocks import rounded, run_blocks, steps_line, table

HEADLINE_STEPS = 5
"""Steps whose limit the headline names, where there is one."""
BLIND = 1.0
"""Nats: where no smaller rise would have been seen, that comes first."""
MOST = 3
"""Changes that are named in a line."""
_NAMES = {"learning_rate": "the learning rate", "batch": "targets of a step"}
EPISODES = 5
"""Episodes that are shown; JSON has all."""
_ROWS = 8
_OPENED = 3
"""Documents whose command is spelled out."""
_REST = "; attribution.json lists the first 20"
LIMITS = (
    "This is accounting: it says in which documents the excess lies, not that they caused it. In PaLM's runs (Chowdhery"
    " et al. 2022, section 5.1) the same batches made no spike from another checkpoint. Before you quarantine"
    " documents, train on them again from an earlier checkpoint, and without them: `--replay`."
)
_REASONS = {
    "state": "all blocks are up together, as when the model's state is at fault",
    "few_shards": "too few shards to compare",
    "one_block_fills_the_step": "a single block or shard fills the steps",
    "new_source": "the excess lies in a source that is new, or was not read lately",
    "not_rare": "a single step that chance may bring",
    "rank_missing": "a rank is missing",
    "no_stretch_losses": "the log has no losses of segments",
    "merged_stretches": "the excess lies in merged segments",
    "mixture": "harder sources came together",
    "spread": "the excess is spread over many blocks",
}
_WHOLE = frozenset({"state", "mixture"})
"""Reasons that point at no document: none is listed."""


def limit_line(detector: Detector) -> str:
    """Return "rise above 0.28 nats over 5 steps": the limit of visibility; nothing where no step was judged."""
    limits = {visible.steps: visible.rise for visible in detector.visible}
    if not limits:
        return ""
    steps = HEADLINE_STEPS if HEADLINE_STEPS in limits else max(limits)
    during = "in a single step" if steps == 1 else f"over {steps} steps"
    return f"rise above {limits[steps]:.2g} nats {during}"


def none_seen(detector: Detector, steps: int) -> str:
    """Return the same of a run without an episode, without a full stop: "No rise above ... among 900 steps"."""
    blind = min((visible.rise for visible in detector.visible), default=0.0) > BLIND
    begin = f"Hardly anything could be seen: no {limit_line(detector)}" if blind else f"No {limit_line(detector)}"
    return f"{begin} among {plural(steps, 'step')}"


def _no_episode(result: Attribution) -> str:
    """Return the headline where no episode is: what could not have been seen, dips, and changes."""
    if result.asked_step is None:
        dips = f"; {plural(len(result.dips), 'dip')} below the band" if result.dips else ""
        changes = f"; {change_lines(result.changes)}" if result.changes else ""
        return f"{none_seen(result.detector, result.steps)}{dips}{changes}."
    step = result.asked_step
    dip = ", but below the band" if any(span.first_step <= step <= span.last_step for span in result.dips) else ""
    changed = beside(result.changes, Span(first_step=step, last_step=step, flagged=0))
    changes = f" Beside it: {change_lines(changed)}." if changed else ""
    seen = f"A {limit_line(result.detector)} is seen in half of the cases."
    return f"Step {step:,} is in no episode{dip}. {seen}{changes}"


def change_lines(changes: tuple[Change, ...]) -> str:
    """Return what changed, in a line."""
    more = f"; {plural(len(changes) - MOST, 'more change')}" if len(changes) > MOST else ""
    return "; ".join(map(change_line, changes[:MOST])) + more


def change_line(change: Change) -> str:
    """Return a change in words."""
    steps = steps_line(change.first_step, change.last_step).lower()
    if change.kind == "skipped_updates":
        return f"{plural(int(change.after), 'skipped update')} at {steps}"
    if change.kind == "clipping":
        return f"every update clipped in {steps}, {change.before:.0%} before"
    times = f" (x {change.after / change.before:.3g})" if change.before > 0 else ""
    return f"{_NAMES[change.kind]} {change.after:,.4g} after {change.before:,.4g}{times} from {steps}"


def render_text(result: Attribution, data: Data, *, width: int | None = None) -> str:
    """Return what the terminal shows."""
    columns = width or terminal_width()
    shown = _shown(result)
    chart = curve_chart("Loss by step, nats/token", data.curve.step, data.curve.value, result.episodes, columns)
    blocks = [block for episode in shown for block in _blocks(episode, data, result.changes, title=len(shown) > 1)]
    parts = [lines for block in (*blocks, *_rest(result, shown)) for lines in parts_of(block, columns, _ROWS, _REST)]
    return page(headline(result), _opening(result, shown, columns), section("", chart), *parts)


def headline(result: Attribution) -> Line:
    """Return the answer in a line."""
    shown = _shown(result)
    if shown:
        return join(" ", (*behind_lines(result)[:1], answer(shown[0])))
    steps = plural(result.steps, "step")
    if result.reason and result.asked_step is not None:
        return f"Cannot tell: a rank's part of step {result.asked_step:,} is missing; the others' loss is in its band."
    if result.reason:
        lacking = "its end is missing" if result.reason == "not_closed" else _missing(result)
        return f"Cannot tell: {lacking}; of the {steps} in the log, none has a loss above its band."
    if not result.exit_code:
        return _no_episode(result)
    window = result.detector.window
    if result.judged and result.asked_step is not None:
        return f"Step {result.asked_step:,} was not judged: a line takes {window} steps before the first one that is."
    torn = f" ({plural(result.torn_bytes, 'byte')} at its end could not be read)" if result.torn_bytes else ""
    return f"No data: {steps} in the log{torn}, and a line takes {window} before the first one that is judged."


def behind_lines(result: Attribution) -> list[Line]:
    """Return which shards are behind more than one episode of a run, and how many."""
    several = [behind for behind in result.behind if behind.episodes > 1][:EPISODES]
    episodes = plural(len(result.episodes), "episode")
    return [
        say("{} is behind {} of {}.", Name(behind.name, ends=True), behind.episodes, episodes) for behind in several
    ]


def _missing(result: Attribution) -> str:
    verb = "is" if result.missing_steps == 1 else "are"
    return f"{result.missing_steps:,} of {plural(result.missing_among, 'step')} {verb} missing"


def _opening(result: Attribution, shown: tuple[Episode, ...], width: int) -> list[str]:
    """Return what comes before explanations: what the log lacks, more episodes, what is proposed."""
    texts: list[Line] = [*behind_lines(result)[1:]]
    if result.missing_steps:
        reason = "steps_missing: " if result.reason == "steps_missing" else ""
        gap = "" if result.longest_gap is None else f"; the longest gap: {steps_line(*result.longest_gap).lower()}"
        texts.append(f"{reason}{_missing(result)}, wholly or of some rank{gap}.")
    if result.open_ranks:
        reason = "not_closed: " if result.reason == "not_closed" else ""
        texts.append(
            f"{reason}The log of {plural(result.open_ranks, 'rank')} has no end: the run goes on, it was killed, or it"
            f" could not write its log. What came after step {result.last_step or 0:,} is not in it."
        )
    if result.torn_bytes:
        texts.append(f"{plural(result.torn_bytes, 'byte')} at the end of parts could not be read, and are not counted.")
    lines = [line for text in texts for line in prose(text, width)]
    lines += [f"  {spell(answer(episode))}" for episode in shown[1:]]
    odd = any(unit.outlier for test in result.residual_tests for unit in test.units)
    return [*lines, *(prose(proposed(result), width) if shown or odd or result.proposals else ())]


def _shown(result: Attribution) -> tuple[Episode, ...]:
    """Return the episodes that are shown: the largest first, explained before others; the rest by time."""
    shown = sorted(result.episodes, key=lambda episode: (episode.outcome != "found", -_size(episode)))[:EPISODES]
    return (*shown[:1], *sorted(shown[1:], key=lambda item: item.first_step))


def _size(episode: Episode) -> float:
    """Return an episode's excess times its steps, nats/token; of losses that are not finite more than of any others."""
    if episode.excess is not None:
        return episode.excess * episode.flagged
    if episode.loss is None:
        return math.inf
    return (episode.loss - (episode.expected or 0.0)) * episode.flagged


def answer(episode: Episode) -> Line:
    """Return which data an episode's excess lies in, with the interval of its share, or why none is named."""
    steps = steps_line(episode.first_step, episode.last_step)
    begin: Line = f"{steps}: the loss is not finite."
    if episode.kind != "not_finite":
        begin = f"{steps}: loss {_nats(episode.loss)}, expected {_nats(episode.expected)} ± {_nats(episode.band)}."
    if episode.found is None:
        why: Line = _REASONS[episode.reason]
        most = next((each for each in episode.shards if (each.shard,) == episode.together), None)
        if most is not None:
            own = f"{min(1.0, most.share or 0.0) * 100:.0f} %"
            why = say("{}, {} of it in {} at {} nats/token", why, own, Name(most.name, ends=True), _nats(most.loss))
        return say("{} No data is named: {}.", begin, why)
    unit = unit_line(episode.found)
    if episode.num_documents == 1:  # of its shard, and of its block, that says nothing
        name = Name(episode.found.name, ends=True)
        unit = say("a single document, row {} of {}", episode.documents[0].first_row, name)
    if episode.found.share is None:
        return say("{} Every segment without a finite loss lies in {}.", begin, unit)
    part, *bounds = (f"{min(1.0, value) * 100:.0f}" for value in (episode.found.share, *(episode.found.interval or ())))
    interval = f" ({' to '.join(bounds)})" if bounds else ""
    return say("{} {} of the excess lies in {}.", begin, f"{part} %{interval}", unit)


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) >= 0.095 else f"{value:.2g}"


def curve_chart(title: str, step: Ints, value: Floats, episodes: Sequence[Any], width: int) -> list[str]:
    """Return a curve drawn with characters, the steps of episodes marked; nothing where there is no step."""
    loud = np.zeros(len(step), dtype=bool)
    for episode in episodes:
        loud |= (step >= episode.first_step) & (step <= episode.last_step)
    lines = plot_lines(step.tolist(), value.tolist(), loud.tolist(), width - 2) if len(step) else []
    marked = ", # in an episode" if len(episodes) else ""
    return [f"{title}{marked}", *(f"  {line}" for line in lines)] if lines else []


def _blocks(episode: Episode, data: Data, changes: tuple[Change, ...], *, title: bool) -> Iterable[Block]:
    if title:
        yield Prose(text=answer(episode))
    if episode.detail:
        yield Prose(text=say("{}{} (`{}`).", episode.detail[0].upper(), episode.detail[1:], episode.reason))
    if changed := beside(changes, episode):
        yield Prose(text=f"Beside it: {change_lines(changed)}.")
    if len(episode.together) > 1:
        together = join(", ", (Name(data.names[shard], ends=True) for shard in episode.together))
        yield Prose(text=say("Together: {}.", together))
    yield Facts(title="The episode", pairs=tuple(_facts(episode)))
    if episode.excess is not None:
        yield _shares("By shard", episode.shards, episode, "shard", episode.num_shards)
        if episode.reason not in _WHOLE and (episode.found is None or episode.found.kind == "block"):
            yield _shares("By block", episode.blocks, episode, "block", episode.num_blocks)
        if len(episode.sources) > 1:
            yield _shares("By source", episode.sources, episode, "source")
    if episode.reason in _WHOLE:
        return
    yield table(
        "Documents, the largest parts first",
        episode.documents,
        ("SHARD:ROW", "word", lambda row: f"{row.shard}:{row.first_row}"),
        *_SUMS,
        ("share of excess", "number", lambda row: share(row.share)),
        ("first in", "text", _first_place),
        number=episode.num_documents,
        noun="document",
    )
    folder = Name(shlex.quote(str(data.manifest.folder)), 1_000)
    opened = [f"{document.shard}:{document.first_row}" for document in episode.documents[:_OPENED]]
    yield Points(
        title="Open them",
        items=tuple(Point(text=say("dataaudit inspect {} {}", folder, document)) for document in opened),
    )
    yield table(
        "What the manifest says of that shard",
        episode.metrics,
        ("metric", "name", lambda row: row.metric),
        ("shard", "number", lambda row: rounded(row.value)),
        ("median of its source", "number", lambda row: rounded(row.median)),
        ("robust sd away", "number", lambda row: _away(row.deviations)),
        noun="metric",
        whole=True,
    )


def _facts(episode: Episode) -> Iterable[tuple[Line, Line]]:
    yield "flagged", f"{plural(episode.flagged, 'step')}, {episode.accounted:,} of them divided"
    result = episode.found
    if result is not None and result.twins:
        shards = some_of([f"{shard:,}" for shard in result.twins], _OPENED)
        yield "same bytes", f"shards {shards}, which count as shard {result.shard:,}"
    if episode.excess is None or episode.above_line is None or episode.common is None:
        return
    yield "above the line", f"{_nats(episode.above_line)} nats/token"
    steps = plural(episode.healthy_steps, "healthy step")
    yield "excess", f"{_nats(episode.excess)}, after sources, lengths and positions; {steps}"
    share_of = f" ({episode.common / episode.excess:.0%})" if episode.excess > 0 else ""
    yield "common to all blocks", f"{_nats(episode.common)}{share_of}"
    if result is None:
        return
    inside = "inside" if abs(result.rest or 0) <= (result.rest_band or 0) else "outside of"
    yield "without it", f"{_nats(result.rest)}, {inside} the band of ± {_nats(result.rest_band)}"
    if (rarity := result.rarity) is not None:
        units = f"{rarity.among:,} {result.kind}s of earlier steps with {rarity.least_weight:.1%} or more of their step"
        yield "as high before", f"{rarity.as_high:,} of {units}"


_SUMS = (column("steps"), column("targets"), column("loss", shown=rounded), column("expected", shown=rounded))


def _shares(title: str, rows: tuple[Share, ...], episode: Episode, noun: str, number: int = 0) -> Table:
    result, source = episode.found, noun == "source"

    def part(row: Share) -> Any:
        named = result is not None and (row.shard, row.first_row) == (result.shard, result.first_row) and not source
        return toned(share(row.share), when=named)

    nameless = "another" if source else "merged"
    shard: Declared = ("shard", "number", lambda row: row.shard if row.shard is not None and row.shard >= 0 else None)
    of: list[Declared] = [("rows", "word", _span)] if noun == "block" else []
    return table(
        title,
        rows,
        *([] if source else [shard]),
        ("source" if source else "split/uri", "name", lambda row: Name(row.name, ends=True) if row.name else nameless),
        *of,
        *_SUMS,
        ("share of excess", "number", part),
        number=max(len(rows), number),
        noun=noun,
    )


def _span(row: Share) -> str:
    return "" if row.first_row is None else f"{row.first_row:,} to {row.last_row:,}"


def _first_place(document: Document) -> Line:
    first = document.places[0]
    tokens = f"tokens {first.start:,} to {first.start + first.targets - 1:,}"
    return f"step {first.step:,}, rank {first.rank}, row {first.batch_row}, {tokens}"


def _away(deviations: float | None) -> Any:
    if deviations is None:
        return toned("-", when=False)
    return toned(f"{deviations:+,.1f}", when=abs(deviations) > LIMIT_SD)


def false_alarms(detector: Detector) -> str:
    """Return how often the band is left by chance, or why that is not known."""
    composed = f"what their documents should cost (the first {YOUNG} healthy ones by their loss alone)"
    by = composed if detector.by == "composition" else "their loss alone"
    width = f"Steps are judged by {by}; the band is {detector.k:g} robust standard deviations wide on either side"
    if limit := limit_line(detector):
        width = f"A {limit} is seen in half of the cases. {width}"
    if detector.above is None:
        few = detector.healthy < LEAST_STEPS
        why = f"that takes {LEAST_STEPS:,} healthy steps" if few else "too few are near it"
        return f"{width}; how often it is left by chance is not known: {why}, here are {detector.healthy:,}."
    rate = detector.above
    value, low, high = (f"{number * 10_000:.2g}" for number in (rate.value, rate.low, rate.high))
    return f"{width}; by chance the loss goes above it {value} ({low} to {high}) times in 10,000 steps."


def _rest(result: Attribution, shown: tuple[Episode, ...]) -> Iterable[Block | Section]:
    if left := len(result.episodes) - len(shown):
        yield Prose(text=f"{plural(left, 'more episode')} in attribution.json.")
    for spans, what in ((result.dips, "Below the band"), (result.gradients, "The gradient's norm was above its band")):
        if spans:
            steps = some_of([steps_line(span.first_step, span.last_step).lower() for span in spans], _OPENED)
            yield Prose(text=f"{what}: {steps}.")
    if result.changes:
        yield Prose(text=f"Changed in the run: {change_lines(result.changes)}.")
    if result.judged:
        yield Prose(text=false_alarms(result.detector))
    yield from evidence_blocks(result)
    yield from run_blocks(result)
    yield from replay_blocks(result)
    if result.replay is None and any(episode.outcome == "found" for episode in result.episodes):
        yield Section(id="limits", title="What this does not say", lead=LIMITS)
