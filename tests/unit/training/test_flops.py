"""FLOPs of a token against torch's counter and masks that are counted; peaks; what a log holds of them."""

import json
from functools import partial

import numpy as np
import pytest
from reading import values

from dataaudit.base.errors import ConfigError
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.flops import PEAKS, ModelFlops, Utilisation, peak_of
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.pages.run_blocks import run_pairs

torch = pytest.importorskip("torch", reason="models are torch's")
transformers = pytest.importorskip("transformers", reason="configs are transformers'")
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop  # noqa: E402 - after the skip
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count  # noqa: E402 - after the skip

pytestmark = pytest.mark.torch
B, T = 2, 24
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PALM = {"parameters": 540_350_000_000, "layers": 118, "heads": 48, "head_dim": 256}


def made(name, **more):
    """Return a model of a config that attends by matrices, and its name."""
    config = getattr(transformers, f"{name}Config")(**SIZES | more)
    config._attn_implementation = "eager"
    if "experts" in str(vars(config)):
        config._experts_implementation = "eager"
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config)


MODELS = {
    "grouped queries, a head of its own": lambda: made("Llama", head_dim=16),
    "a tied head": lambda: made("Llama", tie_word_embeddings=True, num_key_value_heads=4),
    "positions in a table": lambda: made("GPT2", n_embd=32, n_layer=2, n_head=2, n_positions=64),
    "experts": lambda: made("Mixtral", num_local_experts=6, num_experts_per_tok=2),
    "experts, one of them shared": lambda: made(
        "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40
    ),
    "latent attention": lambda: made(
        "DeepseekV3",
        num_key_value_heads=4,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=24,
        first_k_dense_replace=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=6,
    ),
}


def counted(model, **how):
    """Return the FLOPs of a forward and a backward pass by torch's counter."""
    tokens = torch.randint(0, 96, (B, T))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens, use_cache=False, **how).loss.backward()
    return counter.get_total_flops()


def elementwise(model):
    """Return the parameters that multiply no matrix: norms and biases."""
    return sum(item.numel() for item in model.parameters() if item.ndim < 2)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_costs_what_torch_counts(name):
    """Attention in full and lookups left out: the counter's number, but for norms and biases, which N holds too."""
    model = MODELS[name]()
    flops = ModelFlops.of(model, embeddings="left_out")
    model_flops, hardware = flops.per_token(T)
    assert counted(model) == B * T * (model_flops - 6 * elementwise(model))
    assert hardware == model_flops
    palm = ModelFlops.of(model).per_token(T)[0]
    assert palm - model_flops == 6 * flops.lookups
    assert (flops.lookups == 0) == (name == "a tied head")


def test_where_the_counter_and_the_convention_differ():
    """A mask saves the counter nothing, and it counts what a fused kernel computes again backwards."""
    shape = (1, 4, T, 16)
    forward = sdpa_flop_count(shape, shape, shape)
    flops = {"parameters": 1, "layers": 1, "heads": 4, "head_dim": 16}
    assert T * (ModelFlops(**flops).per_token(T)[0] - 6) == 3 * forward
    assert forward + sdpa_backward_flop_count(shape, shape, shape, shape) == 3.5 * forward


def test_what_is_computed_again_is_of_the_hardware_alone():
    """Whole layers, as a checkpoint of torch does that is not stopped early, before the last matrix of a layer."""
    model = MODELS["grouped queries, a head of its own"]()
    plain = counted(model)
    for layer in model.model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    with set_checkpoint_early_stop(False):
        again = counted(model)
    with set_checkpoint_early_stop(True):
        assert again - counted(model) == B * T * 3 * 2 * 48 * 32
    nothing, layers = (ModelFlops.of(model, recomputed=how) for how in ("nothing", "layers"))
    assert layers.per_token(T)[0] == nothing.per_token(T)[0]
    assert again - plain == B * T * (layers.per_token(T)[1] - nothing.per_token(T)[1] - 2 * elementwise(model))
    model_flops, hardware = ModelFlops.of(model, recomputed="attention").per_token(T)
    assert hardware - model_flops == 3 * 4 * 4 * 16 * T


