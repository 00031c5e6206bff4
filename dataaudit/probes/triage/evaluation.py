"""The first step: were both runs measured with the same tokenizer, prompts, templates, decoding, harness and dtype?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import orjson
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError
from dataaudit.base.render.line import Name, say
from dataaudit.probes.cross import CROSS_FILE, differing
from dataaudit.probes.report import REPORT_FILE, EvalArtifacts, ProbeReport, latest_before
from dataaudit.probes.triage.steps import Check, State, Step, absent, lines_of, names_of
from dataaudit.runlog.reader import RunLog

FOLDERS = ("{}/probes", "{}.probes", "{}.checkpoints/probes")
"""Where reports stand beside a run log, unless a folder is named."""
_ANY_STEP = 1 << 62


@dataclass(frozen=True, slots=True)
class Probed:
    """What a run was measured with: its newest report, or the artifacts alone where the log holds these."""

    artifacts: Mapping[str, EvalArtifacts]
    """By ``eval_artifact_hash``."""
    report: ProbeReport | None = None
    folder: Path | None = None
    """Of all reports."""


def probed(log: RunLog, given: Path | None, step: int | None = None) -> Probed | None:
    """Return what a run was measured with; None where neither a folder nor the log has it.

    The folder of reports is beside the log by default; the report of the step is taken, or the newest.
    """
    for folder in [given] if given is not None else [Path(name.format(log.folder)) for name in FOLDERS]:
        exact = [folder] if step is None else [folder, folder / f"step-{step:08d}"]
        own = next((path for path in exact if (path / REPORT_FILE).is_file()), latest_before(folder, _ANY_STEP))
        if own is not None:
            report = ProbeReport.load(own)
            return Probed(report.artifacts, report, own.parent)
    if given is not None:
        raise ConfigError(
            f"{given} holds no report of a probe: expected step-.../{REPORT_FILE}",
            f"Make one: dataaudit probe CHECKPOINT --manifest DIR --step N --out {given}",
        )
    events = log.table("events")
    for detail in events.filter(pc.equal(events["kind"], "probed"))["detail"].to_pylist()[::-1]:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # of another version of the program
            if known := {key: EvalArtifacts(**own) for key, own in orjson.loads(detail)["artifacts"].items()}:
                return Probed(known)
    return None


def evaluation_step(run: Probed | None, baseline: Probed | None, folder: Path, other: Path | None) -> Step:
    """Return whether the artifacts of both are the same; the folders are those of the run logs."""
    return Step("evaluation", tuple(_checks(run, baseline, folder, other)))


def _checks(run: Probed | None, baseline: Probed | None, folder: Path, other: Path | None) -> list[Check]:
    name = "eval_artifact_hash"
    if other is None:
        return [absent(name, "there is no baseline to compare the artifacts with", "--baseline RUNLOG")]
    if run is None or baseline is None:
        lacking = folder if run is None else other
        why = say("no report of a probe stands beside {}, and its log names no artifacts", Name(str(lacking)))
        return [
            absent(name, why, f"dataaudit probe CHECKPOINT --manifest DIR --step N --out {quote(f'{lacking}/probes')}")
        ]
    same, differ, single = differing(baseline.artifacts, run.artifacts)
    if not same and not differ:
        return [absent(name, say("no probe was run on both: {}", names_of(single)), "Run the same --probes on both.")]
    checks = []
    if single:
        checks.append(
            absent("probes of a single run", names_of(single), "Run the same --probes on both.", needed=False)
        )
    if not differ:
        words = say("equal for {}: tokenizer, prompts, templates, decoding, harness and dtype", names_of(same))
        return [Check(name, "clean", words, numbers={"probes": same}), *checks]
    follows = _crossed(run)
    crossed = f"; by the cross product, the change follows: {follows}" if follows else ""
    shown = lines_of([say("{}: {}", Name(probe), ", ".join(own)) for probe, own in sorted(differ.items())])
    words = say("other artifacts than the baseline's ({}): their numbers do not compare{}", shown, crossed)
    feed = f"dataaudit probe OLD --cross NEW --new NAME=VALUE --manifest DIR --out {quote(str(run.folder or 'DIR'))}"
    part = ", ".join(dict.fromkeys(field for own in differ.values() for field in own))
    state: State = "clean" if follows == "checkpoint" else "found"
    return [Check(name, state, words, "" if follows else feed, numbers={"differ": differ}, part=part), *checks]


def _crossed(run: Probed) -> str:
    """Return what the cross product beside the reports decided, where it is of these artifacts."""
    try:
        plain = orjson.loads(((run.folder or Path()) / CROSS_FILE).read_bytes())
        return str(plain["follows"]) if set(plain["artifacts"]["new"]) & set(run.artifacts) else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
