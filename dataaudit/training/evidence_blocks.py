"""What people read of the whole run: its tests, losses by source, and how far its loss is off what was expected."""

from __future__ import annotations

from collections.abc import Iterable

from dataaudit.render.blocks import Block, Cell, Column, Prose, Row, Table, names, numbers
from dataaudit.render.line import Line, Name, decimal, say, share
from dataaudit.text import plural
from dataaudit.training.findings import (
    Attribution,
    Collapse,
    EventTestFound,
    MovedTax,
    Odd,
    ResidualTestFound,
    ScalingLaw,
    SourceLosses,
)
from dataaudit.training.replay_findings import Unit
from dataaudit.training.residual_outliers import RUN_WIDE

_UNTESTED = {
    "no_stretches": "the log has no steps with all their segments",
    "own_data": "the data of the same steps may be behind each episode",
    "not_identifiable": "every block and shard was read without a gap: nothing separates it from its time",
}


def evidence_blocks(found: Attribution) -> Iterable[Block]:
    """Return what the tests of the whole run found."""
    if found.event_test is not None:
        yield from _event_test(found.event_test)
    yield from _residual_tests(found.residual_tests)
    if found.source_losses is not None and len(found.source_losses.sources) > 1:
        yield _sources(found.source_losses)
    if found.scaling_law is not None:
        yield Prose(text=_law(found.scaling_law))
    if found.collapse is not None:
        yield Prose(text=_collapse(found.collapse))


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
    rows = tuple(one for one in test.units if one.p <= test.alpha)
    if test.outcome == "follows":
        text = f"Episodes follow upon data more often than by chance ({much}; p for all of them together)."
        yield Prose(text=text + apart)
        yield _table(
            f"Read within {test.lag} steps before episodes",
            rows,
            ("episodes", "expected", "p"),
            tuple((str(one.episodes), decimal(round(one.expected, 2)), f"{one.p:.2g}") for one in rows),
            "block or shard",
        )
    elif test.smallest_p is not None and test.smallest_p > test.alpha:
        text = f"Too few shifts to tell whether episodes follow upon data: p is {test.smallest_p:.2g} or more ({much})."
        yield Prose(text=text + apart)
    else:
        yield Prose(text=f"Episodes follow upon no block or shard more often than by chance ({much}).{apart}")


def _residual_tests(tests: tuple[ResidualTestFound, ...]) -> Iterable[Block]:
    tests = tuple(one for one in tests if one.tested + one.too_small)
    if not tests:
        return
    text = f"Odd losses over the whole run: {', '.join(map(_how_many, tests))}."
    if not any(one.outcome == "outlier_shard" for one in tests):
        if any(one.tested for one in tests):
            text += f" None is odd beside others of its source: {_least(tests)}."
        yield Prose(text=text)
        return
    yield Prose(text=text)
    for test in tests:
        odd = tuple(one for one in test.units if one.outlier)
        if odd:
            yield _table(
                f"{test.kind.capitalize()}s with odd losses over the whole run, beside others of their source",
                odd,
                ("documents", "nats/token", "p", "beside a far shard"),
                tuple((f"{one.documents:,}", f"{one.mean:+.3f}", f"{one.p:.2g}", share(one.overlap)) for one in odd),
                test.kind,
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


def _least(tests: tuple[ResidualTestFound, ...]) -> str:
    least = min(one.run_p for one in tests)
    limit = f"{100 * RUN_WIDE:.1g} % is the limit"
    return f"by chance, the farthest of all is as far in {100 * least:.3g} % of runs, and {limit}"


def _sources(found: SourceLosses) -> Table:
    """Return what each source costs, those that moved first."""
    ordered = sorted(found.sources, key=lambda one: (not one.moved, -one.targets))
    total = sum(one.targets for one in ordered)
    return Table(
        title="Losses by source over the whole run, nats/token",
        columns=(
            *names("source"),
            *numbers("of all targets", "loss", "newest loss", "newest tax"),
            Column("tax out of its band", "word"),
        ),
        rows=tuple(
            (
                Cell(text=Name(one.source), tone="warn" if one.moved else ""),
                share(one.targets / total),
                *(decimal(None if value is None else round(value, 3)) for value in (one.loss, one.newest_loss)),
                "" if one.newest_tax is None else f"{one.newest_tax:+.3f}",
                _times(one.moved),
            )
            for one in ordered
        ),
        noun="source",
        note=(
            "Tax: the loss less that of all other sources, in the same steps. Newest: the last tenth of the run. Its"
            f" band is that of windows of {plural(found.window_steps, 'step')}."
        ),
    )


def _times(moved: tuple[MovedTax, ...]) -> str:
    spans = [(f"{one.first_step:,}", f"{one.last_step:,}") for one in moved[-2:]]
    said = [first if first == last else f"{first} to {last}" for first, last in spans]
    more = f", {len(moved) - 2:,} times before" if len(moved) > 2 else ""
    return " and ".join(said) + more


def _law(found: ScalingLaw) -> str:
    law = f"{found.irreducible:.3g} + {found.amplitude:.3g} t^-{found.exponent:.2g}"
    text = f"The newest tenth of the tokens is {found.residual:+.3f} nats/token off the law of the time before ({law})"
    if not found.earlier:
        return f"{text}; how far such a law is off by itself is not known yet."
    low, high = min(found.earlier), max(found.earlier)
    span = f"{low:+.3f} to {high:+.3f}" if low < high else f"{low:+.3f}"
    return f"{text}; at {plural(len(found.earlier), 'earlier time')} it was {span}."


def _collapse(found: Collapse) -> Line:
    off = f"{found.residual:+.4f} of its last loss off its course; robust standard deviation before {found.spread:.4f}."
    words = f"At {found.progress:.0%} of the tokens of {{}} the newest steps are {off}"
    return say(words, Name(found.reference))


def _table(
    title: str, units: tuple[Unit, ...], columns: tuple[str, ...], values: tuple[tuple[Line, ...], ...], noun: str
) -> Table:
    rows: tuple[Row, ...] = tuple(
        (str(one.shard) if one.shard >= 0 else "", Cell(text=Name(one.name, ends=True)), _rows(one), *value)
        for one, value in zip(units, values, strict=True)
    )
    return Table(
        title=title,
        columns=(*numbers("shard"), *names("split/uri"), Column("rows", "word"), *numbers(*columns)),
        rows=rows,
        noun=noun,
    )


def _rows(one: Unit) -> str:
    if isinstance(one, Odd) and one.pooled:
        return "its small blocks" if one.pooled == "shard" else "all small ones"
    return "all" if one.first_row is None else f"{one.first_row:,} to {one.last_row:,}"
