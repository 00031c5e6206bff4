"""What the host makes of several layers' numbers: whether they move together, and whether they keep the size of muP."""

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402
from torch import nn  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals import MemorySink, MuP, Vitals, VitalsConfig  # noqa: E402
from dataaudit.vitals.metrics import layer_std_sync  # noqa: E402

pytestmark = pytest.mark.vitals


def test_synchrony_is_the_mean_correlation_without_trends():
    draw = np.random.default_rng(0)
    for shared in (0.0, 0.5, 3.0):
        steps = np.cumsum(draw.integers(1, 4, (32, 5)), 0).astype(float)
        paths = 1 + 0.01 * steps * draw.random(5) + draw.standard_normal((32, 5))
        paths += shared * draw.standard_normal((32, 1))
        rest = np.stack(
            [path - np.polyval(np.polyfit(at, path, 1), at) for at, path in zip(steps.T, paths.T, strict=True)]
        )
        true = np.corrcoef(rest)[np.triu_indices(5, 1)].mean()
        assert layer_std_sync.synchrony(steps, paths) == pytest.approx(true, abs=1e-9)
    still = np.stack([np.ones(32), draw.standard_normal(32)], 1)
    assert math.isnan(layer_std_sync.synchrony(np.tile(np.arange(32.0)[:, None], 2), still))


