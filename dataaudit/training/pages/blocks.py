"""What people read of an attribution: the answer, the curve, what was divided, and what it does not say.

Where no episode is, the headline says the least rise that would have been seen, and what changed in the run.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Point,
    Points,
    Prose,
    Row,
    Section,
    Table,
    names,
    numbers,
    toned,
)
from dataaudit.base.render.line import Line, Name, decimal, join, say, share, spell
from dataaudit.base.render.terminal import page, parts_of, plot_lines, prose, section, terminal_width
from dataaudit.base.statistics import LEAST_STEPS
from dataaudit.base.text import plural
from dataaudit.present.report.standouts import LIMIT_SD
from dataaudit.training.attribution.findings import (
    Attribution,
    Change,
    Detector,
    Document,
    Episode,
    Found,
    ShardMetric,
    Share,
    Span,
)
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import beside
from dataaudit.training.attribution.step_detector import YOUNG
from dataaudit.training.pages.evidence_blocks import evidence_blocks, proposed, replay_blocks
from dataaudit.training.pages.run_blocks import run_blocks

SAID = 5
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


def limit_said(detector: Detector) -> str:
    """Return "rise above 0.28 nats over 5 steps": the limit of visibility; nothing where no step was judged."""
    limits = {visible.steps: visible.rise for visible in detector.visible}
    if not limits:
        return ""
    steps = SAID if SAID in limits else max(limits)
    during = "in a single step" if steps == 1 else f"over {steps} steps"
    return f"rise above {limits[steps]:.2g} nats {during}"


def none_seen(detector: Detector, steps: int) -> str:
    """Return the same of a run without an episode, without a full stop: "No rise above ... among 900 steps"."""
    blind = min((visible.rise for visible in detector.visible), default=0.0) > BLIND
    begin = f"Hardly anything could be seen: no {limit_said(detector)}" if blind else f"No {limit_said(detector)}"
    return f"{begin} among {plural(steps, 'step')}"


def nothing_said(found: Attribution) -> str:
    """Return the headline where no episode is: what could not have been seen, dips, and changes."""
    if found.asked_step is not None:
        return _step_said(found, Span(first_step=found.asked_step, last_step=found.asked_step, flagged=0))
    dips = f"; {plural(len(found.dips), 'dip')} below the band" if found.dips else ""
    changes = f"; {changes_said(found.changes)}" if found.changes else ""
    return f"{none_seen(found.detector, found.steps)}{dips}{changes}."


def _step_said(found: Attribution, step: Span) -> str:
    """Return the same of a step that was asked for."""
    below = any(span.first_step <= step.first_step <= span.last_step for span in found.dips)
    dip = ", but below the band" if below else ""
    changed = beside(found.changes, step)
    changes = f" Beside it: {changes_said(changed)}." if changed else ""
    seen = f"A {limit_said(found.detector)} is seen in half of the cases."
    return f"Step {step.first_step:,} is in no episode{dip}. {seen}{changes}"


def changes_said(changes: tuple[Change, ...]) -> str:
    """Return what changed, in a line."""
    more = f"; {plural(len(changes) - MOST, 'more change')}" if len(changes) > MOST else ""
    return "; ".join(map(change_said, changes[:MOST])) + more


def change_said(change: Change) -> str:
    """Return a change in words."""
    one_step = change.first_step == change.last_step
    steps = f"step {change.first_step:,}" if one_step else f"steps {change.first_step:,} to {change.last_step:,}"
    if change.kind == "skipped_updates":
        return f"{plural(int(change.after), 'skipped update')} at {steps}"
    if change.kind == "clipping":
        return f"every update clipped in {steps}, {change.before:.0%} before"
    times = f" (x {change.after / change.before:.3g})" if change.before > 0 else ""
    return f"{_NAMES[change.kind]} {change.after:,.4g} after {change.before:,.4g}{times} from {steps}"


def render_text(found: Attribution, data: Data, *, width: int | None = None) -> str:
    """Return what the terminal shows."""
    columns = width or terminal_width()
    shown = _shown(found)
    parts = [_opening(found, shown, columns), section("", _chart(found, data, columns))]
    for episode in shown:
        for block in _blocks(episode, data, found.changes, title=len(shown) > 1):
            parts += parts_of(block, columns, _ROWS, _REST)
    parts += [lines for block in _rest(found, shown) for lines in parts_of(block, columns, _ROWS, _REST)]
    return page(headline(found), *parts)


def headline(found: Attribution) -> Line:
    """Return the answer in a line."""
    shown = _shown(found)
    if shown:
        return join(" ", (*behind_lines(found)[:1], answer(shown[0])))
    steps = f"{plural(found.steps, 'step')}"
    if found.reason and found.asked_step is not None:
        return f"Cannot tell: a rank's part of step {found.asked_step:,} is missing; the others' loss is in its band."
    if found.reason:
        lacking = "its end is missing" if found.reason == "not_closed" else _missing(found)
        return f"Cannot tell: {lacking}; of the {steps} in the log, none has a loss above its band."
    if found.exit_code:
        window = found.detector.window
        torn = f" ({plural(found.torn_bytes, 'byte')} at its end could not be read)" if found.torn_bytes else ""
        if found.judged and found.asked_step is not None:
            return (
                f"Step {found.asked_step:,} was not judged: a line takes {window} steps before the first one that is."
            )
        return f"No data: {steps} in the log{torn}, and a line takes {window} before the first one that is judged."
    return nothing_said(found)


def behind_lines(found: Attribution) -> list[Line]:
    """Return which shards are behind more than one episode of a run, and how many."""
    several = [behind for behind in found.behind if behind.episodes > 1][:EPISODES]
    episodes = plural(len(found.episodes), "episode")
    return [
        say("{} is behind {} of {}.", Name(behind.name, ends=True), behind.episodes, episodes) for behind in several
    ]


def _missing(found: Attribution) -> str:
    verb = "is" if found.missing_steps == 1 else "are"
    return f"{found.missing_steps:,} of {plural(found.missing_among, 'step')} {verb} missing"


def _opening(found: Attribution, shown: tuple[Episode, ...], width: int) -> list[str]:
    """Return what is to be known before anything is explained: what the log lacks, more episodes, what is proposed."""
    said: list[Line] = [*behind_lines(found)[1:]]
    if found.missing_steps:
        reason = "steps_missing: " if found.reason == "steps_missing" else ""
        gap = "" if found.longest_gap is None else f"; the longest gap: {_steps_of(*found.longest_gap).lower()}"
        said.append(f"{reason}{_missing(found)}, wholly or of some rank{gap}.")
    if found.open_ranks:
        reason = "not_closed: " if found.reason == "not_closed" else ""
        said.append(
            f"{reason}The log of {plural(found.open_ranks, 'rank')} has no end: the run goes on, it was killed, or it"
            f" could not write its log. What came after step {found.last_step or 0:,} is not in it."
        )
    if found.torn_bytes:
        said.append(f"{plural(found.torn_bytes, 'byte')} at the end of parts could not be read, and are not counted.")
    lines = [line for text in said for line in prose(text, width)]
    lines += [f"  {spell(answer(episode))}" for episode in shown[1:]]
    odd = any(unit.outlier for test in found.residual_tests for unit in test.units)
    return [*lines, *(prose(proposed(found), width) if shown or odd or found.proposals else ())]


def _shown(found: Attribution) -> tuple[Episode, ...]:
    """Return the episodes that are shown: the largest one first, found ones before others; then the rest by time."""
    shown = sorted(found.episodes, key=lambda episode: (episode.outcome != "found", -_size(episode)))[:EPISODES]
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
    steps = _steps(episode)
    if episode.kind == "not_finite":
        begin: Line = f"{steps}: the loss is not finite."
    else:
        begin = f"{steps}: loss {_nats(episode.loss)}, expected {_nats(episode.expected)} ± {_nats(episode.band)}."
    if episode.found is None:
        why: Line = _REASONS[episode.reason]
        most = next((each for each in episode.shards if (each.shard,) == episode.together), None)
        if most is not None:
            own = f"{min(1.0, most.share or 0.0) * 100:.0f} %"
            why = say("{}, {} of it in {} at {} nats/token", why, own, Name(most.name, ends=True), _nats(most.loss))
        return say("{} No data is named: {}.", begin, why)
    unit = _unit(episode.found)
    if episode.num_documents == 1:  # of its shard, and of its block, that says nothing
        unit = say(
            "a single document, row {} of {}", episode.documents[0].first_row, Name(episode.found.name, ends=True)
        )
    part = (
        "Every segment without a finite loss"
        if episode.found.share is None
        else f"{_percent(episode.found)} of the excess"
    )
    return say("{} {} lies in {}.", begin, part, unit)


def _steps(episode: Episode | Span) -> str:
    return _steps_of(episode.first_step, episode.last_step)


def _steps_of(first: int, last: int) -> str:
    return f"Step {first:,}" if first == last else f"Steps {first:,} to {last:,}"


def _unit(item: Share) -> Line:
    name = Name(item.name, ends=True)
    return name if item.first_row is None else say("rows {} to {} of {}", item.first_row, item.last_row, name)


def _percent(found: Found) -> str:
    if found.share is None:
        return "-"
    held, *bounds = (f"{min(1.0, value) * 100:.0f}" for value in (found.share, *(found.interval or ())))
    return f"{held} %{' (' + ' to '.join(bounds) + ')' if bounds else ''}"


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) >= 0.095 else f"{value:.2g}"


def _chart(found: Attribution, data: Data, width: int) -> list[str]:
    curve = data.curve
    if not len(curve.step):
        return []
    loud = np.zeros(len(curve.step), dtype=bool)
    for episode in found.episodes:
        loud |= (curve.step >= episode.first_step) & (curve.step <= episode.last_step)
    lines = plot_lines(curve.step.tolist(), curve.value.tolist(), loud.tolist(), width - 2)
    marked = ", # in an episode" if found.episodes else ""
    return [f"Loss by step, nats/token{marked}", *(f"  {line}" for line in lines)] if lines else []


def _blocks(episode: Episode, data: Data, changes: tuple[Change, ...], *, title: bool) -> Iterable[Block]:
    if title:
        yield Prose(text=answer(episode))
    if episode.detail:
        yield Prose(text=say("{}{} (`{}`).", episode.detail[0].upper(), episode.detail[1:], episode.reason))
    if changed := beside(changes, episode):
        yield Prose(text=f"Beside it: {changes_said(changed)}.")
    if len(episode.together) > 1:
        together = join(", ", (Name(data.names[shard], ends=True) for shard in episode.together))
        yield Prose(text=say("Together: {}.", together))
    yield Facts(title="The episode", pairs=tuple(_facts(episode)))
    if episode.excess is not None:
        yield _shares("By shard", episode.shards, episode, "shard")
        if episode.reason not in _WHOLE and (episode.found is None or episode.found.kind == "block"):
            yield _shares("By block", episode.blocks, episode, "block")
        if len(episode.sources) > 1:
            yield _shares("By source", episode.sources, episode, "source")
    if episode.reason in _WHOLE:
        return
    yield _documents(episode)
    commands = [_command(data.manifest.folder, document) for document in episode.documents[:_OPENED]]
    yield Points(title="Open them", items=tuple(Point(text=command) for command in commands))
    yield _metrics(episode)


def _facts(episode: Episode) -> Iterable[tuple[Line, Line]]:
    yield "flagged", f"{plural(episode.flagged, 'step')}, {episode.accounted:,} of them divided"
    if episode.found is not None and episode.found.twins:
        shards = ", ".join(f"{shard:,}" for shard in episode.found.twins[:_OPENED])
        more = f" and {len(episode.found.twins) - _OPENED:,} more" if len(episode.found.twins) > _OPENED else ""
        yield "same bytes", f"shards {shards}{more}, which count as shard {episode.found.shard:,}"
    if episode.excess is None or episode.above_line is None or episode.common is None:
        return
    yield "above the line", f"{_nats(episode.above_line)} nats/token"
    yield (
        "excess",
        (
            f"{_nats(episode.excess)}, after sources, lengths and positions; "
            f"{plural(episode.healthy_steps, 'healthy step')}"
        ),
    )
    share_of = f" ({episode.common / episode.excess:.0%})" if episode.excess > 0 else ""
    yield "common to all blocks", f"{_nats(episode.common)}{share_of}"
    held = episode.found
    if held is None:
        return
    inside = "inside" if abs(held.rest or 0) <= (held.rest_band or 0) else "outside of"
    yield "without it", f"{_nats(held.rest)}, {inside} the band of ± {_nats(held.rest_band)}"
    if held.rarity is not None:
        like = held.rarity
        units = f"{like.among:,} {held.kind}s of earlier steps with {like.least_weight:.1%} or more of their step"
        yield "as high before", f"{like.as_high:,} of {units}"


def _shares(title: str, rows: tuple[Share, ...], episode: Episode, noun: str) -> Table:
    held = episode.found

    def row(given: Share) -> Row:
        chosen = held is not None and (given.shard, given.first_row) == (held.shard, held.first_row)
        chosen = chosen and noun != "source"
        name: Line = Name(given.name, ends=True) if given.name else ("merged" if noun != "source" else "another")
        place: Row = (
            (given.shard if given.shard is not None and given.shard >= 0 else None,) if noun != "source" else ()
        )
        block: Row = (_rows(given),) if noun == "block" else ()
        return (
            *place,
            Cell(text=name),
            *block,
            given.steps,
            given.targets,
            *_losses(given),
            toned(share(given.share), when=chosen),
        )

    place = (*(numbers("shard") if noun != "source" else ()), *names(noun if noun == "source" else "split/uri"))
    block = (Column("rows", "word"),) if noun == "block" else ()
    return Table(
        title=title,
        columns=(*place, *block, *numbers("steps", "targets", "loss", "expected", "share of excess")),
        rows=tuple(map(row, rows)),
        number=max(len(rows), episode.num_shards if noun == "shard" else episode.num_blocks if noun == "block" else 0),
        noun=noun,
    )


def _rows(item: Share) -> str:
    return "" if item.first_row is None else f"{item.first_row:,} to {item.last_row:,}"


def _losses(item: Share) -> Row:
    return decimal(_rounded(item.loss)), decimal(_rounded(item.expected))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _documents(episode: Episode) -> Table:
    def row(given: Document) -> Row:
        first = given.places[0]
        tokens = f"tokens {first.start:,} to {first.start + first.targets - 1:,}"
        where = f"step {first.step:,}, rank {first.rank}, row {first.batch_row}, {tokens}"
        return (
            f"{given.shard}:{given.first_row}",
            given.steps,
            given.targets,
            *_losses(given),
            share(given.share),
            where,
        )

    return Table(
        title="Documents, the largest parts first",
        columns=(
            *(Column("SHARD:ROW", "word"),),
            *numbers("steps", "targets", "loss", "expected", "share of excess"),
            Column("first in", "text"),
        ),
        rows=tuple(map(row, episode.documents)),
        number=episode.num_documents,
        noun="document",
    )


def _command(folder: Path, document: Document) -> Line:
    return say(
        "dataaudit inspect {} {}", Name(shlex.quote(str(folder)), 1_000), f"{document.shard}:{document.first_row}"
    )


def _metrics(episode: Episode) -> Table:
    def row(given: ShardMetric) -> Row:
        away = "-" if given.deviations is None else f"{given.deviations:+,.1f}"
        loud = given.deviations is not None and abs(given.deviations) > LIMIT_SD
        return given.metric, decimal(_rounded(given.value)), decimal(_rounded(given.median)), toned(away, when=loud)

    return Table(
        title="What the manifest says of that shard",
        columns=(*names("metric"), *numbers("shard", "median of its source", "robust sd away")),
        rows=tuple(map(row, episode.metrics)),
        noun="metric",
        whole=True,
    )


def false_alarms(detector: Detector) -> str:
    """Return how often the band is left by chance, or why that is not known."""
    composed = f"what their documents should cost (the first {YOUNG} healthy ones by their loss alone)"
    by = composed if detector.by == "composition" else "their loss alone"
    width = f"Steps are judged by {by}; the band is {detector.k:g} robust standard deviations wide on either side"
    if limit := limit_said(detector):
        width = f"A {limit} is seen in half of the cases. {width}"
    if detector.above is None:
        few = detector.healthy < LEAST_STEPS
        why = f"that takes {LEAST_STEPS:,} healthy steps" if few else "too few are near it"
        return f"{width}; how often it is left by chance is not known: {why}, here are {detector.healthy:,}."
    rate = detector.above
    value, low, high = (f"{number * 10_000:.2g}" for number in (rate.value, rate.low, rate.high))
    return f"{width}; by chance the loss goes above it {value} ({low} to {high}) times in 10,000 steps."


def _rest(found: Attribution, shown: tuple[Episode, ...]) -> Iterable[Block | Section]:
    left = len(found.episodes) - len(shown)
    said = []
    if left:
        said.append(f"{plural(left, 'more episode')} in attribution.json.")
    for spans, what in ((found.dips, "Below the band"), (found.gradients, "The gradient's norm was above its band")):
        if spans:
            first = ", ".join(_steps(span).lower() for span in spans[:_OPENED])
            more = f" and {len(spans) - _OPENED:,} more" if len(spans) > _OPENED else ""
            said.append(f"{what}: {first}{more}.")
    if found.changes:
        said.append(f"Changed in the run: {changes_said(found.changes)}.")
    if found.judged:
        said.append(false_alarms(found.detector))
    for text in said:
        yield Prose(text=text)
    yield from evidence_blocks(found)
    yield from run_blocks(found)
    yield from replay_blocks(found)
    if found.replay is None and any(episode.outcome == "found" for episode in found.episodes):
        yield Section(id="limits", title="What this does not say", lead=LIMITS)
