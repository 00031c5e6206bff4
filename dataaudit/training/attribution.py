"""From a run log and its manifest to findings: which block or shard held the excess of each episode, or why not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from dataaudit.atomic import write_whole
from dataaudit.errors import ConfigError, ExitCode
from dataaudit.manifest.canonical import canonical_json
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.text import plural
from dataaudit.training import scan
from dataaudit.training.curve import GRADIENT, Judged, judge, series_of
from dataaudit.training.episodes import episode_of, span_of
from dataaudit.training.evidence import (
    collapse_of,
    event_test_of,
    residual_tests_of,
    scaling_law_of,
    source_losses_of,
)
from dataaudit.training.findings import (
    MISSING_LIMIT,
    AlarmRate,
    Attribution,
    Detector,
    Visible,
    behind_of,
    exit_code_of,
)
from dataaudit.training.run_changes import run_changes
from dataaudit.training.run_data import Data
from dataaudit.training.run_facts import run_facts
from dataaudit.training.spikes import FLOOR, GAP, LEVEL_AFTER, RATE, WINDOW
from dataaudit.training.trained_on import trained_on


def attribute(data: Data, step: int | None = None) -> Attribution:
    """Say of each episode of a run which block or shard held the excess, or why that cannot be told.

    Args:
        data: The run log and its manifest.
        step: Only the episode that this step is in.

    Raises:
        RunLogError: A part of the log cannot be read.
        ConfigError: There is no such step.
    """
    curve, judged = data.curve, data.judged
    norms = judge(*series_of(data.log.table("values"), GRADIENT), log=True)
    all_episodes = [episode_of(data, one) for one in judged.spikes]
    missing, shown = data.missing, all_episodes
    lacking = missing.number > MISSING_LIMIT * missing.among
    if step is not None:
        lacking = step not in missing.whole
        if step not in curve.step:
            there = f"its steps are {curve.step[0]:,} to {curve.step[-1]:,}" if len(curve.step) else "it has no step"
            if missing.number:
                there += f", and {plural(missing.number, 'step')} of {missing.among:,} are missing"
            raise ConfigError(f"no step {step:,} in {data.log.folder}: {there}")
        shown = [one for one in all_episodes if one.first_step <= step <= one.last_step]
    episodes = tuple(shown)
    cut_off = step is None and data.open_ranks > 0
    asked = np.ones(len(curve.step), dtype=bool) if step is None else curve.step == step
    exit_code = exit_code_of(episodes, judged=bool(judged.judged[asked].any()), missing=lacking or cut_off)
    silent = exit_code == ExitCode.NOT_EVALUATED and not episodes
    return Attribution(
        manifest=data.manifest.id,
        dataset=data.log.run.dataset,
        exit_code=exit_code,
        reason=("steps_missing" if lacking else "not_closed") if silent else "",
        asked_step=step,
        steps=len(curve.step),
        first_step=int(curve.step[0]) if len(curve.step) else None,
        last_step=int(curve.step[-1]) if len(curve.step) else None,
        missing_steps=missing.number,
        missing_among=missing.among,
        longest_gap=missing.gap,
        open_ranks=data.open_ranks,
        judged=int(judged.judged.sum()),
        torn_bytes=data.log.torn_bytes,
        detector=detector_of(judged),
        episodes=episodes,
        behind=behind_of(episodes),
        dips=tuple(span_of(judged.step, one) for one in judged.dips),
        gradients=tuple(span_of(norms.step, one) for one in norms.spikes),
        changes=run_changes(data.curve, data.log.table("values")),
        event_test=event_test_of(data, all_episodes),
        residual_tests=residual_tests_of(data),
        source_losses=source_losses_of(data),
        scaling_law=scaling_law_of(data),
        collapse=collapse_of(data),
        run=run_facts(data.log),
        trained_on=trained_on(data.log, data.manifest),
    )


def detector_of(judged: Judged) -> Detector:
    """Return how a detector judged, for the record."""
    above, below = (None, None) if judged.rates is None else (AlarmRate(**asdict(one)) for one in judged.rates)
    return Detector(
        window=WINDOW,
        k=judged.last_k,
        by="composition" if judged.composed else "loss",
        composed=judged.composed,
        visible=tuple(Visible(steps=a, rise=round(b, 9)) for a, b in zip(scan.SCALES, judged.visible, strict=False)),
        rate=scan.RATE if judged.composed else RATE,
        healthy=judged.past,
        above=above,
        below=below,
        level_after=LEVEL_AFTER,
        floor=FLOOR,
        gap=GAP,
    )


def write_attribution(log: Path, found: Attribution) -> None:
    """Write ``attribution.json`` into a run log, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    write_whole(log / ATTRIBUTION_FILE, canonical_json(found.model_dump(mode="json", by_alias=True)) + b"\n")
