"""Checkpoints on disk give the model that wrote them, or an error that says what to do."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit import ConfigError  # noqa: E402
from dataaudit.probes import Decoding, load_checkpoint  # noqa: E402
from dataaudit.probes.checkpoints import digest_of  # noqa: E402

pytestmark = pytest.mark.torch
SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 24, "vocab_size": 257, "dropout": 0.0}


def nanogpt_logits(weights, ids, *, heads=2, layers=2):
    """Compute nanoGPT's model by its own formulas, from its names: pre-norm, exact GELU, tied head."""

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def linear(x, name):
        bias = weights.get(f"{name}.bias")
        return x @ weights[f"{name}.weight"].T + (0 if bias is None else bias)

    x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][: ids.shape[1]]
    width = x.shape[-1]
    mask = torch.tril(torch.ones(ids.shape[1], ids.shape[1])) == 0
    for layer in range(layers):
        name = f"transformer.h.{layer}"
        q, k, v = linear(norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn").split(width, 2)
        q, k, v = (part.view(*ids.shape, heads, -1).transpose(1, 2) for part in (q, k, v))
        scores = (q @ k.transpose(2, 3) / math.sqrt(width // heads)).masked_fill(mask, -torch.inf)
        x = x + linear((scores.softmax(3) @ v).transpose(1, 2).flatten(2), f"{name}.attn.c_proj")
        hidden = linear(norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc")
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + linear(hidden, f"{name}.mlp.c_proj")
    return norm(x, "transformer.ln_f") @ weights["lm_head.weight"].T


def nanogpt_checkpoint(path, *, bias, prefix=""):
    random = torch.Generator().manual_seed(0)
    shapes = {"transformer.wte.weight": (257, 16), "transformer.wpe.weight": (24, 16)}
    for layer in range(2):
        name = f"transformer.h.{layer}"
        shapes |= {f"{name}.ln_1.weight": (16,), f"{name}.attn.c_attn.weight": (48, 16)}
        shapes |= {f"{name}.attn.c_proj.weight": (16, 16), f"{name}.ln_2.weight": (16,)}
        shapes |= {f"{name}.mlp.c_fc.weight": (64, 16), f"{name}.mlp.c_proj.weight": (16, 64)}
    shapes["transformer.ln_f.weight"] = (16,)
    if bias:
        shapes |= {
            name.replace(".weight", ".bias"): shape[:1]
            for name, shape in shapes.items()
            if ".h." in name or "ln_f" in name
        }
    weights = {name: torch.randn(shape, generator=random) * 0.3 for name, shape in shapes.items()}
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    stored = {prefix + name: value for name, value in weights.items()}
    torch.save({"model": stored, "model_args": SIZES | {"bias": bias}, "iter_num": 7, "config": {}}, path)
    return weights


@pytest.mark.parametrize(("bias", "prefix"), [(True, ""), (False, ""), (True, "_orig_mod.")])
def test_a_checkpoint_of_nanogpt_computes_what_its_formulas_say(tmp_path, bias, prefix):
    weights = nanogpt_checkpoint(tmp_path / "ckpt.pt", bias=bias, prefix=prefix)
    model, digest = load_checkpoint(str(tmp_path / "ckpt.pt"), tokenizer="bytes", end=256, device="cpu")
    ids = torch.arange(40).view(2, 20) * 5 % 257
    with torch.no_grad():
        own = model.logits(ids.numpy())
    assert torch.allclose(own, nanogpt_logits(weights, ids), atol=1e-4)
    assert (model.context, model.dtype) == (24, "float32")
    assert digest == digest_of(tmp_path / "ckpt.pt")


def transformers_folder(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate(letters)} | {"<|endoftext|>": 256}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    torch.manual_seed(0)
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 257, "n_positions": 40}
    module = GPT2LMHeadModel(GPT2Config(**settings, bos_token_id=256, eos_token_id=256)).eval()
    module.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    return module


def test_a_folder_of_transformers_brings_its_tokenizer(tmp_path):
    module = transformers_folder(tmp_path)
    model, digest = load_checkpoint(str(tmp_path), device="cpu")
    ids = model.tokenizer.encode("Öl und Brot")
    assert model.tokenizer.decode(ids.tolist()) == "Öl und Brot"
    assert model.tokenizer.encoder.end == 256
    with torch.no_grad():
        assert torch.equal(model.logits(ids[None]), module(torch.as_tensor(ids[None])).logits)
    assert model.context == 40
    other, changed = load_checkpoint(str(tmp_path), dtype="bfloat16", device="cpu")
    assert (other.dtype, changed) == ("bfloat16", digest)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path):
    transformers_folder(tmp_path)
    with pytest.raises(ConfigError, match="ids up to 299, and the model embeds 257 tokens"):
        load_checkpoint(str(tmp_path), tokenizer="bytes", end=299, device="cpu")


@pytest.mark.parametrize(
    ("tokenizer", "end", "words"),
    [
        (None, "<|endofText|>", r"no special token of .*\n  There are <\|endoftext\|>; or name an id"),
        ("bytes", "<|endoftext|>", "bytes have no token .*\n.*--end 256"),
        (None, 257, "ids up to 257, and the model embeds 257 tokens"),
    ],
)
def test_an_end_token_that_is_not_there_is_refused(tmp_path, tokenizer, end, words):
    """A typing error left documents without an end, and what begins there was not evaluated."""
    transformers_folder(tmp_path)
    with pytest.raises(ConfigError, match=words):
        load_checkpoint(str(tmp_path), tokenizer=tokenizer, end=end, device="cpu")


def test_a_cache_changes_no_continuation(tmp_path):
    """What transformers computes with its cache is what the same model computes anew at each token."""
    transformers_folder(tmp_path)
    cached, _ = load_checkpoint(str(tmp_path), device="cpu")
    plain, _ = load_checkpoint(str(tmp_path), device="cpu")
    plain._cached = False
    prompts = [cached.tokenizer.encode(text) for text in ("river", "stones", "river stone")]
    made = [model.continued(prompts, [0, 1, 2], Decoding(tokens=15)) for model in (cached, plain)]
    assert [row.tolist() for row in made[0]] == [row.tolist() for row in made[1]]


def test_a_function_of_the_user_loads_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.ckpt").write_text("3")
    (tmp_path / "loads.py").write_text(
        "import torch\ndef load(path):\n    n = int(path.read_text())\n"
        "    return lambda ids: torch.zeros(*ids.shape, 257) + n\ndef fails(path):\n    raise KeyError('weights')\n"
    )
    model, _ = load_checkpoint("mine.ckpt", tokenizer="bytes", function="loads.py:load", context=16)
    assert float(model.logits(np.zeros((1, 2)))[0, 0, 0]) == 3.0
    with pytest.raises(ConfigError, match=r"--model loads.py:fails failed: KeyError: 'weights' \(loads.py, line 6\)"):
        load_checkpoint("mine.ckpt", tokenizer="bytes", function="loads.py:fails")
    with pytest.raises(ConfigError, match=r"--model: loads\.py has no `none`"):
        load_checkpoint("mine.ckpt", tokenizer="bytes", function="loads.py:none")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "there is no checkpoint"),
        ("text.pt", r"is no checkpoint of nanoGPT \(\w+"),
        ("other.pt", "is no checkpoint of nanoGPT"),
        ("folder", "holds no config.json"),
        ("broken", "transformers cannot load"),
    ],
)
def test_what_is_no_checkpoint_is_an_error_with_a_way_out(tmp_path, name, words):
    (tmp_path / "text.pt").write_text("no tensors")
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=words):
        load_checkpoint(str(tmp_path / name), tokenizer="bytes")


def test_a_model_of_the_last_position_alone_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").write_text("")
    (tmp_path / "last.py").write_text(
        "import torch\ndef load(path):\n    return lambda ids: torch.zeros(len(ids), 1, 9)\n"
    )
    model, _ = load_checkpoint("c", tokenizer="bytes", function="last.py:load", context=16)
    with pytest.raises(ConfigError, match=r"expected logits of \(1, 4\) positions and a vocabulary, found \(1, 1, 9\)"):
        model.logits(np.zeros((1, 4)))


def test_a_checkpoint_without_a_tokenizer_asks_for_it(tmp_path):
    nanogpt_checkpoint(tmp_path / "ckpt.pt", bias=True)
    with pytest.raises(ConfigError, match="--tokenizer bytes"):
        load_checkpoint(str(tmp_path / "ckpt.pt"))
