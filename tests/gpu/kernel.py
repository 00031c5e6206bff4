"""The kernel of Triton against float64 over the whole matrix, on the device that runs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from attention_cases import SHAPES, hold, made, naive

from dataaudit.vitals.attention import AttentionRows, Scores, attention_rows, head_statistics, sample_rows

from .checks import Machine, NotEvaluated, Row
from .models import SIZES, Loop, llama, padded, tokens_of

PART = "kernel"
MASKS = ("none", "causal", "bool", "added", "both")
SETS = ("masks", "shapes", "windows")
DTYPES = ("bfloat16", "float16", "float32")
_GROUPED = (2, 4, 1, 33, 33, 24)
"""Batch, heads, heads of keys, rows, keys, width: odd lengths, four queries a key."""
_LONG = ((1, 2, 1, 70, 131, 24), (1, 2, 2, 130, 130, 64), (1, 4, 2, 777, 777, 128), (1, 2, 1, 67, 67, 256))


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments of the kernel, and what they mean."""

    name: str
    query: torch.Tensor
    key: torch.Tensor
    visible: torch.Tensor
    bias: torch.Tensor | None
    named: dict[str, Any]


def cases(dtype: str, of: str) -> Iterator[Case]:
    """Yield the cases of a set: every mask, every shape, or windows, caps, biases and strides."""
    kind = getattr(torch, dtype)
    if of != "windows":
        chosen = [(_GROUPED, mask) for mask in MASKS] if of == "masks" else [(one, "both") for one in (*SHAPES, *_LONG)]
        for shape, mask in chosen:
            query, key, visible, given = made(shape, kind, mask, 2.0)
            yield Case(f"{shape}, {mask}", query, key, visible, None, {"scale": 0.3, **given})
        return
    query, key, visible, given = made((2, 4, 2, 90, 90, 8), kind, "both", 1.5)
    near = visible & (torch.arange(90) > torch.arange(90)[:, None] - 9)
    bias = torch.randn(2, 4, 90, 90, generator=torch.Generator().manual_seed(1))
    apart = query.transpose(1, 2).contiguous().transpose(1, 2)
    yield Case("window", query, key, near, None, {"scale": 0.3, "window": 9, **given})
    yield Case("window, softcap", query, key, near, None, {"scale": 0.3, "window": 9, "softcap": 2.0, **given})
    yield Case("bias", query, key, torch.ones_like(visible), bias, {"scale": 0.3, "mask": bias})
    yield Case("strides", apart, key, visible, None, {"scale": 0.3, **given})


def compare(chosen: Iterable[Case], device: str) -> tuple[str, dict[str, float]]:
    """Return how many cases the kernel was right in, and its largest error in bounds.

    Raises:
        AssertionError: It was not, in a case that is named.
    """
    from dataaudit.vitals.attention_triton import online_pass, write_sampled

    number, worst = 0, 0.0
    for case in chosen:
        moved = {name: one.to(device) if isinstance(one, torch.Tensor) else one for name, one in case.named.items()}
        query, key = case.query.to(device), case.key.to(device)
        rows, exact = online_pass(query, key, Scores(**moved)), attention_rows(query, key, Scores(**moved))
        softcap = case.named.get("softcap")
        true = naive(case.query, case.key, case.named["scale"], case.visible, bias=case.bias, softcap=softcap)
        try:
            worst = max(worst, hold(here(rows), true, case.visible))
            assert torch.equal(rows.lowest_max.isnan(), exact.lowest_max.isnan()), "other rows see nothing"
            off = (rows.highest_max - exact.highest_max).abs() > exact.lse_bound
            off |= (rows.entropy - exact.entropy).abs() > exact.bound
            assert not off.any(), f"{int(off.sum())} rows are further than a bound from rows computed one by one"
            sampled_ones(query[:1], key[:1], first_of(Scores(**moved)), write_sampled)
        except AssertionError as error:
            raise AssertionError(f"{case.query.dtype}, {case.name}: {error}") from None
        number += 1
    return f"{number} cases, the largest error is {worst:.2f} of its bound", {"cases": number, "error_in_bounds": worst}


def first_of(scores: Scores) -> Scores:
    """Return scores of the first row of a batch."""
    mask = scores.mask
    return scores if mask is None else replace(scores, mask=mask[(None,) * (4 - mask.dim())][:1])


def sampled_ones(query: torch.Tensor, key: torch.Tensor, scores: Scores, write: Callable[..., None]) -> None:
    """Assert that statistics of sampled rows are those of rows computed one by one, also where a key is not finite."""
    length, heads = query.shape[2], query.shape[1]
    spoilt = key.clone()
    spoilt[:, -1, 0, 0] = torch.nan
    seen_by_all = scores.mask is None and scores.window is None
    for own, number in itertools.product((key, spoilt) if seen_by_all else (key,), (1, 7, 32, length)):
        if (number := min(number, length)) == 0:
            continue
        slots = torch.full((heads, 12), 5.0, device=query.device)
        write(slots[:, :7], query, own, scores, number)
        expected = head_statistics(attention_rows(query, own, scores, sample_rows(length, number, query.device)))
        assert torch.equal(slots[:, 7:], torch.full_like(slots[:, 7:], 5.0)), "it wrote elsewhere"
        torch.testing.assert_close(slots[:, :7], expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def here(rows: AttentionRows) -> AttentionRows:
    """Return statistics on the host."""
    given = {name: getattr(rows, name) for name in rows.__slots__}
    return AttentionRows(**{name: item.cpu() for name, item in given.items() if isinstance(item, torch.Tensor)})


def within_vitals(machine: Machine) -> tuple[str, dict[str, float]]:
    """Train a Llama, and return in how many layers all rows were looked at; none may be far from sampled ones.

    Raises:
        AssertionError: One was, or all rows were looked at nowhere.
    """
    size = "dry" if machine.dry else "small"
    _, layers, heads, _, rows, length = SIZES[size]
    loop = Loop(machine, llama(size), vitals={"interval": 1}, autocast=torch.bfloat16, mask=padded(rows, length))
    for tokens in tokens_of(machine, size, 9):
        loop.step(tokens)
    loop.close()
    off = [row for row in loop.sink.values if row[1] == "attn_entropy" and row[4] == "off"]
    entropies = [row for row in loop.sink.values if row[4] == "all_rows"]
    assert not any(row[5] for row in off), "all rows are further from sampled ones than bounds allow"
    assert {row[2] for row in entropies} == set(range(layers)), "a layer had all its rows looked at in no step"
    assert len(entropies) == heads * len(off), "a head lacks the entropy of all rows"
    return f"{len(off)} looks at all rows of a layer", {"looks": len(off)}


def rows(machine: Machine) -> Iterator[Row]:
    """Yield the kernel's rows, set by set, and one of it in a model."""

    def run(dtype: str, of: str) -> tuple[str, dict[str, float]]:
        try:
            from triton.runtime.errors import InterpreterError
        except ImportError as error:
            raise NotEvaluated(f"Triton cannot be imported ({error})") from None
        chosen = list(cases(dtype, of))
        try:
            return compare(chosen[2::3] if machine.dry else chosen, machine.device.type)
        except InterpreterError as error:  # of a dry run: an older one does not know a newer NumPy
            raise NotEvaluated(f"Triton's interpreter does not work here ({error})") from None

    for dtype in DTYPES:
        for of in SETS:
            yield machine.attempt(PART, f"{dtype}, {of}", run, dtype, of)
    yield machine.attempt(PART, "all rows within vitals", within_vitals, machine)
