"""Attention to the first key, norms of queries and keys, kurtosis, massive activations, spikes over Adam's memory."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402
from attention_cases import SHAPES  # noqa: E402
from attention_cases import made as attention_of  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from dataaudit.vitals import MemorySink, Vitals, VitalsConfig  # noqa: E402
from dataaudit.vitals.attention import Scores, attention_rows, head_statistics, sample_rows  # noqa: E402
from dataaudit.vitals.metrics.adam_spikes import THETA  # noqa: E402
from dataaudit.vitals.recorder import ACTIVATION_STATS, Recorder, Site, _activations, _units  # noqa: E402

pytestmark = pytest.mark.vitals
FIELDS = ("sink", "q_norm", "k_norm")


def naive(query, key, scale, visible, rows, sinks=None):
    """Return the mean weight of the first visible key, and both norms, head by head, float64, one row at a time."""
    key = key.double().repeat_interleave(query.shape[1] // key.shape[1], 1).numpy()
    query, found = query.double().numpy(), []
    for head in range(query.shape[1]):
        weights = []
        for batch in range(len(query)):
            for row in rows:
                seen = np.flatnonzero(visible[batch, min(head, visible.shape[1] - 1), row].numpy())
                if len(seen):
                    logits = [scale * float(query[batch, head, row] @ key[batch, head, one]) for one in seen]
                    rest = [] if sinks is None else [float(sinks[head])]
                    highest = max(logits + rest)
                    total = sum(math.exp(one - highest) for one in logits + rest)
                    weights.append(math.exp(logits[0] - highest) / total)
        squares = [(query[:, head, rows] ** 2).sum(-1).mean(), (key[:, head] ** 2).sum(-1).mean()]
        found.append([np.mean(weights) if weights else -math.inf, *np.sqrt(squares)])
    return np.array(found)


@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, 3.0, 20.0, -30.0, 0.0)])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("masked", ["none", "causal", "bool", "added", "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_of_heads_are_those_of_float64(dtype, masked, window, sinks):
    for shape in SHAPES[:4]:
        query, key, visible, given = attention_of(shape, dtype, masked, 1.5)
        length, keys = visible.shape[2:]
        if window is not None:
            visible &= torch.arange(keys) > torch.arange(length)[:, None] - window
        held = None if sinks is None else torch.tensor(sinks[: shape[1]])
        rows = sample_rows(length, 7)
        found = head_statistics(attention_rows(query, key, Scores(scale=0.3, window=window, sinks=held, **given), rows))
        expected = naive(query, key, 0.3, visible, rows.tolist(), held)
        assert found[:, 4:].numpy() == pytest.approx(expected, rel=1e-5, abs=1e-7)


class SoftAttention(torch.nn.Module):
    """Attention that makes its matrix itself."""

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (made.HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        logits = (0.25 * q @ k.transpose(-1, -2)).masked_fill(hidden, -math.inf)
        return self.out((torch.nn.functional.softmax(logits, -1) @ v).transpose(1, 2).flatten(2))


def trained(model, optimizer=None, *, steps=1, micro_batches=1, see=None, kept=8, scaler=None, **settings):
    """Train with vitals; return their values by step, metric, layer, head and statistic, and the vitals."""
    sink = MemorySink()
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING, micro_batches=kept, **settings)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        for step in range(1, steps + 1):
            with vitals.step():
                for micro in range(micro_batches):
                    loss = made.loss_of(model, step, micro)
                    (loss if scaler is None else scaler.scale(loss)).backward()
                if see is not None:
                    see(step)
                if optimizer is not None and scaler is None:
                    optimizer.step()
                elif optimizer is not None:
                    scaler.step(optimizer)
                    scaler.update()
            if optimizer is not None:
                optimizer.zero_grad()
    assert not vitals.failures
    return {row[:5]: row[5] for row in sink.values}, vitals, sink


@pytest.mark.parametrize("soft", [False, True])
def test_heads_of_a_model_are_those_of_its_projections(soft):
    model, kept = made.model_of("mapped"), []
    if soft:
        for block in model.blocks:
            block.attention.__class__ = SoftAttention
    model.blocks[1].attention.qkv.register_forward_hook(lambda _m, _a, output: kept.append(output.detach()))
    found, vitals, _ = trained(model, micro_batches=2)
    norms = [vitals.summary()["metrics"][name] for name in ("q_norm", "k_norm")]
    own = "the model makes its own logits: queries and keys are not seen"
    assert norms == ([f"not_applicable: {own}"] * 2 if soft else ["ok"] * 2)
    assert (vitals.coverage()["q_norm"]["why"] == own) is soft
    parts = []
    for projected in kept:  # step 1 reads row 1 of the batch
        q, k, _ = (one.unflatten(-1, (made.HEADS, -1)).transpose(1, 2)[1:] for one in projected.chunk(3, -1))
        visible = torch.ones(1, 1, made.LENGTH, made.LENGTH, dtype=torch.bool).tril()
        parts.append(naive(q, k, 0.25, visible, sample_rows(made.LENGTH, 32).tolist()))
    for head in range(made.HEADS):
        sinks, queries, keys = np.array(parts)[:, head].T
        assert found[1, "attn_sink_share", 1, head, "mean"] == pytest.approx(sinks.mean(), rel=1e-5)
        for name, own in (("q_norm", queries), ("k_norm", keys)):
            if soft:
                assert (1, name, 1, head, "rms") not in found
            else:
                rms = math.sqrt((own**2).mean())
                assert found[1, name, 1, head, "rms"] == pytest.approx(rms, rel=1e-5)


def test_activations_of_blocks_are_those_of_float64():
    model, kept = made.model_of("mapped"), []
    with torch.no_grad():
        model.embedding.weight[:, 5] = -40.0
    model.blocks[0].register_forward_hook(lambda _m, _a, output: kept.append(output.detach().double().numpy()))
    found, _, _ = trained(model, micro_batches=3)
    ratios = [np.abs(own).max() / np.abs(own).mean() for own in kept]
    kurtosis = np.mean([((own - own.mean()) ** 4).mean() / own.var() ** 2 for own in kept])
    assert found[1, "activation_kurtosis", 0, -1, "block"] == pytest.approx(kurtosis, rel=1e-5)
    assert kurtosis > 10
    assert found[1, "massive_activation", 0, -1, "ratio"] == pytest.approx(max(ratios), rel=1e-5)
    assert found[1, "massive_activation", 0, -1, "channel"] == 5


def written(values):
    """Return what the operator writes of a block's output."""
    own = Recorder(2, 2)
    own.start([0, 1], turn=0)
    slots = torch.full((1, 2, len(ACTIVATION_STATS)), 7.0)
    _activations(values, slots, Site(recorder=own, number=1, index=0, layer=0, part="block"))
    found = dict(zip(ACTIVATION_STATS, slots[0, 0].double().numpy(), strict=True))
    with np.errstate(invalid="ignore"):
        return {**found, "kurtosis": (found["fourth"] / found["variance"]) ** 2}


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 33, 24), (3, 700, 96), (2, 2, 70_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_moments_keep_their_digits_far_from_zero_and_in_any_layout(dtype, shape):
    draw = torch.Generator().manual_seed(sum(shape))
    values = (5 + torch.randn(shape, generator=draw) ** 3).to(dtype)
    values[0, -1, 1] = -300.0
    for own in (values, values.transpose(0, 1).contiguous().transpose(0, 1)):
        wide, found = own.double().numpy(), written(own)
        kurtosis = ((wide - wide.mean()) ** 4).mean() / wide.var() ** 2
        assert found["kurtosis"] == pytest.approx(kurtosis, rel=2e-4)
        assert (found["largest"], found["channel"]) == (300.0, 1.0)


@pytest.mark.parametrize(("part", "most"), [("block", 14), ("mlp", 2), ("units", 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_device_is_asked_for_few_operators(part, most, dtype, monkeypatch):
    """Of tensors of meta, as of any device but a CPU; views and questions about dtypes launch nothing."""
    asked, autocast = [], torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda kind, **named: autocast(kind.replace("meta", "cpu"), **named))

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if not function.is_view and "promote_types" not in str(function):
                asked.append(str(function))
            return function(*args, **(kwargs or {}))

    own = Recorder(2, 2)
    own.start([0, 1], turn=0)
    values, see = torch.empty(4, 16, 32, dtype=dtype, device="meta"), _units if part == "units" else _activations
    slots = torch.empty(1, 2, 32 if part == "units" else len(ACTIVATION_STATS), device="meta")
    with Count():
        see(values, slots, Site(recorder=own, number=1, index=0, layer=0, part=part))
    assert len(asked) == most, asked


def test_what_is_constant_or_not_finite_has_no_kurtosis():
    assert math.isnan(written(torch.zeros(2, 3, 4))["kurtosis"])
    spoilt = torch.randn(2, 3, 4)
    spoilt[1, 1, 2] = math.nan
    found = written(spoilt)
    assert math.isnan(found["kurtosis"])
    assert math.isnan(found["largest"])


def test_an_activation_a_thousand_times_the_mean_is_warned_of_and_its_channel_named():
    model = made.model_of("mapped")
    with torch.no_grad():
        model.blocks[0].mlp[2].bias[3] = 1.0  # one of 64 channels: 64 times the mean is the most that can be
    assert not [one for one in trained(model)[2].events if one[1] == "warning"]

    def spoil(_module, _args, output):
        output = output.clone()
        output[1, 2, 9] = 1e5
        return output

    model.blocks[0].register_forward_hook(spoil)
    found, _, sink = trained(model)
    raised = [detail for _, kind, detail in sink.events if kind == "warning"]
    warned = {
        (detail["layer"], detail["stat"], detail["severity"])
        for detail in raised
        if detail["metric"] == "massive_activation"
    }
    assert warned == {(0, "ratio", 3), (1, "ratio", 3)}  # the residual stream carries it on
    assert found[1, "massive_activation", 0, -1, "channel"] == 9


class Counted:
    """Counts spikes of every layer in float64, from copies before the optimizer's step."""

    def __init__(self, model, optimizers, beta=0.999, scale=1.0):
        self.model, self.optimizers, self.beta, self.scale = model, optimizers, beta, scale
        self.counts = {}

    def __call__(self, step):
        if step == 6:
            self.model.blocks[0].mlp[0].weight.grad[3, :5] += 1e4 * self.scale
        for layer, block in enumerate(self.model.blocks):
            total = 0
            for parameter in block.parameters():
                for optimizer in self.optimizers:
                    state = optimizer.state.get(parameter, {})
                    if "exp_avg_sq" in state:
                        second = state["exp_avg_sq"].double().numpy()
                        corrected = second / (1 - self.beta ** float(state["step"]))
                        gradient = parameter.grad.double().numpy() / self.scale
                        total += int(((gradient**2 > THETA * corrected) & (second > 0)).sum())
            self.counts[step, layer] = total


@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"foreach": True}, {"fused": True}, {"betas": (0.9, 0.95), "weight_decay": 0.0}]
)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_spikes_are_those_of_float64(kind, options):
    model = made.model_of("mapped")
    optimizer = kind(model.parameters(), lr=1e-3, **options)
    counted = Counted(model, [optimizer], beta=options.get("betas", (0.9, 0.999))[1])
    found, vitals, _ = trained(model, optimizer, steps=24, see=counted)
    own = {(row[0], row[2]): value for row, value in found.items() if row[1] == "spam_spike_count" and row[2] >= 0}
    assert {layer for _, layer in own} == {0, 1}
    assert own == {key: counted.counts[key] for key in own}
    assert all(step > 1 for step, _ in own)
    assert vitals.summary()["metrics"]["spam_spike_count"] == "ok"
    (of,) = {column.of for column in vitals.columns if column.metric == "spam_spike_count" and column.layer == 0}
    assert of == sum(item.numel() for item in model.blocks[0].parameters())


