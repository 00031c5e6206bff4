"""Spikes of somebody else's log: a table of steps and losses. It detects, and can name no data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import Block, Prose, column
from dataaudit.base.render.terminal import page, parts_of, section, terminal_width
from dataaudit.base.statistics import Floats, Ints
from dataaudit.base.text import plural
from dataaudit.manifest.core import Model
from dataaudit.training.attribution.attribute import detector_of
from dataaudit.training.attribution.curve import Flagged, Judged, judge
from dataaudit.training.attribution.findings import Detector
from dataaudit.training.attribution.loss_table import read_losses
from dataaudit.training.attribution.run_findings import number
from dataaudit.training.pages.blocks import curve_chart, false_alarms, none_seen
from dataaudit.training.pages.run_blocks import rounded, table

_SHOWN = 20
_LIMITS = (
    "Which data the steps read is not in such a log, so nothing is divided among documents, no test of the data is run"
    " and nothing can be proposed: train with a TrainingMonitor (`dataaudit explain training`). Steps that the log"
    " leaves out are taken as not logged, and a spike between two of them is not seen."
)


class SchemaId(Model):
    """Name and version of the form."""

    name: Literal["dataaudit-detection"] = "dataaudit-detection"
    version: Literal[1] = 1


class Flagging(Model):
    """Flagged steps that follow each other."""

    kind: Literal["loss_spike", "loss_dip", "level_shift", "not_finite"]
    first_step: int
    last_step: int
    flagged: int
    loss: float | None = Field(description="Mean of the flagged values; null: not finite.")
    expected: float | None = Field(description="Mean of the line there.")
    band: float | None = Field(description="Mean distance up to which that is inside the band.")


class Detection(Model):
    """What a detector says of a log without tags."""

    schema_: SchemaId = Field(default_factory=SchemaId, alias="schema")
    columns: tuple[str, str] = Field(description="Of the step and of the loss.")
    exit_code: int
    steps: int
    first_step: int
    last_step: int
    judged: int
    skipped: int = Field(description="Rows without a step or a loss: a table of several metrics has such.")
    repeated: int = Field(description="Rows of a step that a later row has, too: the last one counts.")
    damaged: int = Field(
        default=0, description="Of the skipped ones, lines with more fields than names, an open quote, or cut JSON."
    )
    first_damaged: int | None = Field(default=None, description="Number of the first of them, from 1.")
    detector: Detector
    episodes: tuple[Flagging, ...] = Field(description="Above the band, new levels, and losses that are not finite.")
    dips: tuple[Flagging, ...] = Field(description="Below the band.")


def detection_schema() -> dict[str, Any]:
    """Return the JSON Schema of what is printed of such a log."""
    return Detection.model_json_schema(by_alias=True, mode="serialization")


def detect(path: Path, *, step: str | None = None, loss: str | None = None) -> tuple[Detection, Ints, Floats]:
    """Read a table of steps and losses and judge it."""
    read = read_losses(path, step=step, loss=loss)
    judged = judge(read.step, read.loss)
    episodes = tuple(_flagging(judged, read.loss, flagged) for flagged in judged.spikes)
    code = ExitCode.NOT_EVALUATED if episodes else ExitCode.PASS
    result = Detection(
        columns=read.columns,
        exit_code=int(code if judged.judged.any() else ExitCode.NOTHING_EVALUATED),
        steps=len(read.step),
        first_step=int(read.step[0]),
        last_step=int(read.step[-1]),
        judged=int(judged.judged.sum()),
        skipped=read.unread,
        repeated=read.repeated,
        damaged=read.damaged,
        first_damaged=read.first_damaged,
        detector=detector_of(judged),
        episodes=episodes,
        dips=tuple(_flagging(judged, read.loss, flagged, dip=True) for flagged in judged.dips),
    )
    return result, read.step, read.loss


def _flagging(judged: Judged, values: Floats, flagged: Flagged, *, dip: bool = False) -> Flagging:
    kind: Any = "loss_dip" if dip and flagged.kind == "loss_spike" else flagged.kind
    return Flagging(
        kind=kind,
        first_step=int(judged.step[flagged.first]),
        last_step=int(judged.step[flagged.last]),
        flagged=len(flagged.places),
        loss=number(float(values[flagged.places].mean())),
        expected=number(float(judged.level[flagged.places].mean())),
        band=number(float(judged.limit[flagged.places].mean())),
    )


def render_detection(result: Detection, steps: Ints, values: Floats) -> str:
    """Return what the terminal shows."""
    width = terminal_width()
    chart = curve_chart(f"{result.columns[1]} by {result.columns[0]}", steps, values, result.episodes, width)
    parts = [lines for block in _blocks(result) for lines in parts_of(block, width, _SHOWN, "; --json has all")]
    return page(_headline(result), section("", chart), *parts)


def _headline(result: Detection) -> str:
    steps = plural(result.steps, "step")
    if result.exit_code == ExitCode.NOTHING_EVALUATED:
        return f"No data: {steps}, and a line takes {result.detector.window} before the first one that is judged."
    if not result.episodes:
        return f"{none_seen(result.detector, result.steps)}, by the loss alone: such a log has no tags."
    return f"{plural(len(result.episodes), 'episode')} in {steps}. Which data they read is not in this log."


def _blocks(result: Detection) -> Iterable[Block]:
    yield table(
        "Out of the band",
        [*result.episodes, *result.dips],
        column("kind", kind="word"),
        *map(column, ("first step", "last step", "flagged")),
        *(column(head, shown=rounded) for head in ("loss", "expected", "band")),
        noun="episode",
    )
    if result.judged:
        yield Prose(text=false_alarms(result.detector))
    if result.skipped or result.repeated:
        skipped = f"{plural(result.skipped, 'row')} without a step or a loss left out"
        yield Prose(text=f"{skipped}; {plural(result.repeated, 'row')} of a step that is there again later.")
    if result.damaged:
        lines = plural(result.damaged, "damaged line")
        yield Prose(
            text=f"Among these: {lines}, the first is line {result.first_damaged:,}. It has more fields than the header"
            " has names, a quote that is not closed, or JSON that is cut."
        )
    yield Prose(text=_LIMITS)
