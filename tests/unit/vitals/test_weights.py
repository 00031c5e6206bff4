"""Weights and updates of one optimizer or of several, and what is said of use that vitals were not made for."""

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
MUON = pytest.param("Muon", marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="of torch 2.9"))


def settings(**more):
    return VitalsConfig(**{"mapping": made.MAPPING, "interval": 1, "adapt": False, **more})


def flat(tensors):
    return torch.cat([one.detach().double().flatten() for one in tensors])


def several(model, matrices="Muon"):
    """Return an optimizer of the blocks' matrices, and AdamW of all else."""
    inner = [one for one in model.blocks.parameters() if one.dim() == 2]
    rest = [one for one in model.parameters() if all(one is not other for other in inner)]
    return [getattr(torch.optim, matrices)(inner, lr=1e-2), torch.optim.AdamW(rest, lr=1e-2)]


@pytest.mark.parametrize("matrices", [MUON, "SGD", "Adagrad", "AdamW"])
def test_each_parameter_is_updated_by_its_own_optimizer(matrices):
    model = made.model_of("mapped")
    optimizers, expected = several(model, matrices), {}
    sink = MemorySink()
    with Vitals(model, optimizers, settings(), [sink]) as vitals:
        vitals.escalate(40)
        for step in range(1, 6):
            before = [[one.detach().clone() for one in block.parameters()] for block in model.blocks]
            with vitals.step():
                made.loss_of(model, step).backward()
                for one in optimizers:
                    one.step()
                for layer, block in enumerate(model.blocks):
                    own = list(block.parameters())
                    moved = [after.detach() - old for after, old in zip(own, before[layer], strict=True)]
                    kinds = {"all": range(len(own))}
                    kinds["matrices"] = [place for place, one in enumerate(own) if one.dim() == 2]
                    kinds["vectors"] = [place for place, one in enumerate(own) if one.dim() == 1]
                    for stat, places in kinds.items():
                        ratio = flat([moved[one] for one in places]).norm() / flat([own[one] for one in places]).norm()
                        expected[step, "update_to_weight", layer, stat] = ratio.item()
                    gradient, weight = flat([one.grad for one in own]).norm(), flat(own)
                    expected[step, "grad_norm", layer, "at_step"] = gradient.item()
                    expected[step, "grad_to_weight", layer, "all"] = (gradient / weight.norm()).item()
                    expected[step, "layer_std", layer, "all"] = weight.std(correction=0).item()
                for one in optimizers:
                    one.zero_grad()
    found = {(*row[:3], row[4]): row[5] for row in sink.values}
    assert expected.keys() <= found.keys()
    assert len(expected) == 5 * 2 * 6
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=2e-4), key
    skipped = [row[5] for row in sink.values if row[1] == "skipped_updates"]
    assert skipped == [0.0] * 5


def test_what_was_zero_at_the_beginning_counts_as_vectors_and_still_does_after_a_checkpoint():
    """A zero matrix has no size that its first updates could be held against."""
    model = made.model_of("mapped")
    with torch.no_grad():
        model.blocks[1].mlp[2].weight.zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(vitals, steps):
        vitals.escalate(40)
        made.go(vitals, model, steps, optimizer)

    sinks = MemorySink(), MemorySink()
    with Vitals(model, optimizer, settings(), [sinks[0]]) as vitals:
        train(vitals, (1, 2))
        state = json.loads(json.dumps(vitals.state_dict()))
    with Vitals(model, optimizer, settings(first_step=3), [sinks[1]]) as vitals:
        vitals.load_state_dict(state)
        train(vitals, (3,))
    for sink in sinks:
        found = {row[2:5:2]: row[5] for row in sink.values if row[1] == "update_to_weight"}
        assert found[1, "vectors"] > 3 * found[0, "vectors"]
        assert found[1, "matrices"] == pytest.approx(found[0, "matrices"], rel=0.3)
    with Vitals(model, optimizer, settings()) as vitals, pytest.raises(ConfigError, match="does not fit"):
        vitals.load_state_dict({**state, "zeros": [False]})