def test_frozen_parameters_have_no_gradient_of_their_own():
    model = MODELS["grouped queries, a head of its own"]()
    for name, item in model.named_parameters():
        item.requires_grad = "o_proj" in name or "embed" in name
    flops = ModelFlops.of(model, embeddings="left_out")
    assert counted(model) == B * T * (flops.per_token(T)[0] - 4 * elementwise(model))


@pytest.mark.parametrize("row", [1, 5, 24])
@pytest.mark.parametrize("windows", [(0, 0), (4, 0), (1, 24), (7, 100)])
def test_keys_are_those_of_the_mask(row, windows):
    """A mask that is counted pair by pair; no window costs more than none."""
    many = {"parameters": 1, "layers": 2, "heads": 3, "head_dim": 4, "value_dim": 2}
    for attention in ("full", "causal"):
        own, whole = (ModelFlops(**many, windows=of, attention=attention).per_token(row)[0] for of in (windows, (0, 0)))
        pairs = 0
        for window in windows:
            for query in range(row):
                seen = sum(query - (window or row) < key <= query for key in range(row))
                pairs += min(window or row, row) if attention == "full" else seen
        assert own == pytest.approx(6 + 6 * 3 * (4 + 2) * pairs / row, rel=1e-12)
        assert own <= whole
    half = ModelFlops(**many, attention="causal").per_token(row)[0] - 6
    assert half / (ModelFlops(**many).per_token(row)[0] - 6) == pytest.approx((row + 1) / (2 * row))


def test_windows_come_from_the_config():
    """Gemma: five layers with a window to one without; Qwen names a window that it does not use."""
    gemma = made("Gemma3Text", num_hidden_layers=6, sliding_window=8, head_dim=8)
    assert ModelFlops.of(gemma).windows == (8, 8, 8, 8, 8, 0)
    assert ModelFlops.of(made("Mistral", sliding_window=6)).windows == (6, 6, 6)
    assert set(ModelFlops.of(made("Qwen2", sliding_window=6)).windows) == {0}
    full = ModelFlops.of(gemma, windows=())
    assert ModelFlops.of(gemma).per_token(T)[0] == full.per_token(T)[0] - 12 * 5 * 4 * 8 * (T - 8)


def test_palm_as_published():
    """PaLM 540B: 238.3 thousand tokens a second on 6144 chips of 275 teraflop/s, 46.2 % (arXiv 2204.02311)."""
    assert 238_300 * ModelFlops(**PALM).per_token(2048)[0] / (6144 * 275e12) == pytest.approx(0.462, abs=0.001)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parameters": 0}, "parameters"),
        ({"lookups": -1}, "lookups"),
        ({"peak": 0.0}, "peak"),
        ({"attention": "half"}, "full or causal"),
        ({"windows": (1,)}, "expected 118"),
    ],
)
def test_what_cannot_be_is_named(given, words):
    with pytest.raises(ConfigError, match=words):
        ModelFlops(**PALM | given)


def test_a_model_without_a_formula_is_refused():
    with pytest.raises(ConfigError, match="linear_attention"):
        ModelFlops.of(made("Llama"), transformers.LlamaConfig(**SIZES, layer_types=["linear_attention"] * 3))
    with pytest.raises(ConfigError, match="more than a decoder"):
        ModelFlops.of(torch.nn.Linear(1, 1), transformers.T5Config())
    with pytest.raises(ConfigError, match="lacks head_dim, heads, layers"):
        ModelFlops.of(torch.nn.Linear(1, 1))
    with pytest.raises(ConfigError, match="experts"):
        ModelFlops.of(MODELS["experts"](), transformers.LlamaConfig(**SIZES))


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA A10", None), ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756.5e12), ("NVIDIA H100 NVL", 835.5e12), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H200", 989.4e12), ("NVIDIA GH200 480GB", 989.4e12), ("NVIDIA H20", None), ("NVIDIA B200", 2250e12),
        ("NVIDIA GB200", 2500e12), ("AMD Instinct MI300X", 1307.4e12), ("a CPU", None),
    ],
)  # fmt: skip
def test_a_peak_is_that_of_the_whole_name(name, peak):
    assert peak_of(name)[0] == peak
    assert all(source for _, _, source in PEAKS)


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, 64, epochs=2, stretches=6)


