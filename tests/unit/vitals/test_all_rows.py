"""All rows of attention, layer by layer in turn: they hold for the whole matrix, and a source that is off ends."""

import dataclasses
import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402

from dataaudit.vitals import recorder  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals


def looked(family, function="sdpa", steps=9, **settings):
    """Return the rows of values of some steps, and the sink."""
    model, sink = made.model_of(family, function=function), MemorySink()
    mapping = made.MAPPING if family == "mapped" else None
    config = VitalsConfig(interval=1, adapt=False, measure=("attention",), mapping=mapping, **settings)
    with Vitals(model, None, config, [sink]) as vitals:
        for step in range(1, steps + 1):
            with vitals.step(), torch.no_grad():
                made.loss_of(model, step)
    return sink


def values(sink, metric, stat):
    """Return {(step, layer, head): value}."""
    return {row[:1] + row[2:4]: row[5] for row in sink.values if (row[1], row[4]) == (metric, stat)}


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "mixtral", "gpt_oss"])
def test_all_rows_are_told_in_turn_and_hold_those_of_the_attention_weights(family):
    function = "eager" if family == "gpt_oss" else "sdpa"
    sink = looked(family, function)
    entropy, bound = values(sink, "attn_entropy", "all_rows"), values(sink, "attn_entropy", "all_rows_bound")
    lower, upper = values(sink, "max_attn_logit", "lower"), values(sink, "max_attn_logit", "upper")
    sampled = values(sink, "max_attn_logit", "sampled")
    assert set(entropy) == set(bound) == set(lower) == set(upper)
    turns = {(step, layer) for step, layer, _ in entropy}
    assert {layer for _, layer in turns} == set(range(made.LAYERS))
    assert len(turns) < 9 * made.LAYERS / 4
    assert set(values(sink, "attn_entropy", "off").values()) == {0.0}
    eager = made.model_of(family, function="eager").eval()
    for step, layer in turns:
        tokens, mask = made.batch_of(step)
        with torch.no_grad():
            weights = eager(tokens, attention_mask=mask, output_attentions=True).attentions[layer][step % 2].double()
        own = -(torch.where(weights > 0, weights * weights.log(), 0.0)).sum(-1)
        rest = (1 - weights.sum(-1)).clamp_min(0.0)  # of a sink
        own -= torch.where(rest > 1e-6, rest * rest.log(), 0.0)
        if step % 2 == 0:  # a row with padding, whose own rows count as the mask has them
            continue
        for head in range(made.HEADS):
            key = (step, layer, head)
            assert entropy[key] == pytest.approx(own[head].mean().item(), abs=bound[key] + 1e-4)
            assert lower[key] <= upper[key]
            assert sampled[key] <= upper[key]
            assert upper[key] - lower[key] <= math.log(made.LENGTH) + 1e-3


def test_after_an_escalation_all_layers_have_all_rows_looked_at():
    model, sink = made.model_of("llama"), MemorySink()
    with Vitals(model, None, VitalsConfig(interval=1, adapt=False), [sink]) as vitals:
        vitals.escalate(3)
        for step in range(1, 4):
            with vitals.step(), torch.no_grad():
                made.loss_of(model, step)
    turns = {(step, layer) for step, layer, _ in values(sink, "attn_entropy", "all_rows")}
    assert turns == {(step, layer) for step in (1, 2, 3) for layer in range(made.LAYERS)}


def test_with_a_softcap_there_are_sampled_rows_alone():
    sink = looked("gemma2", "eager")
    assert values(sink, "attn_entropy", "mean")
    assert not values(sink, "attn_entropy", "all_rows")


def test_a_source_that_is_off_is_refused_once_and_named(monkeypatch):
    """The kernel is off in the layer that it is asked for first: that one is refused, others go on."""
    own, calls = recorder.attention_pass, []

    def off(query, key, scores):
        calls.append(1)
        found = own(query, key, scores)
        wrong = len(calls) == 1
        return dataclasses.replace(found, lse=found.lse + 1.0) if wrong else found

    monkeypatch.setattr(recorder, "attention_pass", off)
    sink = looked("llama", steps=30)
    told = [(step, detail) for step, kind, detail in sink.events if kind == "refused"]
    assert len(told) == 1
    step, detail = told[0]
    refused = detail["layer"]
    assert values(sink, "attn_entropy", "off")[step, refused, -1] == 1.0
    later = {(at, layer) for at, layer, _ in values(sink, "attn_entropy", "all_rows")}
    assert {layer for _, layer in later} == set(range(made.LAYERS)) - {refused}
    assert (step, refused, 0) in values(sink, "attn_entropy", "mean")
    assert len(calls) == len(later) + 1
