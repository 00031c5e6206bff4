"""Models that do what others do not: their numbers are right, or nothing is told and it is said; training goes on."""

import math

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

from torch import nn  # noqa: E402

from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.structure import Mapping  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
HEADS, LENGTH, WIDTH = 4, 12, 16


class Attention(nn.Module):
    """Hands its mask over in a form of one's choice."""

    def __init__(self, form):
        super().__init__()
        self.form, self.qkv, self.out = form, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        self.held = query.detach(), key.detach()
        lower = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        added = torch.zeros(LENGTH, LENGTH).masked_fill(~lower, -math.inf)
        masks = {"matrix": lower, "matrix of numbers": added, "three": lower[None], "four": added[None, None]}
        attend = nn.functional.scaled_dot_product_attention
        if self.form == "no heads":
            found = attend(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)).view(value.shape)
        elif self.form in masks:
            found = attend(query, key, value, attn_mask=masks[self.form])
        else:
            found = attend(query=query, key=key, value=value, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, form, returns):
        super().__init__()
        self.norm, self.attn, self.returns = nn.LayerNorm(WIDTH), Attention(form), returns
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        x = x + self.mlp(x)
        return {"dict": {"x": x}, "list": [x], "number first": (3, x)}.get(self.returns, x)


class Model(nn.Module):
    def __init__(self, form="keywords", returns=""):
        super().__init__()
        self.layers = nn.ModuleList(Block(form, returns) for _ in range(2))

    def forward(self, x):
        for block in self.layers:
            x = block(x)
            x = x["x"] if isinstance(x, dict) else x if isinstance(x, torch.Tensor) else x[-1]
        return x


def test_attention_is_found_by_what_it_calls_and_not_by_the_name_of_its_class():
    class Mixer(Attention):
        """Named as no attention is, as a class GQA or MLA is."""

    class Odd(Model):
        """Has a matrix of its own, beside its layers."""

        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))

    named, other = Model(), Odd()
    for model, name in ((named, "num_heads"), (other, "heads")):
        for block in model.layers:
            block.attn.__class__ = Mixer if model is other else Attention
            setattr(block.attn, name, HEADS)
    found = [Vitals(model, None).summary()["found"] for model in (named, other)]
    assert found[0]["attention"] == found[1]["attention"] == f"2 of 2 layers, {HEADS} heads, mapped"
    assert (found[0]["not_seen"], found[1]["not_seen"]) == ("nothing", "weights of Odd itself")


def looked(model, batch=2, steps=3, heads=HEADS):
    """Return the sink of some steps; every one has to go on as without."""
    sink = MemorySink()
    mapping = Mapping(layers="layers", attention="attn", heads=heads, mlp="mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    config = VitalsConfig(adapt=False, interval=1, mapping=mapping)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        for step in range(steps):
            x = torch.randn(batch, LENGTH, WIDTH, generator=torch.Generator().manual_seed(step))
            with vitals.step():
                model(x).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    return sink


def events(sink, kind):
    return [detail for _, one, detail in sink.events if one == kind]


def values(sink, metric, stat, step):
    return {row[2:4]: row[5] for row in sink.values if row[:2] == (step, metric) and row[4] == stat}


@pytest.mark.parametrize("form", ["keywords", "matrix", "matrix of numbers", "three", "four"])
def test_a_mask_of_any_form_is_read_as_the_attention_function_reads_it(form):
    torch.manual_seed(0)
    model = Model(form)
    sink = looked(model, steps=1)
    query, key = (one[1].double() for one in model.layers[0].attn.held)  # step 1 looks at row 1 of the batch
    logits = (query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).masked_fill(
        ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(), -math.inf
    )
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1).mean(-1)
    found = values(sink, "attn_entropy", "mean", 1)
    largest = values(sink, "max_attn_logit", "sampled", 1)
    for head in range(HEADS):
        assert found[0, head] == pytest.approx(entropy[head].item(), abs=1e-5)
        assert largest[0, head] == pytest.approx(logits[head].max().item(), abs=1e-5)
    assert not events(sink, "not_seen")


@pytest.mark.parametrize("returns", ["dict", "list"])
def test_what_is_returned_in_a_container_is_seen(returns):
    assert set(values(looked(Model(returns=returns)), "residual_rms", "block", 2)) == {(0, -1), (1, -1)}


def test_what_is_returned_and_is_no_tensor_is_not_seen_and_said_once():
    sink = looked(Model(returns="number first"))
    (said,) = events(sink, "not_seen")
    assert (said["what"], said["layers"]) == ("block", [0, 1])
    assert not values(sink, "residual_rms", "block", 2)
    assert values(sink, "attn_entropy", "mean", 2)


@pytest.mark.parametrize(
    ("form", "heads", "words"),
    [
        ("no heads", HEADS, "queries of 3 dimensions"),
        ("keywords", 2, "queries of 4 heads, expected 2"),
        ("keywords", 8, "queries of 4 heads, expected 8"),
    ],
)
def test_attention_that_is_not_as_it_was_found_is_not_seen_and_said_once(form, heads, words):
    sink = looked(Model(form), heads=heads)
    (said,) = events(sink, "not_seen")
    assert (said["what"], said["layers"]) == ("attention", [0, 1])
    assert words in said["why"]
    assert not [row for row in sink.values if row[1] == "attn_entropy"]
    assert not events(sink, "nan_inf")
    assert values(sink, "residual_rms", "block", 2)


def test_an_empty_batch_ends_nothing():
    sink = looked(Model(), batch=0)
    assert not events(sink, "nan_inf")


def test_layers_of_torch_without_a_batch_and_attention_to_an_encoder_that_is_not_looked_at():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, dropout=0.0)
    model, sink = nn.TransformerEncoder(layer, 2), MemorySink()
    with Vitals(model, None, VitalsConfig(interval=1), [sink]) as vitals, vitals.step():
        model(torch.randn(9, WIDTH)).sum().backward()
    assert len(values(sink, "attn_entropy", "mean", 1)) == 2 * HEADS
    assert not events(sink, "not_seen")
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 32, batch_first=True), 2)
    with Vitals(decoder) as vitals:
        assert "layers.0.multihead_attn, layers.1.multihead_attn" in str(vitals)


@pytest.mark.parametrize("name", ["wpe", "position_embeddings"])
def test_of_a_small_vocabulary_the_embedding_is_that_of_tokens(name):
    model = Model()
    model.add_module(name, nn.Embedding(64, WIDTH))
    model.wte = nn.Embedding(27, WIDTH)
    assert Vitals(model).summary()["found"]["embedding"] == "wte"


def test_attention_of_encoders_of_transformers_is_found():
    transformers = pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model, sink = transformers.BertModel(config).eval(), MemorySink()
    tokens = torch.arange(24).reshape(2, 12)
    config._attn_implementation = "sdpa"
    with Vitals(model, None, VitalsConfig(interval=1), [sink]) as vitals, vitals.step():
        model(tokens)
    eager = model
    eager.config._attn_implementation = "eager"
    weights = eager(tokens, output_attentions=True).attentions
    found = values(sink, "attn_entropy", "mean", 1)
    for layer, held in enumerate(weights):
        entropy = torch.special.entr(held[1].double()).sum(-1).mean(-1)
        assert [found[layer, head] for head in range(4)] == pytest.approx(entropy.tolist(), abs=1e-4)
