"""How a run log begins, and how a run goes on from a checkpoint: the arguments, its state, and ``run.json``.

Running something without touching the random generators that a training loop draws from.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.compute as pc

from dataaudit import __version__
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.text import plural, utc_now
from dataaudit.base.yamlfile import nearest
from dataaudit.runlog.format import RUN_FILE, RunFile
from dataaudit.runlog.parts import part_numbers, part_path, rank_folder, read_part
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import create_run, holds_already, supersede_ranks
from dataaudit.training.attribution.step_detector import StepDetector
from dataaudit.training.corpus import Corpus

if TYPE_CHECKING:
    import torch

Order = Literal["", "documents", "rows"]
_LOG = logging.getLogger("dataaudit")
_STATE, _RATES = {"step", "corpus", "digests", "detector", "rates"}, {"rates", "factor", "schedule"}


def check_arguments(planned_tokens: int | None, profile_every: int, block_rows: int, order: str) -> None:
    """Raise a ConfigError for arguments of a monitor that cannot be."""
    if planned_tokens is not None and planned_tokens < 1:
        raise ConfigError(f"planned_tokens: expected 1 or more, found {planned_tokens}")
    if profile_every < 0:
        raise ConfigError(f"profile_every: expected 0, for none, or more, found {profile_every}")
    if block_rows < 1 or block_rows & (block_rows - 1):
        raise ConfigError(f"block_rows: expected a power of two, found {block_rows}")
    if order not in ("", "documents", "rows"):
        raise ConfigError(f"order: expected documents, rows or nothing, found {order!r}")


def process_of(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """Return rank and number of processes, of the environment where they are not given; else raise a ConfigError."""
    rank = _whole_number("RANK", "0") if rank is None else rank
    ranks = _whole_number("WORLD_SIZE", "1") if ranks is None else ranks
    if not 0 <= rank < ranks:
        raise ConfigError(
            f"rank {rank} of {ranks}: expected 0 to {ranks - 1}",
            "They come from RANK and WORLD_SIZE, unless `rank` and `ranks` are given.",
        )
    return rank, ranks


def _whole_number(name: str, default: str) -> int:
    given = os.environ.get(name, default)
    try:
        return int(given)
    except ValueError:
        raise ConfigError(f"{name}={given}: expected a whole number") from None


def detector_of(state: Any, corpus: Corpus, digests: Mapping[str, str], allow: tuple[str, ...]) -> StepDetector:
    """Return the detector of a checkpoint whose run may go on here; without a checkpoint, a new detector."""
    if state is None:
        return StepDetector(len(corpus.sources))
    whole = isinstance(state, Mapping) and set(state) >= _STATE and isinstance(state["digests"], Mapping)
    whole = whole and isinstance(state["rates"], Mapping) and set(state["rates"]) >= _RATES
    if not whole or not isinstance(state["step"], int) or state["step"] < 0:
        raise ConfigError("state: expected what `state_dict()` returned, found something else")
    own, before = set(corpus.state()), state["digests"]
    corpus.compare(state["corpus"], allow=[name for name in allow if name in own])
    known = sorted({*before, *digests})
    for name in allow:
        if name not in own and name not in known:
            raise ConfigError(f"allow: no digest `{name}`{nearest(name, [*sorted(own), *known])}")
    other = [name for name in known if before.get(name) != digests.get(name) and name not in allow]
    if other:
        names = ", ".join(f"{name}: {before.get(name, 'none')}, now {digests.get(name, 'none')}" for name in other)
        raise ConfigError(
            f"the checkpoint was made with other digests ({names})", f"Allow it by name: allow={tuple(other)!r}."
        )
    try:
        return StepDetector.from_state(state["detector"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(
            "state: its detector is not that of this version's `state_dict()`",
            "Go on with the version of dataaudit that wrote it, or without `state`, in a folder of its own.",
        ) from None


def new_run(**about: Any) -> RunFile:
    """Return the record of a run that starts now."""
    return RunFile(started=utc_now(), program=__version__, **about)


def begin_run(
    folder: Path,
    corpus: Corpus,
    digests: Mapping[str, str],
    process: tuple[int, int],
    block_rows: int,
    order: Order,
    first_step: int | None,
) -> tuple[int, int]:
    """Write what a run is, where none is to go on; return the rows of its blocks, and the steps hidden by a restart."""
    rank, ranks = process
    if first_step is not None and (folder / RUN_FILE).exists():
        before = load_run(folder).run
        if before.manifest != corpus.id:
            raise ConfigError(
                f"{folder} is the log of a run on {before.manifest}, opened is {corpus.id}", "Name another folder."
            )
        if rank == 0:
            supersede_ranks(folder, ranks, first_step, before.block_rows)
        return before.block_rows, _hidden_steps(folder, rank) if first_step == 1 else 0
    if rank == 0:
        run = new_run(
            manifest=corpus.id,
            dataset=corpus.dataset,
            verdict={} if corpus.verdict is None else asdict(corpus.verdict),
            digests={**corpus.digests, **digests},
            sources=corpus.sources,
            block_rows=block_rows,
            ranks=ranks,
            order=order,
        )
        create_run(folder, run, corpus.table)
    elif (folder / RUN_FILE).exists() and _has_steps(rank_folder(folder, rank)):
        raise holds_already(folder)  # as the first rank does; what this rank would write hid its steps for good
    return block_rows, 0


def _has_steps(folder: Path) -> bool:
    """Return whether a rank wrote steps, or what cannot be read."""
    with CatchErrors() as call:
        parts = [read_part(part_path(folder, "steps", number), "steps") for number in part_numbers(folder, "steps")]
        return any(part is not None and part.table.num_rows for part in parts)
    return call.error is not None


def _hidden_steps(folder: Path, rank: int) -> int:
    """Return how many steps of a rank all readers lose when it begins again from the first; rank 0 warns of them."""
    hidden = 0
    with CatchErrors():  # a damaged log, which its readers refuse
        hidden = load_run(folder).table("steps").filter(pc.field("rank") == rank).num_rows
    if hidden and rank == 0:
        what = f"{plural(hidden, 'step')} that it holds {'is' if hidden == 1 else 'are'}"
        hint = "To keep them hand over the `state` of a checkpoint, or name another folder."
        _LOG.warning("%s is begun again from step 1: the %s not shown any more. %s", folder, what, hint)
    return hidden


@contextmanager
def untouched(model: torch.nn.Module | None) -> Iterator[None]:
    """Run without gradients; put random states, buffers and modes of a model back afterwards."""
    import torch

    from dataaudit.vitals.curvature import as_it_was

    with torch.no_grad(), as_it_was(torch.nn.Module() if model is None else model):
        yield
