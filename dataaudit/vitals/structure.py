"""What a model is made of, found by its structure: layers, attention, MLPs, norms, embeddings.

Layers are the children of the module list that holds the most parameters. Within a layer, attention is an
``nn.MultiheadAttention``, or a module of transformers whose attention function is chosen by name; the MLP is the
largest other child that holds linear maps; its units are what goes into its last linear map. Where that does not hold,
a :class:`Mapping` says it in two lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dataaudit.errors import ConfigError

_FUNCTION = "_attn_implementation"
_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
"""What the width of a head is called."""
EXACT_ROWS = "sampled rows in float32 over all keys"
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

    def __post_init__(self) -> None:
        for name in ("layers", "attention", "mlp", "embedding", "final_norm"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and (value is not None or name == "layers"):
                raise ConfigError(f"vitals: Mapping: {name}: expected a dotted name, found {value!r}")
        if not isinstance(self.heads, int) or isinstance(self.heads, bool) or self.heads < 0:
            raise ConfigError(f"vitals: Mapping: heads: expected a whole number, found {self.heads!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention of a layer."""

    module: nn.Module
    name: str
    kind: str
    """``transformers``, ``multihead`` or ``mapped``."""
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
    """Names of modules with parameters of their own that are none of these: nothing looks at what they return."""


def find(model: nn.Module, mapping: Mapping | None = None) -> Structure:
    """Find a model's parts.

    Raises:
        ConfigError: A name of the mapping is not there, or no layers are found.
    """
    names = {id(module): name for name, module in model.named_modules()}
    stack = _named(model, mapping.layers, "layers") if mapping is not None else _largest_list(model)
    if stack is None:
        raise ConfigError(
            "vitals: no module list of layers in the model",
            'Say where they are: Mapping(layers="transformer.h", attention="attn", heads=12, mlp="mlp").',
        )
    if mapping is not None and not any(True for _ in stack.children()):
        raise ConfigError(f"vitals: the mapping's layers, {mapping.layers}, has no modules in it")
    layers = tuple(_layer(index, names[id(one)], one, mapping, names) for index, one in enumerate(stack.children()))
    inside = {id(module) for layer in layers for module in layer.module.modules()}
    outside = [(name, module) for name, module in model.named_modules() if id(module) not in inside]
    embedding = _chosen(model, None if mapping is None else mapping.embedding, "embedding", _embeddings(outside))
    final_norm = _chosen(model, None if mapping is None else mapping.final_norm, "final_norm", _norms(outside))
    known = {id(found[1]) for found in (embedding, final_norm) if found is not None}
    others = tuple(name for name, one in outside if id(one) not in known and any(True for _ in one.parameters(False)))
    others += tuple(names[id(one)] for layer in layers for one in layer.module.modules() if _is_another(one, layer))
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
    return bool(own) and all(one.dim() == 1 for one in own) and "norm" in name and not any(module.children())


def _largest_list(model: nn.Module) -> nn.Module | None:
    lists = [one for one in model.modules() if isinstance(one, nn.ModuleList | nn.Sequential)]
    stacks = [one for one in lists if len(one) and all(_is_layer(child) for child in one.children())]
    return max(stacks, key=lambda one: sum(p.numel() for p in one.parameters()), default=None)


def _is_layer(module: nn.Module) -> bool:
    """Tell whether a module may be a layer: it holds attention, or a norm and a linear map."""
    inner = list(module.modules())[1:]
    return any(_is_attention(one) for one in inner) or (any(map(is_norm, inner)) and any(map(is_linear, inner)))


