"""No operator of a step waits for a device: none asks for the value of a tensor, none mixes devices."""

import contextlib
from collections import Counter

import pytest
from lanes import sample

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from dataaudit.vitals import attention_pass, norms, recorder, routers  # noqa: E402
from dataaudit.vitals import weights as updates  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.finite import state_finite  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
BODIES = {
    "dataaudit::activations": recorder.see_activations._init_fn,
    "dataaudit::units": recorder.see_units._init_fn,
    "dataaudit::heads": recorder.see_heads._init_fn,
    "dataaudit::projected_heads": recorder.see_projected_heads._init_fn,
    "dataaudit::router": routers.see_router._init_fn,
}
ASKS = ("_local_scalar_dense", "nonzero", "item", "_to_cpu", "masked_select", "equal")


class FromTheHost(TorchFunctionMode):
    """Counts what a device would wait for as it is copied there: lists as indices, tensors made of Python's numbers."""

    def __init__(self):
        super().__init__()
        self.copied = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = function.__name__
        if name in {"__getitem__", "__setitem__"}:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.copied[name] += any(isinstance(one, list) for one in index)
        self.copied[name] += name in {"tensor", "as_tensor", "new_tensor", "from_numpy"}
        return function(*args, **(kwargs or {}))


class Count(TorchDispatchMode):
    """Counts operators, those within our own among them, which a mode does not see by itself."""

    def __init__(self):
        super().__init__()
        self.asked = Counter()
        self.ours = Counter()
        self.host = FromTheHost()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name
        if name in BODIES:
            self.ours[name] += 1
            with self, self.host:
                return BODIES[name](*args, **(kwargs or {}))
        if any(name == f"aten::{one}" for one in ASKS):
            self.asked[name] += 1
        return function(*args, **(kwargs or {}))


def steps(family, *, watched, optimizer=torch.optim.AdamW, number=9):
    """Return what whole steps of two micro-batches asked for, and how often our own operators ran."""
    torch.manual_seed(0)
    model = made.model_of(family)
    own = optimizer(model.parameters(), lr=1e-3)
    mapping = made.MAPPING if family == "mapped" else None
    config = VitalsConfig(interval=3, window=4, delta=3, mapping=mapping, healthy=(2, 5), adapt=False)
    vitals = Vitals(model, own, config, [MemorySink()]) if watched else None
    ids = torch.arange(2)
    with Count() as count, count.host:
        for step in range(1, number + 1):
            if vitals is not None:
                with vitals.step():
                    vitals.log_sources(ids, 2)
                    update(model, own, step, vitals)
            else:
                update(model, own, step)
    if vitals is not None:
        vitals.close()
    count.asked += count.host.copied
    return count


def update(model, optimizer, step, vitals=None):
    for micro in range(2):
        loss = made.loss_of(model, step, micro)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if vitals is not None:
        vitals.log(loss=loss)


@pytest.mark.parametrize(
    ("family", "optimizer"),
    sample(
        [
            *(("llama", one) for one in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)),
            *((one, torch.optim.AdamW) for one in ("mixtral", "gpt2", "mapped", "multihead")),
        ],
        2,
    ),
)
def test_a_whole_step_asks_for_no_value_that_it_does_not_ask_for_anyway(family, optimizer):
    """The models and the optimizers of the libraries do ask: with vitals and without they do so as often."""
    plain, looked = (steps(family, watched=watched, optimizer=optimizer) for watched in (False, True))
    assert looked.asked == plain.asked
    assert not plain.ours
    assert looked.ours["dataaudit::activations"] >= 9 * made.LAYERS
    assert looked.ours["dataaudit::router"] == (9 * 2 * made.LAYERS if family == "mixtral" else 0)
    assert looked.ours["dataaudit::heads"] + looked.ours["dataaudit::projected_heads"] >= 9 * made.LAYERS


def test_a_value_that_is_asked_for_would_be_seen(monkeypatch):
    """The test above can fail: an operator of ours that asks, or copies, is counted."""

    def asks(values, *_):
        values.sum().item()

    def copies(values, *_):
        values[[0]]

    for body in (asks, copies):
        monkeypatch.setitem(BODIES, "dataaudit::units", body)
        looked, plain = (steps("llama", watched=watched, number=1).asked.total() for watched in (True, False))
        assert looked - plain == 2 * made.LAYERS


@pytest.fixture
def sites():
    own = recorder.Recorder(3, 2)
    own.start([0, 1, 2], turn=0, closely=True)
    parts = enumerate(("block", "units", "heads"))
    return [
        recorder.Site(recorder=own, number=number, index=0, layer=0, part=part, heads=4, rows=8)
        for number, part in parts
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operators_run_on_a_device_that_is_not_there(sites, dtype, monkeypatch):
    """Tensors without data: whoever asks for a value, or mixes in a tensor of the host, fails.

    Of cuda:0 where torch was built for it; a build for CPUs cannot even copy such a tensor, there they are of meta.
    """
    device = torch.device("cuda:0" if torch.backends.cuda.is_built() else "meta")
    autocast = torch.autocast
    monkeypatch.setattr(attention_pass, "_has_triton", lambda: False)
    monkeypatch.setattr(torch, "autocast", lambda kind, **named: autocast(kind.replace("meta", "cpu"), **named))
    with FakeTensorMode() if device.type == "cuda" else contextlib.nullcontext():

        def held(*shape, dtype=dtype):
            return torch.empty(shape, dtype=dtype, device=device)

        slots = held(3, 2, len(recorder.ACTIVATION_STATS), dtype=torch.float32)
        recorder._activations(held(2, 16, 32), slots, sites[0])
        recorder._units(held(2, 16, 64), held(1, 2, 64, dtype=torch.float32), sites[1])
        heads = held(1, 2, 4, len(recorder.HEAD_STATS), dtype=torch.float32)
        mask = held(2, 1, 16, 16, dtype=torch.bool)
        for given, causal, window, softcap in ((None, True, None, None), (mask, False, 5, 30.0)):
            recorder._heads(
                held(2, 4, 16, 8), held(2, 2, 16, 8), given, held(4), heads, sites[2], 0.3, causal, window, softcap
            )
        assert sites[0].recorder.seen == [1, 1, 2]
        weights = [held(*shape, dtype=torch.float32) for shape in ((8, 4), (8, 4), ())]
        for one in weights:
            one.grad = torch.empty_like(one)
        norms.std_of_sums(norms.sums_of(weights, device), sum(one.numel() for one in weights))
        updates.norms_from_copies([torch.empty_like(one) for one in weights], weights)
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            optimizer = kind([torch.nn.Parameter(one) for one in weights], lr=1e-3)
            own = optimizer.param_groups[0]["params"]
            for one in own:
                one.grad = torch.empty_like(one)
                optimizer.state[one] = {
                    "step": torch.tensor(3.0),  # on the host, unless the optimizer is fused or capturable
                    "exp_avg": torch.empty_like(one),
                    "exp_avg_sq": torch.empty_like(one),
                    "momentum_buffer": None,
                }
            updates.norms(optimizer, own)
            state_finite(optimizer, own, 3)
            moments = [optimizer.state[one]["exp_avg"] for one in own]
            sums = updates.sums_of_moments(moments, moments)
            found = updates.proxy_of_sums(sums, optimizer.state[own[0]]["step"], (0.9, 0.99))
            assert found.device == device
        with pytest.raises((RuntimeError, DataDependentOutputException)):
            held(2).sum().item()
