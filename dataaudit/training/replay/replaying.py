"""Replay of the suspects that a log's attribution names: the direct test, the four arms, proposals."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError, DataAuditError
from dataaudit.base.statistics import Ints
from dataaudit.manifest.locate import find_place
from dataaudit.runlog.format import RUN_FILE
from dataaudit.training.attribution.event_permutation import alpha_of_look
from dataaudit.training.attribution.findings import Attribution, Episode
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import Proposal, ReplayFound, Suspect, Unit
from dataaudit.training.replay.contagion import BEFORE, Recorded, contagion
from dataaudit.training.replay.direct_comparison import ALPHA, direct
from dataaudit.training.replay.protocol import Candidates, Replay, first_reads, read_by

MOST_SUSPECTS = 8
"""Units that are replayed, those named by the user first."""
NamedBy = Literal["user", "accounting", "event_test", "residual_test"]
_VALUES = ("learning_rate", "grad_global_norm")


class _Named(NamedTuple):
    """A unit that somebody, or some test, suspects."""

    shard: int
    first_row: int | None
    by: NamedBy
    among: int


def load_replay(name: str, manifest: Path, log: Path) -> Replay:
    """Return what the user's callable makes."""
    return cast(Replay, called(load_function(name, "--replay"), manifest, log, where=f"the replay {name}"))


def load_function(name: str, option: str) -> Any:
    """Return the user's function that an option names as MODULE:FUNCTION or FILE.py:FUNCTION."""
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function:
        raise ConfigError(f"{option}: expected MODULE:FUNCTION or FILE.py:FUNCTION, found `{name}`")
    try:
        loaded = _module(module)
    except (ImportError, OSError, SyntaxError) as error:
        raise ConfigError(f"{option}: {module} cannot be imported: {error}") from None
    except DataAuditError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(f"{option}: {module} cannot be imported: {_described(error)}") from error
    if not hasattr(loaded, function):
        raise ConfigError(f"{option}: {module} has no `{function}`")
    return getattr(loaded, function)


def _module(name: str) -> Any:
    """Import a module of the current folder, or a file as ``python FILE.py`` does: its folder comes first, for good."""
    is_file = name.endswith(".py")
    folder = os.path.dirname(os.path.abspath(name)) if is_file else os.getcwd()
    sys.path[:0] = [] if folder == sys.path[0] else [folder]
    if not is_file:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def called(function: Any, *arguments: Any, where: str) -> Any:
    """Call a function of the user's; an error names where it failed."""
    try:
        return function(*arguments)
    except DataAuditError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(f"{where} failed: {_described(error)}") from error


