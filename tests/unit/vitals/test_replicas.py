"""Replicas that are no longer the same."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="weights are of torch")

from vitals_models import spawned  # noqa: E402

from dataaudit.vitals.replicas import loss_dispersion, parameter_checksum, ranks_that_differ  # noqa: E402

pytestmark = pytest.mark.vitals
NUMPY = {torch.float64: np.int64, torch.float32: np.int32, torch.float16: np.int16}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_every_bit_shows(dtype):
    torch.manual_seed(0)
    weights = (torch.randn(7, 5) * 20).to(dtype)
    before = parameter_checksum([weights, torch.empty(0)])
    if dtype in NUMPY:
        expected = sum(int(one) for one in weights.numpy().view(NUMPY[dtype]).ravel())
        assert before[0].item() == (expected + 2**63) % 2**64 - 2**63
    assert torch.equal(before, parameter_checksum([weights.clone(), torch.empty(0)]))
    size = weights.element_size()
    raw = weights.view(torch.uint8).reshape(-1)
    for bit in range(8 * size):
        raw[3 * size + bit // 8] ^= 1 << bit % 8
        assert parameter_checksum([weights])[0] != before[0]
        raw[3 * size + bit // 8] ^= 1 << bit % 8


def test_chunks_do_not_show(monkeypatch):
    weights = torch.randn(100, 10)
    whole = parameter_checksum([weights, weights.T])
    monkeypatch.setattr("dataaudit.vitals.replicas._CHUNK", 7)
    assert torch.equal(whole, parameter_checksum([weights, weights.T]))
    assert whole[0] == whole[1]


@pytest.mark.parametrize(
    ("ranks", "wrong"),
    [([1, 1, 1], []), ([1, 2, 1], [1]), ([2, 1, 1], [0]), ([1, 2], [1]), ([3, 2, 2, 3, 5], [1, 2, 4])],
)
def test_what_most_ranks_hold_is_right(ranks, wrong):
    found = ranks_that_differ(torch.tensor([ranks[0]]), lambda _: torch.tensor(ranks)[:, None])
    assert found.nonzero().flatten().tolist() == wrong


def test_losses_on_one_batch():
    assert loss_dispersion(torch.tensor([2.5, 2.5])) == 0
    assert loss_dispersion(torch.tensor([1.0, 2.0, 6.0])).item() == pytest.approx(np.std([1, 2, 6]), rel=1e-12)
    assert loss_dispersion(torch.tensor([1.0, math.inf])).isnan()


def gathered(values):
    ranks = [torch.empty_like(values) for _ in range(2)]
    torch.distributed.all_gather(ranks, values)
    return torch.stack(ranks)


def worker(rank, queue):
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    batch = torch.randn(8, 6)
    found = []
    for flipped in (False, True):
        if flipped and rank == 1:
            model[0].weight.data.view(torch.int32)[3, 2] ^= 1 << 20
        differ = ranks_that_differ(parameter_checksum(list(model.parameters())), gathered)
        spread = loss_dispersion(gathered(model(batch).square().mean().detach()))
        found.append((differ.tolist(), spread.item()))
    queue.put(found)


def test_a_flipped_bit_on_one_of_two_ranks_is_found():
    queue = spawned(worker)
    for before, after in (queue.get() for _ in range(2)):
        assert before == ([False, False], 0)
        assert after[0] == [False, True]
        assert after[1] > 0
