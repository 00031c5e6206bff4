"""Losses, weights and random generators have the same bits with vitals and without, eager and compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import nn

from .checks import Machine, NotApplicable, NotEvaluated, Row
from .models import SIZES, Loop, Model, llama, padded, tokens_of

PART = "bits"
STEPS, DRY_STEPS, MICRO_BATCHES = 12, 4, 2
_DRY = ((False, False, "Llama"), (False, True, "mapped"), (True, False, "mapped"))
"""What a dry run takes of the ways to train: compiled or not, in bfloat16 or not, which model."""
OTHER_BITS = "docs/vitals.md: an operator that reads a tensor keeps inductor from fusing it, and sums round otherwise"


def outcome(machine: Machine, family: str, *, watched: bool, compiled: bool, half: bool) -> dict[str, torch.Tensor]:
    """Train from a fixed seed and return everything whose bits must not change, on the host.

    Raises:
        AssertionError: Vitals did not see what they should.
    """
    torch._dynamo.reset()
    size = "dry" if machine.dry else "small"
    _, layers, _, _, rows, length = SIZES[size]
    torch.manual_seed(0)
    model: nn.Module = llama(size) if family == "Llama" else Model(size, dropout=0.1)
    loop = Loop(
        machine,
        model,
        vitals={} if watched else None,
        compiler=machine.compiler if compiled else None,
        autocast=torch.bfloat16 if half else None,
        mask=padded(rows, length) if family == "Llama" else None,
    )
    steps = DRY_STEPS if machine.dry else STEPS
    batches = tokens_of(machine, size, steps * MICRO_BATCHES)
    losses = [loop.step(*batches[step * MICRO_BATCHES :][:MICRO_BATCHES]) for step in range(steps)]
    loop.close()
    if watched:
        seen = {(row[0], row[2]) for row in loop.sink.values if row[1] == "attn_entropy" and row[4] == "mean"}
        assert len(seen) == steps * layers, f"attention was seen {len(seen)} times, expected {steps * layers}"
    found = {f"loss of step {step}": one.cpu() for step, one in enumerate(losses, 1)}
    found |= {name: one.detach().cpu() for name, one in model.named_parameters()}
    found["generator of the host"] = torch.get_rng_state()
    if not machine.dry:
        found["generator of the GPU"] = torch.cuda.get_rng_state()
    return found


def difference(plain: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> str:
    """Return what differs first, and by how much; empty where all bits are the same."""
    different = [name for name in plain if not torch.equal(_bits(plain[name]), _bits(other[name]))]
    if not different:
        return ""
    first = different[0]
    by = (plain[first].double() - other[first].double()).abs().max().item()
    return f"{len(different)} of {len(plain)} tensors differ, {first} first, by {by:.3g}"


def same(machine: Machine, family: str, *, compiled: bool, half: bool) -> str:
    """Train twice without vitals and once with them; return what has the same bits.

    Raises:
        NotEvaluated: The two without differ already.
        NotApplicable: Bits differ where no document says that they are the same.
        AssertionError: They differ where one does.
    """
    plain, again, looked = (
        outcome(machine, family, watched=watched, compiled=compiled, half=half) for watched in (False, False, True)
    )
    if noise := difference(plain, again):
        raise NotEvaluated(f"two runs without vitals differ already: {noise}")
    if other := difference(plain, looked):
        if compiled and machine.compiler == "inductor":
            raise NotApplicable(f"{other} ({OTHER_BITS})")
        raise AssertionError(other)
    return f"{len(plain)} tensors, losses and generators among them, have the same bits"


def rows(machine: Machine) -> Iterator[Row]:
    """Yield a row for each model, compiler and dtype, with deterministic kernels alone."""
    torch.use_deterministic_algorithms(True)
    try:
        for compiled, half, family in itertools.product((False, True), (False, True), ("mapped", "Llama")):
            if machine.dry and (compiled, half, family) not in _DRY:
                continue
            how = machine.compiler if compiled else "eager"
            name = f"{family}, {how}, {'bfloat16' if half else 'float32'}"
            yield machine.attempt(PART, name, same, machine, family, compiled=compiled, half=half)
    finally:
        torch.use_deterministic_algorithms(False)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
