"""Nothing of ours raises, or changes a bit, in a loop: not in training, and not in a pass that nobody looks at."""

import ast
import contextlib
import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402
from lanes import thinned  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import dataaudit.vitals  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.hooks import Hook, nothing  # noqa: E402
from dataaudit.vitals.recorder import MOST_FAILURES  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = [
    pytest.mark.vitals,
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]
LENGTH, WIDTH = 12, 64


class Padded(nn.Module):
    """Layers of torch as they come, given what is padding."""

    def __init__(self, again=None, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, **{"batch_first": True, **options})
        self.encoder, self.first = nn.TransformerEncoder(layer, 2), layer.self_attn.batch_first
        self.again = again

    def forward(self, x, padding):
        x = x if self.first else x.transpose(0, 1)
        return self.encoder(x, src_key_padding_mask=padding)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 4, 96, batch_first=True), 2)

    def forward(self, x, padding):
        return self.decoder(x, x.flip(1), tgt_key_padding_mask=padding)


class Alone(nn.Module):
    """Attention of torch by itself, and a linear map that is called by a keyword."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True, dropout=0.1)
            self.norm, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x, padding):
            found, _ = self.attention(query=x, key=x, value=x, key_padding_mask=padding, need_weights=False)
            return x + self.mlp(input=self.norm(x + found))

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(self.Layer() for _ in range(2))

    def forward(self, x, padding):
        for layer in self.layers:
            x = layer(x, padding)
        return x


class Names(nn.Module):
    """Adapts a model of tokens."""

    def __init__(self, family, **options):
        super().__init__()
        self.inner = made.model_of(family, **options)

    def forward(self, x, padding):
        tokens = (x[..., 0].abs() * 1_000).long() % made.VOCAB
        found = self.inner(tokens, attention_mask=(~padding).long())
        return found if isinstance(found, torch.Tensor) else found.logits


MODULES = {
    "encoder": Padded,
    "encoder, gelu": lambda: Padded(activation="gelu"),
    "encoder, norm first": lambda: Padded(norm_first=True),
    "encoder, batch second": lambda: Padded(batch_first=False),
    "encoder, no bias": lambda: Padded(bias=False),
    "decoder": Decoder,
    "multihead": Alone,
    "mapped": lambda: Names("mapped"),
    "torch, causal": lambda: Names("multihead"),
    **{name: lambda name=name: Names(name) for name in ("llama", "gpt2", "qwen3", "mixtral")},
    **{name: lambda name=name: Names(name, function="eager") for name in ("gpt_oss", "gemma2")},
}


def batch(step):
    draw = torch.Generator().manual_seed(step)
    padding = torch.zeros(3, LENGTH, dtype=torch.bool)
    padding[0, 7:] = True
    return torch.randn(3, LENGTH, WIDTH, generator=draw), padding


def model_of(name):
    if name not in {"mapped", "torch, causal"} and not name.startswith(("encoder", "decoder", "multihead")):
        pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")
    torch.manual_seed(3)
    return MODULES[name]().train()


def loss_of(run, step):
    found = run(*batch(step)).float()
    return (found * torch.linspace(-1, 1, found.shape[-1])).square().mean()


def course(model, *, watched, backend=None, steps=3, spoil=nothing, inside=False):
    """Train and evaluate by turns; return everything whose bits must not change, the sink, and vitals."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(1)
    optimizer, sink, vitals, kept = torch.optim.AdamW(model.parameters(), lr=1e-3), MemorySink(), None, []
    if watched:
        inner = getattr(model, "inner", None)
        mapping = made.Mapping(**{**vars_of(made.MAPPING), "layers": "inner.blocks"})
        config = VitalsConfig(interval=1, adapt=False, mapping=mapping if isinstance(inner, made.Mapped) else None)
        vitals = Vitals(model, optimizer, config, [sink])
        vitals.escalate(100)  # all weights at every step
        spoil(vitals, model, optimizer)
    run = model if backend is None else torch.compile(model, backend=backend)

    def evaluate(step):
        model.eval()
        for mode in (torch.no_grad(), torch.inference_mode()) if backend is None else (torch.no_grad(),):
            with mode:
                kept.append(run(*batch(step)).clone())
        model.train()

    evaluate(100)
    for step in range(1, steps + 1):
        with vitals.step() if vitals else contextlib.nullcontext():
            for micro in range(2):
                loss = loss_of(run, 2 * step + micro)
                loss.backward()
                kept.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            if inside:
                evaluate(200 + step)
        evaluate(100 + step)
    counters["ours"]["graphs"] = counters["stats"]["unique_graphs"]  # the next pass after `close` may compile again
    if vitals:
        vitals.close()
    evaluate(110)
    return [*kept, *(one.detach() for one in model.parameters()), torch.get_rng_state()], sink, vitals


def vars_of(mapping):
    return {name: getattr(mapping, name) for name in ("layers", "attention", "heads", "mlp")}


