"""Other ways to look at a model, as short versions of what is in use: what vitals are set beside.

Histograms of all gradients at every step, read at once, as ``wandb.watch`` does at every 1,000th; forward hooks that
read mean and spread of every module at once; hooks that keep them on the device and break the graph, as OLMo-core's GAP
monitor does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def histograms(model: nn.Module) -> Callable[[], None]:
    """Read a histogram of 64 bins of every gradient at once."""

    def after() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                flat = parameter.grad.float().flatten()
                torch.histc(flat, 64, flat.min().item(), flat.max().item()).tolist()

    return after


def hooks_that_read(model: nn.Module) -> Callable[[], None]:
    """Read mean, spread and largest value of what every module returns, at once."""
    read: list[float] = []

    @torch.compiler.disable
    def hook(_: nn.Module, _args: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            values = output.detach().float()
            read.extend((values.mean().item(), values.std().item(), values.abs().max().item()))

    for module in model.modules():
        module.register_forward_hook(hook)

    def after() -> None:
        assert read, "no hook ran"
        read.clear()

    return after


def hooks_that_break_the_graph(model: nn.Module) -> Callable[[], None]:
    """Keep mean, variance and largest value of every module's output and of parameters' gradients on the device."""
    kept: list[torch.Tensor] = []

    @torch.compiler.disable
    def hook(_: nn.Module, _args: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            variance, mean = torch.var_mean(output.detach().float())
            kept.extend((mean, variance, output.detach().abs().max()))

    for module in model.modules():
        module.register_forward_hook(hook)

    def after() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                variance, mean = torch.var_mean(parameter.grad.float())
                kept.extend((mean, variance, parameter.grad.abs().max()))
        torch.stack([one.float() for one in kept]).cpu()
        kept.clear()

    return after


OTHERS = {
    "histograms of gradients, every step": histograms,
    "hooks that read at once": hooks_that_read,
    "hooks outside of the graph": hooks_that_break_the_graph,
}
