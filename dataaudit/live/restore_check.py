"""A restore in a process of its own, as after a crash: every leaf has to have the bits that the saving process had.

The process begins from nothing but a function's name and a folder. It runs with low priority and without the run's
devices, ends with the process that started it, and what it prints goes to the end of the message of a failure::

    python -m dataaudit.live.restore_check < request.json
"""

from __future__ import annotations

import inspect
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from dataaudit.base.errors import CatchErrors
from dataaudit.base.redact import without_secrets
from dataaudit.base.text import clean, plural
from dataaudit.live.named_functions import find, named

if TYPE_CHECKING:
    from dataaudit.live.probe_batch import Probe

_LAUNCHED: Final = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "SLURM_")
_SHOWN = 8
_NICE = 10
_CLOSE = 0.02
"""Relative distance of the probe's losses of two kinds of devices: bits differ there, a wrong restore differs more."""


class RestoreCheck:
    """Restores checkpoints in a process of its own.

    Args:
        build: The function, or its name; see ``restore_test`` of :class:`Checkpoints`.
        seconds: After which the process is killed, and the test has failed.
        devices: ``CUDA_VISIBLE_DEVICES`` of the process.
        ranks: Whose state is restored.
    """

    def __init__(
        self, build: str | Callable[..., Any], seconds: float = 3600.0, devices: str = "", ranks: Sequence[int] = (0,)
    ) -> None:
        self._build, self._seconds, self._devices, self._ranks = named(build), seconds, devices, tuple(ranks)

    def run(self, folder: Path, probe: Probe | None = None) -> dict[str, Any]:
        """Return the outcome of a test: ``ok``, ``why``, leaves that were ``compared`` and ``not_compared``, seconds.

        Args:
            folder: Of the checkpoint.
            probe: Its loss was computed when the checkpoint was saved.
        """
        begun = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHED)}
        environment |= {"CUDA_VISIBLE_DEVICES": self._devices, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with tempfile.TemporaryDirectory(prefix="dataaudit-restore-") as scratch:
            request: dict[str, Any] = {"build": self._build, "folder": str(folder), "ranks": self._ranks}
            if probe is not None:
                request["probe"] = probe.request(Path(scratch))
            with open(f"{scratch}/log", "w+b") as log:
                command = [sys.executable, "-m", "dataaudit.live.restore_check"]
                pipe = subprocess.PIPE
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=environment)
                with CatchErrors() as call:
                    answer = _converse(process, orjson.dumps(request), self._seconds)
                    outcome: dict[str, Any] = orjson.loads(answer)
                if call.error is not None:
                    log.seek(0)
                    tail = log.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
                    late = call.kind == "TimeoutExpired"
                    ended = f"{self._seconds:,.0f} s are over" if late else f"exit code {process.returncode}"
                    last = without_secrets(clean(tail[-1], 200)) if tail else ""
                    outcome = {"ok": False, "why": f"the restoring process gave no answer ({ended}): {last}"}
        return {**outcome, "seconds": round(time.monotonic() - begun, 3)}


def _converse(process: subprocess.Popen[bytes], request: bytes, seconds: float) -> bytes:
    """Send a request as a line, leave stdin open, by which the process knows that this one lives, and return stdout."""
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        process.stdin.write(request + b"\n")
        process.stdin.flush()
        answer = process.stdout.read()
        process.wait()
    finally:
        expired = not timer.is_alive()
        timer.cancel()
        process.kill()
        process.wait()
        with CatchErrors():
            process.stdin.close()
        process.stdout.close()
    if expired:
        raise subprocess.TimeoutExpired("restore", seconds)
    return answer


