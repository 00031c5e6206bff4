"""Query and key projections of a layer's attention, found by names and shapes, as matrices of heads.

W of a head is d_head x d. Gains of norms are folded in: of the norm before attention by columns, of norms of queries
and keys by rows. What does not depend on a weight of the layer is left out: rotations by position, biases, how a norm
centres and divides, constant factors. So it is the part of the logits that content makes.

Layouts:

- Apart: ``q_proj`` and ``k_proj``, and other names of the same; keys of fewer heads serve groups of queries.
- Stacked: ``qkv``, ``Wqkv``, ``qkv_proj``, ``c_attn``, ``in_proj_weight``: all queries, then all keys.
- By group: ``query_key_value``, ``linear_qkv``, ``wqkv``: of each group its queries, its key, its value.
- Latent (DeepSeek V2, V3): the part of queries and keys without positions, times the projections down to the latents.

Which norm stands before attention is read in the code of ``forward``: what its argument was made by.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dataaudit.base.errors import CatchErrors
from dataaudit.vitals.structure import Layer, is_norm

_APART = (
    ("q_proj", "k_proj"),
    ("query", "key"),
    ("q_lin", "k_lin"),
    ("wq", "wk"),
    ("w_q", "w_k"),
    ("to_q", "to_k"),
    ("query_proj", "key_proj"),
    ("q", "k"),
)
_STACKED = ("qkv", "Wqkv", "qkv_proj", "c_attn")
_BY_GROUP = ("query_key_value", "linear_qkv", "wqkv")
_OTHER_LAYOUTS = ("CodeGenAttention", "GPTBigCodeAttention", "MiniMaxLightningAttention")
"""Classes of transformers whose stacked projection has another layout."""
_NORMS = {
    "query": ("q_norm", "q_layernorm", "query_layernorm", "query_norm"),
    "key": ("k_norm", "k_layernorm", "key_layernorm", "key_norm"),
}
_NORMS_TOGETHER = ("qk_norm", "qk_layernorm")
_SIZES = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim")
"""What d_head is called, in an attention module."""


class _UnknownError(ValueError):
    """Says why projections are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a parameter."""

    parameter: nn.Parameter
    view: Callable[[torch.Tensor], torch.Tensor]
    """Of a tensor of the parameter's shape."""
    offset: float = 0.0
    """What is added to a gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A projection of queries, or of keys.

    Attributes:
        parts: ``rows`` [heads, d_head, inputs]; and of ``gain`` [inputs], ``row_gain`` [1 or heads, d_head, 1],
            ``down`` [inputs, d] and ``down_gain`` [d] those that there are.
        heads: How many.
        size: d_head.
        width: d.
    """

    parts: Mapping[str, Part]
    heads: int
    size: int
    width: int

    def of(self, tensors: Mapping[str, torch.Tensor], heads: slice) -> torch.Tensor:
        """Return W of some heads, float64[heads, d_head, d], of tensors of its parts."""

        def gain(name: str) -> torch.Tensor | float:
            return tensors[name].double() + self.parts[name].offset if name in tensors else 1.0

        rows = tensors["rows"][heads].to(torch.float64, copy=True)
        row_gain = gain("row_gain")
        if isinstance(row_gain, torch.Tensor):
            rows *= row_gain[heads] if len(row_gain) > 1 else row_gain
        rows *= gain("gain")
        return rows @ (tensors["down"].double() * gain("down_gain")) if "down" in tensors else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Projections:
    """Projections of a layer's queries and keys."""

    layer: int
    query: Projection
    key: Projection

    def both(self) -> tuple[tuple[str, Projection], ...]:
        """Return both with their names."""
        return ("query", self.query), ("key", self.key)


def projections_of(layer: Layer) -> Projections | str:
    """Return a layer's projections of queries and keys, or why they are not known."""
    attention = layer.attention
    if attention is None:
        return layer.why["attention"]
    if attention.heads < 1:
        return "how many heads it has is not known: Mapping(..., heads=...)"
    try:
        query, key = _found(attention.module, layer.module, attention.heads)
    except _UnknownError as error:
        return str(error)
    return Projections(layer=layer.index, query=query, key=key)


