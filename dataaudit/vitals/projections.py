"""Query and key projections of a layer's attention, found by names and shapes, as matrices of heads.

W of a head is d_head x d. Gains of norms are folded in: of the norm before attention by columns, of norms of queries
and keys by rows. Left out is what depends on no weight of them: rotations by position, how a norm centres and divides,
constant factors; and biases. So W is what makes logits of content.

Rows are apart (a head of keys serves a group of heads of queries), stacked (all queries, all keys, all values), by
group (its queries, its key, its value), or latent (DeepSeek V2, V3): the part of queries and keys without positions,
times the projections down to the latents.

The code of ``forward`` says which norm stands before attention: it is followed from its argument backwards.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from dataaudit.base.errors import CatchErrors
from dataaudit.vitals.structure import Layer, is_norm

_QUERIES = ("q_proj", "query", "q_lin", "wq", "w_q", "Wq", "to_q", "query_proj", "q")
_KEYS = ("k_proj", "key", "k_lin", "wk", "w_k", "Wk", "to_k", "key_proj", "k")
_STACKED, _BY_GROUP = ("qkv", "Wqkv", "qkv_proj", "c_attn"), ("query_key_value", "linear_qkv", "wqkv")
_OTHER_LAYOUTS = ("CodeGenAttention", "GPTBigCodeAttention", "MiniMaxLightningAttention")
"""Classes of transformers that stack queries and keys in another way."""
_NORMS = {
    "query": ("q_norm", "q_layernorm", "query_layernorm", "query_norm", "qk_norm", "qk_layernorm"),
    "key": ("k_norm", "k_layernorm", "key_layernorm", "key_norm", "qk_norm", "qk_layernorm"),
}
_SIZES = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim")
"""What d_head is called, in an attention module."""
_View = Callable[[torch.Tensor], torch.Tensor]


class _UnknownError(ValueError):
    """Says why projections are not known."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a parameter."""

    parameter: nn.Parameter
    view: _View = torch.Tensor.detach
    """Of a tensor of the parameter's shape."""
    offset: float = 0.0
    """What is added to a gain."""

    def then(self, view: _View) -> Part:
        """Return a part of this part."""
        return Part(self.parameter, lambda tensor: view(self.view(tensor)), self.offset)

    @property
    def shape(self) -> torch.Size:
        """Of the part."""
        return self.view(self.parameter.detach()).shape


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection of queries, or of keys."""

    parts: Mapping[str, Part]
    """``rows`` [heads, d_head, inputs]; and of ``gain`` [inputs], ``row_gain`` [1 or heads, d_head, 1], ``down``
    [inputs, d] and ``down_gain`` [d] those that there are."""
    heads: int
    size: int
    """d_head."""
    width: int
    """d."""

    def of(self, tensors: Mapping[str, torch.Tensor], heads: slice) -> torch.Tensor:
        """Return W of some heads, float64[heads, d_head, d], of tensors of its parts."""
        gains = {name: tensors[name].double() + part.offset for name, part in self.parts.items() if "gain" in name}
        rows = tensors["rows"][heads].to(torch.float64, copy=True)
        if "row_gain" in gains:
            rows *= gains["row_gain"].expand(self.heads, -1, -1)[heads]
        rows *= gains.get("gain", 1.0)
        return rows @ (tensors["down"].double() * gains.get("down_gain", 1.0)) if "down" in tensors else rows


@dataclass(frozen=True, slots=True)
class Projections:
    """Projections of a layer's queries and keys."""

    layer: int
    query: Projection
    key: Projection

    def parts(self) -> Iterator[tuple[tuple[str, str], Part]]:
        """Yield all parts by ``query`` or ``key`` and their names."""
        for kind, projection in (("query", self.query), ("key", self.key)):
            yield from (((kind, name), part) for name, part in projection.parts.items())


def projections_of(layer: Layer) -> Projections | str:
    """Return a layer's projections of queries and keys, or why they are not known."""
    attention = layer.attention
    if attention is None:
        return layer.why["attention"]
    if attention.heads < 1:
        return "how many heads it has is not known: Mapping(..., heads=...)"
    try:
        return Projections(layer.index, *_found(attention.module, layer.module, attention.heads))
    except _UnknownError as error:
        return str(error)


def _found(module: Any, layer: nn.Module, heads: int) -> tuple[Projection, Projection]:
    if isinstance(module, nn.MultiheadAttention):
        if module.in_proj_weight is not None:
            rows = _unstacked(module, _matrix(module.in_proj_weight, "its projections"), heads)
            return _together(module, layer, "", heads, *rows)
        rows = _matrix(module.q_proj_weight, "queries"), _matrix(module.k_proj_weight, "keys")
        return _together(module, layer, "", heads, *rows)
    if hasattr(module, "kv_b_proj"):
        return _latent(module, layer, heads)
    children = [name for name, child in module.named_children() if [*child.parameters()]]
    for query, key in zip(_QUERIES, _KEYS, strict=True):
        if query in children and key in children:
            return _together(module, layer, query, heads, _rows(module, query), _rows(module, key))
    for name in (*_STACKED, *_BY_GROUP):
        if name in children:
            if type(module).__name__ in _OTHER_LAYOUTS:
                raise _UnknownError(f"how {type(module).__name__} stacks queries and keys is not known")
            rows = _unstacked(module, _rows(module, name), heads, grouped=name in _BY_GROUP)
            return _together(module, layer, name, heads, *rows)
    raise _UnknownError(f"none of its projections has a name that is known: {', '.join(children) or 'it has none'}")


