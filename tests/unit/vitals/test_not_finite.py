"""Loss scales, numbers that are not finite, and rows of padding: a number is right, or there is none."""

import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402

from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals


def noise_of(scales, *, clip=0.0):
    """Return the noise scale after steps whose losses are scaled as a GradScaler does, and the unscaled one's."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(Block() for _ in range(2))})
    optimizer, sink = torch.optim.SGD(model.parameters(), lr=1e-3), MemorySink()
    with Vitals(model, optimizer, VitalsConfig(interval=1, adapt=False), [sink]) as vitals:
        for scale in scales:
            with vitals.step():
                for _ in range(4):
                    x = torch.randn(3, 8)
                    for layer in model["layers"]:
                        x = layer(x)
                    (scale * x.square().mean()).backward()
                for one in model.parameters():
                    one.grad.div_(scale)
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return [row[5] for row in sink.values if row[1] == "grad_noise_scale" and row[4] == "ema"]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(self.norm(x)).tanh()


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_a_loss_scale_that_changes_does_not_change_the_noise_scale(clip):
    plain = noise_of([1.0] * 12, clip=clip)
    scaled = noise_of([2.0**16] * 4 + [2.0**13] * 5 + [2.0**14] * 3, clip=clip)
    assert len(plain) >= 11
    assert scaled == pytest.approx(plain, rel=1e-6)


def test_a_step_that_a_scaler_skips_is_left_out_of_the_noise_scale():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(Block() for _ in range(2))})
    optimizer, sink = torch.optim.SGD(model.parameters(), lr=0.0), MemorySink()
    with Vitals(model, optimizer, VitalsConfig(interval=1, adapt=False), [sink]) as vitals:
        for step in range(6):
            with vitals.step():
                for part in range(2):
                    (model["layers"][0](torch.ones(2, 8) + part).sum() * (2.0**20 if step == 3 else 1.0)).backward()
                if step != 3:
                    optimizer.step()
                optimizer.zero_grad()
    found = [row[5] for row in sink.values if row[1] == "grad_noise_scale" and row[4] == "ema"]
    assert found == pytest.approx([found[0]] * len(found))


def heads_of(*, spoilt=(), micro_batches=1, steps=1):
    """Return what is seen of attention where some micro-batches have queries that are not finite."""
    torch.manual_seed(0)
    attention, sink = made.Mapped(), MemorySink()
    mapping = made.MAPPING
    with Vitals(attention, None, VitalsConfig(interval=1, adapt=False, mapping=mapping), [sink]) as vitals:
        weight = attention.blocks[0].attention.qkv.weight
        for _ in range(steps):
            with vitals.step():
                for micro in range(micro_batches):
                    with torch.no_grad():
                        kept = weight.clone()
                        weight[3] = math.nan if micro in spoilt else weight[3]
                        attention(made.batch_of(1, micro)[0])
                        weight.copy_(kept)
    return sink


@pytest.mark.parametrize(("spoilt", "micro_batches"), [({0}, 1), ({0}, 3), ({2}, 3), ({0, 1}, 2)])
def test_a_head_that_is_not_finite_in_a_micro_batch_has_no_share_of_dead_rows(spoilt, micro_batches):
    sink = heads_of(spoilt=spoilt, micro_batches=micro_batches)
    shares = {row[2:4] for row in sink.values if row[1] == "dead_head_rate"}
    assert (0, 0) not in shares
    assert (-1, -1) not in shares  # of the model: a share of heads of which one is not known
    assert (1, 0) not in shares  # what follows is not finite either
    assert not [row for row in sink.values if not math.isfinite(row[5])]
    assert [detail["layer"] for _, kind, detail in sink.events if kind == "nan_inf"] == [0]


def test_heads_that_are_finite_have_theirs_and_one_layer_is_named_once():
    sink = heads_of(spoilt={0}, micro_batches=1, steps=4)
    assert len([1 for _, kind, _ in sink.events if kind in {"nan_inf", "alarm"}]) == 1
    sink = heads_of(steps=2)
    shares = {row[2:4]: row[5] for row in sink.values if row[1] == "dead_head_rate"}
    assert len(shares) == 2 * made.HEADS + 1


def test_a_row_of_the_batch_that_is_padding_alone_is_no_number_and_no_alarm():
    model, sink = made.model_of("llama"), MemorySink()
    tokens, mask = made.batch_of(1)
    mask[1] = 0
    with Vitals(model, None, VitalsConfig(interval=1, adapt=False), [sink]) as vitals:
        for step in (1, 2, 3):  # rows 1, 0, 1 of the batch
            with vitals.step():
                for _ in range(step):
                    model(tokens, attention_mask=mask)
    assert not [one for one in sink.events if one[1] in {"nan_inf", "alarm"}], sink.events
    assert 2 in {row[0] for row in sink.values if row[1] == "attn_entropy"}


def test_units_and_outliers_that_are_not_finite_are_neither_dead_nor_none():
    torch.manual_seed(0)
    model, sink = made.Mapped(), MemorySink()
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING, window=2)
    with torch.no_grad():
        model.blocks[1].mlp[0].bias[5] = math.nan
    with Vitals(model, None, config, [sink]) as vitals:
        for _ in range(2):
            with vitals.step():
                model(made.batch_of(1)[0])
    assert {row[2:6] for row in sink.values if row[1] == "dead_neuron_count" and row[2] == 1} == {(1, -1, "units", 0.0)}
    assert {row[2] for row in sink.values if row[1] == "activation_outlier_rate"} == {0}
    assert [detail["layer"] for _, kind, detail in sink.events if kind == "nan_inf"] == [1]


def scores_of(scales, clipped=()):
    """Return the scores of the gradient's norm, by step, of a run whose loss is scaled; some steps clip hard."""
    model = made.model_of("mapped")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Vitals(
        model, optimizer, VitalsConfig(mapping=made.MAPPING, interval=1, adapt=False), [sink := MemorySink()]
    ) as vitals:
        for step, scale in enumerate(scales, 1):
            with vitals.step():
                (made.loss_of(model, step) * scale).backward()
                for one in model.parameters():
                    one.grad /= scale
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01 if step in clipped else 1e9)
                optimizer.step()
                optimizer.zero_grad()
    return {row[0]: row[5] for row in sink.values if row[1] == "gradient_spike_score"}


@pytest.mark.parametrize("clipped", [(), range(1, 12), range(14, 40, 2)])
def test_the_score_of_the_gradients_norm_has_no_scale_of_the_loss_in_it(clipped):
    """A scaler that grows and backs off, while steps are clipped and while they are not."""
    scales = [2.0**16] * 15 + [2.0**17] * 10 + [2.0**14] * 15
    plain, scaled = scores_of([1.0] * len(scales), clipped), scores_of(scales, clipped)
    assert len(plain) > 20
    known = [step for step in plain if not clipped or step >= 13]
    assert [scaled[step] for step in known if step not in {16, 26}] == pytest.approx(
        [plain[step] for step in known if step not in {16, 26}], rel=0.3 if clipped else 1e-4
    )
    if not clipped:
        assert scaled == pytest.approx(plain, rel=1e-4)
