"""A canary in words: the healthy seeds of a baseline, and a verdict with each metric beside its interval."""

from __future__ import annotations

from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import Cell, Facts, Prose, Table, Tone, names, numbers, toned, words
from dataaudit.base.render.line import Name
from dataaudit.manifest.canary_record import LOSSES, BaselineRecord, CanaryRecord, Judged, Side, State

_HEADLINES = {
    "pass": "PASS: the change trains as healthy seeds do",
    "better": "BETTER: a loss is lower than healthy seeds explain",
    "regressed": "REGRESSED: a metric is out of what healthy seeds differ by",
    "undecidable": "UNDECIDABLE: the runs do not suffice for a verdict",
    "invalid": "INVALID: these runs cannot be compared",
}
_TONES: dict[State, Tone] = {"worse": "bad", "moved": "bad", "better": "warn", "not_evaluated": "warn"}
MOST_VALUES = 20
"""Rows of logged values that a terminal lists; those that moved come first."""


def canary_text(record: CanaryRecord) -> str:
    """Return what the terminal shows of a canary."""
    core = record.core
    shown = sorted(core.metrics, key=lambda own: (own.metric not in LOSSES, own.state == "same"))
    table = Table(
        title="Metrics",
        columns=(
            *names("metric"),
            *numbers("pairs", "baseline", "canary", "difference", "95 % of it", "limit", "seed sd"),
            *words("state"),
        ),
        rows=tuple(map(_row, shown[: MOST_VALUES + len(LOSSES)])),
        number=len(shown),
        noun="metric",
        note="difference: mean over pairs of a seed. limit: half of Student's prediction interval.",
    )
    blocks = [Prose(text="; ".join(core.reasons), tone="bad")] if core.reasons else []
    pairs = [("record", record.id), ("baseline", core.baseline_id), ("manifest", core.canary.manifest)]
    pairs += [("runs", _runs(core.canary))]
    if record.run.speed is not None:
        own = record.run.speed
        step = f"{own.canary * 1e3:.3g} ms, {own.ratio:.3f} times the baseline's {own.baseline * 1e3:.3g}"
        pairs.append(("a step", f"{step} (limit {own.limit:.3f}): {own.state.replace('_', ' ')}; in no verdict"))
    facts = Facts(pairs=tuple((name, Name(value)) for name, value in pairs))
    title = _HEADLINES[core.verdict]
    if core.verdict == "pass" and any(own.state == "better" for own in core.metrics):
        title = "PASS: losses are lower, as --expect better says"
    elif core.verdict == "regressed" and not core.metrics:
        title = "REGRESSED: a loss is not finite"
    return terminal.render(title, [*blocks, *([table] if core.metrics else []), facts])


def baseline_text(record: BaselineRecord) -> str:
    """Return what the terminal shows of a baseline."""
    side = record.core
    metrics = [name for name in LOSSES if any(name in run.values for run in side.seeds)]
    table = Table(
        title="Healthy seeds",
        columns=(*numbers("seed"), *numbers(*metrics), *numbers("ms a step"), *words("order", "state")),
        rows=tuple(
            (
                str(run.seed),
                *(f"{run.values[name]:.4f}" if name in run.values else "-" for name in metrics),
                f"{record.run.step_seconds[run.seed] * 1e3:.3g}" if run.seed in record.run.step_seconds else "-",
                Name((run.order or "not known").removeprefix("sha256:")[:12]),
                toned("not healthy: a loss is not finite", "bad") if run.problem else "healthy",
            )
            for run in side.seeds
        ),
        whole=True,
        noun="seed",
    )
    title = f"{len(side.healthy)} healthy seeds of {side.function}, {side.steps} steps each"
    facts = Facts(pairs=(("record", Name(record.id)), ("manifest", Name(side.manifest))))
    return terminal.render(title, [table, facts])


def _row(own: Judged) -> tuple[Cell | str | Name, ...]:
    def number(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.4g}"

    interval = "-" if own.low is None or own.high is None else f"{own.low:+.3g} to {own.high:+.3g}"
    state = own.state.replace("_", " ") + (f": {own.reason}" if own.reason else "")
    return (
        Name(own.metric),
        str(own.pairs),
        number(own.baseline),
        number(own.canary),
        number(own.difference, "+"),
        interval,
        f"±{number(own.limit)}" if own.limit is not None else "-",
        number(own.seed_sd),
        Cell(text=state, tone=_TONES.get(own.state, "")),
    )


def _runs(side: Side) -> str:
    return f"{len(side.seeds)} seeds of {side.function}, {side.steps} steps each, losses of the last {side.last}"
