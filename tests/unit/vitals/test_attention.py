"""Statistics of attention against float64 over the whole L x S matrix; a watched function changes no logit."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="statistics of attention are of torch")
transformers = pytest.importorskip("transformers", reason="its attention functions are what is watched")

from dataaudit.vitals.attention import (  # noqa: E402
    attention_pass,
    attention_rows,
    dead_share,
    head_statistics,
    sample_rows,
    watched,
)

pytestmark = pytest.mark.torch
SHAPES = [(2, 4, 4, 16, 16, 8), (1, 6, 2, 17, 17, 16), (2, 4, 1, 33, 33, 24), (1, 2, 2, 5, 67, 7), (1, 1, 1, 1, 1, 4)]


def naive(query, key, scale, visible):
    """Return largest logit, log-sum-exp and entropy of every row in float64, NaN where it sees nothing."""
    key = key.double().repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = (scale * torch.einsum("bhld,bhsd->bhls", query.double(), key)).masked_fill(~visible, -math.inf)
    logits = logits.numpy()
    with np.errstate(all="ignore"):
        largest = logits.max(-1)
        weights = np.exp(logits - largest[..., None])
        total = weights.sum(-1)
        shifted = np.where(weights > 0, logits - largest[..., None], 0.0)
        entropy = np.log(total) - (weights * shifted).sum(-1) / total
        none = ~np.isfinite(largest)
        found = [largest, largest + np.log(total), entropy]
    return [np.where(none, np.nan, one) for one in found]


def made(shape, dtype, masked, size, offset=0.0):
    batch, heads, kv_heads, length, keys, width = shape
    made = torch.Generator().manual_seed(sum(shape) + len(masked))
    query = (size * torch.randn(batch, heads, length, width, generator=made)).to(dtype)
    key = (size * torch.randn(batch, kv_heads, keys, width, generator=made) + offset).to(dtype)
    visible = torch.ones(batch, heads, length, keys, dtype=torch.bool)
    given = {}
    if masked in {"causal", "both"}:
        visible &= torch.arange(keys) <= torch.arange(length)[:, None]
        given["causal"] = True
    if masked in {"bool", "added", "both"}:
        padding = torch.arange(keys) >= torch.tensor([keys // 3, 0])[:batch, None]
        visible &= padding[:, None, None]
        mask = padding[:, None, None].expand(batch, 1, length, keys)
        lowest = torch.finfo(torch.float32).min
        given["mask"] = torch.zeros(mask.shape).masked_fill(~mask, lowest) if masked == "added" else mask
    return query, key, visible, given


@pytest.mark.parametrize("masked", ["none", "causal", "bool", "added", "both"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0.3, 1.0, 4.0])
def test_rows_are_exact_and_the_pass_is_within_its_bound(shape, dtype, masked, size):
    query, key, visible, given = made(shape, dtype, masked, size)
    scale = 1 / math.sqrt(shape[-1])
    largest, lse, entropy = naive(query, key, scale, visible)
    exact = attention_rows(query, key, scale=scale, **given)
    assert exact.keys.numpy() == pytest.approx(visible.sum(-1).numpy())
    for found, true in ((exact.highest_max, largest), (exact.lse, lse), (exact.entropy, entropy)):
        assert (np.isnan(found.numpy()) == np.isnan(true)).all()
        assert not (np.abs(found.numpy() - true) > exact.bound.numpy()).any()
    assert not (exact.bound.numpy() > 1e-5 * (1 + np.abs(largest) + np.abs(lse))).any()
    assert (np.abs(exact.entropy.numpy() - entropy) <= exact.bound.numpy())[~np.isnan(entropy)].all()
    passed = attention_pass(query, key, scale=scale, **given)
    known = ~np.isnan(entropy)
    assert (np.isnan(passed.entropy.numpy()) == ~known).all()
    assert passed.lse.numpy()[known] == pytest.approx(
        lse[known], rel=1e-5, abs=2e-5 if dtype == torch.float32 else 2**-13
    )
    assert (np.abs(passed.entropy.numpy() - entropy) <= passed.bound.numpy())[known].all()
    slack = 1e-4 + 1e-5 * np.abs(largest)
    assert (passed.lowest_max.numpy() - slack <= largest)[known].all()
    assert (largest <= passed.highest_max.numpy() + slack)[known].all()


def test_centred_keys_keep_the_pass_near_where_keys_have_a_mean():
    scale = 0.25
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        query, key, visible, _ = made((1, 4, 4, 64, 64, 16), dtype, "none", 1.0, offset=8.0)
        entropy = naive(query, key, scale, visible)[2]
        off = np.abs(attention_pass(query, key, scale=scale).entropy.numpy() - entropy).max()
        assert off <= most
    weights = (scale * query.float() @ key.float().transpose(-1, -2)).softmax(-1)
    plain = (weights.to(dtype) @ key).float()
    lse = naive(query, key, scale, visible)[1]
    uncentred = lse - scale * (query.float() * plain).sum(-1).numpy()
    assert np.abs(uncentred - entropy).max() > 3 * off


def test_some_rows_are_those_of_all_rows():
    query, key, _, given = made((2, 4, 2, 70, 70, 8), torch.float32, "both", 1.0)
    rows = torch.tensor([69, 3, 40])
    every = attention_rows(query, key, scale=0.5, **given)
    some = attention_rows(query, key, scale=0.5, rows=rows, **given)
    off = (some.entropy - every.entropy[:, :, rows]).abs()
    assert not (off > some.bound + every.bound[:, :, rows]).any()
    assert off.nanmedian() < 1e-6


def test_a_dead_head_is_told_from_a_live_one():
    query, key, _, _ = made((1, 2, 2, 32, 32, 8), torch.float32, "none", 1.0)
    query[:, 1] = 0
    query[:, 0] = 500 * key[:, 0]
    shares = dead_share(attention_rows(query, key, scale=1.0, causal=True)).tolist()
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


@pytest.mark.parametrize("build", [llama, gpt2])
def test_a_watched_function_changes_no_logit_of_a_padded_batch(build):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    tokens = torch.arange(2 * 12).reshape(2, 12) % 64
    padding = torch.ones(2, 12, dtype=torch.int64)
    padding[1, :5] = 0
    model, seen = build("sdpa"), []

    def see(module, query, key, value, mask, **named):
        scale = named.get("scaling") or query.shape[-1] ** -0.5
        causal = mask is None and query.shape[2] > 1
        seen.append((module.layer_idx, attention_rows(query, key, scale=scale, mask=mask, causal=causal)))

    own = ALL_ATTENTION_FUNCTIONS["sdpa"]
    with torch.no_grad():
        plain = [model(tokens, attention_mask=one).logits for one in (padding, None)]
        with watched(ALL_ATTENTION_FUNCTIONS, "sdpa", see):
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
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_windows_caps_and_sinks_are_those_of_the_whole_matrix(dtype, window, sinks, softcap):
    query, key, visible, given = made((2, 4, 2, 19, 19, 8), dtype, "both", 1.5)
    scale = 0.3
    if window is not None:
        visible &= torch.arange(19) > torch.arange(19)[:, None] - window
    held = torch.tensor([0.5, -1.0, 3.0, 20.0]) if sinks else None
    logits = scale * torch.einsum("bhld,bhsd->bhls", query.double(), key.double().repeat_interleave(2, 1)).numpy()
    logits = logits if softcap is None else softcap * np.tanh(logits / softcap)
    logits = np.where(visible.numpy(), logits, -np.inf)
    found = attention_rows(query, key, scale=scale, window=window, softcap=softcap, sinks=held, **given)
    for place in np.ndindex(2, 4, 19):
        seen = logits[place][np.isfinite(logits[place])]
        if not len(seen):
            assert found.entropy[place].isnan()
            continue
        whole = seen if held is None else np.append(seen, held[place[1]].item())
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
    rows = attention_rows(query, key, scale=0.4, **given)
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
        assert found[head].tolist() == pytest.approx(expected, rel=1e-5)
    hidden = torch.zeros(2, 1, 11, 11, dtype=torch.bool)
    assert head_statistics(attention_rows(query, key, scale=0.4, mask=hidden)).isnan().all()
    query[1, 2, 5, 0] = math.nan
    assert head_statistics(attention_rows(query, key, scale=0.4))[2, 1].isnan()


def test_a_bias_is_in_rows_and_makes_the_pass_say_nothing():
    query, key, _, _ = made((2, 4, 2, 9, 9, 8), torch.float32, "none", 1.0)
    bias = torch.randn(2, 1, 9, 9, generator=torch.Generator().manual_seed(3))
    bias[0] = 0.0
    found, exact = attention_pass(query, key, scale=0.3, mask=bias), attention_rows(query, key, scale=0.3, mask=bias)
    logits = 0.3 * query.double() @ key.double().repeat_interleave(2, 1).transpose(-1, -2) + bias.double()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(exact.entropy.double(), entropy, atol=1e-5)
    assert torch.allclose(found.entropy[0].double(), entropy[0], atol=1e-5)
    for one in (found.entropy, found.lse, found.highest_max, found.lowest_max, found.bound):
        assert one[1].isnan().all()
