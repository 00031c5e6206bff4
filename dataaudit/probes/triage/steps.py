"""What triage looks at: checks of a step with their evidence, steps in a strict order, and their verdict.

A check that could not be made is ``not_evaluated``, and a step that lacks a check is not clean. So a cause is named
only where every step before it is clean, and ``none`` only where every step is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dataaudit.base.render.line import Line, Name, Text, join, spell

SCHEMA = "dataaudit-triage/1"
State = Literal["found", "clean", "not_evaluated", "not_applicable"]
Verdict = Literal["found", "none", "undecidable", "no_data"]
TITLES: Final = {
    "evaluation": "Evaluation artifacts",
    "data": "Data",
    "internals": "Internal behaviour",
    "architecture": "Architecture",
}
"""Of the steps, in their order."""
_CODES: Final[dict[str, int]] = {"none": 0, "found": 1, "undecidable": 3, "no_data": 4}


@dataclass(frozen=True, slots=True)
class Check:
    """Something that a step looked at, or could not look at."""

    name: str
    state: State
    words: Line
    """The evidence in a sentence; where it could not be evaluated, why."""
    feed: str = ""
    """The line that would feed it, or that shows more."""
    needed: bool = True
    """Whether a step without it cannot be clean."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The evidence in numbers, plain values."""
    part: str = ""
    """What of the step is the cause: attention, router, mixture, ..."""
    onset: int | None = None
    """Step from which on it is off, where that is known."""

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {name: getattr(self, name) for name in Check.__slots__} | {"words": spell(self.words)}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the order with its checks."""

    name: str
    checks: tuple[Check, ...]

    @property
    def found(self) -> list[Check]:
        """Checks that are off, by the step of training from which on they are."""
        own = [check for check in self.checks if check.state == "found"]
        return sorted(own, key=lambda check: float("inf") if check.onset is None else check.onset)

    @property
    def missing(self) -> list[Check]:
        """Checks that are needed and could not be made."""
        return [check for check in self.checks if check.needed and check.state == "not_evaluated"]

    @property
    def state(self) -> State:
        """``found`` where a check is off, ``clean`` where all that are needed were made and none is."""
        looked = any(check.state == "clean" for check in self.checks)
        return "found" if self.found else "clean" if looked and not self.missing else "not_evaluated"

    @property
    def named(self) -> str:
        """The step, and the part of it that was off first."""
        part = self.found[0].part if self.found else ""
        return f"{self.name}: {part}" if part else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """The steps of a run, in order, and the verdict."""

    run: str
    baseline: str
    manifest: str
    """Id of the run's manifest."""
    steps_seen: int
    log: str = ""
    """What is wrong with the run's log: it was not closed, or has bytes that cannot be read."""
    symptoms: tuple[Check, ...] = ()
    """How losses and scores moved since the baseline; no cause by themselves."""
    steps: tuple[Step, ...] = ()
    experiments: tuple[Mapping[str, Any], ...] = ()
    """Controlled runs that test an axis of the architecture, with their cost."""

    @property
    def suspect(self) -> Step | None:
        """The first step that is off, whether or not the steps before it could be looked at."""
        return next((step for step in self.steps if step.state == "found"), None)

    @property
    def missing(self) -> list[Check]:
        """What keeps a verdict from being drawn."""
        until = self.steps.index(self.suspect) if self.suspect is not None else len(self.steps)
        return [check for step in self.steps[:until] for check in step.missing]

    @property
    def verdict(self) -> Verdict:
        """Return ``found``, ``none``, ``undecidable``, or ``no_data`` where the log has no step."""
        if not self.steps_seen:
            return "no_data"
        if self.suspect is not None:
            return "undecidable" if self.missing else "found"
        return "none" if all(step.state == "clean" for step in self.steps) else "undecidable"

    @property
    def cause(self) -> str:
        """The cause: a step with its part; ``none``; empty where there is no verdict."""
        if self.verdict == "found" and self.suspect is not None:
            return self.suspect.named
        return "none" if self.verdict == "none" else ""

    @property
    def exit_code(self) -> int:
        """0: none; 1: found; 3: undecidable; 4: no data."""
        return _CODES[self.verdict]

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        names = ("verdict", "cause", "exit_code", "run", "baseline", "manifest", "steps_seen", "log", "experiments")
        return (
            {"schema": SCHEMA}
            | {name: getattr(self, name) for name in names}
            | {
                "suspect": "" if self.suspect is None else self.suspect.named,
                "missing": [check.name for check in self.missing],
                "symptoms": [check.document() for check in self.symptoms],
                "steps": [
                    {"name": step.name, "state": step.state, "checks": [check.document() for check in step.checks]}
                    for step in self.steps
                ],
            }
        )


def absent(name: str, why: Line, feed: str = "", *, needed: bool = True) -> Check:
    """Return a check that could not be made, why, and what would feed it."""
    return Check(name, "not_evaluated", why, feed, needed)


def lines_of(items: Sequence[Line], most: int = 4, between: str = "; ") -> Text:
    """Return lines in a row, and how many more there are."""
    more = [f"{len(items) - most} more"] if len(items) > most else []
    return join(between, [*items[:most], *more])


def names_of(names: Sequence[str]) -> Text:
    """Return names from data in a row."""
    return lines_of([Name(name) for name in names], 6, ", ")
