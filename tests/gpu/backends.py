"""What vitals say of attention by each back end of SDPA, and by FlexAttention, against float64 of the same logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .checks import Machine, NotApplicable, Row
from .models import SIZES, Loop, Model, tokens_of

PART = "backends"
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
_STEPS = 2
_TOLERANCE = 1e-3
"""Of numbers of sampled rows, which are in float32, relative to their size."""
_FLEX_TOLERANCE = 0.02
"""Of FlexAttention's own largest logit and log-sum-exp, whose products it may shorten."""


class Seen:
    """Queries and keys of every layer, as its first linear map returned them."""

    def __init__(self, model: Model) -> None:
        self.heads = model.blocks[0].attention.heads
        self.held: list[torch.Tensor] = []
        self.handles = [block.attention.qkv.register_forward_hook(self._keep) for block in model.blocks]

    def _keep(self, _module: nn.Module, _given: Any, found: torch.Tensor) -> None:
        self.held.append(found.detach())

    def statistics(self, layer: int, batch_row: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the largest logit and the mean entropy of some rows of a layer, float64[heads]."""
        q, k, _ = (
            part.double().unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for part in self.held[layer][batch_row].chunk(3, -1)
        )
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(later, -math.inf)[:, rows]
        weights = logits.softmax(-1)
        return logits.amax((1, 2)), torch.special.entr(weights).sum(-1).mean(-1)


def by_sdpa(machine: Machine, name: str) -> tuple[str, dict[str, float]]:
    """Train by a back end and return how far numbers of vitals are from float64.

    Raises:
        NotApplicable: The back end refuses to run here; its reason.
        AssertionError: Vitals saw no attention, or other numbers.
    """
    if not hasattr(SDPBackend, name):
        raise NotApplicable("this torch has no such back end")
    backend = getattr(SDPBackend, name)
    width, _, heads, _, rows, length = SIZES[_size(machine)]
    kind = {"dtype": torch.bfloat16, "device": machine.device, "requires_grad": True}
    probe = [torch.zeros(rows, heads, length, width // heads, **kind) for _ in range(3)]
    try:
        with sdpa_kernel([backend]):
            nn.functional.scaled_dot_product_attention(*probe, is_causal=True).sum().backward()
    except RuntimeError as error:
        raise NotApplicable(f"it refuses to run on this device ({str(error).splitlines()[0]})") from None
    with sdpa_kernel([backend]):
        return compared(machine, Model(_size(machine)))


def compared(machine: Machine, model: Model) -> tuple[str, dict[str, float]]:
    """Train a model and return how far numbers of vitals are from float64, at the last step."""
    from dataaudit.vitals.attention import sample_rows

    size = _size(machine)
    loop = Loop(machine, model, vitals={"interval": 1}, autocast=torch.bfloat16)
    seen = Seen(model)
    for tokens in tokens_of(machine, size, _STEPS):
        seen.held.clear()
        loop.step(tokens)
    loop.close()
    values = {
        (metric, layer, head, stat): value
        for step, metric, layer, head, stat, value in loop.sink.values
        if step == _STEPS
    }
    _, layers, heads, _, rows, length = SIZES[size]
    worst = 0.0
    for layer in range(layers):
        found = seen.statistics(layer, _STEPS % rows, sample_rows(length, 32, machine.device))
        for (metric, stat), of_heads in zip(
            (("max_attn_logit", "sampled"), ("attn_entropy", "mean")), found, strict=True
        ):
            for head in range(heads):
                true, said = of_heads[head].item(), values[metric, layer, head, stat]
                off = abs(said - true) / (1 + abs(true))
                assert off <= _TOLERANCE, f"{metric} of layer {layer}, head {head} is {said:.6g}, in float64 {true:.6g}"
                worst = max(worst, off)
    return f"largest logit and entropy of {layers * heads} heads, off by {worst:.1e} at most", {"off": worst}


def flex(machine: Machine) -> str:
    """Train by FlexAttention: vitals say that they do not see it. Its own largest logits are those of our rows.

    Raises:
        NotApplicable: Always, with what vitals say.
        AssertionError: They say nothing, or numbers differ.
    """
    from torch.nn.attention import flex_attention as library

    from dataaudit.vitals.attention import Scores, attention_rows

    size = _size(machine)
    _, _, heads, _, rows, length = SIZES[size]
    run = library.flex_attention if machine.dry else torch.compile(library.flex_attention)
    block_mask = library.create_block_mask(
        lambda _b, _h, q, k: q >= k, None, None, length, length, device=machine.device
    )

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return run(query, key, value, block_mask=block_mask)

    loop = Loop(machine, Model(size, attend=attend), vitals={"interval": 1}, autocast=torch.bfloat16)
    for tokens in tokens_of(machine, size, _STEPS):
        if machine.dry:  # there is no backward pass of it on CPUs
            with loop.vitals.step(), torch.no_grad():
                loop.loss(tokens)
        else:
            loop.step(tokens)
    loop.vitals.close()
    said = [detail for _, kind, detail in loop.sink.events if kind == "not_seen" and detail["what"] == "attention"]
    assert said, "vitals saw no attention, and did not say so"
    draw = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(rows, heads, length, 64, generator=draw).to(machine.device, torch.bfloat16) for _ in range(3)
    )
    with torch.no_grad():
        found = run(query, key, value, block_mask=block_mask, **_auxiliary(library, machine))[1]
        own = (found, None) if isinstance(found, torch.Tensor) else (found.lse, found.max_scores)
        true = attention_rows(query, key, Scores(scale=query.shape[-1] ** -0.5, causal=True))
        for what, theirs, ours in zip(("log-sum-exp", "largest logit"), own, (true.lse, true.highest_max), strict=True):
            off = 0.0 if theirs is None else (theirs.float() - ours).abs().max().item()
            assert off <= _FLEX_TOLERANCE, f"FlexAttention's {what} is {off:.3g} from ours"
    raise NotApplicable(f"vitals do not see it and say so ({said[0]['why']}); its own logits agree with rows of ours")


def _auxiliary(library: Any, machine: Machine) -> dict[str, Any]:
    """Return what asks FlexAttention for more than its output; largest logits are to be had on GPUs alone."""
    if hasattr(library, "AuxRequest"):
        return {"return_aux": library.AuxRequest(lse=True, max_scores=not machine.dry)}
    return {"return_lse": True}


def _size(machine: Machine) -> str:
    return "dry" if machine.dry else "small"


def rows(machine: Machine) -> Iterator[Row]:
    """Yield a row for each back end, for what torch chooses by itself, and for FlexAttention."""
    for name in BACKENDS:
        yield machine.attempt(PART, f"SDPA, {name}", by_sdpa, machine, name)
    yield machine.attempt(PART, "SDPA, as torch chooses", lambda: compared(machine, Model(_size(machine))))
    yield machine.attempt(PART, "FlexAttention", flex, machine)
