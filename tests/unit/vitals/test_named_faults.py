"""Faults in a model that trains: each is named at once, as what it is; benchmarks/vitals_faults.py has them all."""

import json
import logging
import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402
from gpu.models import SIZES, Model  # noqa: E402
from torch import nn  # noqa: E402

from dataaudit.vitals import MemorySink, Vitals, VitalsConfig, alarms  # noqa: E402

pytestmark = pytest.mark.vitals


class Tied(made.Mapped):
    """A model whose output layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.head.weight = self.embedding.weight


def run(fault=None, steps=24, *, model=None, micro_batches=2, onset=12, kept=8, **settings):
    """Train; return what was raised from the onset on, and the vitals."""
    model = made.model_of("mapped") if model is None else model
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW([{"params": [one]} for one in model.parameters()], lr=1e-3)
    sink = MemorySink()
    config = VitalsConfig(interval=1, mapping=made.MAPPING, adapt=False, micro_batches=kept, **settings)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        for step in range(1, steps + 1):
            if fault is not None and step >= onset:
                fault(model, optimizer, step - onset)
            with vitals.step():
                for micro in range(micro_batches):
                    made.loss_of(model, step, micro).backward()
                optimizer.step()
                optimizer.zero_grad()
    raised = [(step, kind, one) for step, kind, one in sink.events if one.get("incident")]
    return [one for one in raised if one[0] >= onset], vitals, sink


def untie(model, _optimizer, since):
    if since == 0:
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())


def freeze(model, _optimizer, _since):
    model.blocks[1].requires_grad_(requires_grad=False)


def no_rate(model, optimizer, _since):
    own = {id(one) for one in model.blocks[1].parameters()}
    for group in optimizer.param_groups:
        if id(group["params"][0]) in own:
            group["lr"] = 0.0


def faster(_model, optimizer, since):
    if since == 0:
        for group in optimizer.param_groups:
            group["lr"] *= 10


def test_a_healthy_model_raises_nothing():
    assert run()[0] == []


def test_a_tie_that_is_cut_is_named_with_both_of_its_ends_at_that_step():
    ((step, _, alarm), *_) = run(untie, model=Tied())[0]
    assert (step, alarm["rule"], alarm["severity"]) == (12, "tying", 1)
    assert alarm["what"] == "head.weight no longer shares its weights with embedding.weight"


def test_settings_that_say_tied_of_a_model_that_is_not_are_named_at_the_first_step():
    transformers = pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")
    small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**small, num_attention_heads=2, tie_word_embeddings=True)
    model = transformers.LlamaForCausalLM(config)
    sink = MemorySink()
    for tied in (True, False):
        if not tied:
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
        with Vitals(model, None, VitalsConfig(interval=1), [sink]) as vitals, vitals.step():
            model(torch.ones(1, 4, dtype=torch.int64))
    assert [one["rule"] for _, kind, one in sink.events if kind == "alarm"] == ["tying"]


def test_a_part_of_a_layer_that_gets_no_gradient_is_named_and_what_never_trained_before_the_first_step():
    def cut(model, _optimizer, since):
        if since == 0:
            model.blocks[1].mlp.register_forward_hook(lambda _module, _args, output: output.detach())

    step, _, alarm = run(cut, steps=20)[0][0]
    assert (step, alarm["layer"], alarm["rule"]) == (19, 1, "frozen")
    assert alarm["what"] == "mlp of layer 1 does not train any more: it gets no gradient"
    model = made.model_of("mapped")
    optimizer = torch.optim.AdamW([*model.parameters()][:-1])
    model.blocks[1].requires_grad_(requires_grad=False)
    with Vitals(model, optimizer, VitalsConfig(mapping=made.MAPPING)) as vitals:
        assert vitals.summary()["found"]["not_trained"] == "blocks.1, head.weight"


@pytest.mark.parametrize(("which", "layer", "of"), [(0, -1, "all weights"), (1, 1, "layer 1")])
def test_an_optimizer_that_lost_its_state_is_named_also_after_a_checkpoint(which, layer, of):
    def lose(model, optimizer, since):
        for parameter in (model, model.blocks[1])[which].parameters() if since == 0 else ():
            del optimizer.state[parameter]

    ((step, _, alarm), *_) = run(lose, steps=13)[0]
    assert (step, alarm["layer"], alarm["rule"], alarm["severity"]) == (12, layer, "lost", 1)
    assert alarm["what"] == f"the optimizer lost its state of {of}: its moments begin anew"
    assert run(steps=13)[0] == []
    state = run(steps=3)[1].state_dict()
    model, sink = made.model_of("mapped"), MemorySink()
    optimizer = torch.optim.AdamW(model.parameters())
    with Vitals(model, optimizer, VitalsConfig(interval=1, mapping=made.MAPPING, adapt=False), [sink]) as vitals:
        vitals.load_state_dict(json.loads(json.dumps(state)))
        made.go(vitals, model, range(4, 6), optimizer)
    assert [(step, one["rule"]) for step, kind, one in sink.events if kind == "alarm"] == [(4, "lost")]


@pytest.mark.parametrize(("fault", "within"), [(freeze, 8), (no_rate, 20)])
def test_a_frozen_layer_is_named(fault, within):
    found = run(fault, steps=34)[0]
    step, _, alarm = found[0]
    assert (alarm["layer"], alarm["rule"]) == (1, "frozen")
    assert step <= 12 + within


def test_a_rate_that_is_ten_times_as_large_is_named_at_that_step():
    ((step, _, alarm), *_) = run(faster)[0]
    assert (step, alarm["metric"], alarm["rule"]) == (12, "learning_rate", "rate")
    assert alarm["value"] == pytest.approx(1e-2)


@pytest.mark.parametrize("where", ["activations", "loss"])
@pytest.mark.parametrize("which", [0, 2])
def test_the_micro_batch_that_is_not_finite_is_named(where, which, monkeypatch):
    loss_of = made.loss_of

    def spoilt(model, step, micro):
        spoil = (step, micro) == (12, which)
        if spoil and where == "activations":
            handle = model.blocks[1].mlp.register_forward_pre_hook(lambda _, args: (args[0] * math.nan,))
            loss = loss_of(model, step, micro)
            handle.remove()
            return loss
        return loss_of(model, step, micro) * (math.nan if spoil else 1.0)

    monkeypatch.setattr(made, "loss_of", spoilt)
    found = [one for _, kind, one in run(micro_batches=3, steps=12)[0] if kind == "nan_inf"]
    assert found
    assert {one["micro_batch"] for one in found} == {which}
    if where == "activations":
        assert (found[0]["metric"], found[0]["layer"], found[0]["stat"]) == ("activation_mean_abs", 1, "mlp")


def test_coverage_stands_in_the_summary_the_log_and_the_terminal(caplog):
    with caplog.at_level(logging.WARNING, "dataaudit"):
        _, vitals, sink = run(steps=20, healthy=(1, 20))
    assert "series are judged against what is expected of them. The rest: " in str(vitals).splitlines()[-1]
    assert "of 64 values yet" in str(vitals)
    (at, *_) = [step for step, kind, _ in sink.events if kind == "coverage"]
    assert at == 20
    assert "series are judged" in caplog.text


def test_what_has_no_noise_says_why():
    for passes, room, why in ((1, 8, "one backward pass"), (3, 2, "VitalsConfig(micro_batches=3) makes room")):
        _, vitals, sink = run(micro_batches=passes, steps=2, kept=room)
        assert why in vitals.coverage()["grad_noise_scale"]["why"]
        assert any(why in one["why"] for _, kind, one in sink.events if kind == "no_value")


def test_the_score_of_the_gradients_norm_is_written_from_the_ninth_step_on():
    scores = [step for step, metric, *_ in run(micro_batches=1)[2].values if metric == "gradient_spike_score"]
    assert scores[:3] == [9, 10, 11]


def test_a_model_that_begins_without_a_warm_up_raises_hints_alone_until_it_has_moved_by_half(monkeypatch):
    """Eight layers grow tenfold within 20 steps of a healthy run: a fold that no past of the run foretells."""
    monkeypatch.setitem(SIZES, "deep", (96, 8, 4, 256, 4, 32))

    def severities():
        torch.manual_seed(0)
        model, sink = Model("deep"), MemorySink()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        config = VitalsConfig(interval=1, adapt=False, mapping=model.mapping, measure=("activations", "weights"))
        draw = torch.Generator().manual_seed(0)
        with Vitals(model, optimizer, config, [sink]) as vitals:
            for _ in range(32):
                tokens = torch.randint(0, 256, (4, 33), generator=draw)
                with vitals.step():
                    logits = model(tokens[:, :-1])
                    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        raised = [one for _, kind, one in sink.events if kind == "alarm"]
        assert {one["rule"] for one in raised} == {"fold"}
        return {one["severity"] for one in raised}

    assert severities() == {3}
    monkeypatch.setattr(alarms, "MOVED", 0.0)
    assert min(severities()) < 3
