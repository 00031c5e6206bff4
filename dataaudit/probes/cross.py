"""The cross product of two checkpoints and two harnesses: does a change follow the checkpoint, or the harness?

Numbers of different artifacts are never compared as if the model had changed. Here each model is measured by both
harnesses, so the harness's own effect is seen on the same weights, and the model's within the same harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.base.render.blocks import Facts, Table, names, numbers
from dataaudit.base.render.line import Name
from dataaudit.base.render.terminal import render
from dataaudit.probes.command import ProbeOptions, run_probes
from dataaudit.probes.estimates import Estimate, Units, difference
from dataaudit.probes.report import EvalArtifacts, ProbeReport

SCHEMA, CROSS_FILE = "dataaudit-cross/1", "cross.json"
SIDES: Final = ("old", "new")
_NAMES = "manifest root tokenizer end function context dtype documents prompts domains rtp judge generations seed"
HARNESS: Final[Sequence[str]] = tuple(_NAMES.split())
"""Options of ``dataaudit probe`` that may differ between the harnesses."""
SMALL = 0.25
"""Part of the other side's effect up to which an effect is small beside it."""
_FIRST: Final = ("microbench_score", "val_loss", "fixed_probe_loss")
Follows = Literal["checkpoint", "harness", "both", "neither", "undecidable"]
Artifacts = Mapping[str, EvalArtifacts]
"""By ``eval_artifact_hash``."""
Reports = Mapping[tuple[str, str], ProbeReport]
"""By checkpoint and harness, each old or new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """A number in all four cells, and its effects: paired where both cells have the same documents, rows or items."""

    metric: str
    unit: str
    values: Mapping[str, float]
    """By ``checkpoint x harness``: ``old x old``, ``old x new``, ..."""
    checkpoint: tuple[Estimate, Estimate]
    """New less old checkpoint, by the old and by the new harness."""
    harness: tuple[Estimate, Estimate]
    """New less old harness, on the old and on the new checkpoint."""

    @property
    def follows(self) -> Follows:
        """What the change follows.

        A side moves the number where both of its intervals exclude 0 on the same side. It leaves the number where
        neither does, or where both effects are small beside the other side's.
        """
        sides = (self.checkpoint, self.harness)
        if any(each.low is None for own in sides for each in own):
            return "undecidable"
        moves = [_sign(own[0]) == _sign(own[1]) != 0 for own in sides]
        means = [abs(own[0].value + own[1].value) / 2 for own in sides]
        most = [max(abs(each.value) for each in own) for own in sides]
        still = [
            not any(map(_sign, own)) or (moves[1 - at] and most[at] <= SMALL * means[1 - at])
            for at, own in enumerate(sides)
        ]
        if all(still):
            return "neither"
        if moves[0] and still[1]:
            return "checkpoint"
        if moves[1] and still[0]:
            return "harness"
        return "both" if all(moves) else "undecidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross:
    """The table of two checkpoints and two harnesses."""

    old: str
    new: str
    changed: Mapping[str, str]
    """Options in which the new harness differs."""
    artifacts: Mapping[str, Sequence[str]]
    """By harness, each ``eval_artifact_hash``."""
    differ: Mapping[str, Sequence[str]]
    """By probe, the artifacts that differ between the harnesses."""
    numbers: tuple[Crossed, ...]
    not_evaluated: Mapping[str, str]
    """Numbers that a cell lacks, and why."""

    @property
    def decided_by(self) -> Crossed | None:
        """The number that decides: of those that anything moves a score, a held-out loss, or the first."""

        def rank(own: Crossed) -> int:
            metric = own.metric.partition(" ")[0]
            return _FIRST.index(metric) if metric in _FIRST else len(_FIRST)

        ordered = sorted(self.numbers, key=rank)
        return next((own for own in ordered if own.follows != "neither"), next(iter(ordered), None))

    @property
    def follows(self) -> Follows:
        """What the change follows."""
        return "undecidable" if self.decided_by is None else self.decided_by.follows

    @property
    def exit_code(self) -> int:
        """0: nothing moves; 1: it follows a side, or both; 3: undecidable; 4: no number is in all four cells."""
        return {"neither": 0, "undecidable": 3}.get(self.follows, 1) if self.numbers else 4

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        numbers = [asdict(own) | {"follows": own.follows} for own in self.numbers]
        return {"schema": SCHEMA, "follows": self.follows} | asdict(self) | {"numbers": numbers}


def _sign(estimate: Estimate) -> int:
    """Return 1 or -1 where the interval excludes 0, else 0."""
    if estimate.low is None or estimate.high is None:
        return 0
    return int(estimate.low > 0) - int(estimate.high < 0)


def differing(old: Artifacts, new: Artifacts) -> tuple[list[str], dict[str, tuple[str, ...]], list[str]]:
    """Return probes whose artifacts are equal, the artifacts that differ by probe, and probes of a single side."""
    a, b = ({own.harness.partition(" ")[0].rpartition("/")[2]: own for own in side.values()} for side in (old, new))
    common = sorted(a.keys() & b.keys())
    differ = {probe: names for probe in common if (names := b[probe].differing(a[probe]))}
    return [probe for probe in common if probe not in differ], differ, sorted(a.keys() ^ b.keys())


def parse_changes(given: Sequence[str]) -> dict[str, Any]:
    """Return the options of the new harness, from ``NAME=VALUE``."""
    known = f"NAME is {', '.join(HARNESS[:-1])} or {HARNESS[-1]}.".replace("function", "model")
    if not given:
        raise ConfigError("--cross: expected the new harness, --new NAME=VALUE", known)
    kinds = {field.name: str(field.type) for field in fields(ProbeOptions)}
    made: dict[str, Any] = {}
    for item in given:
        name, _, value = item.partition("=")
        name = {"model": "function"}.get(name, name)
        if not value or name not in HARNESS or ("int" in kinds[name] and not value.isdecimal()):
            raise ConfigError(f"--new {t.clean(item)}: expected NAME=VALUE, counts as whole numbers", known)
        made[name] = int(value) if "int" in kinds[name] else Path(value) if "Path" in kinds[name] else value
    return made


def cross_product(options: ProbeOptions, new: str, changes: Mapping[str, Any], line: Callable[[str], None]) -> Cross:
    """Measure both checkpoints by both harnesses; ``cross.json`` goes to ``options.out`` where that is given.

    ``options`` are those of the old checkpoint and the old harness, ``changes`` those of the new harness.
    """
    plain = replace(options, runlog=None, baseline=None, alert=None)
    harnesses = {"old": plain, "new": replace(plain, **changes)}
    reports: dict[tuple[str, str], ProbeReport] = {}
    for checkpoint in SIDES:
        for harness in SIDES:
            line(f"{checkpoint} checkpoint, {harness} harness")
            out = None if options.out is None else options.out / "cross" / f"{checkpoint}-{harness}"
            spec = options.checkpoint if checkpoint == "old" else new
            reports[checkpoint, harness] = run_probes(replace(harnesses[harness], checkpoint=spec, out=out), line)
    made = crossed(reports, changes)
    if options.out is not None:
        write_whole(options.out / CROSS_FILE, t.as_json(made.document()).encode())
    return made


def crossed(reports: Reports, changes: Mapping[str, Any]) -> Cross:
    """Return the table of four reports; slices and what depends on a report before are left out."""
    first, other = reports["old", "old"], reports["old", "new"]
    numbers, lacking = [], {}
    for number in first.numbers:
        if number.task is None or number.metric in {"output_kl_to_prev", "val_ppl"}:
            continue
        name, key = number.name, number.key
        cells = {cell: [own for own in report.numbers if own.key == key] for cell, report in reports.items()}
        if empty := [cell for cell, own in cells.items() if not own or not own[0].known]:
            lacking[name] = f"{' x '.join(empty[0])}: {cells[empty[0]][0].reason if cells[empty[0]] else 'not there'}"
        elif all(key in report.units for report in reports.values()):
            units = {cell: report.units[key] for cell, report in reports.items()}
            made = Crossed(
                metric=name,
                unit=number.unit,
                values={" x ".join(cell): float(own[0].value or 0.0) for cell, own in cells.items()},
                checkpoint=(_effect(units, "new", "old", "old", "old"), _effect(units, "new", "new", "old", "new")),
                harness=(_effect(units, "old", "new", "old", "old"), _effect(units, "new", "new", "new", "old")),
            )
            numbers.append(made)
        elif number.metric == _FIRST[0]:
            lacking[name] = "its harness gives no items to pair"
    return Cross(
        old=first.checkpoint,
        new=reports["new", "new"].checkpoint,
        changed={name: str(value) for name, value in changes.items()},
        artifacts={"old": sorted(first.artifacts), "new": sorted(other.artifacts)},
        differ=differing(first.artifacts, other.artifacts)[1],
        numbers=tuple(numbers),
        not_evaluated=lacking,
    )


def _effect(units: Mapping[tuple[str, str], Units], *cells: str) -> Estimate:
    """Return how a number differs between two cells: paired by unit; where they share none, as of two samples."""
    mine, theirs = units[cells[0], cells[1]], units[cells[2], cells[3]]
    a, b = mine.estimate(), theirs.estimate()
    if (paired := mine.change_from(theirs)) is not None or a is None or b is None:
        return paired or Estimate(float("nan"), None, None, 0)
    return difference(a, b)


_WORDS: Final[dict[Follows, str]] = {
    "checkpoint": "The change follows the checkpoint: both harnesses see it, and on the same weights they agree",
    "harness": "The change follows the harness: it is there on the same weights, and not between the checkpoints",
    "both": "Checkpoint and harness both move the number",
    "neither": "Neither the checkpoint nor the harness moves a number beyond its interval",
    "undecidable": "Undecidable: the effects of a side disagree, or no interval is known",
}


def cross_text(cross: Cross) -> str:
    """Return the table as people read it."""
    decided = cross.decided_by
    title = "No number is in all four cells." if decided is None else f"{_WORDS[cross.follows]} ({decided.metric})."
    pairs = {
        "old checkpoint": cross.old,
        "new checkpoint": cross.new,
        "new harness": ", ".join(f"{name}={value}" for name, value in cross.changed.items()),
        "artifacts that differ": "; ".join(f"{probe}: {', '.join(own)}" for probe, own in sorted(cross.differ.items())),
        **{f"{name}, not evaluated": why for name, why in cross.not_evaluated.items()},
    }
    facts = Facts(pairs=tuple((name, Name(value or "none", 400)) for name, value in pairs.items()))
    return render(title, [facts, *map(_table, cross.numbers)])


def _table(own: Crossed) -> Table:
    def bounds(estimate: Estimate) -> str:
        interval = "" if estimate.low is None else f" ({estimate.low:+.2g} to {estimate.high:+.2g})"
        return f"{estimate.value:+.3g}{interval}"

    rows = [
        (f"{name} checkpoint", *(f"{own.values[f'{name} x {harness}']:.4g}" for harness in SIDES), bounds(effect))
        for name, effect in zip(SIDES, own.harness, strict=True)
    ]
    return Table(
        title=f"{own.metric}, {own.unit}: {own.follows}",
        columns=(*names(""), *numbers(*(f"{name} harness" for name in SIDES), "harness effect")),
        rows=(*rows, ("checkpoint effect", *map(bounds, own.checkpoint), "")),
        whole=True,
        noun="checkpoint",
    )
