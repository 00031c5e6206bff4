"""Statistics of attention against float64 over the whole L x S matrix; a watched function changes no logit."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="statistics of attention are of torch")
transformers = pytest.importorskip("transformers", reason="its attention functions are what is watched")

from attention_cases import SHAPES, made, naive  # noqa: E402

from dataaudit.vitals.attention import (  # noqa: E402
    ABSENT,
    Scores,
    attention_rows,
    dead_share,
    head_statistics,
    sample_rows,
)
from dataaudit.vitals.hooks import mapping_of, replaced  # noqa: E402

pytestmark = pytest.mark.vitals


@pytest.mark.parametrize("masked", ["none", "causal", "bool", "added", "both"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0.3, 1.0, 4.0])
def test_rows_are_exact_in_float32(shape, dtype, masked, size):
    query, key, visible, given = made(shape, dtype, masked, size)
    scale = 1 / math.sqrt(shape[-1])
    largest, lse, entropy = naive(query, key, scale, visible)
    exact = attention_rows(query, key, Scores(scale=scale, **given))
    assert exact.keys.numpy() == pytest.approx(visible.sum(-1).numpy())
    for found, true in ((exact.highest_max, largest), (exact.lse, lse), (exact.entropy, entropy)):
        assert (np.isnan(found.numpy()) == np.isnan(true)).all()
        assert not (np.abs(found.numpy() - true) > exact.bound.numpy()).any()
        assert not (np.abs(found.numpy() - true) > 1e-5 * (1 + np.abs(largest) + np.abs(lse))).any()
    products = scale * (query.double().norm(dim=-1) * key.double().norm(dim=-1).max()).numpy()
    assert not (exact.bound.numpy() > 1e-5 * (1 + np.abs(lse) + products)).any()
    assert (np.abs(exact.entropy.numpy() - entropy) <= exact.bound.numpy())[~np.isnan(entropy)].all()


def test_the_bound_of_rows_holds_where_products_cancel():
    """Two large channels that cancel, as massive activations do: what float32 loses is in proportion to them."""
    query, key, visible, _ = made((1, 2, 2, 40, 40, 64), torch.float32, "none", 1.0)
    query[..., 0], query[..., 1] = 3000.0, -3000.0
    key[..., 1] = key[..., 0] = 40 + key[..., 0]
    found, true = attention_rows(query, key, Scores(scale=0.125)), naive(query, key, 0.125, visible)
    for one, expected in zip((found.highest_max, found.lse, found.entropy), true, strict=True):
        assert (np.abs(one.numpy() - expected) <= found.bound.numpy()).all()
    assert np.abs(found.lse.numpy() - true[1]).max() > 8e-6 * (1 + np.abs(true[1]).max())


def test_some_rows_are_those_of_all_rows():
    query, key, _, given = made((2, 4, 2, 70, 70, 8), torch.float32, "both", 1.0)
    rows = torch.tensor([69, 3, 40])
    every = attention_rows(query, key, Scores(scale=0.5, **given))
    some = attention_rows(query, key, Scores(scale=0.5, **given), rows)
    off = (some.entropy - every.entropy[:, :, rows]).abs()
    assert not (off > some.bound + every.bound[:, :, rows]).any()
    assert off.nanmedian() < 1e-6


def test_a_dead_head_is_told_from_a_live_one():
    query, key, _, _ = made((1, 2, 2, 32, 32, 8), torch.float32, "none", 1.0)
    query[:, 1] = 0
    query[:, 0] = 500 * key[:, 0]
    shares = dead_share(attention_rows(query, key, Scores(scale=1.0, causal=True))).tolist()
    assert shares[0] > 0.9
    assert shares[1] == 0


def llama(name):
    torch.manual_seed(0)
    common = {"vocab_size": 64, "attn_implementation": name}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            **common,
        )
    ).eval()


def gpt2(name):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    config._attn_implementation = name
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("given", ["position_ids", "cu_seq_lens_q"])
def test_documents_that_flash_attention_keeps_apart_are_apart(given, monkeypatch):
    """FlashAttention is given no mask of packed documents, as sdpa is: the numbers are the same."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from dataaudit.vitals import MemorySink, Vitals, VitalsConfig

    positions = torch.tensor([[*range(5), *range(4), *range(11)]])
    document = (positions[0] == 0).cumsum(0)
    seen = torch.ones(20, 20).tril().bool() & (document[:, None] == document)

    def flash(module, query, key, value, mask, **_):
        assert mask is None
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, seen, enable_gqa=True)
        return out.transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "flash_attention_2", flash)
    values = []
    for name in ("sdpa", "flash_attention_2"):
        model, sink = llama("sdpa").train(), MemorySink()
        model.config._attn_implementation = name
        for layer in model.model.layers:
            del layer.self_attn.is_causal  # causal is what a module is that does not say it, as for transformers
        more = {"cu_seq_lens_q": torch.tensor([0, 5, 9, 20], dtype=torch.int32)} if given == "cu_seq_lens_q" else {}
        with Vitals(model, None, VitalsConfig(measure=("attention",), interval=1), [sink]) as vitals, vitals.step():
            model(torch.arange(20)[None], position_ids=positions, use_cache=False, **more)
        values.append({row[1:5]: row[5] for row in sink.values if row[4] not in {"lower", "upper", "all_rows_bound"}})
    assert len(values[0]) > 40
    assert values[1] == pytest.approx(values[0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("build", [llama, gpt2])
def test_a_watched_function_changes_no_logit_of_a_padded_batch(build):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    tokens = torch.arange(2 * 12).reshape(2, 12) % 64
    padding = torch.ones(2, 12, dtype=torch.int64)
    padding[1, :5] = 0
    model, seen = build("sdpa"), []

    def see(module, query, key, _value, mask, **named):
        scale = named.get("scaling") or query.shape[-1] ** -0.5
        causal = mask is None and query.shape[2] > 1
        seen.append((module.layer_idx, attention_rows(query, key, Scores(scale=scale, mask=mask, causal=causal))))

    own = ALL_ATTENTION_FUNCTIONS["sdpa"]
    with torch.no_grad():
        plain = [model(tokens, attention_mask=one).logits for one in (padding, None)]
        with replaced(mapping_of(ALL_ATTENTION_FUNCTIONS, "sdpa"), "sdpa", see):
            again = [model(tokens, attention_mask=one).logits for one in (padding, None)]
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is own
    assert all(torch.equal(one, two) for one, two in zip(plain, again, strict=True))
    assert [layer for layer, _ in seen] == [0, 1, 0, 1]
    eager = build("eager")
    with torch.no_grad():
        weights = eager(tokens, attention_mask=padding, output_attentions=True).attentions
    for (_, rows), weight in zip(seen[:2], weights, strict=True):
        expected = torch.special.entr(weight.double()).sum(-1)
        real = padding[:, None, :].bool().expand(rows.entropy.shape)
        assert (rows.entropy[real] - expected[real]).abs().max() < 1e-4
        assert (rows.keys[1, :, 5:] == torch.arange(1, 8)).all()


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("sinks", [None, "heads", "rows"])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_windows_caps_and_sinks_are_those_of_the_whole_matrix(dtype, window, sinks, softcap):
    query, key, visible, given = made((2, 4, 2, 19, 19, 8), dtype, "both", 1.5)
    scale = 0.3
    if window is not None:
        visible &= torch.arange(19) > torch.arange(19)[:, None] - window
    held = torch.tensor([0.5, -1.0, 3.0, 20.0]) if sinks == "heads" else None
    held = torch.linspace(-3, 9, 2 * 4 * 19).view(2, 4, 19, 1) if sinks == "rows" else held
    logits = scale * torch.einsum("bhld,bhsd->bhls", query.double(), key.double().repeat_interleave(2, 1)).numpy()
    logits = logits if softcap is None else softcap * np.tanh(logits / softcap)
    logits = np.where(visible.numpy(), logits, -np.inf)
    found = attention_rows(query, key, Scores(scale=scale, window=window, softcap=softcap, sinks=held, **given))
    for place in np.ndindex(2, 4, 19):
        seen = logits[place][np.isfinite(logits[place])]
        if not len(seen):
            assert found.entropy[place].isnan()
            continue
        whole = seen if held is None else np.append(seen, held[place[1] if sinks == "heads" else place].item())
        lse = np.logaddexp.reduce(whole)
        weights = np.exp(whole - lse)
        bound = found.bound[place].item()
        assert found.entropy[place].item() == pytest.approx(-(weights * (whole - lse)).sum(), abs=bound)
        assert found.lse[place].item() == pytest.approx(lse, abs=bound)
        assert found.highest_max[place].item() == pytest.approx(seen.max(), abs=bound)
        assert found.keys[place].item() == len(seen)


@pytest.mark.parametrize(("length", "number"), [(1, 1), (1, 32), (7, 3), (512, 32), (33, 33), (1000, 7)])
def test_sampled_rows_are_the_last_ones_of_equal_parts(length, number):
    rows = sample_rows(length, number)
    assert len(rows) == min(length, number) == len(set(rows.tolist()))
    assert rows[-1] == length - 1
    assert rows.min() >= 0
    gaps = np.diff([-1, *rows.tolist()])
    assert gaps.max() - gaps.min() <= 1


def test_numbers_of_a_head_are_means_over_rows_that_see_something():
    query, key, visible, given = made((2, 4, 2, 11, 11, 8), torch.float32, "both", 2.0)
    rows = attention_rows(query, key, Scores(scale=0.4, **given))
    found = head_statistics(rows)
    for head in range(4):
        held = [
            (rows.highest_max[b, head, i].item(), rows.entropy[b, head, i].item(), int(visible[b, head, i].sum()))
            for b in range(2)
            for i in range(11)
            if visible[b, head, i].any()
        ]
        several = [(entropy, keys) for _, entropy, keys in held if keys > 1]
        expected = [
            max(one[0] for one in held),
            sum(one[1] for one in held) / len(held),
            sum(entropy / math.log(keys) for entropy, keys in several) / len(several),
            np.mean([entropy < math.log(2) for entropy, keys in several if keys > 2]),
        ]
        assert found[head, :4].tolist() == pytest.approx(expected, rel=1e-5)
    hidden = torch.zeros(2, 1, 11, 11, dtype=torch.bool)
    assert head_statistics(attention_rows(query, key, Scores(scale=0.4, mask=hidden)))[:, :5].eq(ABSENT).all()
    query[1, 2, 5, 0] = math.nan
    found = head_statistics(attention_rows(query, key, Scores(scale=0.4)))
    assert found[2, :-1].isnan().all()
    assert found[[0, 1, 3]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_exact_where_a_program_allows_shorter_products(dtype):
    query, key, visible, given = made((2, 4, 2, 33, 33, 64), dtype, "both", 2.0)
    true = naive(query, key, 0.2, visible)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = attention_rows(query, key, Scores(scale=0.2, **given))
    finally:
        torch.set_float32_matmul_precision(before)
    for one, expected in zip((found.highest_max, found.lse, found.entropy), true, strict=True):
        assert not (np.abs(one.numpy() - expected) > found.bound.numpy()).any()
