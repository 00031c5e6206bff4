"""What people read of the event test and of the residual tests: a sentence each, and tables of what was found alone."""

from __future__ import annotations

from collections.abc import Iterable

from dataaudit.render.blocks import Block, Cell, Column, Prose, Row, Table, names, numbers
from dataaudit.render.line import Line, Name, decimal
from dataaudit.text import plural
from dataaudit.training.findings import Attribution, EventTestFound, ResidualTestFound, Unit

_UNTESTED = {
    "no_stretches": "the log has no steps with all their stretches",
    "not_identifiable": "every block and shard was read in one stretch, and cannot be told from its time",
}


def evidence_blocks(found: Attribution) -> Iterable[Block]:
    """Return what the tests of the whole run found."""
    if found.event_test is not None:
        yield from _event_test(found.event_test)
    yield from _residual_tests(found.residual_tests)


def _event_test(test: EventTestFound) -> Iterable[Block]:
    if test.outcome == "not_evaluated":
        if test.reason in _UNTESTED:
            yield Prose(text=f"Whether episodes follow upon data was not tested: {_UNTESTED[test.reason]}.")
        return
    how = "orders drawn again" if test.null == "redrawn" else "shifts along the run"
    much = f"{plural(test.episodes, 'episode')}, {test.tested:,} blocks and shards, {test.orders:,} {how}"
    apart = f" {test.not_identifiable:,} were read in one stretch, and cannot be told from their time."
    apart = apart if test.not_identifiable else ""
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
    none = [one for one in tests if one.outcome == "none"]
    if none:
        much = " and ".join(f"{one.tested:,} {one.kind}s" for one in none)
        yield Prose(text=f"None of {much} has odd losses beside others of its source.")
    for test in tests:
        odd = tuple(one for one in test.units if one.outlier)
        if odd:
            yield _table(
                f"{test.kind.capitalize()}s with odd losses over the whole run, beside others of their source",
                odd,
                ("documents", "nats/token", "p"),
                tuple((f"{one.documents:,}", f"{one.mean:+.3f}", f"{one.p:.2g}") for one in odd),
                test.kind,
            )
    if any(one.outcome == "outlier_shard" for one in tests):
        text = "Odd is not bad: boilerplate and repeats are odd too. By itself it is no reason to hold data back."
        yield Prose(text=text)


def _table(
    title: str, units: tuple[Unit, ...], columns: tuple[str, ...], values: tuple[tuple[Line, ...], ...], noun: str
) -> Table:
    rows: tuple[Row, ...] = tuple(
        (str(one.shard), Cell(text=Name(one.name, ends=True)), _rows(one), *value)
        for one, value in zip(units, values, strict=True)
    )
    return Table(
        title=title,
        columns=(*numbers("shard"), *names("split/uri"), Column("rows", "word"), *numbers(*columns)),
        rows=rows,
        noun=noun,
    )


def _rows(one: Unit) -> str:
    return "all" if one.first_row is None else f"{one.first_row:,} to {one.last_row:,}"
