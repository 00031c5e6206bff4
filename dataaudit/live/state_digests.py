"""Digests of what a loop has in memory, leaf by leaf: parameters, optimizer, scheduler, scaler, random generators.

What was saved is restored if every leaf has the same bits. A sharded tensor has a digest for each rank's part with its
offset, so that a process of its own, which restores whole tensors, compares the same parts without a collective.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from dataaudit.base.errors import ConfigError

STATE_FILE: Final = "state.pt"
RNG: Final = "rng"
_WRAPPERS: Final = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NAMED: Final = frozenset({"dtype", "device", "Size", "layout"})
_HASHING_THREADS = 4

Leaf = dict[str, Any]
"""``sha256`` and ``type`` of a leaf; of a part of a sharded tensor ``offset`` and ``shape``, too."""


def random_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's generators, of every device: what a checkpoint keeps."""
    import torch

    numpy = np.random.get_state()  # noqa: NPY002 - the user's loop may draw from it
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_available() else {})


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put states of :func:`random_state` back."""
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002 - the user's loop may draw from it
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])  # it may go on with fewer


def save_state(path: Path, parts: Mapping[str, Any]) -> None:
    """Write ``state.pt`` into a folder: the ``state_dict`` of each part, and the random states; torch reads it safely.

    Args:
        path: The folder, as ``Checkpoints.save`` hands it to its function.
        parts: Model, optimizer, scheduler, scaler, ... by name.

    Raises:
        ConfigError: A part has the name of the random states.
    """
    import torch

    if RNG in parts:
        raise ConfigError(f"save_state: `{RNG}` is the name of the random states", "Give that part another name.")
    state = random_state()
    name, keys, *rest = state["numpy"]
    state["numpy"] = (name, keys.tolist(), *rest)
    torch.save({RNG: state, **{name: part.state_dict() for name, part in parts.items()}}, path / STATE_FILE)


def load_state(path: str | os.PathLike[str], parts: Mapping[str, Any], device: str = "cpu") -> None:
    """Put back what :func:`save_state` wrote, random states last.

    Args:
        path: The folder of the checkpoint's files.
        parts: As they were saved.
        device: Where tensors are loaded to before they are copied into the parts.

    Raises:
        ConfigError: The file has other parts.
    """
    import torch

    state = torch.load(Path(path) / STATE_FILE, map_location=device, weights_only=True)
    if (saved := set(state) - {RNG}) != set(parts):
        raise ConfigError(f"{path}: expected the parts {', '.join(sorted(parts))}, it has {', '.join(sorted(saved))}")
    for name, part in parts.items():
        part.load_state_dict(state[name])
    name, keys, *rest = state[RNG]["numpy"]
    numpy = (name, np.array(keys, np.uint32), *rest)
    cuda = {"cuda": [own.cpu() for own in state[RNG]["cuda"]]} if "cuda" in state[RNG] else {}
    set_random_state({**state[RNG], "torch": state[RNG]["torch"].cpu(), "numpy": numpy, **cuda})


def leaves(parts: Mapping[str, Any], *, rng: bool = True) -> dict[str, Any]:
    """Return every leaf of the states of some parts by its path, such as ``optimizer.state.0.exp_avg``.

    A part is what has a ``state_dict``, or a state dict. Generators are leaves ``rng.python``, ``rng.numpy``,
    ``rng.torch`` and ``rng.cuda.0``.
    """
    collected = dict(_walk("", {name: _state_of(part) for name, part in parts.items()}))
    if rng:
        state = random_state()
        name, keys, *rest = state["numpy"]
        collected |= {f"{RNG}.python": repr(state["python"]), f"{RNG}.numpy": repr((name, keys.tolist(), *rest))}
        collected |= dict(_walk(f"{RNG}.", {name: state[name] for name in ("torch", "cuda") if name in state}))
    return collected


def digests(collected: Mapping[str, Any]) -> dict[str, list[Leaf]]:
    """Return the digests of leaves, of a sharded tensor those of this rank's parts; threads hash, a tensor each."""
    jobs = [(path, item) for path, value in collected.items() for item in _parts_of(value)]
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        made = list(pool.map(lambda job: job[1][1] | digest(job[1][0]), jobs))
    result: dict[str, list[Leaf]] = {path: [] for path in collected}
    for (path, _), leaf in zip(jobs, made, strict=True):
        result[path].append(leaf)
    return result


def digest(value: Any, leaf: Leaf | None = None) -> Leaf:
    """Return digest and type of a leaf, or of the part of it that another leaf is; ``sha256`` is empty of other types.

    Args:
        value: A tensor, an array or a plain value.
        leaf: A part of a sharded tensor: the same part of ``value`` is taken.
    """
    if leaf is not None and "offset" in leaf:
        value = value[tuple(slice(at, at + size) for at, size in zip(leaf["offset"], leaf["shape"], strict=True))]
    kind = type(value).__name__
    if hasattr(value, "untyped_storage"):
        import torch

        kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if value.layout != torch.strided or value.is_quantized:
            return {"type": kind, "sha256": ""}
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        data = plain.view(torch.uint8).numpy().data if plain.numel() else b""
    elif isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        kind = f"{value.dtype}{list(value.shape)}"
        data = np.ascontiguousarray(value).tobytes()
    elif isinstance(value, _PLAIN) or type(value).__name__ in _NAMED:
        data = (value.hex() if isinstance(value, float) else repr(value)).encode("utf-8", "surrogatepass")
    else:
        return {"type": kind, "sha256": ""}
    return {"type": kind, "sha256": hashlib.sha256(data).hexdigest()}


def _state_of(part: Any) -> Any:
    while (inner := _WRAPPERS.get(type(part).__name__)) is not None:
        part = getattr(part, inner)
    return part.state_dict() if callable(getattr(part, "state_dict", None)) else part


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of containers; an empty container is a leaf."""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple) and type(value).__name__ not in _NAMED:
        items = enumerate(value)
    if items and len(value):
        for name, item in items:
            yield from _walk(f"{path}{name}.", item)
    elif isinstance(value, Mapping | list | tuple) and not len(value):
        yield path[:-1], ""
    else:
        yield path[:-1], value


def _parts_of(value: Any) -> Iterator[tuple[Any, Leaf]]:
    """Yield a leaf, or this rank's parts of a sharded tensor with where they lie."""
    if not hasattr(value, "to_local"):
        yield value, {}
        return
    local = value.to_local()
    for chunk in value.__create_chunk_list__():
        yield local, {"offset": list(chunk.offsets), "shape": list(chunk.sizes)}
