"""What comes late, or changes while vitals are there, does what a loop expects; or a sentence says what to do."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
transformers = pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402
from torch import nn  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
CONFIG = VitalsConfig(interval=1, adapt=False)


@pytest.fixture
def functions():
    """Return the registry of attention functions; it is as it was afterwards."""
    found = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    before = dict(found._global_mapping), dict(found._local_mapping)
    yield found
    assert found._local_mapping == before[1]
    found._global_mapping.clear()
    found._global_mapping.update(before[0])


def entropies(sink):
    return [row[0] for row in sink.values if row[1] == "attn_entropy" and row[2:5] == (0, 0, "mean")]


def said(sink):
    return [detail for _, kind, detail in sink.events if kind == "not_seen"]


def mine(calls, own):
    def function(*args, **named):
        calls.append(1)
        return own(*args, **named)

    return function


@pytest.mark.parametrize("how", ["register", "set"])
def test_a_function_that_is_registered_late_is_called_and_seen_and_stays(functions, how):
    calls, own, sink, model = [], functions["sdpa"], MemorySink(), made.model_of("llama")
    vitals = Vitals(model, None, CONFIG, [sink])
    with vitals.step():
        made.loss_of(model, 1)
    late = mine(calls, own)
    functions.register("sdpa", late) if how == "register" else functions.__setitem__("sdpa", late)
    made.loss_of(model, 1)
    assert len(calls) == made.LAYERS
    with vitals.step():
        made.loss_of(model, 2)
    assert len(calls) == 2 * made.LAYERS
    vitals.close()
    assert functions["sdpa"] is late
    assert entropies(sink) == [1, 2]
    if how == "set":
        del functions["sdpa"]


def test_a_function_that_is_registered_within_a_step_is_called_and_stays(functions):
    calls, own, sink, model = [], functions["sdpa"], MemorySink(), made.model_of("llama")
    with Vitals(model, None, CONFIG, [sink]) as vitals:
        with vitals.step():
            made.loss_of(model, 1)
            functions.register("sdpa", mine(calls, own))
            made.loss_of(model, 1)
        late = functions["sdpa"]
        with vitals.step():
            made.loss_of(model, 2)
    assert functions["sdpa"] is late
    assert len(calls) == 2 * made.LAYERS
    assert entropies(sink) == [1, 2]


def test_a_function_that_was_kept_and_is_registered_again_after_the_end_is_seen_once(functions):
    model, sink = made.model_of("llama"), MemorySink()
    vitals = Vitals(model, None, CONFIG)
    with vitals.step():
        kept = functions["sdpa"]
    vitals.close()
    functions.register("sdpa", kept)
    made.loss_of(model, 1)
    with Vitals(model, None, CONFIG, [sink]) as vitals, vitals.step():
        made.loss_of(model, 1)
        assert set(vitals._hooks.recorder.seen) == {1}
    assert entropies(sink) == [1]


def test_another_implementation_that_is_chosen_late_is_seen(functions):
    model, sink = made.model_of("llama"), MemorySink()
    with Vitals(model, None, CONFIG, [sink]) as vitals:
        for name in ("sdpa", "eager", "sdpa"):
            model.set_attn_implementation(name)
            with vitals.step():
                made.loss_of(model, 1)
        functions.register("mine", functions["sdpa"])
        model.config._attn_implementation = "mine"
        with vitals.step():
            made.loss_of(model, 1)
    assert entropies(sink) == [1, 2, 3]
    assert [one["what"] for one in said(sink)] == ["attention"]
    own = {row[5] for row in sink.values if row[1] == "attn_entropy" and row[2:5] == (0, 0, "mean") and row[0] != 2}
    assert len(own) == 1  # steps 1 and 3 look at row 1 of the batch
    del functions._global_mapping["mine"]


def test_a_model_without_values_is_refused_with_what_to_do():
    with torch.device("meta"):
        model = made.Mapped()
    with pytest.raises(ConfigError, match="without values: on the device meta") as found:
        Vitals(model, None, VitalsConfig(mapping=made.MAPPING))
    assert "to_empty" in str(found.value)
    assert not any(one._forward_hooks for one in model.modules())
    lazy = nn.ModuleDict({"layers": nn.ModuleList([nn.Sequential(nn.LazyLinear(4), nn.LayerNorm(4))])})
    with pytest.raises(ConfigError, match="lazy module"):
        Vitals(lazy)
    model = model.to_empty(device="cpu")
    Vitals(model, None, VitalsConfig(mapping=made.MAPPING)).close()


def added(model, optimizer):
    model.extra = nn.Linear(4, 4)
    optimizer.add_param_group({"params": model.extra.parameters()})


def added_to_a_layer(model, _):
    model.blocks[0].adapter = nn.Linear(4, 4)


def unfrozen(model, _):
    model.embedding.requires_grad_(True)


def replaced(model, _):
    model.norm.weight = nn.Parameter(model.norm.weight.detach().clone())


@pytest.mark.parametrize(("change", "number"), [(added, 2), (added_to_a_layer, 2), (unfrozen, 1), (replaced, 1)])
def test_parameters_that_come_later_are_said_once_with_what_to_do(change, number):
    model, sink = made.Mapped(), MemorySink()
    model.embedding.requires_grad_(False)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        for step in range(1, 50):
            if step == 4:
                change(model, optimizer)
            with vitals.step():
                if step % 16 in {1, 2}:
                    made.loss_of(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
    (one,) = said(sink)
    assert one["what"] == "parameters"
    assert one["why"].startswith(f"{number} train that were not there")
    assert one["why"].endswith("close these and make new ones")


def test_a_copy_of_a_model_that_is_looked_at_is_not_and_goes_on_by_itself():
    model, sink = made.model_of("llama"), MemorySink()
    with Vitals(model, None, CONFIG, [sink]) as vitals:
        with vitals.step():
            other = copy.deepcopy(model)
            made.loss_of(model, 1)
            made.loss_of(other, 1)
            assert set(vitals._hooks.recorder.seen) == {1}
        Vitals(other).close()