def _described(error: Exception) -> str:
    """Return the class of an error, what it says, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"


def replayed(
    data: Data,
    found: Attribution,
    replay: Replay,
    name: str,
    places: Sequence[str] = (),
    *,
    before: int = BEFORE,
    seed: int = 0,
) -> Attribution:
    """Return an attribution with the verdicts of a replay on its suspects, and what is proposed."""
    if data.log.run.ranks > 1:
        raise ConfigError(
            f"the log is of {data.log.run.ranks} processes, and a replay is one",
            "Replay a run of one process; nothing can be compared bit by bit with several.",
        )
    named = _suspects(data, found, places)
    suspects = called(lambda: tuple(_tested(data, found, replay, named, before, seed)), where=f"the replay {name}")
    made = ReplayFound(
        run=hashlib.sha256((data.log.folder / RUN_FILE).read_bytes()).hexdigest(),
        replay=name,
        checkpoints=tuple(int(checkpoint) for checkpoint in replay.checkpoints),
        before=before,
        seed=seed,
        suspects=suspects,
    )
    return found.model_copy(update={"replay": made, "proposals": proposals_of(found, suspects)})


def _suspects(data: Data, found: Attribution, places: Sequence[str]) -> list[_Named]:
    rows = data.log.run.block_rows
    shards = data.manifest.table("shards", ["shard", "split", "uri"])
    named: list[_Named] = []
    for name in places:
        place = find_place(name, shards)
        shard = int(data.twins[place.shard])
        named.append(_Named(shard, None if place.row is None else place.row // rows * rows, "user", 1))
    for episode in found.episodes:
        unit = episode.found
        if unit is not None and unit.shard is not None and unit.shard >= 0:
            among = episode.num_blocks if unit.kind == "block" else episode.num_shards
            named.append(_Named(unit.shard, unit.first_row, "accounting", max(1, among)))
    test = found.event_test
    if test is not None:
        named += [
            _Named(followed.shard, followed.first_row, "event_test", test.tested)
            for followed in test.units
            if followed.p <= test.alpha
        ]
    for odd in found.residual_tests:
        named += [
            _Named(unit.shard, unit.first_row, "residual_test", odd.tested)
            for unit in odd.units
            if unit.outlier and unit.shard >= 0
        ]
    distinct: dict[tuple[int, int | None], _Named] = {}
    for each in named:
        whole = each._replace(first_row=None) if 0 < data.rows[each.shard] <= rows else each
        distinct.setdefault((whole.shard, whole.first_row), whole)
    return list(distinct.values())[:MOST_SUSPECTS]


def _tested(
    data: Data, found: Attribution, replay: Replay, named: Sequence[_Named], before: int, seed: int
) -> Iterator[Suspect]:
    if not named:
        return
    documents, rows = replay.documents, data.log.run.block_rows
    shard = data.twins[documents.shard]
    shards = np.flatnonzero(np.isin(shard, [item.shard for item in named]))
    recorded = recorded_of(data, documents)
    ends = [item.last_step for item in found.episodes]
    first = first_reads(replay, max([*replay.checkpoints, *ends], default=0))
    for item in named:
        units, unit = shard, item.shard  # those of shards with equal bytes with them
        if item.first_row is not None:
            units, unit = (shard << 40) | (documents.row // rows), item.shard << 40 | item.first_row // rows
        suspects = np.flatnonzero(units == unit)
        tested = direct(replay, suspects, units, among=item.among, exclude=shards, first=first, seed=seed)
        episode = _episode_of(found.episodes, replay, suspects, before)
        arms = None
        if episode is not None:
            arms = contagion(replay, recorded, suspects, episode, before=before, exclude=shards, first=first, seed=seed)
        yield Suspect(
            **data.named(item.shard, item.first_row),
            named_by=item.by,
            documents=len(suspects),
            episode=episode,
            direct=tested,
            contagion=arms,
        )


def _episode_of(episodes: Sequence[Episode], replay: Replay, suspects: Ints, before: int) -> tuple[int, int] | None:
    """Return the longest episode in which, or within a few steps before which, some suspects are read."""
    for item in sorted(episodes, key=lambda episode: -episode.flagged):
        for step in range(max(1, item.first_step - before), item.last_step + 1):
            if np.isin(read_by(replay, step), suspects).any():
                return item.first_step, item.last_step
    return None


def recorded_of(data: Data, documents: Candidates) -> Recorded:
    """Return the steps of the first process by its log."""
    steps = data.log.table("steps")
    steps = steps.filter(pc.and_(pc.equal(steps["rank"], 0), pc.is_valid(steps["user_loss"])))
    table = data.log.table("stretches")
    table = table.filter(pc.equal(table["rank"], 0))
    step = table["step"].to_numpy().astype(np.int64)
    place = documents.places(*(table[name].to_numpy().astype(np.int64) for name in ("shard", "row")))
    order = np.argsort(step, kind="stable")
    names, begins = np.unique(step[order], return_index=True)
    read = np.split(place[order], begins[1:]) if len(names) else []
    values = data.log.table("values")
    numbers = {}
    for name in _VALUES:
        own = values.filter(pc.and_(pc.equal(values["metric"], name), pc.equal(values["layer"], -1)))
        numbers[name] = dict(zip(own["step"].to_pylist(), own["value"].to_pylist(), strict=True))
    return Recorded(
        loss=dict(zip(steps["step"].to_pylist(), steps["user_loss"].to_pylist(), strict=True)),
        documents={int(item): np.unique(met[met >= 0]) for item, met in zip(names, read, strict=True)},
        values=numbers,
    )


def proposals_of(found: Attribution, suspects: Sequence[Suspect] = ()) -> tuple[Proposal, ...]:
    """Return what is worth a proposal: odd data, data that breaks the model from any checkpoint, repeated evidence.

    Repeated is: several episodes that follow upon a unit in an order that is known to be random.
    """
    proposals: dict[tuple[int, int | None], Proposal] = {}
    for suspect in suspects:
        if (proposal := _by_direct(suspect) or _by_contagion(suspect)) is not None:
            proposals[suspect.shard, suspect.first_row] = proposal
    test = found.event_test
    if test is not None and test.null == "redrawn":
        limit = alpha_of_look(test.look, ALPHA)
        for unit in test.units:
            if unit.p <= limit and unit.episodes > 1:
                note = f"{unit.episodes} episodes began within {test.lag} steps after it was read, {unit.expected:.3g}"
                note += f" would by chance; p {unit.p:.2g} over {test.tested} units and {test.orders} redrawn orders."
                proposal = _proposal(unit, "follows", "episodes", note, float(unit.episodes), unit.p, limit)
                proposals.setdefault((unit.shard, unit.first_row), proposal)
    return tuple(proposals.values())


def _proposal(unit: Unit, because: Any, metric: str, note: str, value: float, judged: float, limit: float) -> Proposal:
    named = unit.model_dump(include={"name", "shard", "first_row", "last_row"})
    return Proposal(**named, because=because, metric=metric, note=note, value=value, judged=judged, limit=limit)


def _by_direct(suspect: Suspect) -> Proposal | None:
    test = suspect.direct
    if test.outcome != "outlier_data" or test.effect is None or test.interval is None or test.p is None:
        return None
    low, high = test.interval
    note = (
        f"Scored before it was read, at checkpoints {', '.join(map(str, test.checkpoints))}: {test.effect:+.3f}"
        f" ({low:+.3f} to {high:+.3f}) nats/token beside {test.units} matched controls, {test.documents} documents; p"
        f" {test.p:.2g}, named by {suspect.named_by} among {test.among}."
    )
    if suspect.contagion is not None:
        note += f" Contagion: {suspect.contagion.outcome}."
    judged = min(1.0, test.p * test.among)
    return _proposal(suspect, "outlier_data", "replay_direct", note, test.effect, judged, test.alpha)


def _by_contagion(suspect: Suspect) -> Proposal | None:
    test = suspect.contagion
    if test is None or test.outcome != "data_intrinsic":
        return None
    rise = {each.arm: each.rise or 0.0 for each in test.arms}
    others = sorted({each.checkpoint for each in test.runs if each.arm == "C"})
    note = (
        f"Branched after step {test.branch}, {test.reproduced} steps equal to the log: the loss of {test.held} other"
        f" documents rises by {rise['A']:.2g} bands with it, {rise['B']:.2g} with controls; from checkpoints"
        f" {', '.join(map(str, others))} by {rise['C']:.2g} with it, {rise['D']:.2g} with controls."
    )
    return _proposal(suspect, "data_intrinsic", "replay_contagion", note, rise["A"], rise["A"], 1.0)