def _found(module: nn.Module, layer: nn.Module, heads: int) -> tuple[Projection, Projection]:
    if isinstance(module, nn.MultiheadAttention):
        return _multihead(module, layer)
    children = dict(module.named_children())
    if "kv_b_proj" in children:
        return _latent(module, layer, heads)
    for names in _APART:
        if set(names) <= children.keys():
            rows = [_rows(module, name) for name in names]
            return _together(module, layer, names[0], heads, *rows)
    for name in (*_STACKED, *_BY_GROUP):
        if name in children:
            if type(module).__name__ in _OTHER_LAYOUTS:
                raise _UnknownError(f"how {type(module).__name__} stacks queries and keys is not known")
            fused = _rows(module, name)
            return _together(module, layer, name, heads, *_unstacked(module, fused, heads, grouped=name in _BY_GROUP))
    named = ", ".join(name for name, child in children.items() if any(True for _ in child.parameters()))
    raise _UnknownError(f"none of its projections has a name that is known: {named or 'it has none'}")


def _multihead(module: nn.MultiheadAttention, layer: nn.Module) -> tuple[Projection, Projection]:
    heads, width = module.num_heads, module.embed_dim
    if module.in_proj_weight is None:
        query, key = (Part(parameter=item, view=_same) for item in (module.q_proj_weight, module.k_proj_weight))
    else:
        query, key = (
            Part(parameter=module.in_proj_weight, view=functools.partial(_some, first=first, count=width))
            for first in (0, width)
        )
    return _together(module, layer, "", heads, query, key)


def _together(
    module: nn.Module, layer: nn.Module, name: str, heads: int, query: Part, key: Part
) -> tuple[Projection, Projection]:
    """Return projections of rows [heads · d_head, d] each, with gains of norms."""
    outputs, width = _shape(query)
    size = _size(module) or outputs // heads
    if outputs != heads * size:
        raise _UnknownError(f"{outputs} rows of queries are not those of {heads} heads of {size}")
    of_keys = _shape(key)[0]
    key_heads = of_keys // size
    if of_keys % size or not key_heads or heads % key_heads:
        raise _UnknownError(f"{of_keys} rows of keys are not those of heads of {size} that serve {heads} of queries")
    before = _gain_before(module, name, layer, width)
    projections = []
    for kind, count, rows in (("query", heads, query), ("key", key_heads, key)):
        parts = {"rows": _viewed(rows, functools.partial(_by_head, heads=count)), **before}
        parts |= _gain_after(module, kind, count, size)
        projections.append(Projection(parts=parts, heads=count, size=size, width=width))
    return projections[0], projections[1]


