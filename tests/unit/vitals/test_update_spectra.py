"""Spectra of what queries and keys moved by agree with explicit matrices, at exactly the steps that were asked for."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import explicit_updates as explicit  # noqa: E402
import numpy as np  # noqa: E402
import vitals_models as made  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals import MemorySink, Vitals, VitalsConfig, spectra, update_spectra  # noqa: E402
from dataaudit.vitals.metrics import update_spectra as metric  # noqa: E402
from dataaudit.vitals.projections import projections_of  # noqa: E402
from dataaudit.vitals.structure import find  # noqa: E402

pytestmark = pytest.mark.vitals
METRICS = ("delta_w_entropy", "qk_first_order_entropy", "qk_second_order_entropy")
DELTA = 3


def settings(model, **named):
    mapping = made.MAPPING if isinstance(model, made.Mapped) else None
    return VitalsConfig(
        **{"measure": ("updates",), "interval": 1, "adapt": False, "delta": DELTA, "mapping": mapping, **named}
    )


def train(model, vitals, optimizer, steps, after=lambda step: None):
    for step in steps:
        with vitals.step():
            made.loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
            after(step)


def rows_of(sink):
    found = {}
    for step, name, layer, head, stat, value in sink.values:
        if name in METRICS:
            found.setdefault((step, layer), {})[name, head, stat] = value
    return found


@pytest.fixture
def mapped():
    model = explicit.model_of("mapped")
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), MemorySink()


@pytest.mark.parametrize("family", explicit.FAMILIES)
def test_every_number_agrees_with_explicit_matrices_of_both_steps(family):
    model, sink = explicit.model_of(family), MemorySink()
    optimizer, weights = torch.optim.AdamW(model.parameters(), lr=1e-2), {}

    def keep(step):
        weights[step] = explicit.matrices(family, model)

    with Vitals(model, optimizer, settings(model), [sink]) as vitals:
        assert {vitals.summary()["metrics"][name] for name in METRICS} == {"ok"}
        train(model, vitals, optimizer, range(1, 9), keep)
        assert not vitals.failures
    found = rows_of(sink)
    assert [key[0] for key in found] == [4, 5, 7, 8]  # two layers, a lane each, the second a step later
    for (step, layer), values in found.items():
        true = explicit.spectra(weights[step - DELTA][layer], weights[step][layer])
        assert values.pop(("delta_w_entropy", -1, "delta")) == DELTA
        assert values.pop(("delta_w_entropy", -1, "late")) == 0
        assert values.keys() == true.keys()
        for key, value in true.items():
            assert values[key] == pytest.approx(value, rel=1e-5), key


def test_a_small_update_beside_large_weights_is_as_exact():
    """Gram matrices square what a matrix is conditioned by; updates here are some 1e-5 of the weights."""
    draw = np.random.default_rng(0)
    query, key = draw.standard_normal((2, 2, 8, 40))
    moved = 1e-5 * draw.standard_normal((2, 2, 8, 40)) * np.geomspace(1, 1e-3, 8)[:, None]
    grams = []
    for before, by in ((query, moved[0]), (key, moved[1])):
        both = np.concatenate([by, before], 1)
        grams.append(both @ both.transpose(0, 2, 1))
    _, found = update_spectra.solved(np.eye(2), np.eye(2), *grams)
    true = explicit.spectra(
        (query, key, query, key), (query + moved[0], key + moved[1], query + moved[0], key + moved[1])
    )
    for order, values in zip(("first", "second"), found.reshape(2, 2), strict=True):
        for head in range(2):
            assert values[head] == pytest.approx(true[f"qk_{order}_order_entropy", head, "exp"], rel=1e-9)


def test_gram_matrices_are_made_on_a_device_that_is_not_there():
    layer = find(made.model_of("mapped").to("meta"), made.MAPPING).layers[0]
    assert "scales is not known" in projections_of(layer)  # what a norm does is asked of values
    gram = update_spectra.gram_of_update(torch.empty(4, 8, 16, device="meta"), torch.empty(4, 8, 16, device="meta"))
    assert gram.shape == (16, 16)
    assert gram.dtype == torch.float64


def test_pieces_of_a_matrix_make_the_same_gram_matrix(monkeypatch, mapped):
    """Weights that are float64 already stay as they are."""
    layer = projections_of(find(mapped[0].double(), made.MAPPING).layers[0])
    now = {name: part.view(part.parameter.detach()) for name, part in layer.query.parts.items()}
    kept = {name: value.clone() for name, value in now.items()}
    base = {name: value - 0.01 * torch.randn(value.shape) for name, value in now.items()}

    def both():
        return update_spectra.gram_of_update(base["rows"], now["rows"]), update_spectra.grams_of_heads(
            layer.query, base, now
        )

    whole = both()
    monkeypatch.setattr(update_spectra, "PIECE", 100)
    monkeypatch.setattr(spectra, "_PIECES", {"cpu": 100})
    for one, other in zip(whole, both(), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-15)
    assert all(torch.equal(now[name], value) for name, value in kept.items())


def test_delta_is_counted_in_steps_and_a_step_that_is_not_measured_is_left_out(mapped):
    """Where every step is measured the 16th is not: a comparison that falls there is none."""
    model, optimizer, sink = mapped
    with Vitals(model, optimizer, settings(model, delta=5), [sink]) as vitals:
        train(model, vitals, optimizer, range(1, 17))
        assert "step 16 was not measured" not in vitals.coverage()["delta_w_entropy"]["why"]
        train(model, vitals, optimizer, range(17, 18))
        assert "step 16 was not measured" in vitals.coverage()["delta_w_entropy"]["why"]
        train(model, vitals, optimizer, range(18, 24))
    steps = {layer: [step for step, own in rows_of(sink) if own == layer] for layer in (0, 1)}
    assert steps == {0: [6, 11, 22], 1: [8, 13, 18, 23]}
    with pytest.raises(ConfigError, match="delta: expected 1 or more"):
        VitalsConfig(delta=0)


def test_a_run_that_goes_on_takes_copies_anew(mapped):
    model, optimizer, sink = mapped
    with Vitals(model, optimizer, settings(model), [sink]) as vitals:
        train(model, vitals, optimizer, range(1, 4))
        vitals.load_state_dict(vitals.state_dict())
        train(model, vitals, optimizer, range(4, 9))
    assert sorted(rows_of(sink)) == [(7, 0), (8, 1)]


def test_copies_take_as_much_memory_as_is_allowed(monkeypatch, mapped):
    model, optimizer, sink = mapped
    a_layer = 4 * (2 * made.WIDTH**2 + 2 * made.WIDTH)

    def copied():
        with Vitals(model, optimizer, settings(model), [sink]) as vitals:
            [own] = [item for item in vitals._measurements if isinstance(item, metric.UpdateSpectra)]
            train(model, vitals, optimizer, range(1, 12))
            return sum(item.nbytes for lane in own._lanes for item in lane.copies.values())

    assert copied() == made.LAYERS * a_layer
    monkeypatch.setattr(metric, "HOST_BYTES", 2 * a_layer - 1)
    sink.values.clear()
    assert copied() == a_layer
    assert list(rows_of(sink)) == [(4, 0), (7, 1), (10, 0)]


@pytest.mark.parametrize("kind", [None, *explicit.KINDS])
def test_weights_in_bfloat16_are_compared_by_their_masters_or_not_at_all(kind):
    model, sink, weights = made.model_of("mapped").bfloat16(), MemorySink(), {}
    if kind is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = explicit.KINDS[kind](model.parameters(), 1e-2, kind)
    at = [name for name, _ in model.named_parameters()].index("blocks.0.attention.qkv.weight")
    with Vitals(model, optimizer, settings(model, measure=("updates", "weights")), [sink]) as vitals:
        states = vitals.summary()["metrics"]
        if kind is None:
            assert states["qk_first_order_entropy"].startswith("not_applicable: weights below float32 without float32")
            return
        assert states["qk_first_order_entropy"] == "ok"
        wrapped = explicit.KINDS[kind] is explicit.Wrapper
        assert (states["grad_norm"] != "ok") == wrapped  # what moves no weight of the model has no norms of them
        train(model, vitals, optimizer, range(1, 6), lambda step: weights.update({step: optimizer.masters[at].clone()}))
        assert not vitals.failures
    moved = (weights[4] - weights[1])[: made.WIDTH]
    power = rows_of(sink)[4, 0]["delta_w_entropy", -1, "query_power"]
    assert power == pytest.approx(moved.double().square().sum().item(), rel=1e-5)


def test_masters_that_were_promised_and_are_not_there_give_a_reason():
    model, sink = made.model_of("mapped").bfloat16(), MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    optimizer.master_weights = True
    with Vitals(model, optimizer, settings(model), [sink]) as vitals:
        train(model, vitals, optimizer, range(1, 6))
        assert "without float32 masters" in vitals.coverage()["delta_w_entropy"]["why"]
    assert not rows_of(sink)


def changed(change):
    model = made.model_of("mapped")
    change(model)
    return projections_of(find(model, made.MAPPING).layers[0])


class Adapted(torch.nn.Module):
    """A linear map with something beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base