def _together(
    module: nn.Module, layer: nn.Module, name: str, heads: int, query: Part, key: Part
) -> tuple[Projection, Projection]:
    """Return projections of rows [heads · d_head, d] each, with gains of norms."""
    (outputs, width), of_keys = query.shape, key.shape[0]
    size = _size(module) or outputs // heads
    if outputs != heads * size or of_keys % size or not of_keys or heads % (of_keys // size):
        raise _UnknownError(f"{outputs} rows of queries and {of_keys} of keys are not those of {heads} heads of {size}")

    def projection(kind: str, rows: Part, count: int) -> Projection:
        norms = [item for item in module.named_children() if item[0] in _NORMS[kind]]
        after = _gain("row_gain", norms[0][1], norms[0][0], size, count * size) if norms else {}
        after = {role: part.then(lambda gain: gain.reshape(-1, size, 1)) for role, part in after.items()}
        by_head = rows.then(lambda tensor: tensor.unflatten(0, (count, size)))
        return Projection(
            {"rows": by_head, **_gain_before("gain", module, name, layer, width), **after}, count, size, width
        )

    return projection("query", query, heads), projection("key", key, of_keys // size)


def _latent(module: Any, layer: nn.Module, heads: int) -> tuple[Projection, Projection]:
    """Return projections of latent attention, the part without positions."""
    size, rotated, values = (
        getattr(module, name, 0) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )

    def projection(up: str, rest: int, down: str = "", norm: str = "") -> Projection:
        part = _rows(module, up)
        outputs, inputs = part.shape
        if not size or outputs != heads * (size + rest):
            raise _UnknownError(f"{outputs} rows of {up} are not those of {heads} heads of {size} and {rest}")
        parts = {"rows": part.then(lambda tensor: tensor.unflatten(0, (heads, -1))[:, :size])}
        if not down:
            return Projection(parts | _gain_before("gain", module, up, layer, inputs), heads, size, inputs)
        latent = _rows(module, down).then(lambda tensor: tensor[:inputs])
        own = _gain("gain", getattr(module, norm, nn.Identity()), norm, inputs)
        before = _gain_before("down_gain", module, down, layer, latent.shape[1])
        return Projection({**parts, **own, "down": latent, **before}, heads, size, latent.shape[1])

    names = ("q_b_proj", rotated, "q_a_proj", "q_a_layernorm")
    query = projection(*names) if hasattr(module, "q_b_proj") else projection("q_proj", rotated)
    return query, projection("kv_b_proj", values, "kv_a_proj_with_mqa", "kv_a_layernorm")


def _unstacked(module: nn.Module, fused: Part, heads: int, *, grouped: bool = False) -> tuple[Part, Part]:
    """Return rows of queries and of keys of a projection that makes values, too."""
    outputs, width = fused.shape
    size = _size(module) or width // heads
    groups, rest = divmod(outputs - heads * size, 2 * size)
    if rest or groups < 1 or heads % groups:
        raise _UnknownError(f"{outputs} rows are not queries of {heads} heads of {size} with their keys and values")
    if not grouped:
        whole = heads * size
        return fused.then(lambda rows: rows[:whole]), fused.then(lambda rows: rows[whole : whole + groups * size])
    each = fused.then(lambda rows: rows.unflatten(0, (groups, -1, size)))
    return each.then(lambda rows: rows[:, :-2].flatten(0, 2)), each.then(lambda rows: rows[:, -2].flatten(0, 1))


def _rows(module: nn.Module, name: str) -> Part:
    """Return the weight of a linear map, one row for each output."""
    linear: Any = getattr(module, name, None)
    transposed = type(linear).__name__ == "Conv1D"
    if not (isinstance(linear, nn.Linear) or transposed):
        kind = f"{type(linear).__module__}.{type(linear).__name__}"
        raise _UnknownError(f"its {name} is a {kind}, no linear map of torch")
    rows = _matrix(linear._parameters.get("weight"), name)  # noqa: SLF001 - what a parametrization computes is none
    return rows.then(lambda tensor: tensor.mT) if transposed else rows


def _matrix(weight: Any, name: str) -> Part:
    if weight is None or weight.dim() != 2 or not weight.is_floating_point() or hasattr(weight, "to_local"):
        raise _UnknownError(f"the weight of {name} is computed from others, quantized or sharded")
    return Part(weight)


def _size(module: nn.Module) -> int:
    sizes = (getattr(module, name, None) for name in _SIZES)
    return next((size for size in sizes if isinstance(size, int) and size > 0), 0)


def _gain(role: str, norm: nn.Module, name: str, *sizes: int) -> dict[str, Part]:
    """Return the gain of a norm, flat, by its role; nothing where it has no parameters.

    Some multiply by their weight, others by 1 + weight: what the norm makes of 1, -1, 1 ... says which.
    """
    if not [*norm.parameters()]:
        return {}
    weight = norm._parameters.get("weight")  # noqa: SLF001 - what a parametrization computes is none
    if weight is not None and weight.numel() in sizes and not [*norm.buffers()]:
        with torch.no_grad(), CatchErrors():
            signs = torch.ones_like(weight)
            signs[..., 1::2] = -1
            scale = ((norm.forward(signs) - norm.forward(-signs)) / 2 * signs).float()
            for offset in (0.0, 1.0):
                if torch.allclose(scale, weight.float() + offset, rtol=0.01, atol=0.01):
                    return {role: Part(weight, torch.flatten, offset)}
    raise _UnknownError(f"how {name}, a {type(norm).__name__}, scales is not known")


def _gain_before(role: str, module: nn.Module, name: str, layer: nn.Module, width: int) -> dict[str, Part]:
    """Return the gain of the norm whose output a projection of attention is given, [d]; nothing without one."""
    if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return _gain(role, layer.norm1, "norm1", width) if layer.norm_first else {}
    names = next(own for own, item in layer.named_modules() if item is module).split(".")
    above = [(layer.get_submodule(".".join(names[:depth])), own) for depth, own in enumerate(names)]
    given = None
    for owner, child in ([(module, name)] if name else []) + above[::-1]:
        body = _body(cast("Hashable", type(owner)))
        now = None if body is None else _Reader(owner, child).read(body)
        if isinstance(now, nn.Module):
            return _gain(role, now, f"the norm before {child}", width)
        given = now or given
    if given is None:
        raise _UnknownError("the code of its layer does not show what attention is given, and by which norm")
    return {}


@functools.cache
def _body(kind: Any) -> Sequence[ast.stmt] | None:
    """Return the statements of ``forward`` of a class; None where its code is not there."""
    with CatchErrors():
        [function] = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))).body
        return function.body if isinstance(function, ast.FunctionDef) else None
    return None


