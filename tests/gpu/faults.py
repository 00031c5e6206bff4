"""Three planted faults, and the layer, head and number that vitals name for each."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from .checks import Machine, Row
from .models import SIZES, Loop, Model, tokens_of

PART = "faults"
LAYER, HEAD = 1, 2
_GROWS_FROM, _STEPS = 4, 12
_SPOILT_AT = 5
_DEAD = 7


def _loop(machine: Machine) -> tuple[Loop, list[torch.Tensor]]:
    size = "dry" if machine.dry else "small"
    torch.manual_seed(0)
    return Loop(machine, Model(size), vitals={"interval": 1}, autocast=torch.bfloat16), tokens_of(machine, size, _STEPS)


def _of_attention(loop: Loop) -> nn.Linear:
    return loop.model.blocks[LAYER].attention.qkv


def growing_head(machine: Machine) -> str:
    """Double the queries and keys of a head at every step: a warning names its layer and head, and no other one.

    Raises:
        AssertionError: Nothing is named, or another head.
    """
    loop, batches = _loop(machine)
    width = loop.model.embedding.weight.shape[1]
    size = width // SIZES["dry" if machine.dry else "small"][2]
    for number, tokens in enumerate(batches, 1):
        if number >= _GROWS_FROM:
            with torch.no_grad():
                for part in (0, width):
                    _of_attention(loop).weight[part + HEAD * size : part + (HEAD + 1) * size].mul_(2.0)
        loop.step(tokens)
    loop.close()
    warned = [
        (step, one) for step, kind, one in loop.sink.events if kind == "warning" and one["metric"] == "max_attn_logit"
    ]
    assert warned, "no head was warned of"
    named = {(one["layer"], one["head"]) for _, one in warned}
    assert named == {(LAYER, HEAD)}, f"planted in layer {LAYER}, head {HEAD}; named: {sorted(named)}"
    step, first = warned[0]
    return (
        f"a head that grows from step {_GROWS_FROM} on: layer {LAYER}, head {HEAD} named at step {step},"
        f" largest logit {first['value']:.3g}"
    )


def spoilt_activation(machine: Machine) -> str:
    """Spoil one value that an MLP returns: an event names its layer and part at that step.

    Raises:
        AssertionError: Nothing is named, or another place or step.
    """
    loop, batches = _loop(machine)

    def spoil(_module: nn.Module, _given: object, found: torch.Tensor) -> torch.Tensor:
        return found.index_fill(-1, torch.zeros(1, dtype=torch.int64, device=found.device), torch.nan)

    for number, tokens in enumerate(batches[:_SPOILT_AT], 1):
        if number == _SPOILT_AT:
            loop.model.blocks[LAYER].mlp.down.register_forward_hook(spoil)
        loop.step(tokens)
    loop.close()
    named = [
        (step, one["metric"], one["layer"], one["stat"])
        for step, kind, one in loop.sink.events
        if kind == "nan_inf" and one["metric"] != "loss"
    ]
    expected = (_SPOILT_AT, "activation_mean_abs", LAYER, "mlp")
    assert named[:1] == [expected], f"planted {expected}; named: {named}"
    return f"a NaN in what the MLP of layer {LAYER} returns at step {_SPOILT_AT}: named at that step"


def dead_units(machine: Machine) -> str:
    """Kill units of an MLP: their number is that of their layer, and other layers have as many as before.

    Raises:
        AssertionError: Another number, or in another layer.
    """
    loop, batches = _loop(machine)
    with torch.no_grad():
        loop.model.blocks[LAYER].mlp.gate.weight[:_DEAD].zero_()
    for block in loop.model.blocks:
        block.mlp.gate.weight.register_hook(torch.zeros_like)  # what is dead stays so, what lives, too
    for tokens in batches:
        loop.step(tokens)
    loop.close()
    counts = [(row[2], row[5]) for row in loop.sink.values if row[1] == "dead_neuron_count"]
    layers = len(loop.model.blocks)
    found = {layer: {value for own, value in counts if own == layer} for layer in range(layers)}
    expected = {layer: {float(_DEAD) if layer == LAYER else 0.0} for layer in range(layers)}
    assert found == expected, f"planted {_DEAD} in layer {LAYER}; counted: {found}"
    return f"{_DEAD} dead units in layer {LAYER}: counted there, none elsewhere"


def rows(machine: Machine) -> Iterator[Row]:
    """Yield a row for each fault."""
    for name, function in (
        ("a head whose logits grow", growing_head),
        ("a NaN in a layer's activations", spoilt_activation),
        ("dead units of an MLP", dead_units),
    ):
        yield machine.attempt(PART, name, function, machine)
