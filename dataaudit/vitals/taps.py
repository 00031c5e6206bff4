"""Taps: a hook that reads a tensor that a forward pass makes anyway, through one opaque operator.

A compiler sees a call that writes to a slot, and cannot look inside: whether anything is measured is a flag on the
host, read when the operator runs, so that measuring is switched on and off without compiling again. Taps are set before
a model is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Switch:
    """Whether taps measure; they read it when they run."""

    on: bool = True


SWITCH = Switch()


def _record(values: torch.Tensor, slots: torch.Tensor, place: int) -> None:
    if SWITCH.on:
        held = values.detach().float()
        slots[place, 0].copy_(held.abs().mean())
        slots[place, 1].copy_(held.square().mean().sqrt())


_tap = torch.library.custom_op(
    "dataaudit::tap",
    _record,
    mutates_args=("slots",),
    schema="(Tensor values, Tensor(a!) slots, int place) -> ()",
    tags=(torch.Tag.cudagraph_unsafe,),
)
_tap.register_fake(lambda *_: None)


def new_slots(places: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return float32[places, 2] of NaN: mean |x| and root mean square of each place, NaN where nothing was measured."""
    return torch.full((places, 2), torch.nan, device=device)


def tap(module: torch.nn.Module, slots: torch.Tensor, place: int) -> Callable[[], None]:
    """Measure what a module returns, at every forward pass.

    A pass that is made twice, as checkpointing does, writes the same numbers to the same place twice.

    Args:
        module: Its output is a tensor, or a tuple that begins with one.
        slots: float32[places, 2] on the device of the output.
        place: Which of them.

    Returns:
        What takes the tap off again.
    """

    def hook(_: torch.nn.Module, _args: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        values = output if isinstance(output, torch.Tensor) else output[0]
        _tap(values.detach(), slots, place)

    handle = module.register_forward_hook(hook)
    removed: Callable[[], None] = handle.remove
    return removed