@pytest.mark.parametrize("name", MODULES)
def test_losses_weights_and_generators_have_the_same_bits_in_training_and_evaluation(name):
    plain, _, _ = course(model_of(name), watched=False)
    watched, sink, vitals = course(model_of(name), watched=True)
    assert made.same(plain, watched)
    assert not vitals.failures
    assert {row[1] for row in sink.values} >= {"attn_entropy", "residual_rms", "grad_norm", "gsnr"}


@pytest.mark.parametrize("name", ["encoder", "encoder, norm first", "multihead", "mapped"])
def test_an_evaluation_within_a_step_ends_nothing(name):
    plain, _, _ = course(model_of(name), watched=False, inside=True)
    watched, sink, vitals = course(model_of(name), watched=True, inside=True)
    assert not vitals.failures
    for one, two in zip(plain[:-1], watched[:-1], strict=True):
        assert torch.allclose(one.float(), two.float(), atol=1e-5)
    assert "attn_entropy" in {row[1] for row in sink.values}


@pytest.mark.parametrize("name", thinned(["encoder", "multihead", "mapped", "llama"], few=["encoder", "mapped"]))
def test_passes_that_nobody_looks_at_compile_as_without_vitals_and_nothing_compiles_again(name):
    plain, _, _ = course(model_of(name), watched=False, backend="aot_eager")
    graphs = counters["ours"]["graphs"]
    watched, sink, _ = course(model_of(name), watched=True, backend="aot_eager")
    assert made.same(plain, watched)
    assert counters["ours"]["graphs"] == graphs == 2
    assert {row[0] for row in sink.values if row[1] == "attn_entropy"} == {1, 2, 3}


