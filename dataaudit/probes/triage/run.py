"""``dataaudit triage``: from run logs, manifests and reports to the steps and their verdict, and that as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.render import markdown
from dataaudit.base.render.blocks import Facts, Table, table_of
from dataaudit.base.render.line import Line, Name, say
from dataaudit.base.render.terminal import render
from dataaudit.probes.triage.architecture import WORSE, Side, architecture_step, experiments, symptoms
from dataaudit.probes.triage.data import data_step
from dataaudit.probes.triage.evaluation import evaluation_step, probed
from dataaudit.probes.triage.internals import Vital, internals_step
from dataaudit.probes.triage.steps import TITLES, Check, Triage
from dataaudit.runlog.reader import RunLog, load_run
from dataaudit.training.attribution.curve import curve_of, open_ranks
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.run_facts import run_facts

_STATES: Final = {
    "found": "off",
    "clean": "clean",
    "not_evaluated": "not evaluated",
    "not_applicable": "not applicable",
}


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


def headline(result: Triage) -> Line:
    """Return the verdict in a line."""
    suspect = result.suspect
    if result.verdict == "no_data":
        return f"No data: the run log has no step{f'; it is {result.log}' if result.log else ''}."
    if result.verdict == "none":
        return "Cause: none. Artifacts, data, internal behaviour and architecture are clean."
    if result.verdict == "found" and suspect is not None:
        return say("Cause: {}. {}.", suspect.named, suspect.found[0].words)
    missing = ", ".join(dict.fromkeys(check.name for check in result.missing)) or "all checks of a step"
    if suspect is None:
        return f"Undecidable: nothing is off in what could be looked at, and this is missing: {missing}."
    return f"Undecidable: {suspect.named} is off, but of the steps before it this is missing: {missing}."


def blocks(result: Triage) -> Iterator[Facts | Table]:
    """Yield what is shown below the verdict."""
    pairs: list[tuple[Line, Line]] = [
        ("run", say("{}, {} steps", Name(result.run, ends=True), result.steps_seen)),
        ("manifest", result.manifest),
        ("baseline", Name(result.baseline, ends=True) if result.baseline else "none"),
    ]
    if result.log:
        pairs.insert(1, ("run log", result.log))
    yield Facts(pairs=(*pairs, *((check.name, check.words) for check in result.symptoms)))
    for number, step in enumerate(result.steps, 1):
        yield table_of(
            f"{number}. {TITLES[step.name]}: {_STATES[step.state]}",
            step.checks,
            ("check", "word", lambda check: check.name),
            ("", "word", _state),
            ("evidence", "text", lambda check: check.words),
        )
    feeds: dict[str, list[str]] = {}
    last = len(result.steps) if result.suspect is None else result.steps.index(result.suspect) + 1
    for check in (check for step in result.steps[:last] for check in step.checks if check.feed):
        feeds.setdefault(check.feed, []).append(check.name)
    yield table_of(
        "What to type next",
        list(feeds.items()),
        ("for", "word", lambda item: ", ".join(dict.fromkeys(item[1]))),
        ("line", "text", lambda item: Name(item[0], 400)),
    )
    if result.experiments and (result.suspect is None or result.suspect.name == "architecture"):
        yield _experiments(result.experiments)


def _state(check: Check) -> Line:
    return _STATES[check.state] + ("" if check.needed or check.state != "not_evaluated" else ", not needed")


def _experiments(experiments: tuple[Mapping[str, Any], ...]) -> Table:
    def cost(name: str) -> Any:
        def cell(own: Mapping[str, Any]) -> Line:
            known = own[name] if own["state"] == "named" else None
            return "-" if known is None else f"{known[0]:.2g} to {known[1]:.2g}"

        return cell

    steps = experiments[0]["steps"]
    return table_of(
        "Controlled experiments, where the three steps before are clean",
        experiments,
        ("experiment", "word", lambda own: own["name"]),
        *(
            (head, "word", cost(name))
            for head, name in (("tokens", "tokens"), ("FLOPs", "flops"), ("h", "device_hours"))
        ),
        ("two arms", "text", lambda own: own["words"]),
        note=f"Of two arms of {steps[0]:,} to {steps[1]:,} steps at this run's batch; h: device hours. Pin tokenizer,"
        " manifest and evaluation artifacts, and change an axis at a time.",
    )


def shown(result: Triage, form: str) -> str:
    """Return the page as ``text``, ``md`` or ``json``."""
    if form == "json":
        return t.as_json(result.document())
    if form == "text":
        return render(headline(result), blocks(result), most=None)
    lines = [f"## {markdown.markdown(headline(result))}"]
    for block in blocks(result):
        own = markdown.lines_of([block])
        title = [f"### {markdown.markdown(block.title)}", ""] if block.title else []
        lines += ["", *title, *own] if own else []
    return "\n".join(lines) + "\n"
