"""Taps read what a forward pass makes and change no bit of training, as far as a compiler lets them."""

import pytest

torch = pytest.importorskip("torch", reason="taps are of torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from dataaudit.vitals.taps import SWITCH, new_slots, tap  # noqa: E402

pytestmark = pytest.mark.torch
WIDTH, LENGTH, VOCAB, LAYERS = 32, 16, 64, 2


class Block(torch.nn.Module):
    """Attention, a gated MLP and RMS norms, as in Llama."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.qkv(self.first(x)).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        gate, up = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(torch.nn.functional.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, again=False):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, VOCAB, bias=False)
        self.again = again

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


class NoWaiting(TorchDispatchMode):
    """Rejects what would wait for a device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(function), function
        return function(*args, **(kwargs or {}))


def train(backend=None, *, tapped=True, on=True, again=False, steps=3):
    """Train a little; return everything whose bits must not change, and the slots."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, slots = Model(again), new_slots(LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if tapped:
        for place, block in enumerate(model.blocks):
            tap(block, slots, place)
    run = model if backend is None else torch.compile(model, backend=backend)
    SWITCH.on = on
    kept = []
    try:
        for step in range(steps):
            tokens = (torch.arange(2 * LENGTH).reshape(2, LENGTH) * (step + 3)) % VOCAB
            loss = torch.nn.functional.cross_entropy(run(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            kept += [loss.detach(), *(one.grad.clone() for one in model.parameters())]
            optimizer.step()
            optimizer.zero_grad()
    finally:
        SWITCH.on = True
    kept += [one.detach() for one in model.parameters()]
    return [*kept, torch.get_rng_state()], slots


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


COMPILED = [pytest.mark.ci, pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    "backend", [None, pytest.param("aot_eager", marks=COMPILED), pytest.param("inductor", marks=COMPILED)]
)
def test_training_with_taps_is_training_without_them(backend, again):
    plain, empty = train(backend, tapped=False, again=again)
    tapped, slots = train(backend, again=again)
    off, unmeasured = train(backend, on=False, again=again)
    assert same(plain, tapped)
    assert same(plain, off)
    assert empty.isnan().all()
    assert unmeasured.isnan().all()
    assert slots.isfinite().all()


def test_what_is_measured_is_the_output_of_the_module():
    torch.manual_seed(0)
    block, slots = Block().eval(), new_slots(1)
    remove = tap(block, slots, 0)
    values = torch.randn(2, LENGTH, WIDTH)
    output = block(values).double()
    expected = [output.abs().mean().item(), output.square().mean().sqrt().item()]
    assert slots[0].tolist() == pytest.approx(expected, rel=1e-6)
    remove()
    block(2 * values)
    assert slots[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("again", [False, True])
def test_no_step_waits(again):
    torch.manual_seed(0)
    model, slots = Model(again), new_slots(LAYERS)
    for place, block in enumerate(model.blocks):
        tap(block, slots, place)
    with NoWaiting():
        model(torch.zeros(2, LENGTH, dtype=torch.int64)).sum().backward()
    assert slots.isfinite().all()


@pytest.mark.ci
def test_the_switch_compiles_nothing_again():
    torch._dynamo.reset()
    model, slots = Model(), new_slots(LAYERS)
    for place, block in enumerate(model.blocks):
        tap(block, slots, place)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    tokens = torch.zeros(2, LENGTH, dtype=torch.int64)
    SWITCH.on = False
    try:
        compiled(tokens)
        assert slots.isnan().all()
        SWITCH.on = True
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(tokens)
    finally:
        SWITCH.on = True
    assert slots.isfinite().all()