def test_a_pass_outside_before_the_first_step_does_not_blind_a_compiled_model():
    """Without dropout a compiler may take the same graph for both; it must not."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    sink, model = MemorySink(), Padded(dropout=0.0)
    vitals = Vitals(model, None, VitalsConfig(interval=1, adapt=False), [sink])
    run = torch.compile(model, backend="aot_eager")
    loss_of(run, 1).backward()
    for step in (2, 3):
        with vitals.step():
            loss_of(run, step).backward()
        loss_of(run, step).backward()
    vitals.close()
    assert {row[0] for row in sink.values if row[1] == "attn_entropy"} == {1, 2}


def test_layers_of_torch_that_were_compiled_before_the_first_step_are_said_not_to_be_seen():
    torch._dynamo.reset()
    torch.manual_seed(0)
    sink, model = MemorySink(), Padded(dropout=0.0).encoder
    vitals = Vitals(model, None, VitalsConfig(interval=1, adapt=False), [sink])
    run = torch.compile(model, backend="aot_eager")
    for step in (1, 2):
        run(batch(step)[0]).sum().backward()
        with vitals.step():
            run(batch(step)[0]).sum().backward()
    vitals.close()
    said = [detail for _, kind, detail in sink.events if kind == "not_seen"]
    seen = {row[0] for row in sink.values if row[1] == "attn_entropy"}
    assert seen == {1, 2} or all("compiled" in one["why"] for one in said)
    assert seen or {"attention", "block", "mlp"} >= {one["what"] for one in said} >= {"attention", "block"}


def hooks_of(vitals, model, optimizer):
    """Return every hook on modules, parameters and optimizers, and within wrapped functions: by what holds it."""
    found = []
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found += [(f"{name} {kind}", one) for one in getattr(module, kind).values()]
        tap = vars(module).get("_dataaudit_heads")
        found += [] if tap is None else [(f"{name} attention", tap.hook)]
    for name, parameter in model.named_parameters():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            found += [(f"{name} {kind}", one) for one in (getattr(parameter, kind) or {}).values()]
    for kind in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        found += [(kind, one) for one in getattr(optimizer, kind).values()]
    return found


def every_hook(vitals, model, optimizer):
    vitals._hooks.start([], turn=0, closely=False)  # those that are there for a step alone, too
    found = hooks_of(vitals, model, optimizer)
    vitals._hooks.stop()
    return found


def how_many(name):
    model = model_of(name)
    optimizer = torch.optim.AdamW(model.parameters())
    mapping = made.Mapping(**{**vars_of(made.MAPPING), "layers": "inner.blocks"}) if name == "mapped" else None
    with Vitals(model, optimizer, VitalsConfig(mapping=mapping)) as vitals:
        return len(every_hook(vitals, model, optimizer))


KINDS = ("encoder", "mapped", "llama", "multihead")


@pytest.mark.parametrize("name", KINDS)
def test_every_hook_is_behind_the_guard(name):
    model = model_of(name)
    mapping = made.Mapping(**{**vars_of(made.MAPPING), "layers": "inner.blocks"}) if name == "mapped" else None
    optimizer = torch.optim.AdamW(model.parameters())
    with Vitals(model, optimizer, VitalsConfig(mapping=mapping)) as vitals:
        found = every_hook(vitals, model, optimizer)
        assert len(found) > 20
        assert [where for where, one in found if type(one) is not Hook] == []
        outside = hooks_of(vitals, model, optimizer)
        if name == "encoder":
            assert not [where for where, _ in outside if "encoder.layers" in where and "forward" in where]
        assert isinstance(copy.deepcopy(found[0][1]), type(nothing))
    assert hooks_of(vitals, model, optimizer) == []


def test_what_sets_a_hook_in_the_source_hands_over_a_guarded_one():
    """A hook that is new, anywhere in the package, fails here where it is no `Hook`."""
    seen = set()
    for path in Path(dataaudit.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if path.name == "action_kinds.py":  # its user handed over that it changes the run
            continue
        for call in ast.walk(ast.parse(text)) if "hook" in text else ():
            name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
            if name.startswith("register_") and "hook" in name:
                seen.add((path.name, call.lineno))
                given = ast.unparse(call.args[0])
                assert given.startswith("Hook(") or given in {"hook", "before", "after"}, (path.name, call.lineno)
                assert given.startswith("Hook(") or "self._hook(" in text
    assert len(seen) >= 13
    assert {"optimizer_watch.py", "trainer.py", "model_hooks.py"} <= {name for name, _ in seen}


class SpoiltError(Exception):
    pass


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, None) for name in KINDS), *((name, "aot_eager") for name in thinned(KINDS, KINDS[1:2]))],
)
def test_an_error_in_any_hook_costs_its_number_and_no_bit(name, backend):
    """All hooks at once, then each kind by itself."""

    def raises(*_args, **_named):
        raise SpoiltError("no")

    def all_of_them(vitals, model, optimizer):
        for _, hook in every_hook(vitals, model, optimizer):
            hook._call = raises

    plain, _, _ = course(model_of(name), watched=False, backend=backend)
    watched, sink, vitals = course(model_of(name), watched=True, backend=backend, spoil=all_of_them)
    assert made.same(plain, watched)
    assert not [row for row in sink.values if row[1] in {"attn_entropy", "residual_rms", "grad_norm", "gsnr"}]
    assert {"updates", "gradients of micro-batches", "attention of layer 0"} <= set(vitals.failures)
    said = [detail for _, kind, detail in sink.events if kind == "not_seen"]
    assert {"updates", "gradients of micro-batches", "attention", "block"} <= {one["what"] for one in said}
    assert all("SpoiltError" in one["why"] for one in said if "singular values" not in one["why"]), said


@pytest.mark.parametrize("name", KINDS)
def test_an_error_in_one_hook_costs_nothing_else(name):
    plain, _, _ = course(model_of(name), watched=False, steps=1)
    for place in range(0, how_many(name), thinned(7, few=23)):

        def one_of_them(vitals, model, optimizer, place=place):
            hook = every_hook(vitals, model, optimizer)[place][1]

            def raises(*_args, **_named):
                raise SpoiltError("no")

            hook._call = raises

        watched, sink, vitals = course(model_of(name), watched=True, steps=1, spoil=one_of_them)
        assert made.same(plain, watched), place
        assert len({row[1] for row in sink.values}) >= 6
        assert len(vitals.failures) <= 1


def test_what_fails_for_a_while_comes_back_and_what_goes_on_failing_is_left_alone():
    model = model_of("llama")
    sink = MemorySink()
    with Vitals(model, None, VitalsConfig(interval=1, adapt=False), [sink]) as vitals:
        hook = model.inner.model.layers[0].self_attn._dataaudit_heads.hook
        own, calls = hook._call, []

        def raises(*_args, **_named):
            calls.append(1)
            raise SpoiltError("no")

        for step in range(1, 16):
            hook._call = raises if step == 2 or step >= 4 else own
            with vitals.step():
                loss_of(model, step)
    there = {row[0] for row in sink.values if row[1] == "attn_entropy" and row[2] == 0}
    assert there == {1, 3}
    assert vitals.failures["attention of layer 0"] == MOST_FAILURES
    assert {row[0] for row in sink.values if row[1] == "attn_entropy" and row[2] == 1} == {*range(1, 16)}
    (said,) = [detail for _, kind, detail in sink.events if kind == "not_seen"]
    assert said["why"].startswith("SpoiltError at test_harm.py:")


@pytest.mark.parametrize("where", ["_begin", "_end"])
def test_an_error_at_the_ends_of_a_step_ends_nothing(where, monkeypatch):
    def raises(*_):
        raise SpoiltError("no")

    def ends(vitals, *_):
        monkeypatch.setattr(vitals, where, raises)

    plain, _, _ = course(model_of("encoder"), watched=False)
    watched, sink, vitals = course(model_of("encoder"), watched=True, spoil=ends)
    assert made.same(plain, watched)
    assert vitals.steps == sum(vitals.failures.values()) == 3
    assert next(one["what"] for _, kind, one in sink.events if kind == "not_seen").endswith("of a step")


def test_attention_that_is_handed_its_mask_by_name_is_seen():
    """As RADIO's is."""
    transformers = pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")
    functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    model = model_of("llama")
    module = model.inner.model.layers[0].self_attn
    query = torch.randn(2, 4, 6, 16)
    with Vitals(model) as vitals, vitals.step():
        found, _ = functions["sdpa"](module, query, query, query, attention_mask=None, scaling=0.25, dropout=0.0)
        again, _ = functions["sdpa"](
            module=module, query=query, key=query, value=query, attention_mask=None, scaling=0.25, dropout=0.0
        )
    assert torch.equal(found, again)
    assert not vitals.failures
