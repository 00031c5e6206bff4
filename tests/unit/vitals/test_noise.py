"""Noise of gradients from norms against explicit gradients in float64."""

import math
from itertools import pairwise

import numpy as np
import pytest
from lanes import sample, thinned

torch = pytest.importorskip("torch", reason="gradients are of torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402
from vitals_models import NoWaiting, spawned  # noqa: E402

from dataaudit.vitals.micro_batches import (  # noqa: E402
    GradientNorms,
    NoiseScale,
    direction_consistency,
    gsnr,
    signal_and_noise,
)
from dataaudit.vitals.weights import proxy_of_sums, sums_of_moments  # noqa: E402

pytestmark = pytest.mark.vitals


def drawn(seed, sizes, dimension=50, noise=1.0):
    """Return gradients of micro-batches of some sizes around a true one of square 1, float64[W, D]."""
    made = np.random.default_rng(seed)
    truth = np.ones(dimension) / math.sqrt(dimension)
    return truth + made.normal(size=(len(sizes), dimension)) * noise / np.sqrt(np.asarray(sizes))[:, None]


def norms_of(gradients):
    mean = gradients.mean(0)
    return torch.tensor((gradients**2).sum(1)), torch.tensor(mean @ mean)


def test_signal_and_noise_have_no_bias():
    found = []
    for seed in range(3000):
        squares, mean = norms_of(drawn(seed, np.full(4, 3.0)))
        found.append([one.item() for one in signal_and_noise(squares, mean)])
    mean, error = np.mean(found, 0), np.std(found, 0) / math.sqrt(len(found))
    assert np.all(np.abs(mean - [1, 50 / 3]) < 4 * error), (mean, error)
    assert error[0] < 0.1
    assert error[1] < 0.5


@pytest.mark.parametrize("seed", range(5))
def test_equal_micro_batches_against_coordinates(seed):
    gradients = drawn(seed, [4.0] * 6)
    squares, mean = norms_of(gradients)
    with NoWaiting():
        g2, s = signal_and_noise(squares, mean)
        ratio, cosine = gsnr(squares, mean), direction_consistency(squares, mean)
    variance = gradients.var(0, ddof=1).sum()
    signal = (gradients.mean(0) ** 2).sum() - variance / 6
    assert s.item() == pytest.approx(variance, rel=1e-12)
    assert g2.item() == pytest.approx(signal, rel=1e-10)
    assert ratio.item() == pytest.approx(signal / variance, rel=1e-10)
    pairs = [gradients[i] @ gradients[j] for i in range(6) for j in range(6) if i != j]
    assert cosine.item() == pytest.approx(np.mean(pairs) / (gradients**2).sum(1).mean(), rel=1e-10)
    # identities: signal to noise is 1/B_simple, the cosine G² / (G² + S)
    assert ratio.item() == pytest.approx((g2 / s).item(), rel=1e-12)
    assert cosine.item() == pytest.approx((g2 / (g2 + s)).item(), rel=1e-12)


def test_what_cannot_be_told():
    with pytest.raises(ValueError, match="two gradients"):
        signal_and_noise(torch.ones(1), torch.ones(()))
    alike = torch.ones(3), torch.ones(())
    assert gsnr(*alike).isnan()
    assert direction_consistency(*alike) == 1
    assert direction_consistency(torch.zeros(3), torch.zeros(())).isnan()
    against = torch.ones(2), torch.zeros(())
    assert direction_consistency(*against) == -1
    g2, s = signal_and_noise(*against)
    assert (g2.item(), s.item()) == (-1, 2)


def test_averages_are_divided_not_ratios_averaged():
    scale = NoiseScale(0.8)
    steps = [(2.0, 10.0), (-1.0, 30.0), (3.0, 20.0), (math.nan, 1.0), (1.0, math.inf), (0.5, 5.0)]
    with NoWaiting():
        assert scale.b_simple.dtype == torch.float64
        for g2, s in steps:
            scale.update(torch.tensor(g2, dtype=torch.float64), torch.tensor(s, dtype=torch.float64))
        scale.interval()
    kept = np.array([one for one in steps if np.isfinite(one).all()])
    weights = 0.8 ** np.arange(len(kept))[::-1]
    g2, s = weights @ kept / weights.sum()
    assert scale.g2.item() == pytest.approx(g2, rel=1e-12)
    assert scale.b_simple.item() == pytest.approx(s / g2, rel=1e-12)


def test_a_hidden_gradient_has_no_noise_scale():
    scale = NoiseScale(0.9)
    assert scale.b_simple.isnan()
    assert scale.interval()[0].isnan()
    for step in range(20):
        scale.update(torch.tensor(-0.1 + 0.01 * (step % 3)), torch.tensor(5.0 + step % 2))
    assert scale.g2 < 0
    assert scale.b_simple.isnan()
    assert scale.interval()[1] == math.inf


@pytest.mark.parametrize("noise", sample([0.3, 1.0], 2))
def test_the_interval_covers(noise):
    """Of 600 runs of 60 steps with 4 micro-batches, 95 % hold the truth, B_simple = 50 noise²."""
    made = np.random.default_rng(5)
    steps, runs = 60, 600
    truth = np.ones(50) / math.sqrt(50)
    gradients = truth + made.normal(size=(runs, steps, 4, 50)) * noise
    squares, means = (gradients**2).sum(-1), (gradients.mean(2) ** 2).sum(-1)
    held = bounded = 0
    for run in range(runs):
        scale = NoiseScale(0.9)
        for step in range(steps):
            scale.update(*signal_and_noise(torch.tensor(squares[run, step]), torch.tensor(means[run, step])))
        low, high = (one.item() for one in scale.interval())
        assert low <= scale.b_simple.item() <= high or scale.b_simple.isnan()
        held += low <= 50 * noise**2 <= high
        bounded += high < math.inf
    assert 0.92 <= held / runs <= 0.98, held / runs
    assert bounded > 0 if noise == 1 else bounded == runs


def test_state_goes_on_where_it_was():
    first, second = NoiseScale(0.9), NoiseScale(0.9)
    values = [(torch.tensor(1.0 + step % 3), torch.tensor(5.0 + step % 2)) for step in range(10)]
    for one in values[:6]:
        first.update(*one)
    state = first.state_dict()
    assert all(type(one) is float for one in state.values())
    second.load_state_dict(state)
    for one in values[6:]:
        first.update(*one)
        second.update(*one)
    assert first.state_dict() == second.state_dict()
    with pytest.raises(ValueError, match="state lacks s_s"):
        second.load_state_dict({name: one for name, one in state.items() if name != "s_s"})
    with pytest.raises(ValueError, match=r"of decay 0\.9"):
        NoiseScale(0.5).load_state_dict(state)
    with pytest.raises(ValueError, match="between 0 and 1"):
        NoiseScale(1.0)


def test_the_proxy_of_adam():
    """Gradients drawn alike at every step: the proxy is their signal to noise."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(200_000))
    optimizer = torch.optim.Adam([weights], lr=1e-4, betas=(0.9, 0.99))
    truth = torch.full_like(weights, 0.5)
    for step in range(60):
        weights.grad = truth + torch.randn(weights.shape)
        optimizer.step()
        state = optimizer.state[weights]
        with NoWaiting():
            sums = sums_of_moments([state["exp_avg"]], [state["exp_avg_sq"]])
            found = proxy_of_sums(sums, state["step"], (0.9, 0.99))
        assert found.isnan() if step == 0 else abs(found.item() - 0.25) < 0.02, (step, found)


class Tied(torch.nn.Module):
    """Three projections, the first and the last with one weight; the middle may be checkpointed."""

    def __init__(self, checkpointed=None):
        super().__init__()
        self.first, self.middle = torch.nn.Linear(12, 12), torch.nn.Linear(12, 12)
        self.last = torch.nn.Linear(12, 12)
        self.last.weight = self.first.weight
        self.checkpointed = checkpointed

    def forward(self, values):
        values = self.first(values).tanh()
        if self.checkpointed is None:
            values = self.middle(values).tanh()
        else:
            values = checkpoint(self.middle, values, use_reentrant=self.checkpointed == "reentrant").tanh()
        return self.last(values).square().mean()


def made_batches(count=3):
    torch.manual_seed(1)
    return [torch.randn(4, 12) for _ in range(count)]


def explicit(model, batches):
    """Return |g_i|² of each parameter and micro-batch, each from a pass of its own; float64[parameters, W]."""
    found = []
    for batch in batches:
        gradients = torch.autograd.grad(model(batch), list(model.parameters()))
        found.append([one.double().square().sum() for one in gradients])
    return torch.tensor(found).T


def accumulated(model, runs, batches, norms=None):
    model.zero_grad()
    for index, batch in enumerate(batches):
        if norms is not None:
            norms.begin(index)
        runs(batch).backward()
    return [one.grad.clone() for one in model.parameters()]


COMPILED = [
    *(
        (backend, kind)
        for backend in (None, "eager", "aot_eager", *thinned(["inductor"], few=[]))
        for kind in (None, "saved")
    )
]


@pytest.mark.parametrize(("backend", "checkpointed"), [(None, "reentrant"), *COMPILED])
def test_norms_of_micro_batches_and_gradients_unchanged(backend, checkpointed):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, batches = Tied(checkpointed), made_batches()
    runs = model if backend is None else torch.compile(model, backend=backend)
    plain = accumulated(model, runs, batches)
    reference = Tied()
    reference.load_state_dict(model.state_dict())
    expected = explicit(reference, batches)
    torch._dynamo.reset()
    norms = GradientNorms(list(model.parameters()), 3)
    seen = accumulated(model, runs, batches, norms)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))
    torch.testing.assert_close(norms.slots.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(norms.totals(), expected.sum(0), rtol=1e-5, atol=0)
    kept = norms.slots.clone()
    norms.pause()
    runs(batches[0]).backward()
    assert torch.equal(norms.slots, kept)
    norms.close()
    norms.begin(0)
    runs(batches[0]).backward()
    assert norms.totals()[0].isnan()
    norms.clear()
    assert norms.slots.isnan().all()


def test_parts_of_a_gradient_are_not_taken_for_it():
    """A weight used in two reentrant segments is seen in parts; so is one of a graph that is run backward twice."""
    layer, batch = torch.nn.Linear(12, 12), made_batches(1)[0].requires_grad_()
    norms = GradientNorms(list(layer.parameters()), 2)
    norms.begin(0)
    inner = checkpoint(layer, batch, use_reentrant=True)
    checkpoint(layer, inner, use_reentrant=True).square().mean().backward()
    assert norms.totals()[0].isnan()
    norms.begin(1)
    loss = layer(batch).square().mean()
    loss.backward(retain_graph=True)
    assert norms.totals()[1].isfinite()
    loss.backward()
    assert norms.totals()[1].isnan()


def test_sparse_gradients_and_unused_parameters():
    table, unused = torch.nn.Embedding(10, 4, sparse=True), torch.nn.Parameter(torch.ones(2))
    norms = GradientNorms([table.weight, unused, table.weight], 1)
    norms.begin(0)
    (table(torch.tensor([1, 1, 3])) * 2).sum().backward()
    assert norms.slots.tolist() == [[4 * 16 + 4 * 4], [0]]
    assert norms.totals().tolist() == [80]


def worker(rank, queue):
    model = Tied()
    replicas = torch.nn.parallel.DistributedDataParallel(model)
    norms = GradientNorms(list(model.parameters()), 1)
    norms.begin(0)
    batches = made_batches(2)
    replicas(batches[rank]).backward()
    reduced = sum(one.grad.double().square().sum() for one in model.parameters())
    squares = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
    torch.distributed.all_gather(squares, norms.totals())
    queue.put((torch.cat(squares).tolist(), reduced.item()))


def test_workers_norms_are_their_own_before_they_are_reduced():
    queue = spawned(worker)
    found = [queue.get() for _ in range(2)]
    torch.manual_seed(0)
    model, batches = Tied(), made_batches(2)
    expected = explicit(model, batches).sum(0).tolist()
    mean = sum(one.double().square().sum() for one in accumulated(model, model, batches)).item() / 4
    for squares, reduced in found:
        assert squares == pytest.approx(expected, rel=1e-5)
        assert reduced == pytest.approx(mean, rel=1e-5)
    assert all(one == other for one, other in pairwise(found))
