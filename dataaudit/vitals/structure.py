"""What a model is made of, found by its structure: layers, attention, MLPs, norms, embeddings.

Layers are the children of the module list that holds the most parameters. Within a layer, attention is an
``nn.MultiheadAttention``, or a module of transformers whose attention function is chosen by name; the MLP is the
largest other child that holds linear maps; its units are what goes into its last linear map. Where that does not hold,
a :class:`Mapping` says it in two lines.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.sharding import rows_split

_FUNCTION = "_attn_implementation"
_CALLS = {
    "ALL_ATTENTION_FUNCTIONS": "transformers",
    "scaled_dot_product_attention": "mapped",
    "softmax": "softmax",
    "Softmax": "softmax",
}
"""What the code of attention calls, the first of them, and what kind of attention that makes it."""
_HEADS = (
    *("num_heads", "num_attention_heads", "n_heads", "n_head", "num_attn_heads", "num_decoder_attention_heads"),
    *("heads", "nhead", "n_q_heads", "num_q_heads", "num_query_heads", "q_heads"),
)
"""What the number of heads is called, in a module or in its config."""
EXACT_ROWS = "sampled rows in float32 over all keys"
OWN_LOGITS = "sampled rows of the logits that the model makes"
PROJECTED = "sampled rows in float32, projected again from the module's weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Where a model's parts are, as dotted names.

    ::

        Mapping(layers="transformer.h", attention="attn", heads=12, mlp="mlp")
    """

    layers: str
    """The module list (or other sequence of modules) of its layers."""
    attention: str | None = None
    """Within a layer; it must call ``torch.nn.functional.scaled_dot_product_attention`` by that name."""
    heads: int = 0
    """Of its attention."""
    mlp: str | None = None
    """Within a layer."""
    embedding: str | None = None
    final_norm: str | None = None
    router: str | None = None
    """Of experts, within a layer: it holds a matrix [experts, d], and returns a number for each expert."""
    top_k: int = 0
    """Experts that a token is sent to, where neither the router nor what it returns says it."""

    def __post_init__(self) -> None:
        for name in ("layers", "attention", "mlp", "embedding", "final_norm", "router"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and (value is not None or name == "layers"):
                raise ConfigError(f"vitals: Mapping: {name}: expected a dotted name, found {value!r}")
        for name in ("heads", "top_k"):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ConfigError(f"vitals: Mapping: {name}: expected a whole number, found {number!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention of a layer."""

    module: nn.Module
    name: str
    kind: str
    """``transformers``: calls a function by its name; ``multihead``: torch's; ``mapped``: calls torch's function;
    ``softmax``: makes the matrix of logits itself; ``either``: as its config says."""
    heads: int
    function: str = ""
    """Of transformers: the name of the function it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of a model."""

    index: int
    name: str
    module: nn.Module
    attention: Attention | None
    mlp: nn.Module | None
    down: nn.Module | None
    """The last linear map of the MLP."""
    units: int
    why: dict[str, str] = field(default_factory=dict)
    """Of what is not there: why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A model's parts."""

    layers: tuple[Layer, ...]
    embedding: tuple[str, nn.Module] | None
    final_norm: tuple[str, nn.Module] | None
    others: tuple[str, ...]
    """Names of modules with parameters of their own that are none of these: what they return is not measured."""

    @property
    def width(self) -> int:
        """Of the embedding's vectors; 0 where none was found."""
        weight = None if self.embedding is None else getattr(self.embedding[1], "weight", None)
        return 0 if weight is None else int(weight.shape[-1])

    def missing(self, what: str) -> str:
        """Return why a layer, the first that does, lacks a part; empty where none does."""
        return next((layer.why[what] for layer in self.layers if what in layer.why), "")


def find(model: nn.Module, mapping: Mapping | None = None) -> Structure:
    """Find a model's parts."""
    names = {id(module): name for name, module in model.named_modules()}
    stack = _named(model, mapping.layers, "layers") if mapping is not None else _largest_list(model)
    if stack is None:
        raise ConfigError(
            "vitals: no module list of layers in the model",
            'Say where they are: Mapping(layers="transformer.h", attention="attn", heads=12, mlp="mlp").',
        )
    if mapping is not None and not any(True for _ in stack.children()):
        raise ConfigError(f"vitals: the mapping's layers, {mapping.layers}, has no modules in it")
    layers = tuple(
        _layer(index, names[id(child)], child, mapping, names) for index, child in enumerate(stack.children())
    )
    inside = {id(module) for layer in layers for module in layer.module.modules()}
    outside = [(name, module) for name, module in model.named_modules() if id(module) not in inside]
    norms = [(name, module) for name, module in reversed(outside) if is_norm(module)]
    embeddings = _embeddings(outside, layers[0].name)
    embedding = _chosen(model, None if mapping is None else mapping.embedding, "embedding", embeddings)
    final_norm = _chosen(model, None if mapping is None else mapping.final_norm, "final_norm", norms)
    known = {id(named[1]) for named in (embedding, final_norm) if named is not None}
    others = tuple(
        name or f"weights of {type(item).__name__} itself"
        for name, item in outside
        if id(item) not in known and any(True for _ in item.parameters(False))
    )
    others += tuple(
        names[id(module)] for layer in layers for module in layer.module.modules() if _is_another(module, layer)
    )
    return Structure(layers=layers, embedding=embedding, final_norm=final_norm, others=others)


def is_linear(module: nn.Module) -> bool:
    """Tell whether a module is a linear map: ``nn.Linear``, or one with a matrix as its only weight, as Conv1D is."""
    if isinstance(module, nn.Linear):
        return True
    own = dict(module.named_parameters(recurse=False))
    weight = own.get("weight")
    return (
        weight is not None
        and weight.dim() == 2
        and set(own) <= {"weight", "bias"}
        and not isinstance(module, nn.Embedding)
        and not any(True for _ in module.children())
    )


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module scales what it gets element by element: its only parameters are vectors."""
    own = list(module.parameters(recurse=False))
    name = type(module).__name__.lower()
    return bool(own) and all(item.dim() == 1 for item in own) and "norm" in name and not any(module.children())


def _largest_list(model: nn.Module) -> nn.Module | None:
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    stacks = [part for part in lists if len(part) and all(_is_layer(child) for child in part.children())]
    return max(stacks, key=lambda stack: sum(p.numel() for p in stack.parameters()), default=None)


def _is_layer(module: nn.Module) -> bool:
    """Tell whether a module may be a layer: it holds attention, or a norm and a linear map."""
    inner = list(module.modules())[1:]
    return any(_is_attention(item) for item in inner) or (any(map(is_norm, inner)) and any(map(is_linear, inner)))


def _is_attention(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or _kind(type(module)) is not None


def _kind_of(of: Any) -> str | None:
    """Return of what kind the attention of a class is, by the names that its code uses; None: it is none."""
    used = names_used(of)
    kind = next((kind for name, kind in _CALLS.items() if name in used), None)
    if kind == "mapped" and used & {"softmax", "Softmax"}:
        kind = "either"
    name = of.__name__.lower()
    return kind if kind != "softmax" or "atten" in name or "attn" in name else None


_kind: Callable[[Any], str | None] = functools.cache(_kind_of)


def names_used(of: type) -> set[str]:
    """Return the names that the code of a class uses, but for what it has from torch."""
    own = [vars(item) for item in of.__mro__ if not item.__module__.startswith("torch.nn.modules")]
    functions = [inspect.unwrap(item) for names in own for item in names.values() if inspect.isfunction(item)]
    return {name for function in functions for name in _names(function.__code__)}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _innermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Return those that hold none of the others; first those that say most surely that they are attention."""
    chosen, kinds = {id(module) for module in modules}, [None, "transformers", "mapped", "either", "softmax"]
    inner = [module for module in modules if not any(id(inner) in chosen for inner in [*module.modules()][1:])]
    return sorted(inner, key=lambda item: kinds.index(_kind(type(item))))


def _heads(module: Any) -> int:
    """Return how many heads attention has, 0 where no name says so."""
    named = (getattr(owner, name, None) for owner in (module, getattr(module, "config", None)) for name in _HEADS)
    return next((value for value in named if isinstance(value, int) and value > 0), 0)


def _is_another(module: nn.Module, layer: Layer) -> bool:
    """Tell whether a module is attention of a layer that is not measured, as that to an encoder."""
    own = layer.attention
    return own is not None and own.kind != "mapped" and module is not own.module and _is_attention(module)


def _layer(index: int, name: str, module: nn.Module, mapping: Mapping | None, names: dict[int, str]) -> Layer:
    why: dict[str, str] = {}
    if mapping is None:
        attentions = _innermost([item for item in module.modules() if _is_attention(item)])
    else:
        attentions = [] if mapping.attention is None else [_named(module, mapping.attention, "attention")]
    attention = _attention(attentions[0], names[id(attentions[0])], mapping) if attentions else None
    if attention is None:
        why["attention"] = _no_attention(name) if mapping is None else "the mapping names none"
    mlp = _mlp(module, attentions, mapping)
    linears = [item for item in (mlp or nn.Module()).modules() if is_linear(item)]
    if mlp is None and mapping is None:  # linear maps are the layer's own, as in nn.TransformerEncoderLayer
        linears = [child for child in module.children() if is_linear(child)]
    down = linears[-1] if linears and not _has_experts(mlp) else None
    if down is None:
        why["units"] = "experts are a single tensor: no module sees a unit" if _has_experts(mlp) else "no MLP found"
    if mlp is None:
        why["mlp"] = "no MLP module found in it"
    units = 0 if down is None else _width(down)
    return Layer(index=index, name=name, module=module, attention=attention, mlp=mlp, down=down, units=units, why=why)


def _no_attention(layer: str) -> str:
    where = layer.rpartition(".")[0] or layer
    return (
        "no module in it calls softmax in a class with `attn` or `atten` in its name, scaled_dot_product_attention of "
        "torch, or a function of transformers, so there are no weights to look at;"
        f' if a module does: Mapping(layers="{where}", attention="...", heads=...)'
    )


def _attention(module: nn.Module, name: str, mapping: Mapping | None) -> Attention:
    if isinstance(module, nn.MultiheadAttention):
        return Attention(module=module, name=name, kind="multihead", heads=module.num_heads)
    heads = (mapping.heads if mapping is not None else 0) or _heads(module)
    kind = _kind(type(module)) or "mapped"
    function = function_of(module) if kind == "transformers" else ""
    return Attention(module=module, name=name, kind=kind, heads=heads, function=function)


def function_of(module: Any) -> str:
    """Return the name of the function that an attention module of transformers calls."""
    return getattr(module.config, _FUNCTION, None) or "eager"


def _mlp(module: nn.Module, attentions: list[nn.Module], mapping: Mapping | None) -> nn.Module | None:
    if mapping is not None:
        return None if mapping.mlp is None else _named(module, mapping.mlp, "mlp")
    taken = {id(attention) for attention in attentions}
    return max(_without(module, taken), key=lambda item: sum(p.numel() for p in item.parameters()), default=None)


def _without(module: nn.Module, taken: set[int]) -> Iterator[nn.Module]:
    """Return the largest modules that hold linear maps and none of those that are taken."""
    for child in module.children():
        if id(child) in taken or is_linear(child):
            continue
        if any(id(inner) in taken for inner in child.modules()):
            yield from _without(child, taken)
        elif any(is_linear(inner) for inner in child.modules()) or _has_experts(child):
            yield child


def _has_experts(module: nn.Module | None) -> bool:
    return module is not None and any(parameter.dim() == 3 for parameter in module.parameters())


def _width(linear: nn.Module) -> int:
    if isinstance(linear, nn.Linear):
        return int(linear.in_features) // rows_split(linear)[0]
    weight: Any = linear.weight
    return int(weight.shape[0])


def _embeddings(modules: list[tuple[str, nn.Module]], layer: str) -> list[tuple[str, nn.Embedding]]:
    """Return embeddings, positions last, then the largest first; of a shared weight, the nearest to the layers."""
    embeddings = [(name, module) for name, module in modules if isinstance(module, nn.Embedding)]

    def order(named: tuple[str, nn.Embedding]) -> tuple[bool, int, int]:
        own, *parts = named[0].split(".")[-1], *zip(named[0].split("."), layer.split("."), strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))
        return "pos" in own or "wpe" in own, -named[1].weight.numel(), -shared

    return sorted(embeddings, key=order)


def _chosen(
    model: nn.Module, name: str | None, what: str, others: Sequence[tuple[str, nn.Module]]
) -> tuple[str, nn.Module] | None:
    """Return the module of a name; without one, the first of others."""
    return (name, _named(model, name, what)) if name else next(iter(others), None)


def _named(module: nn.Module, name: str, what: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        inner = ", ".join(item for item, _ in module.named_children()) or "nothing"
        raise ConfigError(f"vitals: the mapping's {what}, {name}, is not in {type(module).__name__}: {inner}") from None


def is_compiled(model: nn.Module) -> bool:
    """Tell whether a model, or a part of it, was compiled already; hooks set later are not seen."""
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def parameters_of(
    structure: Structure, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer] = ()
) -> list[tuple[int, list[nn.Parameter]]]:
    """Return the parameters of each layer, by its index, then of all else as layer -1; each parameter once."""
    known = {id(item) for optimizer in optimizers for group in optimizer.param_groups for item in group["params"]}
    seen: set[int] = set()
    groups = []
    for index, module in [*((layer.index, layer.module) for layer in structure.layers), (-1, model)]:
        own = [parameter for parameter in module.parameters() if parameter.requires_grad and id(parameter) not in seen]
        seen.update(map(id, own))
        groups.append((index, [item for item in own if not optimizers or id(item) in known]))
    return [(index, own) for index, own in groups if own]
