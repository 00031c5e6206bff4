"""What is wrong with a setting is said by its name, with what was expected."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals.baseline import Key, baseline_of  # noqa: E402
from dataaudit.vitals.config import FAMILIES, VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.structure import Mapping  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
PAIR = "expected a first and a last step, found"
BY_POSITION = baseline_of([Key("loss", -1, -1, "value")], np.arange(1, 50), np.ones((49, 1)), total=100)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"preset": "tiny"}, "preset: expected nano, medium, large, found 'tiny'"),
        ({"preset": ["nano"]}, r"preset: expected nano, medium, large, found \['nano'\]"),
        ({"adapt": "no"}, "adapt: expected True or False, found 'no'"),
        ({"measure": "attention"}, "measure: expected a tuple of some of .*, found 'attention'"),
        ({"measure": ()}, r"measure: expected a tuple of some of .*, found \(\)"),
        ({"measure": 5}, "measure: expected a tuple of some of .*, found 5"),
        ({"measure": ("attention", "noise")}, "measure: expected some of .*, found 'noise'"),
        ({"measure": (["attention"],)}, r"measure: expected some of .*, found \['attention'\]"),
        ({"healthy": 5}, f"healthy: {PAIR} 5"),
        ({"healthy": (5,)}, f"healthy: {PAIR} "),
        ({"healthy": (9, 5)}, f"healthy: {PAIR} "),
        ({"healthy": (1.5, 5)}, f"healthy: {PAIR} "),
        ({"healthy": "ab"}, f"healthy: {PAIR} 'ab'"),
        ({"steady": (0, 5)}, f"steady: {PAIR} "),
        ({"mapping": "x"}, r"mapping: expected Mapping\(layers=...\), found 'x'"),
        ({"baseline": "runs/6"}, "baseline: expected a Baseline, found 'runs/6'"),
        ({"baseline": BY_POSITION}, "total: the baseline is by position"),
        ({"interval": 1.0}, "interval: expected 1 or more, a whole number, found 1.0"),
        ({"interval": True}, "interval: expected 1 or more, a whole number, found True"),
        ({"micro_batches": "8"}, "micro_batches: expected 1 or more, a whole number, found '8'"),
        ({"window": 0}, "window: expected 1 or more"),
        ({"total": -1}, "total: expected 0 or more"),
        ({"escalate": None}, "escalate: expected 0 or more, a whole number, found None"),
        ({"preset": "x" * 500}, r"preset: .* found 'x{56}\.\.\.$"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected(given, said):
    with pytest.raises(ConfigError, match=f"vitals: {said}"):
        VitalsConfig(**given)


def test_numbers_of_numpy_and_lists_are_taken():
    config = VitalsConfig(interval=np.int64(4), healthy=[np.int32(3), 9], measure=["weights", "attention"])
    assert (config.interval, config.healthy, config.measure) == (4, (3, 9), ("attention", "weights"))
    assert all(type(one) is int for one in (config.interval, *config.healthy))
    assert VitalsConfig().measure == FAMILIES


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": ""}, "Mapping: layers: expected a dotted name, found ''"),
        ({"layers": None}, "Mapping: layers: expected a dotted name, found None"),
        ({"layers": "blocks", "attention": 3}, "Mapping: attention: expected a dotted name, found 3"),
        ({"layers": "blocks", "heads": "four"}, "Mapping: heads: expected a whole number, found 'four'"),
        ({"layers": "nowhere"}, "the mapping's layers, nowhere, is not in Mapped: embedding, blocks, norm, head"),
        ({"layers": "head"}, "the mapping's layers, head, has no modules in it"),
        ({"layers": "blocks", "attention": "attn"}, "the mapping's attention, attn, is not in Block: "),
        ({"layers": "blocks", "mlp": "feed"}, "the mapping's mlp, feed, is not in Block: "),
        ({"layers": "blocks", "embedding": "wte"}, "the mapping's embedding, wte, is not in Mapped: "),
    ],
)
def test_a_wrong_mapping_is_named_with_what_is_there(given, said):
    with pytest.raises(ConfigError, match=f"vitals: {said}"):
        Vitals(made.model_of("mapped"), None, VitalsConfig(mapping=Mapping(**given)))


@pytest.mark.parametrize("measure", [("attention",), FAMILIES])
def test_a_module_that_is_no_attention_is_said_at_the_first_step(measure):
    model = made.model_of("mapped")
    wrong = Mapping(layers="blocks", attention="mlp", heads=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Vitals(model, optimizer, VitalsConfig(mapping=wrong, measure=measure), [sink := MemorySink()]) as vitals:
        for step in range(1, 4):
            with vitals.step():
                made.loss_of(model, step).backward()
                optimizer.step()
    why = "its module called none of the attention functions that are watched"
    said = [(step, one) for step, kind, one in sink.events if kind == "not_seen" and one["what"] == "attention"]
    ((step, detail),) = said
    assert (step, detail["layers"]) == (1, [0, 1])
    assert detail["why"].startswith(why)


def test_a_large_first_update_is_warned_of_once_at_step_1():
    """There is no warm-up to wait for: a run without one begins so."""
    model = made.model_of("mapped")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    config = VitalsConfig(mapping=made.MAPPING, interval=1, adapt=False)
    with Vitals(model, optimizer, config, [sink := MemorySink()]) as vitals:
        vitals.escalate(20)
        made.go(vitals, model, range(1, 4), optimizer)
    warned = [(step, one["layer"]) for step, kind, one in sink.events if kind == "warning"]
    assert sorted(warned) == [(1, -1), (1, 0), (1, 1)]
