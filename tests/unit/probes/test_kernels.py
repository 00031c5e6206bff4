"""Kernels of distributions agree with plain sums in float64, whatever the chunk, the dtype and the logits."""

import math

import pytest
from reference import probes as reference

torch = pytest.importorskip("torch", reason="the kernels are of torch")
from dataaudit.probes.kernels import distributions, kl_to_previous, losses_of, tail_of  # noqa: E402

pytestmark = pytest.mark.torch
KINDS = ("plain", "peaked", "flat", "large", "masked", "bfloat16")


def logits_of(kind, seed=0, rows=5, size=37):
    random = torch.Generator().manual_seed(seed)
    made = torch.randn(rows, size, generator=random)
    if kind == "masked":
        made[torch.rand(rows, size, generator=random) < 0.4] = -torch.inf
        made[0, :9] = -torch.inf  # a chunk without any token
        made[:, 20] = 1.0
    scale = {"peaked": 30.0, "flat": 0.0, "large": 1.0}.get(kind, 2.0)
    made = made * scale if kind != "masked" else made
    made = made + 5_000.0 if kind == "large" else made
    return made.to(torch.bfloat16) if kind == "bfloat16" else made


@pytest.mark.parametrize("chunk", [1, 8, 37, 1_000])
@pytest.mark.parametrize("kind", KINDS)
def test_entropy_loss_and_mass_are_those_of_plain_sums(kind, chunk):
    logits = logits_of(kind)
    own = distributions(logits, 4, chunk=chunk)
    plain = logits.double().tolist()
    targets = torch.tensor([20, 20, 20, 20, 20])
    losses = losses_of(logits, own.log_total, targets)
    for row, values in enumerate(plain):
        assert float(own.entropy[row]) == pytest.approx(reference.entropy(values), abs=2e-6)
        assert float(losses[row]) == pytest.approx(reference.cross_entropy(values, 20), rel=1e-6, abs=1e-6)
        assert float(own.top_log_probs[row].exp().sum()) == pytest.approx(reference.top_mass(values, 4), abs=1e-6)


@pytest.mark.parametrize("kind", ["plain", "peaked", "bfloat16"])
@pytest.mark.parametrize("k", [1, 5, 37, 64])
def test_divergence_is_that_of_merged_tails_and_never_above_the_whole(kind, k):
    before, now = logits_of(kind, 1), logits_of(kind, 2) * 0.2 + logits_of(kind, 1)
    stored, own = distributions(before, k), distributions(now, k)
    found = kl_to_previous(now, own.log_total, stored.top_ids, stored.top_log_probs).tolist()
    for row, (p, q) in enumerate(zip(now.double().tolist(), before.double().tolist(), strict=True)):
        if k < 37 and 1 - reference.top_mass(q, k) < 1e-6:
            continue  # the tail is rounding, and counts as its least mass
        assert found[row] == pytest.approx(reference.merged_divergence(p, q, k), rel=1e-4, abs=1e-6)
        assert found[row] <= reference.divergence(p, q) + 1e-5
        if k >= 37:
            assert found[row] == pytest.approx(reference.divergence(p, q), rel=1e-5, abs=1e-6)


def test_no_divergence_from_itself():
    logits = logits_of("peaked")
    own = distributions(logits, 3)
    found = kl_to_previous(logits, own.log_total, own.top_ids, own.top_log_probs.float().double())
    assert found.abs().max() < 1e-6
    assert (tail_of(own.top_log_probs) > 0).all()


def test_what_is_not_finite_stays_so():
    logits = logits_of("plain")
    logits[2, 3] = torch.nan
    own = distributions(logits, 2, chunk=8)
    assert math.isnan(own.entropy[2])
    assert torch.isfinite(own.entropy[[0, 1, 3, 4]]).all()