def train(monitor, rows, steps, width=64):
    """Hand over batches of two rows; the log alone keeps time."""
    for step in steps:
        batch = [rows[2 * step], rows[2 * step + 1]]
        tags, labels = (torch.from_numpy(np.stack([row[name] for row in batch])) for name in ("tags", "labels"))
        monitor.batch(tags, losses=torch.ones(2, width), labels=labels)
        monitor.step(1.0)


def test_a_log_has_the_utilisation_of_each_window(corpus, rows, tmp_path):
    flops = ModelFlops(parameters=1_000, layers=2, heads=2, head_dim=4, peak=1e9, devices=3, recomputed="attention")
    with TrainingMonitor(tmp_path / "run", corpus, flops=flops) as monitor:
        train(monitor, rows, range(40))
    times, mfu = values(tmp_path / "run", "step_time"), values(tmp_path / "run", "mfu")
    assert list(mfu) == [16, 32]
    cost = 6 * 1_000 + 12 * 2 * 2 * 4 * 64
    for last, first in ((16, 2), (32, 17)):
        seconds = sum(times[step] for step in range(first, last + 1))
        assert mfu[last] == pytest.approx((last - first + 1) * 2 * 64 * cost / seconds / 3e9, rel=1e-6)
        assert values(tmp_path / "run", "hfu")[last] / mfu[last] == pytest.approx((cost + 4 * 2 * 2 * 4 * 64) / cost)
    facts = run_facts(load_run(tmp_path / "run"))
    found = facts.times.utilisation
    assert facts.times.mfu == pytest.approx(np.mean(list(mfu.values())))
    assert (found["attention"], found["peak"], found["source"], "why" in found) == ("full", 1e9, "given", False)
    assert "'0.001', ' TFLOP/s (', Name(text='a CPU'" in repr(dict(run_pairs(facts))["MFU, HFU"])


def test_an_unknown_peak_is_no_number(corpus, rows, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus, flops=ModelFlops(**PALM)) as monitor:
        train(monitor, rows, range(20))
    assert values(tmp_path / "run", "mfu") == {}
    facts = run_facts(load_run(tmp_path / "run"))
    assert (facts.times.mfu, facts.times.hfu) == (None, None)
    assert "the peak of a CPU is not known" in facts.times.utilisation["why"]
    assert "not evaluated" in repr(dict(run_pairs(facts))["MFU, HFU"])


def test_batches_of_unknown_length_are_no_number():
    seen = Utilisation(ModelFlops(**PALM, peak=1e12))
    seen.batch(0, 0)
    assert "how long rows are" in seen.begin(0)["why"]
    assert seen.begin(0) is None
    assert seen.end_step(1, None) == {}
    seen.batch(1, 8)
    assert seen.end_step(16, 1.0) == {}


def test_a_run_that_goes_on_begins_a_window(corpus, rows, tmp_path):
    flops = ModelFlops(parameters=1_000, layers=2, heads=2, head_dim=4, peak=1e9)
    with TrainingMonitor(tmp_path / "run", corpus, flops=flops) as monitor:
        train(monitor, rows, range(24))
        state = json.loads(json.dumps(monitor.state_dict()))
        train(monitor, rows, range(24, 40))
    before = values(tmp_path / "run", "mfu")
    causal = ModelFlops(parameters=1_000, layers=2, heads=2, head_dim=4, peak=2e9, attention="causal")
    with TrainingMonitor(tmp_path / "run", corpus, state=state, flops=causal) as monitor:
        train(monitor, rows, range(24, 50))
    mfu, times = values(tmp_path / "run", "mfu"), values(tmp_path / "run", "step_time")
    assert mfu[16] == before[16]
    assert list(mfu) == [16, 32, 48]
    seconds = sum(times[step] for step in range(26, 33))
    assert mfu[32] == pytest.approx(7 * 2 * 64 * (6_000 + 12 * 2 * 2 * 4 * 32.5) / seconds / 2e9, rel=1e-6)
    times = run_facts(load_run(tmp_path / "run")).times
    found = times.utilisation
    assert times.mfu == pytest.approx((mfu[32] + mfu[48]) / 2)
    assert (found["attention"], found["peak"]) == ("causal", 2e9)


def test_a_run_without_it_says_nothing_of_it(corpus, rows, tmp_path):
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        train(monitor, rows, range(17))
    facts = run_facts(load_run(tmp_path / "run"))
    assert facts.times.utilisation == {}
    assert "MFU, HFU" not in dict(run_pairs(facts))
