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
import math
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import orjson

from dataaudit.base.errors import RunLogError
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
    """Write a proposal; its file has a step in its name."""
    path = actions.folder / FOLDER / f"{kind}-step{actions.step:08d}.json"
    about = {"proposes": kind, "step": actions.step, "rule": asked.rule, "incident": asked.incident, "why": asked.why}
    write_whole(path, orjson.dumps({**about, **facts}, option=orjson.OPT_INDENT_2) + b"\n")
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
        self._checkpoints, self._command = checkpoints, command

    def perform(self, due: Due, actions: Actions) -> str:
        """Write it."""
        target, good = _checkpoint(self._checkpoints, due.asked)
        first = due.asked.first_step
        notes = [] if good else ["no checkpoint is known to be good: this is the latest"]
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
            "undoes_steps": actions.step - target["step"],
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
        self._checkpoints, self._steps, self._command = checkpoints, steps, command

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
        folder = quote(str(actions.folder))
        far, limit = _outliers(_batches(due.asked))
        surer = f"dataaudit attribute {folder} --manifest MANIFEST"
        if (actions.folder / ATTRIBUTION_FILE).is_file():
            surer += f"; dataaudit quarantine propose quarantine.jsonl --run {folder} --manifest MANIFEST"
        far = [own for own in far if 0 <= int(own["shard"]) < len(shards)][: self._most]
        if not far:
            _write(actions, "quarantine", due.asked, {"documents": [], "surer": surer})
            return f"no document of the incident's batches stands out; `{surer}` compares more of them"
        requests = []
        for own in far:
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
        named = [f"{own['shard_name']}:{own['row']}" for own in far]
        accept = f"dataaudit quarantine accept {quote(str(path))} ID"
        facts = {"documents": named, "limit": limit, "entries": [own.id for own in change.added], "accept": accept}
        _write(actions, "quarantine", due.asked, {**facts, "surer": surer})
        return f"{len(change.added)} proposed, {len(change.known)} known: {', '.join(named[:3])}; {path}"


def _batches(asked: Asked) -> list[dict[str, str]]:
    """Return the documents of an incident's batches, as its evidence has them; none where it has none."""
    try:
        text = read_safely(Path(asked.folder) / "batches.csv").decode() if asked.folder else ""
    except OSError:
        return []
    return list(csv.DictReader(io.StringIO(text)))


def _outliers(rows: list[dict[str, str]]) -> tuple[list[dict[str, str]], float]:
    """Return the documents far above the median loss, the farthest first, and the limit in nats/token."""
    losses: dict[tuple[str, str], dict[str, str]] = {}
    for own in rows:
        loss = float(own["loss"] or "nan")
        key = own["shard"], own["row"]
        if int(own["row"]) >= 0 and math.isfinite(loss) and (key not in losses or loss > float(losses[key]["loss"])):
            losses[key] = own
    values = np.array([float(own["loss"]) for own in losses.values()])
    if len(values) < _LEAST:
        return [], math.nan
    middle = float(np.median(values))
    limit = middle + _FAR * max(spread(values, middle), 1e-6)
    far = [own for own in losses.values() if float(own["loss"]) > limit]
    return sorted(far, key=lambda own: -float(own["loss"])), limit