def _is_attention(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or _calls_by_name(module)


def _is_another(module: nn.Module, layer: Layer) -> bool:
    """Tell whether a module is attention of a layer that is not looked at, as that to an encoder."""
    own = layer.attention
    return own is not None and own.kind != "mapped" and module is not own.module and _is_attention(module)


def _calls_by_name(module: nn.Module) -> bool:
    config = getattr(module, "config", None)
    return (
        hasattr(config, _FUNCTION)
        and hasattr(module, "is_causal")
        and any(is_linear(one) for one in module.children())
        and any(hasattr(module, name) for name in _WIDTHS)
    )


def _layer(index: int, name: str, module: nn.Module, mapping: Mapping | None, names: dict[int, str]) -> Layer:
    why: dict[str, str] = {}
    if mapping is None:
        attentions = [one for one in module.modules() if _is_attention(one)]
    else:
        attentions = [] if mapping.attention is None else [_named(module, mapping.attention, "attention")]
    attention = None
    if attentions:
        attention = _attention(attentions[0], names[id(attentions[0])], mapping)
    else:
        why["attention"] = "no attention module found in it" if mapping is None else "the mapping names none"
    mlp = _mlp(module, attentions, mapping)
    linears = [one for one in (mlp or nn.Module()).modules() if is_linear(one)]
    if mlp is None and mapping is None:  # linear maps are the layer's own, as in nn.TransformerEncoderLayer
        linears = [one for one in module.children() if is_linear(one)]
    down = linears[-1] if linears and not _has_experts(mlp) else None
    if down is None:
        why["units"] = (
            "experts are held in one tensor: no module sees one unit" if _has_experts(mlp) else "no MLP found"
        )
    if mlp is None:
        why["mlp"] = "no MLP module found in it"
    units = 0 if down is None else _width(down)
    return Layer(index=index, name=name, module=module, attention=attention, mlp=mlp, down=down, units=units, why=why)


def _attention(module: nn.Module, name: str, mapping: Mapping | None) -> Attention:
    if isinstance(module, nn.MultiheadAttention):
        return Attention(module=module, name=name, kind="multihead", heads=module.num_heads)
    if _calls_by_name(module):
        config: Any = module.config
        heads = int(getattr(module, "num_heads", None) or config.num_attention_heads)
        function = function_of(module)
        return Attention(module=module, name=name, kind="transformers", heads=heads, function=function)
    assert mapping is not None
    return Attention(module=module, name=name, kind="mapped", heads=mapping.heads)


def function_of(module: Any) -> str:
    """Return the name of the function that an attention module of transformers calls."""
    return getattr(module.config, _FUNCTION, None) or "eager"


def _mlp(module: nn.Module, attentions: list[nn.Module], mapping: Mapping | None) -> nn.Module | None:
    if mapping is not None:
        return None if mapping.mlp is None else _named(module, mapping.mlp, "mlp")
    taken = {id(one) for found in attentions for one in found.modules()}
    found = [
        one
        for one in module.children()
        if id(one) not in taken
        and not is_linear(one)
        and not any(id(inner) in taken for inner in one.modules())
        and (any(is_linear(inner) for inner in one.modules()) or _has_experts(one))
    ]
    return max(found, key=lambda one: sum(p.numel() for p in one.parameters()), default=None)


def _has_experts(module: nn.Module | None) -> bool:
    return module is not None and any(one.dim() == 3 for one in module.parameters())


def _width(linear: nn.Module) -> int:
    if isinstance(linear, nn.Linear):
        return int(linear.in_features)
    weight: Any = linear.weight
    return int(weight.shape[0])


def _embeddings(modules: list[tuple[str, nn.Module]]) -> Iterator[tuple[str, nn.Module]]:
    found = [(name, one) for name, one in modules if isinstance(one, nn.Embedding)]
    yield from sorted(found, key=lambda named: -named[1].weight.numel())


def _norms(modules: list[tuple[str, nn.Module]]) -> Iterator[tuple[str, nn.Module]]:
    yield from reversed([(name, one) for name, one in modules if is_norm(one)])


def _chosen(
    model: nn.Module, name: str | None, what: str, found: Iterator[tuple[str, nn.Module]]
) -> tuple[str, nn.Module] | None:
    return next(found, None) if not name else (name, _named(model, name, what))


def _named(module: nn.Module, name: str, what: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        inner = ", ".join(one for one, _ in module.named_children()) or "nothing"
        raise ConfigError(f"vitals: the mapping's {what}, {name}, is not in {type(module).__name__}: {inner}") from None


def is_compiled(model: nn.Module) -> bool:
    """Tell whether a model, or a part of it, was compiled already; hooks set later are not seen."""
    return any(
        hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) is not None for one in model.modules()
    )


def parameters_of(
    structure: Structure, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer] = ()
) -> list[tuple[int, list[nn.Parameter]]]:
    """Return the parameters of each layer, by its index, then of all else as layer -1; each parameter once.

    Args:
        structure: Of the model.
        model: Whose parameters count that require a gradient,
        optimizers: and are one of these's, where there are any.
    """
    known = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    seen: set[int] = set()
    found = []
    for index, module in [*((layer.index, layer.module) for layer in structure.layers), (-1, model)]:
        own = [one for one in module.parameters() if one.requires_grad and id(one) not in seen]
        seen.update(map(id, own))
        found.append((index, [one for one in own if not optimizers or id(one) in known]))
    return [(index, own) for index, own in found if own]
