"""Evidence as blocks of a page: tests of the whole run, losses by source, the course of the loss, and a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataaudit.base.render.blocks import Block, Cell, Declared, Prose, Section, Table
from dataaudit.base.render.line import Line, Name, join, say, share
from dataaudit.base.text import plural
from dataaudit.training.attribution.findings import (
    Attribution,
    Collapse,
    EventTestFound,
    MovedTax,
    Odd,
    ResidualTestFound,
    ScalingLaw,
    Share,
    SourceLosses,
)
from dataaudit.training.attribution.residual_outliers import RUN_WIDE
from dataaudit.training.attribution.run_findings import ContagionFound, DirectFound, Suspect, Unit
from dataaudit.training.pages.run_blocks import rounded, table

_NAMED = {
    "user": "named by you",
    "accounting": "accounts for the excess of an episode",
    "event_test": "episodes follow upon it",
    "residual_test": "odd losses over the run",
}
_LACKING = {
    "checkpoints": "fewer than 3 checkpoints are from before it was read",
    "suspects": "too few of its documents have controls of their length",
    "controls": "too few control units of other shards were unread by then",
}
_DIRECT = {
    "outlier_data": "Odd data",
    "unlike_others": "Unlike the others, odd or not",
    "not_odd": "Not odd",
    "undecided": "Odd or not is left open by these controls",
}
_CONTAGION = {
    "not_contagious": "Not contagious: trained on again from before, other documents' loss stays in its band.",
    "state_dependent": "The model's state: the loss of other documents rises with controls in its place, too.",
    "data_intrinsic": "The data: other documents' loss rises with it from every checkpoint, with controls from none.",
    "interaction": "Both together: other documents' loss rises with it from this state, from no other one.",
    "inconclusive": "Inconclusive",
    "not_reproduced": "The replay is not the run, so nothing is decided",
    "not_evaluated": "Whether it breaks the model was not tried",
}
_ARMS = {
    "A": ("the run", "the suspects"),
    "B": ("the run", "controls"),
    "C": ("other checkpoints", "the suspects"),
    "D": ("other checkpoints", "controls"),
}
_REPLAY = "`dataaudit attribute RUNLOG --manifest DIR --replay MODULE:FUNCTION"
_BECAUSE = {"outlier_data": "odd data", "data_intrinsic": "breaks the model", "follows": "episodes follow upon it"}
_UNTESTED = {
    "no_stretches": "the log has no steps with all their segments",
    "own_data": "the data of the same steps may be behind each episode",
    "not_identifiable": "every block and shard was read without a gap: nothing separates it from its time",
}


def replay_blocks(result: Attribution) -> Iterable[Block | Section]:
    """Return the blocks of a replay."""
    if result.replay is not None:
        if not result.replay.suspects:
            yield Prose(text="Nothing to do again: no block or shard is suspected. --suspect names one.")
        yield from (_suspect(suspect) for suspect in result.replay.suspects)


def proposed(result: Attribution) -> Line:
    """Return what is proposed for a quarantine list; or why nothing is, and what decides it."""
    if result.proposals:
        units = (say("{} ({})", unit_line(proposal), _BECAUSE[proposal.because]) for proposal in result.proposals)
        return say("To be proposed: {}. `dataaudit quarantine propose` puts it on a list.", join(", ", units))
    if result.replay is not None and result.replay.suspects:
        return "Nothing is proposed: no suspect of the replay is odd data, or breaks the model from other checkpoints."
    odd = sum(unit.outlier for test in result.residual_tests for unit in test.units)
    named = any(episode.found is not None for episode in result.episodes)
    reasons = ["data that accounts for an excess"] * named
    reasons += [f"data with odd losses ({odd:,} of the blocks and shards)"] if odd else []
    if reasons:
        why = f"{' and '.join(reasons)} may be hard and clean"
        return f"Nothing is proposed: {why}. {_REPLAY}` decides: `dataaudit explain replay`."
    if result.episodes:
        return f"Nothing is proposed: no data is named. {_REPLAY} --suspect SHARD` tests what you suspect."
    return "Nothing is proposed: no episode, and no block or shard with odd losses, was found."


def _suspect(suspect: Suspect) -> Section:
    blocks: list[Block] = [Prose(text=_direct(suspect.direct))]
    if suspect.contagion is None:
        blocks.append(Prose(text="No episode reads it or follows upon it, so there is no branch to train from."))
    else:
        blocks += _contagion(suspect.contagion)
    lead = f"{plural(suspect.documents, 'document')}; {_NAMED[suspect.named_by]}."
    place = f"replay-{suspect.shard}-{suspect.first_row or 0}"
    return Section(id=place, title=say("Done again: {}", unit_line(suspect)), lead=lead, blocks=tuple(blocks))


def unit_line(unit: Unit | Share) -> Line:
    """Return the name of a shard, or which rows of it."""
    name = Name(unit.name, ends=True)
    return name if unit.first_row is None else say("rows {} to {} of {}", unit.first_row, unit.last_row, name)


def _direct(result: DirectFound) -> Line:
    if result.outcome == "not_evaluated" or result.effect is None or result.interval is None or result.p is None:
        return f"Whether it is odd data is not known: {_LACKING[result.reason]}."
    low, high = result.interval
    among = "" if result.among == 1 else f" times {result.among:,} that it was named among,"
    text = (
        f"{_DIRECT[result.outcome]}: its documents' loss is {result.effect:+.3f} ({low:+.3f} to {high:+.3f}) nats/token"
        f" beside {result.units:,} control units, of which 95 % usually lie within ±{result.usual or 0:.3f}, at"
        f" {plural(len(result.checkpoints), 'checkpoint')} from before either was read"
        f" ({', '.join(f'{checkpoint:,}' for checkpoint in result.checkpoints)}); p {result.p:.2g},{among} compared"
        f" with {result.alpha:g}."
    )
    if result.outcome == "undecided":
        text += f" The smallest p that these controls can give is {result.smallest_p or 0:.2g},{among.rstrip(',')}."
    if result.matched and "language" not in result.matched:
        text += (
            f" Too few controls have its source and language, so they have its {' and '.join(result.matched)} alone."
            " What that costs: languages and sources differ by themselves. So less is seen, and a language or source of"
            " its own is as far off as bad data; nothing is proposed for that."
        )
    return text


def _contagion(result: ContagionFound) -> Iterable[Block]:
    text = _CONTAGION[result.outcome]
    yield Prose(text=f"{text}: {result.detail}." if result.detail else text)
    if not result.arms:
        return
    steps = f"from step {result.branch:,} to {result.last or 0:,}"
    yield table(
        f"Loss of {plural(result.held, 'document')} that no arm reads, {steps}",
        result.arms,
        ("arm", "word", lambda row: row.arm),
        ("from", "text", lambda row: _ARMS[row.arm][0]),
        ("reads", "text", lambda row: _ARMS[row.arm][1]),
        ("runs", "number", lambda row: row.repetitions),
        ("spikes", "number", lambda row: row.spikes),
        ("rise, bands", "number", lambda row: rounded(row.rise, 2)),
        ("95 %", "number", lambda row: "-" if row.interval is None else "{:.2f} to {:.2f}".format(*row.interval)),
        noun="arm",
        note=f"{plural(result.reproduced, 'step')} of arm A were those of the log, bit by bit.",
        whole=True,
    )


def evidence_blocks(result: Attribution) -> Iterable[Block]:
    """Return the blocks of the tests of the whole run."""
    if result.event_test is not None:
        yield from _event_test(result.event_test)
    yield from _residual_tests(result.residual_tests)
    if result.source_losses is not None and len(result.source_losses.sources) > 1:
        yield _sources_over_run(result.source_losses)
    if result.scaling_law is not None:
        yield Prose(text=_law(result.scaling_law))
    if result.collapse is not None:
        yield Prose(text=_collapse(result.collapse))


def _event_test(test: EventTestFound) -> Iterable[Block]:
    if test.outcome == "not_evaluated":
        if test.reason in _UNTESTED:
            yield Prose(text=f"Whether episodes follow upon data was not tested: {_UNTESTED[test.reason]}.")
        return
    how = "orders drawn again" if test.null == "redrawn" else "shifts along the run"
    own = " What an episode's own steps read is left out here: that is divided among them, episode by episode."
    much = f"{plural(test.episodes, 'episode')}, {test.tested:,} blocks and shards, {test.orders:,} {how}"
    apart = f" {test.not_identifiable:,} were read without a gap: nothing separates them from their time."
    apart = own + (apart if test.not_identifiable else "")
    if test.own_data:
        left = plural(test.own_data, "episode")
        apart = f" Left out: {left}, since the data of the same steps may be behind it.{apart}"
    if test.outcome == "follows":
        text = f"Episodes follow upon data more often than by chance ({much}; p for all of them together)."
        yield Prose(text=text + apart)
        yield _units(
            f"Read within {test.lag} steps before episodes",
            [followed for followed in test.units if followed.p <= test.alpha],
            "block or shard",
            ("episodes", "number", lambda row: str(row.episodes)),
            ("expected", "number", lambda row: rounded(row.expected, 2)),
            ("p", "number", lambda row: f"{row.p:.2g}"),
        )
    elif test.smallest_p is not None and test.smallest_p > test.alpha:
        text = f"Too few shifts to tell whether episodes follow upon data: p is {test.smallest_p:.2g} or more ({much})."
        yield Prose(text=text + apart)
    else:
        yield Prose(text=f"Episodes follow upon no block or shard more often than by chance ({much}).{apart}")


def _residual_tests(tests: tuple[ResidualTestFound, ...]) -> Iterable[Block]:
    tests = tuple(result for result in tests if result.tested + result.too_small)
    if not tests:
        return
    text = f"Odd losses over the whole run: {', '.join(map(_how_many, tests))}."
    outliers = any(result.outcome == "outlier_shard" for result in tests)
    if not outliers and any(result.tested for result in tests):
        least = (
            f"by chance, the farthest of all is as far in {100 * min(result.run_p for result in tests):.3g} % of runs"
        )
        text += f" None is odd beside others of its source: {least}, and {100 * RUN_WIDE:.1g} % is the limit."
    yield Prose(text=text)
    if not outliers:
        return
    for test in tests:
        if odd := [unit for unit in test.units if unit.outlier]:
            yield _units(
                f"{test.kind.capitalize()}s with odd losses over the whole run, beside others of their source",
                odd,
                test.kind,
                ("documents", "number", lambda row: f"{row.documents:,}"),
                ("nats/token", "number", lambda row: f"{row.mean:+.3f}"),
                ("p", "number", lambda row: f"{row.p:.2g}"),
                ("beside a far shard", "number", lambda row: share(row.overlap)),
            )
    yield Prose(
        text="Odd is not bad: boilerplate and repeats are odd too. By itself it is no reason to quarantine data."
        " Beside a far shard: how much of it was read in steps of another shard that is far off."
    )


def _how_many(test: ResidualTestFound) -> str:
    more = [f"too small or too few: {test.too_small:,}"] if test.too_small else []
    more += [f"pooled: {test.pooled:,}"] if test.pooled else []
    within = f" ({', '.join(more)})" if more else ""
    return f"{test.tested:,} of {plural(test.tested + test.too_small, test.kind)} tested{within}"


def _sources_over_run(result: SourceLosses) -> Table:
    """Return what each source costs, those that moved first."""
    total = sum(source.targets for source in result.sources)
    return table(
        "Losses by source over the whole run, nats/token",
        sorted(result.sources, key=lambda source: (not source.moved, -source.targets)),
        ("source", "name", lambda row: Cell(text=Name(row.source), tone="warn" if row.moved else "")),
        ("of all targets", "number", lambda row: share(row.targets / total)),
        ("loss", "number", lambda row: rounded(row.loss)),
        ("newest loss", "number", lambda row: rounded(row.newest_loss)),
        ("newest tax", "number", lambda row: "" if row.newest_tax is None else f"{row.newest_tax:+.3f}"),
        ("tax out of its band", "word", lambda row: _times_more(row.moved)),
        noun="source",
        note=(
            "Tax: the loss less that of all other sources, in the same steps. Newest: the last tenth of the run. Its"
            f" band is that of windows of {plural(result.window_steps, 'step')}."
        ),
    )


def _times_more(moved: tuple[MovedTax, ...]) -> str:
    spans = [(f"{tax.first_step:,}", f"{tax.last_step:,}") for tax in moved[-2:]]
    newest = [first if first == last else f"{first} to {last}" for first, last in spans]
    more = f", {len(moved) - 2:,} times before" if len(moved) > 2 else ""
    return " and ".join(newest) + more


def _law(result: ScalingLaw) -> str:
    law = f"{result.irreducible:.3g} + {result.amplitude:.3g} t^-{result.exponent:.2g}"
    text = f"The newest tenth of the tokens is {result.residual:+.3f} nats/token off the law of the time before ({law})"
    if not result.earlier:
        return f"{text}; how far such a law is off by itself is not known yet."
    low, high = min(result.earlier), max(result.earlier)
    span = f"{low:+.3f} to {high:+.3f}" if low < high else f"{low:+.3f}"
    return f"{text}; at {plural(len(result.earlier), 'earlier time')} it was {span}."


def _collapse(result: Collapse) -> Line:
    off = (
        f"{result.residual:+.4f} of its last loss off its course; robust standard deviation before {result.spread:.4f}."
    )
    words = f"At {result.progress:.0%} of the tokens of {{}} the newest steps are {off}"
    return say(words, Name(result.reference))


def _units(title: str, units: Sequence[Unit], noun: str, *fields: Declared) -> Table:
    return table(
        title,
        units,
        ("shard", "number", lambda unit: str(unit.shard) if unit.shard >= 0 else ""),
        ("split/uri", "name", lambda unit: Cell(text=Name(unit.name, ends=True))),
        ("rows", "word", _rows),
        *fields,
        noun=noun,
    )


def _rows(unit: Unit) -> str:
    if isinstance(unit, Odd) and unit.pooled:
        return "its small blocks" if unit.pooled == "shard" else "all small ones"
    return "all" if unit.first_row is None else f"{unit.first_row:,} to {unit.last_row:,}"