@pytest.mark.parametrize("kind", ["AdamW", "Adagrad"])
def test_of_two_steps_of_an_optimizer_within_one_step_the_last_is_told(kind):
    model = made.model_of("mapped")
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
    with Vitals(model, optimizer, settings(), [sink := MemorySink()]) as vitals:
        vitals.escalate(40)
        for step in range(1, 4):
            with vitals.step():
                for again in range(2):
                    before = flat(model.blocks[1].parameters())
                    made.loss_of(model, step, again).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            after = flat(model.blocks[1].parameters())
            found = [row[5] for row in sink.values if row[:5] == (step, "update_to_weight", 1, -1, "all")]
            assert found == [pytest.approx(((after - before).norm() / after.norm()).item(), rel=2e-4)]


def test_a_step_of_an_optimizer_outside_is_said_once():
    model = made.model_of("mapped")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Vitals(model, optimizer, settings(), [sink := MemorySink()]) as vitals:
        for step in range(1, 4):
            with vitals.step():
                made.loss_of(model, step).backward()
            optimizer.step()
    why = "optimizer.step() was called outside of `with vitals.step():`"
    assert [one for one in sink.events if one[1] == "not_seen"] == [(1, "not_seen", {"what": "updates", "why": why})]
    assert [row[5] for row in sink.values if row[1] == "skipped_updates"] == [1.0] * 3


def test_the_proxy_of_adams_moments_is_told_of_adam_alone():
    for kind, known in (("AdamW", True), ("Adam", True), ("SGD", False)):
        model = made.model_of("mapped")
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-4)
        with Vitals(model, optimizer, settings(), [sink := MemorySink()]) as vitals:
            vitals.escalate(40)
            for _ in range(3):
                with vitals.step():
                    made.loss_of(model, 0).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        found = {row[2:5:2]: row[5] for row in sink.values if row[:2] == (3, "gsnr")}
        assert set(found) == ({(0, "adam_proxy"), (1, "adam_proxy"), (-1, "others_adam_proxy")} if known else set())
        if not known:
            continue
        states = [optimizer.state[one] for one in model.blocks[0].parameters()]
        first, second = (flat([one[name] for one in states]) for name in ("exp_avg", "exp_avg_sq"))
        m, v = (first / (1 - 0.9**3)).square().sum(), (second / (1 - 0.999**3)).sum()
        share = (1 - 0.9) * (1 + 0.9**3) / ((1 + 0.9) * (1 - 0.9**3))
        assert found[0, "adam_proxy"] == pytest.approx(((m - share * v) / (v - m)).item(), rel=1e-3)