def renamed(model):
    own = model.blocks[0].attention
    own.all_three = own.qkv
    del own.qkv


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed, "none of its projections has a name that is known: out, all_three"),
        (
            lambda model: setattr(model.blocks[0].attention, "qkv", Adapted(torch.nn.Linear(4, 4))),
            "its qkv is a test_update_spectra.Adapted, no linear map",
        ),
        (lambda model: setattr(model.blocks[0].attention, "head_dim", 12), "are not queries of 4 heads"),
        (
            lambda model: setattr(model.blocks[0].attention, "qk_norm", torch.nn.LayerNorm(7)),
            "how qk_norm, a LayerNorm",
        ),
        (lambda model: setattr(model.blocks[0].attention, "q_norm", torch.nn.LayerNorm(7)), "how q_norm, a LayerNorm"),
        (
            lambda model: torch.nn.utils.parametrizations.weight_norm(model.blocks[0].attention.qkv),
            "the weight of qkv is computed from others",
        ),
        (lambda model: setattr(model.blocks[0], "first_norm", torch.nn.BatchNorm1d(made.WIDTH)), "a BatchNorm1d"),
        (
            lambda model: setattr(model.blocks[0], "first_norm", torch.nn.Sequential(torch.nn.RMSNorm(64))),
            "a Sequential",
        ),
    ],
)
def test_what_is_not_known_of_a_layer_has_a_reason(change, why):
    import re

    assert re.search(why, changed(change))


