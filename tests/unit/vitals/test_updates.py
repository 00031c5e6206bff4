"""Norms of updates from the optimizer's state against copies of the weights; no large temporaries."""

import pytest

torch = pytest.importorskip("torch", reason="updates are of torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402
from vitals_models import NoWaiting  # noqa: E402

from dataaudit.vitals import norms as norms_  # noqa: E402
from dataaudit.vitals.weights import norms, norms_from_copies, why_not  # noqa: E402

pytestmark = pytest.mark.vitals
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"lr": 1e-2}),
    "adam_decay": (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    "adam_decoupled": (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw_foreach": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "foreach": True}),
    "adamw_fused": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "fused": True}),
    "adamw_maximize": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "maximize": True}),
    "amsgrad": (torch.optim.AdamW, {"lr": 1e-2, "amsgrad": True}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "sgd_maximize": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True}),
}

SHAPES = [(9_000_001,), (2_048, 3_000), (3, 3_000_000), (2, 3, 1_500_000), (40, 40)]
MUON = [torch.optim.Muon] if hasattr(torch.optim, "Muon") else []
"""From torch 2.9 on."""


def backward(model, step):
    made = torch.Generator().manual_seed(step)
    values = torch.randn(8, 6, generator=made).to(model[0].weight.dtype)
    (model(values).square().mean() * (step + 1)).backward()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_what_the_weights_moved_by(name, dtype, near):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(dtype)
    kind, given = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), **given)
    assert why_not(optimizer) is None
    parameters = list(model[0].parameters())
    for step in range(5):
        backward(model, step)
        before = [one.detach().double().clone() for one in parameters]
        gradient = torch.cat([one.grad.double().flatten() for one in parameters]).norm().item()
        optimizer.step()
        moved = torch.cat([(one.detach() - old).flatten() for one, old in zip(parameters, before, strict=True)])
        weight = torch.cat([one.detach().double().flatten() for one in parameters]).norm().item()
        with NoWaiting():
            found = norms(optimizer, parameters)
            ratios = found.update / found.weight, found.gradient / found.weight
        assert found.update.item() == pytest.approx(moved.norm().item(), rel=near)
        assert ratios[0].item() == pytest.approx(moved.norm().item() / weight, rel=near)
        assert ratios[1].item() == pytest.approx(gradient / weight, rel=1e-6)
        optimizer.zero_grad()


def test_what_has_no_gradient_has_no_update():
    used, unused = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([used, unused], lr=0.1)
    used.sum().backward()
    optimizer.step()
    found = norms(optimizer, [unused])
    assert [found.weight.item(), found.gradient.item(), found.update.item()] == [0, 0, 0]
    assert norms(optimizer, [used, unused]).update == norms(optimizer, [used]).update > 0
    with pytest.raises(ValueError, match="none of the optimizer's"):
        norms(optimizer, [torch.nn.Parameter(torch.ones(3))])


def test_other_optimizers_are_not_guessed():
    weights = [torch.nn.Parameter(torch.ones(3))]
    assert "Adagrad: no formula" in why_not(torch.optim.Adagrad(weights))
    assert "1 or more" in why_not(torch.optim.SGD(weights, lr=10.0, weight_decay=0.1))


@pytest.mark.parametrize("overflows", [False, True])
def test_a_fused_step_that_is_skipped_has_no_update(overflows):
    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weights], lr=0.1, fused=True)
    found = []
    optimizer.register_step_post_hook(lambda *_: found.append(norms(optimizer, [weights]).update.item()))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(3):
        before = weights.detach().clone()
        loss = (weights * (torch.inf if overflows and step != 1 else 2.0)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert found[-1] == pytest.approx((weights.detach() - before).norm().item(), rel=1e-4)
        assert (found[-1] == 0) == (overflows and step != 1)
    assert len(found) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.optim.Adagrad, *MUON])
def test_copies_measure_any_optimizer(kind, dtype):
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in ((6, 5), (3, 7), (40, 40))]
    optimizer = kind(weights, lr=1e-2)
    for _ in range(3):
        for one in weights:
            one.grad = torch.randn_like(one)
        before = [one.detach().double().clone() for one in weights]
        copies = [one.detach().clone() for one in weights]
        optimizer.step()
        with NoWaiting():
            found = norms_from_copies(copies, weights)
        moved = torch.cat([(one.detach() - old).flatten() for one, old in zip(weights, before, strict=True)]).norm()
        held = torch.cat([one.detach().double().flatten() for one in weights]).norm()
        slope = torch.cat([one.grad.double().flatten() for one in weights]).norm()
        near = 1e-5 if dtype == torch.float32 else 5e-3
        assert found.update.item() == pytest.approx(moved.item(), rel=near)
        assert found.weight.item() == pytest.approx(held.item(), rel=1e-5)
        assert found.gradient.item() == pytest.approx(slope.item(), rel=1e-5)


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
    assert largest_allocation(lambda: found.append(norms(optimizer, [weight]))) <= 8 * norms_.PIECE
    moved = (weight.detach().double() - before).norm().item()
    assert found[0].update.item() == pytest.approx(moved, rel=1e-4)
    assert found[0].weight.item() == pytest.approx(weight.detach().double().norm().item(), rel=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_temporary_of_a_norm_or_a_spread_is_larger_than_a_piece(shape, dtype):
    values = torch.randn(shape).to(dtype)
    for call in (
        lambda: norms_.norm(values),
        lambda: norms_.norm(values, 1),
        lambda: norms_.sums_of([values], values.device),
    ):
        assert largest_allocation(call) <= 8 * norms_.PIECE


def test_a_large_temporary_would_be_seen():
    values = torch.randn(9_000_001)
    assert largest_allocation(lambda: values * 2) >= 4 * 9_000_000
