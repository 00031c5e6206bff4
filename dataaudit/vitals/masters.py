"""Float32 masters of weights that are stored in fewer bits, found where an optimizer keeps them.

Updates of bfloat16 weights show mostly rounding, so masters are read in their stead. They are found by structure:

- in the optimizer's state of a parameter, under a name with ``master`` or ``fp32`` in it (FusedAdam of Transformer
  Engine: ``master_param``);
- as ``main_param`` of the parameter (Megatron);
- in lists of groups that lie beside those of the weights and are as long, tensor by tensor or flat: named so
  (``param_groups_master`` of Apex, ``fp32_from_float16_groups`` of Megatron, ``fp32_groups_flat`` of DeepSpeed), or
  ``param_groups`` of the optimizer that a wrapper holds as ``optimizer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dataaudit.base.errors import ConfigError

_WHOLE = 4
"""Bytes of an element from which on an update is what was computed."""
_NAMED = re.compile(r"^(?!.*grad).*(master|fp32)|^param_groups$")
_MOST = 4
"""Wrappers around an optimizer."""
ROUNDED = "weights below float32 without float32 masters in the optimizer: what they moved by is mostly rounding"


def unwrapped(given: Any) -> Iterator[Any]:
    """Yield an optimizer, and those that it holds as ``optimizer``."""
    for _ in range(_MOST):
        if given is not None:
            yield given
        given = getattr(given, "optimizer", None)


def optimizers_of(given: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers of torch that were given, or that wrappers hold."""
    every = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    found = [next((own for own in unwrapped(item) if isinstance(own, torch.optim.Optimizer)), None) for item in every]
    for item, own in zip(every, found, strict=True):
        if own is None:
            kind = type(item).__name__
            raise ConfigError(f"vitals: optimizer: expected one of torch's, or a list of them, found {kind}")
    return tuple(own for own in found if own is not None)


class Masters:
    """Finds the masters of parameters, whenever they are asked for: some optimizers make them at their first step."""

    def __init__(self, given: Any) -> None:
        every = given if isinstance(given, list | tuple) else [given]
        self._chains = [[*unwrapped(item)] for item in every]
        self._owned = {
            id(item): chain
            for chain in self._chains
            for _, groups in _grouped(chain)
            for group in groups
            for item in (group if isinstance(group, list) else ())
        }

    def owns(self, parameter: torch.Tensor) -> bool:
        """Return whether an optimizer moves a parameter, or its master."""
        return id(parameter) in self._owned

    def promised(self, parameter: torch.Tensor) -> bool:
        """Return whether the optimizer of a parameter is to make masters."""
        return any(getattr(own, "master_weights", False) for own in self._owned.get(id(parameter), ()))

    def of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return a parameter, or its master where it is rounded and trains; None: there is none, or not yet."""
        chain = self._owned.get(id(parameter))
        if parameter.itemsize >= _WHOLE or chain is None or not parameter.requires_grad:
            return parameter
        states = [getattr(own, "state", {}) for own in chain]
        kept = [item for state in states for name, item in state.get(parameter, {}).items() if _NAMED.match(str(name))]
        for item in (*kept, getattr(parameter, "main_param", None), *_beside(chain, parameter)):
            if isinstance(item, torch.Tensor) and item.itemsize >= _WHOLE and item.shape == parameter.shape:
                return item
        return None


def _grouped(chain: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Return by name the attributes of optimizers that are lists of groups: of lists of tensors, or of flat ones."""
    found = []
    for name, value in ((name, value) for own in chain for name, value in vars(own).items()):
        if isinstance(value, list | tuple):
            groups = [item.get("params") if isinstance(item, dict) else item for item in value]
            found.append((name, [[*item] if isinstance(item, list | tuple) else item for item in groups]))
    return found


def _beside(chain: Sequence[Any], parameter: torch.Tensor) -> Iterator[Any]:
    """Yield what lies in groups of masters where a parameter lies in its own."""
    grouped = _grouped(chain)
    for _, own in grouped:
        for number, group in enumerate(own):
            at = next((at for at, item in enumerate(group) if item is parameter), -1) if isinstance(group, list) else -1
            masters = [items[number] for name, items in grouped if _NAMED.match(name) and len(items) == len(own)]
            for item in masters if at >= 0 else ():
                if isinstance(item, list) and len(item) == len(group):
                    yield item[at]
                flat = item[0] if isinstance(item, list) and len(item) == 1 else item
                if isinstance(flat, torch.Tensor) and flat.dim() == 1:
                    begin = sum(other.numel() for other in group[:at])
                    yield (
                        flat[begin : begin + parameter.numel()].view_as(parameter)
                        if (flat.numel() >= sum(other.numel() for other in group))
                        else None
                    )
