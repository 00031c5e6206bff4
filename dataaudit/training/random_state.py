"""The states of the random generators that a training loop draws from, and running something without touching them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def random_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's generators, of every device: what a checkpoint keeps."""
    import torch

    numpy = np.random.get_state()  # noqa: NPY002 - the loop's own
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_available() else {})


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put states of :func:`random_state` back."""
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002 - the loop's own
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def untouched(model: torch.nn.Module | None) -> Iterator[None]:
    """Run without gradients; put random states, buffers and modes of a model back afterwards."""
    import torch

    modules = [] if model is None else list(model.modules())
    modes = [module.training for module in modules]
    buffers = [] if model is None else [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    state = random_state()
    with torch.no_grad():
        try:
            if model is not None:
                model.eval()
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            for buffer, before in buffers:
                buffer.copy_(before)
            set_random_state(state)