def _latent(module: Any, layer: nn.Module, heads: int) -> tuple[Projection, Projection]:
    """Return projections of latent attention, the part without positions."""
    sizes = [getattr(module, name, None) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
    if not all(isinstance(item, int) for item in sizes):
        raise _UnknownError("which part of its keys has no positions is not known")
    size, rotated, values = sizes
    projections = []
    for name, down, norm, rest in (
        ("q_b_proj" if hasattr(module, "q_b_proj") else "q_proj", "q_a_proj", "q_a_layernorm", rotated),
        ("kv_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", values),
    ):
        up = _rows(module, name)
        outputs, inner = _shape(up)
        if outputs != heads * (size + rest):
            raise _UnknownError(f"{outputs} rows of {name} are not those of {heads} heads of {size + rest}")
        parts = {"rows": _viewed(up, functools.partial(_first_of_each, heads=heads, size=size))}
        width = inner
        if name == "q_proj":
            parts |= _gain_before(module, name, layer, width)
        else:
            below = _rows(module, down)
            latent = _viewed(below, functools.partial(_some, first=0, count=inner))
            width = _shape(latent)[1]
            own = getattr(module, norm, None)
            if own is None:
                raise _UnknownError(f"it has no {norm}")
            parts |= {"down": latent} | _gain_of("gain", own, norm, inner)
            parts |= {"down_gain": item for item in _gain_before(module, down, layer, width).values()}
        projections.append(Projection(parts=parts, heads=heads, size=size, width=width))
    return projections[0], projections[1]


def _unstacked(module: nn.Module, fused: Part, heads: int, *, grouped: bool) -> tuple[Part, Part]:
    """Return rows of queries and of keys of a projection that makes values, too."""
    outputs, width = _shape(fused)
    size = _size(module) or (width // heads if width % heads == 0 else 0)
    key_heads, rest = divmod(outputs - heads * size, 2 * size) if size else (0, 1)
    if rest or key_heads < 1 or heads % key_heads:
        raise _UnknownError(f"{outputs} rows are not queries of {heads} heads with their keys and values")
    if grouped:
        each = heads // key_heads
        views = (
            functools.partial(_of_groups, groups=key_heads, size=size, first=first, count=count)
            for first, count in ((0, each), (each, 1))
        )
    else:
        views = (
            functools.partial(_some, first=first * size, count=count * size)
            for first, count in ((0, heads), (heads, key_heads))
        )
    query, key = (_viewed(fused, view) for view in views)
    return query, key


def _rows(module: nn.Module, name: str) -> Part:
    """Return the weight of a linear map, one row for each output."""
    linear = getattr(module, name, None)
    if linear is None:
        raise _UnknownError(f"it has no {name}")
    weight = linear._parameters.get("weight")  # noqa: SLF001 - what a parametrization computes is none
    transposed = type(linear).__name__ == "Conv1D"
    if not (isinstance(linear, nn.Linear) or transposed):
        raise _UnknownError(f"{name} is a {type(linear).__name__}, no linear map of torch")
    if weight is None:
        raise _UnknownError(f"the weight of {name} is computed from other parameters")
    if hasattr(weight, "to_local"):
        raise _UnknownError(f"{name} is sharded: no rank has a whole head of it")
    if weight.dim() != 2 or not weight.is_floating_point():
        raise _UnknownError(f"the weight of {name} is no matrix of floating point numbers")
    return Part(parameter=weight, view=_turned if transposed else _same)


def _size(module: nn.Module) -> int:
    sizes = (getattr(module, name, None) for name in _SIZES)
    return next((size for size in sizes if isinstance(size, int) and size > 0), 0)


def _shape(part: Part) -> torch.Size:
    return part.view(part.parameter.detach()).shape


def _viewed(part: Part, view: Callable[[torch.Tensor], torch.Tensor]) -> Part:
    return Part(parameter=part.parameter, view=lambda tensor: view(part.view(tensor)), offset=part.offset)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT


def _some(tensor: torch.Tensor, first: int, count: int) -> torch.Tensor:
    return tensor[first : first + count]


def _by_head(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    return tensor.unflatten(0, (heads, -1))


def _first_of_each(tensor: torch.Tensor, heads: int, size: int) -> torch.Tensor:
    return tensor.unflatten(0, (heads, -1))[:, :size]


def _of_groups(tensor: torch.Tensor, groups: int, size: int, first: int, count: int) -> torch.Tensor:
    return tensor.unflatten(0, (groups, -1, size))[:, first : first + count].flatten(0, 2)


def _gain_after(module: nn.Module, kind: str, heads: int, size: int) -> dict[str, Part]:
    """Return the gain of the norm of queries or of keys, [1 or heads, d_head, 1]."""
    norms = [(name, child) for name, child in module.named_children() if name in _NORMS[kind]]
    unknown = [name for name, child in module.named_children() if name in _NORMS_TOGETHER and [*child.parameters()]]
    if unknown:
        raise _UnknownError(f"how {unknown[0]} scales queries and keys is not known")
    return {
        role: _viewed(gain, lambda tensor: tensor.reshape(-1, size, 1))
        for name, norm in norms
        for role, gain in _gain_of("row_gain", norm, name, size, heads * size).items()
    }


def _gain_before(module: nn.Module, name: str, layer: nn.Module, width: int) -> dict[str, Part]:
    """Return the gain of the norm whose output a projection of attention is given, [d]; nothing without one."""
    if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return _gain_of("gain", layer.norm1, "norm1", width) if layer.norm_first else {}
    known = False
    for owner, child in _path(layer, module, name):
        passed = _argument(owner, child)
        known |= passed is not None
        if isinstance(passed, nn.Module):
            return _gain_of("gain", passed, f"the norm before {child}", width)
    if not known:
        raise _UnknownError("the code of its layer does not show what attention is given, and by which norm")
    return {}


def _gain_of(role: str, norm: nn.Module, name: str, *sizes: int) -> dict[str, Part]:
    """Return the gain of a norm by its role; nothing where it has none.

    Some multiply by their weight, others by 1 + weight: what the norm makes of 1, -1, 1 ... says which.
    """
    weight = norm._parameters.get("weight")  # noqa: SLF001 - what a parametrization computes is none
    if weight is None and not any(True for _ in norm.parameters()):
        return {}
    unknown = _UnknownError(f"how {name}, a {type(norm).__name__}, scales is not known")
    if (
        weight is None
        or weight.numel() not in sizes
        or hasattr(weight, "to_local")
        or any(True for _ in norm.buffers())
    ):
        raise unknown
    with torch.no_grad(), CatchErrors() as guarded:
        signs = torch.ones_like(weight)
        signs[..., 1::2] = -1
        scale = ((norm.forward(signs) - norm.forward(-signs)) / 2 * signs).float()
        for offset in (0.0, 1.0):
            if torch.allclose(scale, weight.float() + offset, rtol=0.01, atol=0.01):
                return {role: Part(parameter=weight, view=torch.flatten, offset=offset)}
    del guarded
    raise unknown


def _path(layer: nn.Module, module: nn.Module, name: str) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules above a projection, attention first, and by which name each calls the next."""
    if name:
        yield module, name
    names = next(own for own, item in layer.named_modules() if item is module).split(".")
    for depth in range(len(names) - 1, -1, -1):
        yield layer.get_submodule(".".join(names[:depth])), names[depth]


def _argument(owner: nn.Module, child: str) -> nn.Module | str | None:
    """Return the norm that made what a module gives to a child; its code where no norm did; None: it is not there."""
    body = _body(type(owner))
    return None if body is None else _Reader(owner, child).read(body)


@functools.cache
def _body(kind: type[nn.Module]) -> Sequence[ast.stmt] | None:
    """Return the statements of ``forward`` of a class; None where its code is not there."""
    with CatchErrors() as guarded:
        function = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))).body[0]
    return function.body if guarded.error is None and isinstance(function, ast.FunctionDef) else None


class _Reader:
    """Follows variables through the code of ``forward`` until it calls a child."""

    def __init__(self, owner: nn.Module, child: str) -> None:
        self._owner, self._child = owner, child
        self._by_norm: dict[str, nn.Module | None] = {}
        """By variable: the norm that made it."""

    def read(self, statements: Sequence[ast.stmt]) -> nn.Module | str | None:
        """Return what the child is given."""
        for item in statements:
            passed = self._branches(item) if isinstance(item, ast.If | ast.For | ast.With) else self._statement(item)
            if passed is not None:
                return passed
        return None

    def _branches(self, item: ast.If | ast.For | ast.With) -> nn.Module | str | None:
        """Read those branches that may be taken; a variable that a norm made in some of them counts as made by it."""
        chosen = self._truth(item.test) if isinstance(item, ast.If) else None
        before, after = dict(self._by_norm), dict[str, nn.Module | None]()
        for branch, taken in ((item.body, chosen is not False), (getattr(item, "orelse", []), not chosen)):
            self._by_norm = dict(before)
            if taken and (passed := self.read(branch)) is not None:
                return passed
            after |= {name: norm or after.get(name) for name, norm in self._by_norm.items() if taken}
        self._by_norm = after
        return None

    def _statement(self, item: ast.stmt) -> nn.Module | str | None:
        for call in (node for node in ast.walk(item) if isinstance(node, ast.Call)):
            if self._name_of(call.func) == self._child:
                given = [*call.args, *(word.value for word in call.keywords)]
                return (self._norm(given[0]) if given else None) or "no norm"
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            self._by_norm[item.targets[0].id] = self._norm(item.value)
        return None

    def _norm(self, value: ast.expr) -> nn.Module | None:
        """Return the norm that made a value."""
        if isinstance(value, ast.Name):
            return self._by_norm.get(value.id)
        if isinstance(value, ast.IfExp):
            return self._norm(value.orelse if self._truth(value.test) is False else value.body)
        if isinstance(value, ast.Call):
            own = getattr(self._owner, self._name_of(value.func), None)
            if isinstance(own, nn.Module):
                return own if is_norm(own) else None
            return self._norm(value.func.value) if isinstance(value.func, ast.Attribute) else None  # x.to(...)
        return None

    def _truth(self, test: ast.expr) -> bool | None:
        """Return what a condition on an attribute is; None where it is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and self._name_of(test.left):
            own, other = getattr(self._owner, self._name_of(test.left), None), test.comparators[0]
            return own == other.value if isinstance(other, ast.Constant) else None
        value = getattr(self._owner, self._name_of(test), None)
        return value if isinstance(value, bool) else None

    @staticmethod
    def _name_of(node: ast.expr) -> str:
        """Return ``x`` of ``self.x``; empty for anything else."""
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        return node.attr if own else ""