def test_a_spike_is_counted_in_every_layer_after_an_alarm_and_with_a_scaler_that_unscales_late():
    model = made.model_of("mapped")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    counted = Counted(model, [optimizer], scale=1024.0)
    sink = MemorySink()
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        vitals.escalate(16)
        for step in range(1, 9):
            with vitals.step():
                scaler.scale(made.loss_of(model, step)).backward()
                if step == 7:
                    model.blocks[1].mlp[0].weight.grad[0, 0] = math.inf
                counted(step)
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
            if step == 7:
                counted.scale = 512.0
    own = {(row[0], row[2]): row[5] for row in sink.values if row[1] == "spam_spike_count" and row[2] >= 0}
    assert own[6, 0] >= 5
    assert {step for step, _ in own} == {2, 3, 4, 5, 6, 8}  # the first has no past, the seventh is skipped
    assert own == {key: counted.counts[key] for key in own}


@pytest.mark.parametrize(
    ("optimizers", "why"),
    [((), "no optimizer was given"), ((torch.optim.SGD,), "SGD: second moments of Adam and AdamW alone are read")],
)
def test_without_second_moments_there_are_no_spikes(optimizers, why):
    model = made.model_of("mapped")
    own = [kind(model.parameters(), lr=1e-3) for kind in optimizers]
    found, vitals, _ = trained(model, *own, steps=3)
    assert vitals.summary()["metrics"]["spam_spike_count"] == f"not_applicable: {why}"
    assert not [row for row in found if row[1] == "spam_spike_count"]


def test_spikes_are_of_the_parameters_that_an_adam_owns_and_an_update_outside_of_a_step_counts_none():
    model = made.model_of("mapped")
    inner = [item for block in model.blocks for item in block.parameters()]
    outer = [item for item in model.parameters() if all(item is not one for one in inner)]
    adam, sgd = torch.optim.AdamW(inner, lr=1e-3), torch.optim.SGD(outer, lr=1e-3)
    with Vitals(model, [adam, sgd], VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING), [MemorySink()]) as own:
        columns = {(one.layer, one.stat): one.of for one in own.columns if one.metric == "spam_spike_count"}
        assert columns[-1, "others"] == 0
        assert columns[0, "all"] == sum(item.numel() for item in model.blocks[0].parameters())
        made.loss_of(model, 1).backward()
        adam.step()
        adam.step()
    assert not own.failures