def compare(saved: Mapping[str, Sequence[Mapping[str, Any]]], parts: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Compare digests of the saving process with what was restored here.

    Args:
        saved: Digests of a rank, leaf by leaf.
        parts: What was restored; its generators are this process's.
        rank: Whose digests they are; -1: sharded parts alone are compared.

    Returns:
        ``differences`` and ``not_compared``, lines each; the number of leaves that were ``compared``.
    """
    from dataaudit.live.state_digests import RNG, digest, leaves

    here = leaves(parts)
    differences, skipped, compared = [], [], 0
    for path, chunks in saved.items():
        if rank < 0 and not any("offset" in chunk for chunk in chunks):
            continue
        if path.startswith(f"{RNG}.cuda") and path not in here:
            skipped.append(f"{path}: this test has no such device")
        elif path not in here:
            differences.append(f"{path} was not restored")
        else:
            for chunk in chunks:
                own = digest(here[path], dict(chunk))
                compared += 1
                if not chunk["sha256"] or not own["sha256"]:
                    skipped.append(f"{path}: {chunk['type']} has no digest")
                elif own["type"] != chunk["type"]:
                    differences.append(f"{path} is {own['type']}, {chunk['type']} was saved")
                elif own["sha256"] != chunk["sha256"]:
                    differences.append(f"{path} differs ({chunk['type']})")
    extra = [] if rank < 0 else [f"{path} was not saved" for path in here if path not in saved]
    return {"differences": differences + extra, "not_compared": skipped, "compared": compared}


def not_finite(parts: Mapping[str, Any]) -> list[str]:
    """Return which parameters are not finite, and which other tensors hold NaN: masks may be infinite.

    A run that goes on from them is lost, however well they restore.
    """
    from dataaudit.live.state_digests import leaves

    weights = {
        f"{part}.{name}": weight
        for part, own in parts.items()
        if hasattr(own, "named_parameters")
        for name, weight in own.named_parameters()
    }
    lines = []
    for path, value in {**leaves(parts, rng=False), **weights}.items():
        own = getattr(value, "to_local", lambda value=value: value)()
        if not hasattr(own, "is_floating_point") or not own.is_floating_point():
            continue
        bad = ~own.isfinite() if path in weights else own.isnan()
        if number := int(bad.sum()):
            lines.append(f"{path} is not finite ({number:,} of {own.numel():,} numbers)")
    return lines


def restore(request: Mapping[str, Any]) -> dict[str, Any]:
    """Restore a checkpoint by the function that a request names, and compare; in the process of its own."""
    folder = Path(request["folder"])
    memory = {int(path.stem): orjson.loads(path.read_bytes()) for path in sorted((folder / "ranks").glob("*.json"))}
    build = find(request["build"])
    ranked = len(inspect.signature(build).parameters) > 1
    failed = [own["error"] for own in memory.values() if "error" in own]
    differences = [f"what was in memory was not hashed ({why})" for why in failed]
    skipped: list[str] = []
    compared, parts = 0, {}
    chosen = [own for own in request["ranks"] if own in memory]
    if not chosen:
        has, asked = (", ".join(map(str, own)) or "none" for own in (memory, request["ranks"]))
        return {
            "ok": False,
            "why": f"nothing was restored: the checkpoint has rank {has}, and `test_ranks` names {asked}",
        }
    for rank in chosen:
        parts = build(folder / "data", rank) if ranked else build(folder / "data")
        if not isinstance(parts, Mapping):
            return {"ok": False, "why": f"{request['build']} returned {type(parts).__name__}, expected parts by name"}
        for other, own in memory.items():
            if other == rank or (rank == request["ranks"][0] and other not in request["ranks"]):
                outcome = compare(own.get("leaves", {}), parts, rank if other == rank else -1)
                name = f"rank {other}: " if len(memory) > 1 else ""
                differences += [name + line for line in outcome["differences"]]
                skipped += [name + line for line in outcome["not_compared"]]
                compared += outcome["compared"]
        differences += [name + line for line in not_finite(parts)]
    if others := [str(rank) for rank in memory if rank not in request["ranks"]]:
        skipped.append(f"what ranks {', '.join(others[:_SHOWN])} do not share, such as their random states")
    outcome = {"compared": compared, "not_compared": skipped}
    saved_probe = memory.get(0, {}).get("probe")
    if "probe" in request and saved_probe is not None and "model" in parts:
        outcome["probe"], words = _probed(request["probe"], saved_probe, parts["model"])
        differences += words
    more = f" and {plural(len(differences) - _SHOWN, 'further difference')}" if len(differences) > _SHOWN else ""
    why = "; ".join(differences[:_SHOWN]) + more
    return {"ok": not differences, "what": "restored" if compared else "loaded", "why": why, **outcome}


def _probed(request: Mapping[str, Any], saved: Mapping[str, Any], model: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the probe's numbers of the restored model, and how they differ from those at the save."""
    import torch

    from dataaudit.live.probe_batch import Probe

    if not hasattr(model, "parameters"):
        return {}, []
    torch.set_num_threads(saved["threads"])
    again = Probe.requested(request).measure(model).document()
    then, here = saved["fixed_probe_loss"], again["fixed_probe_loss"]
    words = [f"the probe batch is {again['batch']}, {saved['batch']} was used"] * (again["batch"] != saved["batch"])
    bits = again["device"] == saved["device"]
    equal = repr(then) == repr(here) if bits else math.isclose(then, here, rel_tol=_CLOSE)
    words += [f"fixed_probe_loss is {here!r}, at the save it was {then!r}"] * (not equal)
    return {**again, "bits": bits}, words


def _main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what the function prints is no answer
    os.nice(_NICE)
    request = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(out, "wb") as answer:
        with CatchErrors() as call:
            outcome = restore(request)
        if call.error is not None:
            first = clean(without_secrets(next(iter(str(call.error).splitlines()), "")), 300)
            outcome = {"ok": False, "why": f"{request['build']} failed: {call.origin}: {first}"}
        answer.write(orjson.dumps(outcome))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _main()
