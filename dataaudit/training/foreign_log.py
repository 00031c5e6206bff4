"""Spikes of somebody else's log: a table of steps and losses, CSV or JSON lines. It detects, and can name no data."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dataaudit.errors import ConfigError, ExitCode
from dataaudit.regular import read_regular
from dataaudit.render.blocks import Block, Column, Prose, Table, numbers
from dataaudit.render.line import decimal
from dataaudit.render.plot import plot_lines
from dataaudit.render.terminal import page, parts_of, section, terminal_width
from dataaudit.text import plural
from dataaudit.training.accounting import Floats, Ints
from dataaudit.training.attribution import detector_of
from dataaudit.training.blocks import false_alarms
from dataaudit.training.curve import Flagged, Judged, judge
from dataaudit.training.findings import Detector, number
from dataaudit.yamlfile import nearest

SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson"})
STEPS = ("step", "global_step", "_step", "iteration", "iter", "train/global_step", "trainer/global_step")
LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "loss/train", "lm loss", "train/lm_loss", "ce_loss")
_SHOWN = 20
_UNTOLD = (
    "Which data the steps read is not in such a log, so nothing is divided among documents, no test of the data is run"
    " and nothing can be proposed: train with a TrainingMonitor (docs/training.md). Steps that the log leaves out are"
    " taken as not logged, and a spike between two of them is not seen."
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SchemaId(_Model):
    """Name and version of the form."""

    name: Literal["dataaudit-detection"] = "dataaudit-detection"
    version: Literal[1] = 1


class Flagging(_Model):
    """Flagged steps that follow each other."""

    kind: Literal["loss_spike", "loss_dip", "level_shift", "not_finite"]
    first_step: int
    last_step: int
    flagged: int
    loss: float | None = Field(description="Mean of the flagged values; null: not finite.")
    expected: float | None = Field(description="Mean of the line there.")
    band: float | None = Field(description="Mean distance up to which that is inside the band.")


class Detection(_Model):
    """What a detector says of a log without tags."""

    schema_: SchemaId = Field(default_factory=SchemaId, alias="schema")
    columns: tuple[str, str] = Field(description="Of the step and of the loss.")
    exit_code: int
    steps: int
    first_step: int | None
    last_step: int | None
    judged: int
    skipped: int = Field(description="Rows without a step or a loss: a table of several metrics has such.")
    repeated: int = Field(description="Rows of a step that a later row has, too: the last one counts.")
    detector: Detector
    episodes: tuple[Flagging, ...] = Field(description="Above the band, new levels, and losses that are not finite.")
    dips: tuple[Flagging, ...] = Field(description="Below the band.")


def detection_schema() -> dict[str, Any]:
    """Return the JSON Schema of what is printed of such a log."""
    return Detection.model_json_schema(by_alias=True, mode="serialization")


def detect(path: Path, columns: tuple[str, str] | None = None) -> tuple[Detection, Ints, Floats]:
    """Read a table of steps and losses and judge it.

    Args:
        path: CSV with a head, or a JSON object a line.
        columns: Of the step and of the loss; found by usual names when None.

    Returns:
        What is found; int64[n] steps, ascending; float64[n] losses.

    Raises:
        ConfigError: It cannot be read, or has no such columns.
    """
    rows = list(_rows(path))
    names = list(dict.fromkeys(name for row in rows for name in row))
    chosen = _columns(names, columns, path)
    held: dict[int, float] = {}
    skipped = repeated = 0
    for row in rows:
        step, loss = _number(row.get(chosen[0])), _number(row.get(chosen[1]))
        if step is None or loss is None or not math.isfinite(step):
            skipped += 1
            continue
        repeated += int(step) in held
        held[int(step)] = loss
    steps = np.array(sorted(held), dtype=np.int64)
    values = np.array([held[one] for one in steps.tolist()], dtype=np.float64)
    judged = judge(steps, values)
    episodes = tuple(_flagging(judged, values, one) for one in judged.spikes)
    code = ExitCode.NOT_EVALUATED if episodes else ExitCode.PASS
    found = Detection(
        columns=chosen,
        exit_code=int(code if judged.judged.any() else ExitCode.NOTHING_EVALUATED),
        steps=len(steps),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        judged=int(judged.judged.sum()),
        skipped=skipped,
        repeated=repeated,
        detector=detector_of(judged),
        episodes=episodes,
        dips=tuple(_flagging(judged, values, one, dip=True) for one in judged.dips),
    )
    return found, steps, values


def _flagging(judged: Judged, values: Floats, one: Flagged, *, dip: bool = False) -> Flagging:
    kind: Any = "loss_dip" if dip and one.kind == "loss_spike" else one.kind
    return Flagging(
        kind=kind,
        first_step=int(judged.step[one.first]),
        last_step=int(judged.step[one.last]),
        flagged=len(one.places),
        loss=number(float(values[one.places].mean())),
        expected=number(float(judged.level[one.places].mean())),
        band=number(float(judged.limit[one.places].mean())),
    )


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8", "Give CSV with a head, or a JSON object a line.") from None
    if path.suffix in {".csv", ".tsv"}:
        reader = csv.DictReader(io.StringIO(text), delimiter="\t" if path.suffix == ".tsv" else ",")
        yield from ({str(name).strip(): value for name, value in row.items()} for row in reader)
        return
    for place, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)  # with NaN and Infinity, as programs write them that JSON has none of
        except ValueError:
            raise ConfigError(f"{path}, line {place}: it is not JSON") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {place}: expected an object of JSON")
        yield row


def _columns(names: list[str], asked: tuple[str, str] | None, path: Path) -> tuple[str, str]:
    if asked is not None:
        for name in asked:
            if name not in names:
                raise ConfigError(f"{path} has no column `{name}`{nearest(name, names)}")
        return asked
    found = [next((name for name in known if name in names), None) for known in (STEPS, LOSSES)]
    if found[0] is None or found[1] is None:
        what = "step" if found[0] is None else "loss"
        there = ", ".join(names[:_SHOWN]) or "none"
        raise ConfigError(
            f"{path}: no column of a {what} is known by name; its columns: {there}", "--columns STEP,LOSS"
        )
    return found[0], found[1]


def _number(value: Any) -> float | None:
    """Return a number, None for what is none; a loss may be NaN or infinite."""
    if value is None or isinstance(value, bool) or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def render_detection(found: Detection, steps: Ints, values: Floats) -> str:
    """Return what the terminal shows."""
    width = terminal_width()
    loud = np.zeros(len(steps), dtype=bool)
    for one in found.episodes:
        loud |= (steps >= one.first_step) & (steps <= one.last_step)
    lines = plot_lines(steps.tolist(), values.tolist(), loud.tolist(), width - 2)
    marked = ", # in an episode" if found.episodes else ""
    chart = [f"{found.columns[1]} by {found.columns[0]}{marked}", *(f"  {line}" for line in lines)] if lines else []
    parts = [lines for block in _blocks(found) for lines in parts_of(block, width, _SHOWN, "; --json has all")]
    return page(_headline(found), section("", chart), *parts)


def _headline(found: Detection) -> str:
    steps = plural(found.steps, "step")
    if found.exit_code == ExitCode.NOTHING_EVALUATED:
        return f"No data: {steps}, and a line takes {found.detector.window} before the first one that is judged."
    if not found.episodes:
        return f"Nothing to explain: {steps}, none with a loss above its band."
    return f"{plural(len(found.episodes), 'episode')} in {steps}. Which data they read is not in this log."


def _blocks(found: Detection) -> Iterable[Block]:
    rows = [*found.episodes, *found.dips]
    yield Table(
        title="Out of the band",
        columns=(Column("kind", "word"), *numbers("first step", "last step", "flagged", "loss", "expected", "band")),
        rows=tuple(
            (
                one.kind,
                one.first_step,
                one.last_step,
                one.flagged,
                *(decimal(None if value is None else round(value, 3)) for value in (one.loss, one.expected, one.band)),
            )
            for one in rows
        ),
        noun="episode",
    )
    if found.judged:
        yield Prose(text=false_alarms(found.detector))
    if found.skipped or found.repeated:
        rows_said = f"{plural(found.skipped, 'row')} without a step or a loss left out"
        yield Prose(text=f"{rows_said}; {plural(found.repeated, 'row')} of a step that is there again later.")
    yield Prose(text=_UNTOLD)