def sync_of(shared, state=None, steps=range(1, 281), sink=None):
    """Return values of a run whose layers are made larger and smaller, together or each by itself."""
    torch.manual_seed(0)
    model, sink = made.model_of("mapped"), sink or MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    base = [[item.detach().clone() for item in block.parameters()] for block in model.blocks]
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING, measure=("weights",), escalate=0)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        if state is not None:
            vitals.load_state_dict(state)
        for step in steps:
            for number, (block, own) in enumerate(zip(model.blocks, base, strict=True)):
                draw = np.random.default_rng((step // 30, 0 if shared else number)).standard_normal()
                for item, start in zip(block.parameters(), own, strict=True):
                    item.data.copy_(start * (1 + 0.05 * draw))
                    item.grad = torch.ones_like(item)
            with vitals.step():
                optimizer.step()
        kept = json.loads(json.dumps(vitals.state_dict()))
    return [row for row in sink.values if row[1] == "layer_std_sync"], kept, sink


def test_layers_that_move_together_are_seen_and_a_checkpoint_goes_on(monkeypatch):
    monkeypatch.setattr(layer_std_sync, "WINDOW", 12)
    together, _, _ = sync_of(shared=True)
    apart, _, _ = sync_of(shared=False)
    assert len(together) == len(apart) >= 2
    assert min(row[5] for row in together) > 0.5
    assert max(row[5] for row in apart) < 0.5
    _, state, sink = sync_of(shared=True, steps=range(1, 131))
    again, _, _ = sync_of(shared=True, steps=range(131, 281), state=state, sink=sink)
    assert again == together


def of_width(width, depth, rescale, **declared):
    """Return what a model of some width records, with the initial values of muP or all of them of one size."""
    torch.manual_seed(0)
    model = made.model_of("mapped")
    made_up = nn.ModuleList(made.Block() for _ in range(depth))
    with torch.no_grad():
        model.blocks = made_up
        for module in model.blocks.modules():
            if isinstance(module, nn.Linear):
                out, into = module.weight.shape
                module.weight.normal_().mul_(math.sqrt(out / into) / (math.sqrt(out) + math.sqrt(into)))
                module.weight.mul_(rescale)
    sink = MemorySink()
    mup = MuP(width=width, depth=2, **declared)
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING, mup=mup, measure=("activations", "spectra"))
    with Vitals(model, None, config, [sink]) as vitals, torch.no_grad():
        assert vitals.summary()["metrics"]["mup_spectral"] == "ok"
        made.go(vitals, model, range(1, 70))
    found = {}
    for _, metric, _, _, stat, value in sink.values:
        if metric.startswith("mup_"):
            found[metric.removeprefix("mup_"), stat] = value
    return found, sink


def test_the_ratio_is_that_of_the_spectral_condition_and_exponents_are_of_the_declared_base():
    """Four times as wide as its base, a model keeps the ratio: 0; where matrices grew with the root of width: 1/2."""
    found, sink = of_width(made.WIDTH // 4, 4, 1.0)
    norms = {}
    for _, metric, layer, _, stat, value in sink.values:
        if metric == "spectral_norm" and layer >= 0 and stat != "largest":
            norms[layer, stat] = value
    scale = {"attention.qkv": 1 / 3, "attention.out": 1, "mlp.0": 64 / 96, "mlp.2": 96 / 64}
    true = np.median([value * math.sqrt(scale[stat]) for (_, stat), value in norms.items()])
    assert len(norms) == 16
    assert found["spectral", "median"] == pytest.approx(true)
    assert {stat for _, stat in found} == {"median", "last", "growth"}  # no base value, no exponent
    base = found["spectral", "median"], found["activation", "last"], found["activation", "growth"]
    declared = dict(zip(("spectral", "activation", "growth"), base, strict=True))
    same, _ = of_width(made.WIDTH // 4, 4, 1.0, **declared)
    exponents = {key: value for key, value in same.items() if "exponent" in key[1]}
    assert len(exponents) == 3
    assert max(abs(value) for value in exponents.values()) < 1e-2
    grown, _ = of_width(made.WIDTH // 4, 4, 2.0, **declared)
    assert grown["spectral", "width_exponent"] == pytest.approx(0.5, abs=1e-3)
    assert grown["activation", "depth_exponent"] > 0.1


def test_updates_are_those_of_singular_values_and_exponents_say_how_far_they_are_from_the_base():
    true, found = {}, {}
    for base in (None, 0.01):
        model, sink = made.model_of("mapped"), MemorySink()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        mup = MuP(width=made.WIDTH // 4, depth=1, update=base)
        config = VitalsConfig(
            interval=1, adapt=False, mapping=made.MAPPING, mup=mup, measure=("activations", "spectra")
        )
        matrices = {(at, n): m for at, b in enumerate(model.blocks) for n, m in b.named_parameters() if m.dim() == 2}
        with Vitals(model, optimizer, config, [sink]) as vitals:
            assert vitals.summary()["metrics"]["mup_update"] == "ok"
            for step in range(1, 50):
                if step == 25:
                    vitals.load_state_dict(json.loads(json.dumps(vitals.state_dict())))
                before = {key: item.detach().clone() for key, item in matrices.items()}
                with vitals.step():
                    made.loss_of(model, step).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                for key, item in matrices.items():
                    size = torch.linalg.matrix_norm((item - before[key]).double(), 2).item()
                    true[step, key[0], key[1].removesuffix(".weight")] = size * math.sqrt(item.shape[1] / item.shape[0])
        found = {(row[0], row[2], row[4]): row[5] for row in sink.values if row[1] == "mup_update"}
        ratios = [value / true[key] for key, value in found.items() if key in true]
        assert len(ratios) > 8
        assert max(ratios) <= 1 + 1e-5
        assert np.median(ratios) > 0.97
    medians = {step: value for (step, _, stat), value in found.items() if stat == "median"}
    assert medians
    for step, value in medians.items():
        assert value == pytest.approx(np.median([own for (at, *_), own in true.items() if at == step]), rel=0.3)
        assert found[step, -1, "width_exponent"] == pytest.approx(math.log(value / 0.01) / math.log(4))
        assert found[step, -1, "depth_exponent"] == pytest.approx(math.log(value / 0.01) / math.log(2))


@pytest.mark.parametrize(
    ("shapes", "fans"),
    [
        ({"gate_up_proj": (192, 64), "down_proj": (64, 96)}, [(192, 64), (64, 96)]),
        ({"gate_up_proj": (64, 192), "down_proj": (96, 64)}, [(192, 64), (64, 96)]),
        ({"w1": (96, 64), "w3": (96, 64), "w2": (96, 64)}, [(96, 64), (96, 64), (64, 96)]),
        ({"a": (64, 192), "b": (96, 64)}, [(192, 64), (64, 96)]),  # the smaller one: the other holds gates
        ({"a": (64, 96), "b": (96, 64)}, [(96, 64), (64, 96)]),  # the last one
        ({"a": (64, 96)}, [None]),
        ({"a": (32, 96), "b": (96, 64)}, [None, None]),
    ],
)
def test_experts_in_a_tensor_take_and_return_what_the_model_is_wide(shapes, fans):
    from dataaudit.vitals.spectra import matrices_of
    from dataaudit.vitals.structure import find

    model = made.model_of("mapped")
    model.blocks[0].experts = nn.ParameterDict({name: torch.zeros(4, *shape) for name, shape in shapes.items()})
    own = {item.name: item.fans for item in matrices_of(find(model, made.MAPPING), model)[0] if "experts" in item.name}
    assert [own[f"experts.{name}"] for name in shapes] == fans


def test_without_a_base_it_does_not_apply_and_a_wrong_one_is_named():
    with Vitals(made.model_of("gpt2"), None, VitalsConfig()) as vitals:
        said = vitals.summary()["metrics"]
        assert said["mup_spectral"].startswith("not_applicable: no base is declared: VitalsConfig(mup=MuP(")
        assert said["mup_activation"] == said["mup_spectral"]
    for wrong in ({"width": 0, "depth": 2}, {"width": 8, "depth": 1.5}, {"width": 8, "depth": 2, "spectral": -1.0}):
        with pytest.raises(ConfigError, match="mup: "):
            MuP(**wrong)
    with pytest.raises(ConfigError, match="mup: expected MuP"):
        VitalsConfig(mup=256)


def test_weights_of_transformers_conv1d_go_from_rows_to_columns():
    from dataaudit.vitals.spectra import matrices_of
    from dataaudit.vitals.structure import find

    model = made.model_of("gpt2")
    fans = {item.name: item.fans for item in matrices_of(find(model, None), model)[0] if item.layer == 0}
    assert fans["attn.c_attn"] == (3 * made.WIDTH, made.WIDTH)
    assert fans["mlp.c_proj"] == (made.WIDTH, 4 * made.WIDTH)