def test_a_layer_that_does_not_train_is_left_out_and_named(mapped):
    model, optimizer, sink = mapped
    model.blocks[1].attention.qkv.weight.requires_grad_(False)
    with Vitals(model, optimizer, settings(model), [sink]) as vitals:
        train(model, vitals, optimizer, range(1, 8))
        why = vitals.coverage()["qk_first_order_entropy"]["why"]
        assert why == "layers 1: its projections of queries and keys do not train"
    assert {layer for _, layer in rows_of(sink)} == {0}


def test_a_faster_host_is_not_waited_for(monkeypatch, mapped):
    """Numbers come with a later step, which says how much later; of too many layers that wait none is added."""
    model, optimizer, sink = mapped
    jobs = []

    class Slow:
        def __init__(self, device):
            pass

        def submit(self, tensors, work):
            jobs.append(
                type("Job", (), {"done": False, "result": work(*(item.numpy() for item in tensors)), "why": ""})
            )
            return jobs[-1]

        def close(self):
            pass

    monkeypatch.setattr("dataaudit.vitals.host_work.HostWork", Slow)
    with Vitals(model, optimizer, settings(model), [sink]) as vitals:
        train(model, vitals, optimizer, range(1, 12))
        assert len(jobs) == metric._UNSOLVED
        assert "has not solved" in vitals.coverage()["delta_w_entropy"]["why"]
        jobs[0].done = True
        train(model, vitals, optimizer, range(12, 13))
    [(key, values)] = rows_of(sink).items()
    assert key == (12, 0)
    assert values["delta_w_entropy", -1, "late"] == 8


def test_a_biased_error_in_updates_of_queries_lowers_the_entropies_and_an_unbiased_one_does_not():
    """Errors of the same size at each step, as those of rounding: of one sign along a direction, or of any."""

    def mean(kind):
        model, sink = made.model_of("mapped"), MemorySink()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        draw = torch.Generator().manual_seed(2)
        rank_one = torch.outer(*torch.randn(2, made.WIDTH, generator=draw))

        def err(_):
            error = rank_one if kind == "biased" else torch.randn(rank_one.shape, generator=draw)
            with torch.no_grad() if kind else contextlib.nullcontext():
                if kind:
                    rows = model.blocks[0].attention.qkv.weight[: made.WIDTH]
                    rows.add_(error * (0.03 / error.norm()))

        with Vitals(model, optimizer, settings(model, delta=32, escalate=0), [sink]) as vitals:
            train(model, vitals, optimizer, range(1, 36), err)
        own = next(values for (_, layer), values in rows_of(sink).items() if layer == 0)
        heads = [own["qk_first_order_entropy", head, "exp"] for head in range(made.HEADS)]
        return np.mean(heads), own["delta_w_entropy", -1, "query"]

    healthy, biased, unbiased = (np.array(mean(kind)) for kind in ("", "biased", "unbiased"))
    assert (biased < 0.5 * healthy).all()
    assert (unbiased > 0.9 * healthy).all()
