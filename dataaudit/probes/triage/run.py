"""``dataaudit triage``: from run logs, manifests and reports to the steps and their verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dataaudit.base.errors import ConfigError
from dataaudit.probes.triage.architecture import WORSE, Side, architecture_step, experiments, symptoms
from dataaudit.probes.triage.data import data_step
from dataaudit.probes.triage.evaluation import evaluation_step, probed
from dataaudit.probes.triage.internals import Vital, internals_step
from dataaudit.probes.triage.steps import Triage
from dataaudit.runlog.reader import RunLog, load_run
from dataaudit.training.attribution.curve import curve_of, open_ranks
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.run_facts import run_facts


def triage(
    runlog: Path,
    manifest: Path,
    *,
    baseline: Path | None = None,
    baseline_manifest: Path | None = None,
    probes: Path | None = None,
    baseline_probes: Path | None = None,
    worse: float = WORSE,
) -> Triage:
    """Look for the cause of a silent regression: evaluation artifacts, data, internal behaviour, architecture.

    The baseline is the run log of a healthy run, of the run's manifest unless another is named. Reports of probes lie
    beside a run log by default. A loss is worse from the part ``worse`` of the baseline's on.
    """
    if baseline is None and (baseline_manifest or baseline_probes):
        raise ConfigError("options of the baseline were given, and no baseline", "Name it: --baseline RUNLOG.")
    if baseline is not None and baseline.resolve() == runlog.resolve():
        raise ConfigError(f"--baseline: {baseline} is the run itself", "Name the log of a healthy run.")
    run, before = load_data(runlog, manifest), None if baseline is None else load_run(baseline)
    if not 0 < worse <= 1:  # NaN, too
        raise ConfigError(f"--worse: expected a share above 0, 1 at most, found {worse}", "Leave it out for 0.02.")
    about: dict[str, Any] = {
        "run": str(runlog),
        "log": _troubles(run.log),
        "baseline": str(baseline or ""),
        "manifest": run.manifest.id,
    }
    own = _side(run.log, probes)
    step = None if own.report is None else own.report.step
    old = None if before is None else _side(before, baseline_probes, step)
    sides = [side.probed for side in (own, old) if side is not None and side.probed is not None]
    found = [(side.folder.resolve(), side.report.step) for side in sides if side.folder and side.report]
    if len(set(found)) < len(found):
        raise ConfigError(
            f"both runs have the same report, of step {found[0][1]:,} in {found[0][0]}",
            "Name the folder of each: --probes DIR --baseline-probes DIR.",
        )
    if not len(own.curve.step):
        return Triage(**about, steps_seen=0)
    data, folder, other = None, baseline_manifest, ""
    if before is not None and baseline is not None:
        if folder is None and before.run.manifest == run.manifest.id:
            folder = manifest
        data = None if folder is None else load_data(baseline, folder)
        other = str(before.run.manifest or "none") if folder is None else ""
    return Triage(
        **about,
        steps_seen=len(own.curve.step),
        symptoms=symptoms(own, old),
        steps=(
            evaluation_step(own.probed, None if old is None else old.probed, runlog, baseline),
            data_step(run, data, (manifest, folder), other),
            internals_step(own.vital, None if old is None else old.vital),
            architecture_step(own, old, worse),
        ),
        experiments=experiments(own, run.log.run.ranks),
    )


def _troubles(log: RunLog) -> str:
    """Return what is wrong with a log as a whole, in words."""
    still_open = open_ranks(log.table("events"), len(log.ranks))
    not_closed = "not closed: the run was killed, or goes on" if still_open else ""
    unread = f"damaged: {log.torn_bytes:,} bytes of it cannot be read" if log.torn_bytes else ""
    return "; ".join(filter(None, (not_closed, unread)))


def _side(log: RunLog, probes: Path | None, step: int | None = None) -> Side:
    curve = curve_of(log.table("steps"), log.table("events"))
    return Side(curve, run_facts(log), Vital(log), probed(log, probes, step))
