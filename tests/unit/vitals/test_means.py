"""Means of activations over micro-batches, against hooks that take the mean of every micro-batch by themselves."""

import pytest
from lanes import sample

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402

from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.norms import norm, std_of_sums, sums_of  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
PARTS = {
    "llama": ("model.embed_tokens", "model.norm", "model.layers.{}", "self_attn", "mlp"),
    "gpt2": ("transformer.wte", "transformer.ln_f", "transformer.h.{}", "attn", "mlp"),
    "multihead": ("embedding", None, "encoder.layers.{}", "self_attn", None),
    "mapped": ("embedding", "norm", "blocks.{}", "attention", "mlp"),
}
EQUAL, UNEQUAL = (128,) * 8, (128, 3, 17, 96, 1, 64, 2, 40)


def places_of(family):
    """Return {(stat, layer): name of the module}."""
    embedding, last, layer, attention, mlp = PARTS[family]
    found = {("embedding", -1): embedding, ("final_norm", -1): last}
    for one in range(made.LAYERS):
        name = layer.format(one)
        found[("block", one)] = name
        found[("attention", one)] = f"{name}.{attention}"
        found[("mlp", one)] = mlp and f"{name}.{mlp}"
    return {place: name for place, name in found.items() if name is not None}


class Oracle:
    """Keeps mean |x| and mean x² of every micro-batch, float64, of what modules return; a recomputation is none."""

    def __init__(self, model, names):
        self.means, self.squares = {one: [] for one in names}, {one: [] for one in names}
        self.backward = False
        modules = dict(model.named_modules())
        for place, name in names.items():
            modules[name].register_forward_hook(self.keep(place))

    def keep(self, place):
        def hook(_module, _args, output):
            if not self.backward:
                held = (output[0] if isinstance(output, tuple) else output).detach().double()
                self.means[place].append(held.abs().mean().item())
                self.squares[place].append(held.square().mean().item())

        return hook


@pytest.mark.parametrize(
    ("family", "again", "sizes"),
    [
        ("mapped", False, (128,) * 11),  # the last eight count
        *sample([("llama", True, UNEQUAL), ("mapped", True, EQUAL)], 2),
        *sample([(family, False, sizes) for sizes in (UNEQUAL, EQUAL) for family in PARTS], 2),
    ],
)
def test_a_mean_is_that_of_the_micro_batches_means_whatever_their_sizes(family, again, sizes):
    if family in {"llama", "gpt2"}:
        pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")
        model = made.model_of(family, function="eager", again=again)
    else:
        model = made.model_of(family, again=again)
    names = places_of(family)
    oracle, sink = Oracle(model, names), MemorySink()
    mapping = made.MAPPING if family == "mapped" else None
    with Vitals(model, None, VitalsConfig(mapping=mapping, micro_batches=8, adapt=False), [sink]) as vitals:
        for _ in range(2):
            for kept in (*oracle.means.values(), *oracle.squares.values()):
                kept.clear()
            with vitals.step():
                for size in sizes:
                    tokens = torch.randint(1, made.VOCAB, (size, 64))
                    found = model(tokens, attention_mask=torch.ones_like(tokens))
                    oracle.backward = True
                    (found if isinstance(found, torch.Tensor) else found.logits).square().mean().backward()
                    oracle.backward = False
    seen = {(row[1], row[4], row[2]): row[5] for row in sink.values if row[0] == 2}
    for (stat, layer), kept in oracle.means.items():
        assert len(kept) == len(sizes)
        expected = sum(kept[-8:]) / 8
        assert seen["activation_mean_abs", stat, layer] == pytest.approx(expected, rel=1e-5), (stat, layer)
    for layer in range(made.LAYERS):
        expected = (sum(oracle.squares["block", layer][-8:]) / 8) ** 0.5
        assert seen["residual_rms", "block", layer] == pytest.approx(expected, rel=1e-5)


def layouts():
    """Return large tensors, as weights, gradients and activations may lie in memory."""
    flat = torch.randn(5_000_011, generator=torch.Generator().manual_seed(5))
    square = flat[:4_194_304].view(2_048, 2_048)
    return {
        "flat": flat,
        "matrix": square,
        "transposed": square.t(),
        "permuted": flat[:4_000_000].view(100, 200, 200).permute(2, 0, 1),
        "with gaps": square[:, ::2],
        "columns": square[:, 5:1_700],
        "long rows with gaps": flat[: 4 * 1_250_000].view(4, 1_250_000)[:, ::2],
        "expanded": flat[:2_000, None].expand(2_000, 1_500),
        "one": flat[0],
        "none": flat[:0],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", layouts())
def test_norms_of_large_tensors_are_exact_however_they_lie_in_memory(name, dtype):
    values = layouts()[name].to(dtype)
    exact = values.double()
    assert norm(values, 1).item() == pytest.approx(exact.abs().sum().item(), rel=2e-6)
    assert norm(values).item() == pytest.approx(exact.square().sum().sqrt().item(), rel=2e-6)
    if values.numel():
        std = std_of_sums(sums_of([values], values.device), values.numel())
        assert std.item() == pytest.approx(exact.std(correction=0).nan_to_num().item(), rel=1e-5)


def test_a_number_that_is_not_finite_stays_so():
    values = torch.ones(10_000)
    for bad in (float("nan"), float("inf")):
        values[8_191] = bad
        assert not norm(values).isfinite()
        assert not norm(values, 1).isfinite()
