"""No step waits for the device: ``set_sync_debug_mode("error")`` over whole steps, and a trace without more waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .checks import ON_A_CPU, Machine, NotEvaluated, Row, no_waits
from .models import SIZES, Loop, Model, llama, padded, tokens_of

PART = "waits"
WARM_UP, STEPS, DRY_STEPS = 3, 18, 5
"""Steps in which libraries are loaded and code is compiled, and those in which nothing may wait: copies of values to
the host, windows of dead units, and turns of every layer are among them."""


def by_foreach(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer whose counts of steps lie on the host."""
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)


def by_momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer without counts."""
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)


WAYS: dict[str, dict[str, Any]] = {
    "mapped, fused AdamW, bfloat16": {"autocast": torch.bfloat16},
    "mapped, AdamW by foreach": {"optimizer": by_foreach},
    "mapped, SGD with momentum": {"optimizer": by_momentum},
    "mapped, fused AdamW under a GradScaler, float16": {"autocast": torch.float16, "scaled": True},
    "Llama, fused AdamW, bfloat16": {"autocast": torch.bfloat16, "family": "Llama"},
    "mapped, compiled, bfloat16": {"autocast": torch.bfloat16, "compiled": True},
}


def _all_steps(machine: Machine) -> int:
    return WARM_UP + (DRY_STEPS if machine.dry else STEPS)


def make(machine: Machine, *, watched: bool, family: str = "mapped", compiled: bool = False, **named: Any) -> Loop:
    """Return a loop, with vitals or without."""
    size = "dry" if machine.dry else "small"
    _, _, _, _, rows, length = SIZES[size]
    torch.manual_seed(0)
    model = llama(size) if family == "Llama" else Model(size, dropout=0.1)
    return Loop(
        machine,
        model,
        vitals={"healthy": (2, 12)} if watched else None,
        compiler=machine.compiler if compiled and not machine.dry else None,
        mask=padded(rows, length) if family == "Llama" else None,
        **named,
    )


def steps(machine: Machine, loop: Loop) -> None:
    """Take steps of two batches, of which all but the first few must not wait."""
    batches = tokens_of(machine, "dry" if machine.dry else "small", 2 * _all_steps(machine))
    for number in range(WARM_UP):
        loop.step(*batches[2 * number :][:2])
    with no_waits(machine):
        for number in range(WARM_UP, _all_steps(machine)):
            loop.step(*batches[2 * number :][:2])


def nothing_waits(machine: Machine, named: dict[str, Any]) -> str:
    """Take steps without vitals, then with them; return how many.

    Raises:
        NotEvaluated: The loop waits by itself, or this is a CPU.
        AssertionError: Vitals did not see something: what waits within an operator of theirs is an event, no error.
    """
    torch._dynamo.reset()
    try:
        steps(machine, make(machine, watched=False, **named))
    except RuntimeError as error:
        raise NotEvaluated(f"the loop waits without vitals already ({str(error).splitlines()[0]})") from None
    loop = make(machine, watched=True, **named)
    steps(machine, loop)
    loop.close()
    assert len({row[0] for row in loop.sink.values}) == _all_steps(machine), "values of some steps did not arrive"
    if machine.dry:
        raise NotEvaluated(ON_A_CPU)
    return f"{STEPS} steps, none waited"


def waits_of(machine: Machine, *, watched: bool) -> int:
    """Return how many waits of the host for a stream or an event torch's profiler sees in some steps."""
    loop = make(machine, watched=watched, autocast=torch.bfloat16)
    batches = tokens_of(machine, "dry" if machine.dry else "small", _all_steps(machine))
    for tokens in batches[:WARM_UP]:
        loop.step(tokens)
    with torch.profiler.profile() as profiler:
        for tokens in batches[WARM_UP:]:
            loop.step(tokens)
    loop.close()
    names = [event.name for event in profiler.events()]
    return sum("Synchronize" in name and "Device" not in name for name in names)


def no_more_waits(machine: Machine) -> str:
    """Return how many waits a trace has, with vitals and without.

    Raises:
        AssertionError: There are more with them.
    """
    plain, looked = (waits_of(machine, watched=watched) for watched in (False, True))
    assert looked <= plain, f"{looked} waits with vitals, {plain} without"
    if machine.dry:
        raise NotEvaluated(ON_A_CPU)
    return f"{looked} waits with vitals, {plain} without"


def rows(machine: Machine) -> Iterator[Row]:
    """Yield a row for each way to train, and one of a trace."""
    checks: list[tuple[str, Callable[..., Any], Any]] = [
        (f'sync_debug_mode("error"): {name}', nothing_waits, (machine, named)) for name, named in WAYS.items()
    ]
    for name, function, given in [*checks, ("waits in a trace", no_more_waits, (machine,))]:
        yield machine.attempt(PART, name, function, *given)
