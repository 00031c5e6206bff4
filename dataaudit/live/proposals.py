"""What an action only proposes: a rollback, a quarantine, a canary. Each is a file; nothing of it is done by itself.

::

    RUNLOG/actions/rollback-step00031200.json     to which checkpoint, what it undoes, the lines that go on from it
    RUNLOG/actions/quarantine.jsonl               proposed entries; `dataaudit quarantine accept` puts them in force
    RUNLOG/actions/quarantine-step00031200.json   on which documents the proposal rests, and what is surer
    RUNLOG/actions/canary-step00031200.json       from which checkpoint, for how many steps, the command
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import math
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import orjson

from dataaudit.base.errors import CatchErrors, ConfigError, RunLogError
from dataaudit.base.files import read_safely, write_whole
from dataaudit.base.statistics import spread
from dataaudit.live.action_kinds import CheckpointStore, good_before
from dataaudit.live.actions import FOLDER, Action, Actions, Refused
from dataaudit.live.agreement import Asked, Due
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import load_run

_FAR = 5.0
"""Robust standard deviations above the median loss from which on a document is proposed."""
_LEAST = 8
"""Documents of which their median says something."""


def _write(actions: Actions, kind: str, asked: Asked, facts: dict[str, Any]) -> Path:
    """Write a proposal; its file has a step in its name, and a number where another has that name already."""
    folder = actions.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / f"{kind}-step{actions.step:08d}{f'-{number}' * (number > 1)}.json"
        with suppress(FileExistsError):  # another action's, rank's or start's of this step
            path.touch(exist_ok=False)
            break
    about = {"proposes": kind, "step": actions.step, "rule": asked.rule, "incident": asked.incident, "why": asked.why}
    try:
        write_whole(path, orjson.dumps({**about, **facts}, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError:
        path.unlink()
        raise
    return path


def _checkpoint(checkpoints: CheckpointStore, asked: Asked) -> tuple[dict[str, Any], bool]:
    """Return step and path of the newest checkpoint from before what a rule saw, and whether it is known to be good.

    Raises:
        Refused: There is no checkpoint.
    """
    good = good_before(checkpoints, asked.first_step)
    if (chosen := good or checkpoints.latest) is None:
        raise Refused("there is no checkpoint")
    return {"step": int(chosen.step), "path": str(chosen.path)}, good is not None


def _command(name: str, command: str, **known: Any) -> str:
    """Return a command whose fields are known; others would be found out at the incident."""
    with CatchErrors() as call:
        command.format(**known)
    if call.error is not None:
        fields = ", ".join(f"{{{field}}}" for field in known)
        raise ConfigError(
            f"actions: {name}: command: expected no field but {fields}, found {command}",
            "Other braces are written twice: `${{HOME}}`.",
        )
    return command


class PrepareRollback(Action):
    """Writes how to go back to the last good checkpoint; nobody goes back by it.

    Args:
        checkpoints: Whose ``last_good`` it is, or whose ``latest`` where none is known to be good.
        command: That resumes your run, with ``{path}`` and ``{step}`` of the checkpoint in it.
    """

    def __init__(
        self, checkpoints: CheckpointStore, command: str = "", name: str = "prepare_rollback", **more: Any
    ) -> None:
        super().__init__(name, **more)
        self._checkpoints, self._command = checkpoints, _command(name, command, path="", step=0)

    def perform(self, due: Due, actions: Actions) -> str:
        """Write it."""
        target, good = _checkpoint(self._checkpoints, due.asked)
        first = due.asked.first_step
        notes = [] if good else ["no checkpoint is known to be good: this is the latest"]
        if target["step"] > actions.step:
            notes.append(f"the checkpoint is newer than step {actions.step:,}: a run that went back left it")
        if first and target["step"] >= first:
            notes.append(f"the checkpoint is not older than step {first:,}, from which on the rule's condition is met")
        lines = [
            f"saved = ...  # what the checkpoint {target['path'] or target['step']} holds",
            "actions.load_state_dict(saved['actions'])  # read the loader on behind batch actions.batches_read",
            f"monitor = TrainingMonitor({str(actions.folder)!r}, corpus, state=saved['monitor'], alerts=alerts)",
            "vitals.load_state_dict(saved['vitals'])",
        ]
        facts = {
            "checkpoint": target,
            "known_good": good,
            "undoes_steps": max(0, actions.step - target["step"]),
            "first_step": first or None,
            "batches_read_now": actions.batches_read,
            "rate_factor_now": actions.rate_factor,
            "states": ["model", "optimizer", "scheduler", "loader", "monitor", "vitals", "actions"],
            "command": self._command.format(**target) if self._command else None,
            "lines": lines,
            "notes": notes,
        }
        path = _write(actions, "rollback", due.asked, facts)
        return "; ".join([f"back to step {target['step']:,}, {facts['undoes_steps']:,} steps: {path}", *notes])


class ProposeCanary(Action):
    """Writes which short run should be made from the last good checkpoint before anything is changed.

    Args:
        checkpoints: As of :class:`PrepareRollback`.
        steps: Of the short run.
        command: That starts it, with ``{path}``, ``{step}`` and ``{steps}`` in it.
    """

    def __init__(
        self,
        checkpoints: CheckpointStore,
        steps: int = 200,
        command: str = "",
        name: str = "propose_canary",
        **more: Any,
    ) -> None:
        super().__init__(name, **more)
        self._checkpoints, self._steps = checkpoints, steps
        self._command = _command(name, command, path="", step=0, steps=0)

    def perform(self, due: Due, actions: Actions) -> str:
        """Write it."""
        target, _ = _checkpoint(self._checkpoints, due.asked)
        shards = sorted({own["shard_name"] for own in _batches(due.asked) if own["shard_name"]})
        command = self._command.format(**target, steps=self._steps) if self._command else None
        facts = {"checkpoint": target, "steps": self._steps, "shards": shards, "command": command}
        path = _write(actions, "canary", due.asked, facts)
        return f"{self._steps:,} steps from the checkpoint of step {target['step']:,}: {path}"


class ProposeQuarantine(Action):
    """Proposes the documents of the incident's batches whose loss stands far above the others'.

    They become proposed entries of ``RUNLOG/actions/quarantine.jsonl``, a list that no loader reads.

    Args:
        most: Documents, at most.
    """

    def __init__(self, most: int = 16, name: str = "propose_quarantine", **more: Any) -> None:
        super().__init__(name, **more)
        self._most = most

    def perform(self, due: Due, actions: Actions) -> str:
        """Propose them."""
        from dataaudit.decide.quarantine.changes import AddRequest, Author, propose, target_of
        from dataaudit.decide.quarantine.entry import Evidence

        try:
            log = load_run(actions.folder)
            shards = [
                {**own, "reason": "", "bad_records": own["rows"] - own["documents"]} for own in log.shards.to_pylist()
            ]
        except RunLogError:
            raise Refused("the run names no shards: it opened no manifest, or its log cannot be read") from None
        far = _outliers(_batches(due.asked))
        folder = quote(str(actions.folder))
        surer = f"dataaudit attribute {folder} --manifest MANIFEST"
        if (actions.folder / ATTRIBUTION_FILE).is_file():
            surer += f"; dataaudit quarantine propose quarantine.jsonl --run {folder} --manifest MANIFEST"
        far = [(own, limit) for own, limit in far if 0 <= int(own["shard"]) < len(shards)][: self._most]
        if not far:
            _write(actions, "quarantine", due.asked, {"documents": [], "surer": surer})
            return f"no document of the incident's batches stands out; `{surer}` compares more of them"
        requests = []
        for own, limit in far:
            evidence = Evidence(
                metric="loss",
                unit="nats/token",
                value=float(own["loss"]),
                comparator="<=",
                limit=limit,
                rule=due.asked.rule or None,
                manifest=log.run.manifest or None,
                run=log.folder.resolve().name,
                words=f"step {int(own['step']):,}: more than {_FAR:g} spreads above the median of its batches",
            )
            target = target_of(shards[int(own["shard"])], int(own["row"]))
            requests.append(AddRequest(target=target, reason="loss", evidence=evidence))
        path = actions.folder / FOLDER / "quarantine.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        note = f"of the incident {due.asked.incident}" if due.asked.incident else "the loop asked for it"
        change = propose(path, requests, Author(who="dataaudit alerts", now=dt.datetime.now(dt.UTC), note=note))
        named = [f"{own['shard_name']}:{own['row']}" for own, _ in far]
        accept = f"dataaudit quarantine accept {quote(str(path))} ID"
        facts = {"documents": named, "limit": min(limit for _, limit in far), "accept": accept, "surer": surer}
        _write(actions, "quarantine", due.asked, {**facts, "entries": [own.id for own in change.added]})
        return f"{len(change.added)} proposed, {len(change.known)} known: {', '.join(named[:3])}; {path}"


def _batches(asked: Asked) -> list[dict[str, str]]:
    """Return the documents of an incident's batches, as its evidence has them; none where it has none."""
    try:
        text = read_safely(Path(asked.folder) / "batches.csv").decode() if asked.folder else ""
    except OSError:
        return []
    return list(csv.DictReader(io.StringIO(text)))


def _outliers(rows: list[dict[str, str]]) -> list[tuple[dict[str, str], float]]:
    """Return the documents far above the median loss with their limits in nats/token, the farthest first.

    The mean of few tokens varies more: of such a document the limit is as much farther.
    """
    scored = [own for own in rows if int(own["row"]) >= 0 and math.isfinite(float(own["loss"] or "nan"))]
    if len({(own["shard"], own["row"]) for own in scored}) < _LEAST:
        return []
    values = np.array([float(own["loss"]) for own in scored])
    roots = np.sqrt([max(1, int(own["targets"])) for own in scored])
    middle = float(np.median(values))
    width = np.maximum(max(spread(values, middle), 1e-6), spread((values - middle) * roots, 0.0) / roots)
    limits = middle + _FAR * width
    far: dict[tuple[str, str], tuple[dict[str, str], float]] = {}
    for at in np.argsort(limits - values, kind="stable").tolist():
        if values[at] > limits[at]:
            far.setdefault((scored[at]["shard"], scored[at]["row"]), (scored[at], float(limits[at])))
    return list(far.values())
