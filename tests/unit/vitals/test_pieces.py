"""Beside weights, gradients and moments nothing of their size is held, however large a tensor is."""

import pytest

torch = pytest.importorskip("torch", reason="updates are of torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from dataaudit.vitals import norms as norms_  # noqa: E402
from dataaudit.vitals import weights as updates  # noqa: E402

pytestmark = pytest.mark.torch
SHAPES = [(9_000_001,), (2_048, 3_000), (3, 3_000_000), (2, 3, 1_500_000), (40, 40)]


def largest_allocation(call):
    """Return the most bytes that an operator of a call asked for at once, on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        call()
    return max((one.self_cpu_memory_usage for one in found.events()), default=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_no_temporary_of_an_update_is_larger_than_a_piece(kind, shape):
    given = {"lr": 1e-2, "weight_decay": 0.1, **({"momentum": 0.9, "nesterov": True} if kind == "SGD" else {})}
    weight = torch.nn.Parameter(torch.randn(shape))
    weight.grad = torch.randn(shape)
    optimizer = getattr(torch.optim, kind)([weight], **given)
    before = weight.detach().double()
    optimizer.step()
    found = []
    assert largest_allocation(lambda: found.append(updates.norms(optimizer, [weight]))) <= 8 * norms_.PIECE
    moved = (weight.detach().double() - before).norm().item()
    assert found[0].update.item() == pytest.approx(moved, rel=1e-4)
    assert found[0].weight.item() == pytest.approx(weight.detach().double().norm().item(), rel=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_temporary_of_a_norm_or_a_spread_is_larger_than_a_piece(shape, dtype):
    values = torch.randn(shape).to(dtype)
    for call in (lambda: norms_.norm(values), lambda: norms_.norm(values, 1), lambda: norms_.std([values])):
        assert largest_allocation(call) <= 8 * norms_.PIECE


def test_a_large_temporary_would_be_seen():
    values = torch.randn(9_000_001)
    assert largest_allocation(lambda: values * 2) >= 4 * 9_000_000