class _Reader:
    """Follows variables through the code of ``forward`` until it calls a child."""

    def __init__(self, owner: nn.Module, child: str) -> None:
        self._owner, self._child = owner, child
        self._by_norm: dict[str, nn.Module | None] = {}
        """By variable: the norm that made it."""

    def read(self, statements: Sequence[ast.stmt]) -> nn.Module | str | None:
        """Return the norm that made what the child is given, else some text; None where it is not called."""
        for item in statements:
            if isinstance(item, ast.If):
                if (given := self._branches(item)) is not None:
                    return given
                continue
            for call in (node for node in ast.walk(item) if isinstance(node, ast.Call)):
                if _own(call.func) == self._child:
                    first = [*call.args, *(word.value for word in call.keywords)][:1]
                    return next((norm for norm in map(self._norm, first) if norm is not None), "no norm")
            if isinstance(item, ast.Assign | ast.AugAssign):
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                made = self._norm(item.value) if isinstance(item, ast.Assign) else None
                names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
                self._by_norm |= dict.fromkeys(names, made)
        return None

    def _branches(self, item: ast.If) -> nn.Module | str | None:
        """Read those branches that may be taken; what a norm made in some of them counts as made by it."""
        chosen, before, after = self._truth(item.test), self._by_norm, dict[str, nn.Module | None]()
        for branch, taken in ((item.body, chosen is not False), (item.orelse, not chosen)):
            self._by_norm = dict(before)
            if taken and (given := self.read(branch)) is not None:
                return given
            after |= {name: norm or after.get(name) for name, norm in self._by_norm.items() if taken}
        self._by_norm = after
        return None

    def _norm(self, value: ast.expr) -> nn.Module | None:
        """Return the norm, or what has one within, that made a value."""
        if isinstance(value, ast.Name):
            return self._by_norm.get(value.id)
        if isinstance(value, ast.Call):
            called = getattr(self._owner, _own(value.func), None)
            if isinstance(called, nn.Module):
                return called if any(map(is_norm, called.modules())) else None
            return self._norm(value.func.value) if isinstance(value.func, ast.Attribute) else None  # x.to(...)
        return None

    def _truth(self, test: ast.expr) -> bool | None:
        """Return what a flag of the module is; None for another condition."""
        value = getattr(self._owner, _own(test), None)
        return value if isinstance(value, bool) else None


def _own(node: ast.expr) -> str:
    """Return ``x`` of ``self.x``; empty for anything else."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if isinstance(node, ast.Attribute) and own else ""