def test_sparse_gradients_end_no_run():
    model = made.model_of("mapped")
    model.embedding = torch.nn.Embedding(made.VOCAB, made.WIDTH, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with Vitals(model, optimizer, settings(), [sink := MemorySink()]) as vitals:
        vitals.escalate(40)
        for step in range(1, 3):
            before = flat([model.embedding.weight, model.norm.weight, model.head.weight])
            with vitals.step():
                made.loss_of(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
    after = flat([model.embedding.weight, model.norm.weight, model.head.weight])
    found = [row[5] for row in sink.values if row[:5] == (2, "update_to_weight", -1, -1, "others")]
    assert found == [pytest.approx(((after - before).norm() / after.norm()).item(), rel=1e-3)]


def nan_events(sink):
    """Return steps and places of what was not finite; all of a run are of an incident that says to stop."""
    found = [(step, dict(detail)) for step, kind, detail in sink.events if kind == "nan_inf"]
    for step, detail in found:
        assert (detail.pop("rule"), detail.pop("severity"), detail.pop("first_step")) == ("not_finite", 0, step)
        assert detail.pop("incident") > 0
    return found


def spoilt(model, spoil, steps, optimizer=None, **more):
    """Train with weights that stay as they are, gradients spoilt before the update; return the sink."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)
    kept = {name: one.clone() for name, one in model.state_dict().items()}
    with Vitals(model, optimizer, settings(**more), [sink := MemorySink()]) as vitals:
        for step in range(1, steps + 1):
            with vitals.step():
                loss = made.loss_of(model, step)
                loss.backward()
                spoil(step)
                optimizer.step()
                optimizer.zero_grad()
                vitals.log(loss=loss)
            model.load_state_dict(kept)
    return sink


@pytest.mark.parametrize("preset", ["nano", "medium", "large"])
def test_a_gradient_that_is_not_finite_is_told_at_its_step_with_the_layer_it_began_in(preset):
    """A hook spoils what goes back into block 1: blocks 0 and 1 follow, and the embedding."""
    model = made.model_of("mapped")
    bad = set()

    def spoil(gradient):
        return gradient * (math.nan if bad else 1.0)

    model.blocks[1].second_norm.register_forward_hook(lambda _, args, output: output.register_hook(spoil) and None)
    bad_steps = iter([False] * 3 + [True] + [False] * 4)
    sink = spoilt(model, lambda _: bad.add(1) if next(bad_steps) else bad.clear(), 8, preset=preset, escalate=8)
    assert nan_events(sink) == [(5, {"metric": "grad_norm", "layer": 1, "head": -1, "stat": "at_step", "others": 2})]
    assert {row[0] for row in sink.values if row[1] == "attn_entropy"} >= {6, 7, 8}
    count = {row[0]: row[5] for row in sink.values if row[1] == "nan_inf_events"}
    assert count[5] == 3
    assert not [value for step, value in count.items() if step != 5 and value]


@pytest.mark.parametrize("family", ["mapped", "multihead"])
def test_gradients_that_clipping_has_spoilt_have_no_first_layer(family):
    model = made.model_of(family)
    mapping = made.MAPPING if family == "mapped" else None

    def spoil(step):
        if step == 4:
            next(iter(model.parameters())).grad[:] = math.nan
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    sink = spoilt(model, spoil, 6, mapping=mapping)
    assert nan_events(sink) == [(4, {"metric": "grad_norm", "layer": -1, "head": -1, "stat": "all", "others": 2})]


def test_of_layers_whose_gradient_is_not_finite_the_last_is_named():
    model = made.model_of("mapped")

    def spoil(step):
        if step in (3, 4, 10):
            model.blocks[0].mlp[0].weight.grad.fill_(math.inf)

    detail = {"metric": "grad_norm", "layer": 0, "head": -1, "stat": "at_step", "others": 0}
    assert nan_events(spoilt(model, spoil, 11, escalate=0)) == [(3, detail), (10, detail)]  # once, until it is over


def test_where_all_is_not_finite_the_first_in_the_forward_pass_is_named_once():
    model = made.model_of("mapped")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Vitals(model, optimizer, settings(escalate=0), [sink := MemorySink()]) as vitals:
        for step in range(1, 12):
            with vitals.step():
                if step == 6:
                    with torch.no_grad():
                        model.blocks[0].attention.qkv.weight[0] = math.nan
                loss = made.loss_of(model, step)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                vitals.log(loss=loss)
    said = nan_events(sink)
    loss = {"metric": "loss", "layer": -1, "head": -1, "stat": "value"}
    assert said[0] == (6, loss)
    assert said[1][0] == 6
    head = {"metric": "max_attn_logit", "layer": 0, "head": 0, "stat": "sampled"}
    assert {name: said[1][1][name] for name in head} == head
    assert said[1][1]["others"] == 11  # what attention, MLP and block return, the last norm
    assert len(said) == 2


def test_a_loss_that_is_not_finite_lets_everything_be_looked_at_and_told_at_once():
    model = made.model_of("mapped")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    config = VitalsConfig(mapping=made.MAPPING, preset="large", adapt=False, escalate=5)
    with Vitals(model, optimizer, config, [sink := MemorySink()]) as vitals:
        for step in range(1, 14):
            with vitals.step():
                if step == 9:
                    with torch.no_grad():
                        model.blocks[1].mlp[2].weight[3] = math.nan
                loss = made.loss_of(model, step)
                vitals.log(loss=loss)
                if loss.isfinite():
                    loss.backward()
                    optimizer.step()
                optimizer.zero_grad()
            if step == 9:  # the loop's number tells it, though 16 steps are copied together
                assert [(one[0], one[2]["metric"]) for one in sink.events if one[1] == "nan_inf"] == [(9, "loss")]
    said = nan_events(sink)
    place = {"metric": "activation_mean_abs", "layer": 1, "head": -1, "stat": "mlp"}
    assert said[1] == (10, {**place, "others": 2, "micro_batch": 0})
    assert {row[0] for row in sink.values if row[1] == "attn_entropy"} == {10, 11, 12, 13}


def test_an_overflow_that_a_scaler_skips_is_no_event():
    model = made.model_of("mapped")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with Vitals(model, optimizer, settings(), [sink := MemorySink()]) as vitals:
        for step in range(1, 5):
            with vitals.step():
                loss = made.loss_of(model, step) * (math.inf if step == 3 else 1.0)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    assert not nan_events(sink)
    assert [row[5] for row in sink.values if row[1] == "skipped_updates"] == [0.0, 0.0, 1.0, 0.0]
