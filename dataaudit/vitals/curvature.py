"""Hutchinson's estimate of the trace of a loss's Hessian, layer by layer, which leaves a run as it was.

With signs v, each 1 or -1 by chance, E[v'Hv] = tr H, and the part of v'Hv of a layer's parameters has the trace of its
block as its mean (Hutchinson 1990; blocks: Dong et al. 2020, arXiv 1911.03852). Its variance is 2(|H|^2 - sum H_ii^2).
Hv is the gradient of g'v: gradients are made once with their own graph. Fused attention has no second derivative, so
torch's function is the plain one meanwhile. The interval is Student's, from the spread over vectors.

It takes some 1 + 2.5 x vectors gradients of the batch, and the memory of a forward and a backward pass's graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dataaudit.base.statistics import student_quantile
from dataaudit.vitals.hooks import unseen

_TAIL = 0.025
"""On either side of a 95 % interval."""


def traces(
    loss_of: Callable[[Any], torch.Tensor],
    batch: Any,
    groups: Sequence[Sequence[nn.Parameter]],
    vectors: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """Return the trace and both ends of its 95 % interval, of all groups and of each, float32[3, 1 + groups].

    Nothing waits for a device.
    """
    parameters = [item for own in groups for item in own]
    which = [number for number, own in enumerate(groups) for _ in own]
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        loss = loss_of(batch)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        bent = [number for number, item in enumerate(gradients) if item is not None and item.requires_grad]
        """Of which the loss is no linear function."""
        drawn = torch.zeros(vectors, 1 + len(groups), dtype=torch.float64, device=loss.device)
        for row in drawn if bent else ():
            signs = [_signs(parameters[number], generator) for number in bent]
            products = torch.autograd.grad(
                [gradients[number] for number in bent],
                [parameters[number] for number in bent],
                signs,
                retain_graph=True,
                allow_unused=True,
            )
            for number, sign, product in zip(bent, signs, products, strict=True):
                if product is not None:
                    row[1 + which[number]] += (sign * product).sum(dtype=torch.float64)
    with torch.no_grad():
        drawn[:, 0] = drawn[:, 1:].sum(1)
        mean = drawn.mean(0) + 0 * loss.detach().double()  # NaN where the loss is not finite
        half = student_quantile(_TAIL, vectors - 1) * drawn.std(0) / vectors**0.5
        return torch.stack([mean, mean - half, mean + half]).float()


def _signs(parameter: nn.Parameter, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randint(0, 2, parameter.shape, generator=generator, device=parameter.device, dtype=torch.int8)
    return (2 * drawn - 1).to(parameter.dtype)


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation, unseen by vitals; then give back modes, buffers and states of random generators."""
    modes = [(module, module.training) for module in model.modules()]
    of_modules = [module._buffers for module in model.modules()]  # noqa: SLF001 - torch cannot give back a buffer that was removed
    buffers = [(own, dict(own)) for own in of_modules]
    copies = [(item, item._version, item.clone()) for item in model.buffers()]  # noqa: SLF001 - to compare values would wait for the device
    devices = {item.device for item in model.parameters() if item.device.type != "cpu"}
    own, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's loop may draw from it
    with ExitStack() as stack:
        stack.enter_context(unseen(model))
        for kind in {item.type for item in devices}:
            numbers = [item.index for item in devices if item.type == kind]
            stack.enter_context(torch.random.fork_rng(numbers, device_type=kind))
        stack.enter_context(torch.random.fork_rng([]))
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, training in modes:
                module.training = training
            for own_buffers, before in buffers:
                own_buffers.clear()
                own_buffers.update(before)
            with torch.no_grad():
                for item, version, copy in copies:
                    if item._version != version:  # noqa: SLF001 - to compare values would wait for the device
                        item.copy_(copy)
            random.setstate(own)
            np.random.set_state(numpys)  # noqa: NPY002 - the user's loop may draw from it
