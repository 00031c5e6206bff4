"""Setting taps on what was found: hooks on modules, wrappers around attention functions, buffers that they write to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from dataaudit.vitals.attention import ABSENT
from dataaudit.vitals.hooks import Hook, Mark, mapping_of, nothing, replaced
from dataaudit.vitals.structure import EXACT_ROWS, OWN_LOGITS, PROJECTED, Attention, Structure, function_of
from dataaudit.vitals.taps import (
    ACTIVATION_STATS,
    HEAD_STATS,
    Watch,
    first_tensor,
    see_activations,
    see_failure,
    see_heads,
    see_logits,
    see_projected_heads,
    see_units,
)

_TAP = "_dataaudit_heads"
_SDPA = "scaled_dot_product_attention"
_EVALUATION = "in evaluation torch takes a faster way, which hooks would close: it is left as it is"
_EAGER = "eager_attention_forward"
_MASKED = ("sdpa", "eager")
"""Attention functions of transformers that are given masks of four dimensions."""
_FLASH = ("flash_attention_2", "flash_attention_3")
"""Those that are given what is padding, and hide later keys themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place where activations are measured."""

    layer: int
    """-1: of the whole model."""
    part: str
    """attention, mlp, block, embedding or final_norm."""
    name: str


@dataclass(slots=True, kw_only=True, eq=False)
class HeadTap(Mark):
    """Where the statistics of a layer's heads are written; an attention module carries it."""

    slots: torch.Tensor
    watch: int
    place: int
    index: int
    rows: int
    function: str
    hook: Hook | None = None
    """Sees what the attention function is given."""
    logits: Hook | None = None
    """Sees what softmax is given."""


@dataclass(slots=True)
class _Running:
    """The attention that runs now, of those that a mapping names."""

    tap: HeadTap | None = None


_RUNNING = _Running()


class Taps:
    """Taps on a model, and what they write to.

    Torch has a faster evaluation of ``nn.TransformerEncoderLayer`` that it leaves where a hook is set within. So taps
    there are set for a step alone, and only where the layer trains.

    Args:
        model: Whose parts they are.
        structure: What was found.
        device: Of the buffers.
        micro_batches: Batches of a step that are kept apart.
        rows: Rows of attention that are sampled, of one row of the batch.
    """

    def __init__(
        self, model: nn.Module, structure: Structure, device: torch.device, *, micro_batches: int, rows: int
    ) -> None:
        self.places: list[Place] = []
        """Of activations, in the order of the buffer."""
        self.unit_layers = [layer for layer in structure.layers if layer.down is not None]
        self.head_layers = [layer for layer in structure.layers if layer.attention is not None]
        self.why: dict[str, str] = {}
        """By the name of an attention module: why it is not measured."""
        self.estimators: dict[str, str] = {}
        self._stack, self._of_step = ExitStack(), ExitStack()
        self._fast = {
            id(inner): layer
            for layer in model.modules()
            if isinstance(layer, nn.TransformerEncoderLayer)
            for inner in layer.modules()
        }
        """By what lies within: layers with a faster evaluation."""
        self._visiting: list[tuple[nn.Module, int, Callable[[], Any]]] = []
        """Layers, places and what sets a tap there, for a step."""
        self._by_name: list[tuple[nn.Module, HeadTap]] = []
        """Attention that calls a function by its name."""
        self._functions: set[tuple[str, str, Callable[..., None]]] = set()
        """Modules, and which of their functions are watched."""
        modules = self._places(structure)
        self.head_layers = [layer for layer in self.head_layers if self._can_see(layer.attention)]
        counts = len(self.places), len(self.unit_layers), len(self.head_layers)
        self.watch = Watch(sum(counts), micro_batches)
        widest = max((layer.units for layer in self.unit_layers), default=1)
        heads = max((layer.attention.heads for layer in self.head_layers if layer.attention), default=1)

        def empty(*shape: int) -> torch.Tensor:
            return torch.full(shape, torch.nan, device=device)

        blocks = [place for place, item in enumerate(self.places) if item.part == "block"]
        self.blocks = torch.tensor(blocks, dtype=torch.int64, device=device)
        """int64[blocks]: their places."""
        self.activations = empty(counts[0], micro_batches, len(ACTIVATION_STATS))
        self.units = empty(counts[1], micro_batches, widest)
        self.heads = empty(counts[2], micro_batches, heads, len(HEAD_STATS))
        for place, module in enumerate(modules):
            self._tap_output(module, place)
        for index, layer in enumerate(self.unit_layers):
            assert layer.down is not None
            self._tap_input(layer.down, counts[0] + index, index)
        for index, layer in enumerate(self.head_layers):
            assert layer.attention is not None
            self.watch.heads[counts[0] + counts[1] + index] = layer.attention.heads
            tap = HeadTap(
                slots=self.heads,
                watch=self.watch.number,
                place=counts[0] + counts[1] + index,
                index=index,
                rows=rows,
                function=layer.attention.function,
            )
            self._tap_heads(layer.attention, tap)
        for above in model.modules():  # a compiler guards on the step here, as it does at hooks that stay
            called = id(above) not in self._fast and not isinstance(above, nn.ModuleList)
            if called and any(id(item) in self._fast for item in above.modules()):
                self._stack.callback(above.register_forward_pre_hook(Hook(nothing, nothing, self.watch)).remove)

    def start(self, places: list[int], *, turn: int, closely: bool) -> None:
        """Begin a step in which some places are measured."""
        self.clear()
        self._watch_functions()
        self.watch.start(places, turn=turn, closely=closely)
        for layer, place, register in self._visiting:
            if layer.training:
                self._of_step.callback(register().remove)
            elif self.watch.on[place]:
                self.watch.on[place] = 0
                self.watch.why[place] = _EVALUATION

    def stop(self) -> None:
        """Measure nothing until the next step."""
        self.watch.stop()
        self._of_step.close()

    def close(self) -> None:
        """Take every tap off."""
        self.stop()
        self._stack.close()

    def places_of(self, layers: set[int], heads: set[int]) -> list[int]:
        """Return the places of some layers; those of attention of others. Layer -1: of the whole model."""
        found = [place for place, item in enumerate(self.places) if item.layer in layers]
        found += [len(self.places) + index for index, layer in enumerate(self.unit_layers) if layer.index in layers]
        first = len(self.places) + len(self.unit_layers)
        return found + [first + index for index, layer in enumerate(self.head_layers) if layer.index in heads]

    def about(self, place: int) -> tuple[str, int]:
        """Return what is measured at a place, in a word, and of which layer."""
        if place < len(self.places):
            return self.places[place].part, self.places[place].layer
        place -= len(self.places)
        if place < len(self.unit_layers):
            return "units", self.unit_layers[place].index
        return "attention", self.head_layers[place - len(self.unit_layers)].index

    def clear(self) -> None:
        """Forget what the last step wrote."""
        for slots, none in ((self.activations, torch.nan), (self.units, torch.nan), (self.heads, ABSENT)):
            slots.fill_(none)

    def _places(self, structure: Structure) -> list[nn.Module]:
        modules = []
        for what, found in (("embedding", structure.embedding), ("final_norm", structure.final_norm)):
            if found is not None:
                self.places.append(Place(layer=-1, part=what, name=found[0]))
                modules.append(found[1])
        for layer in structure.layers:
            parts = {
                "attention": layer.attention and layer.attention.module,
                "mlp": layer.mlp,
                "block": layer.module,
            }
            for part, module in parts.items():
                if module is not None:
                    self.places.append(Place(layer=layer.index, part=part, name=layer.name))
                    modules.append(module)
        return modules

    def _can_see(self, attention: Attention | None) -> bool:
        assert attention is not None
        why = None
        if attention.kind == "transformers" and attention.function not in {*_MASKED, *_FLASH}:
            why = f"attention function {attention.function}: how it hides keys is not known here"
        if attention.kind == "multihead" and (attention.module.bias_k is not None or attention.module.add_zero_attn):
            why = "it adds keys of its own: add_bias_kv, add_zero_attn"
        if attention.heads < 1:
            why = "how many heads it has is not known: Mapping(..., heads=...)"
        if why is not None:
            self.why[attention.name] = why
        else:
            self.estimators[attention.name] = {"multihead": PROJECTED, "softmax": OWN_LOGITS}.get(
                attention.kind, EXACT_ROWS
            )
        return why is None

    def _tap_output(self, module: nn.Module, place: int) -> None:
        slots, watch, spread = self.activations, self.watch.number, self.places[place].part == "block"

        def see(_: nn.Module, _args: object, output: object) -> None:
            found = first_tensor(output)
            if found is not None and not found.is_nested:
                see_activations(found.detach(), slots, watch, place, spread)

        hook = self._hook(see, slots, place, place)
        self._register(module, place, lambda: module.register_forward_hook(hook))

    def _tap_input(self, module: nn.Module, place: int, index: int) -> None:
        slots, watch = self.units, self.watch.number

        def see(_: nn.Module, args: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> None:
            values = args[0] if args else next(iter(named.values()))
            if not values.is_nested:
                see_units(values.detach(), slots, watch, place, index)

        hook = self._hook(see, slots, place, index)
        self._register(module, place, lambda: module.register_forward_pre_hook(hook, with_kwargs=True))

    def _tap_heads(self, attention: Attention, tap: HeadTap) -> None:
        module = attention.module
        sees: dict[str, Callable[..., None]] = {"multihead": _multihead, "transformers": _transformers}
        sees |= {"mapped": _mapped, "softmax": _softmax, "either": _mapped}
        see = sees[attention.kind]
        hook = tap.hook = self._hook(partial(see, tap), tap.slots, tap.place, tap.index)
        if attention.kind == "multihead":
            self._register(module, tap.place, lambda: module.register_forward_pre_hook(hook, with_kwargs=True))
        elif attention.kind == "transformers":
            vars(module)[_TAP] = tap
            self._stack.callback(vars(module).pop, _TAP, None)
            self._by_name.append((module, tap))
        else:

            def begin(_: nn.Module, _args: object) -> None:
                _RUNNING.tap = tap

            def end(_: nn.Module, _args: object, _output: object) -> None:
                _RUNNING.tap = None

            before = self._hook(begin, tap.slots, tap.place, tap.index)
            after = Hook(end, nothing, self.watch)
            self._stack.callback(module.register_forward_pre_hook(before).remove)
            self._stack.callback(module.register_forward_hook(after, always_call=True).remove)
            seen = {"mapped": (_SDPA,), "softmax": ("softmax",)}.get(attention.kind, (_SDPA, "softmax"))
            for item in (nn.functional.__name__, type(module).__module__):
                self._functions |= {(item, name, _see_running if name == _SDPA else _see_logits) for name in seen}
            tap.logits = self._hook(partial(_softmax, tap), tap.slots, tap.place, tap.index)

    def _hook(self, see: Callable[..., None], slots: torch.Tensor, place: int, index: int) -> Hook:
        """Return a hook that measures at a place, and costs its number alone where it fails.

        A compiler sees the operators always; without one, they are not called where nothing is measured.
        """
        watch, on = self.watch.number, self.watch.on

        def looks(*args: Any, **named: Any) -> None:
            if torch.compiler.is_compiling() or on[place]:
                see(*args, **named)

        return Hook(looks, lambda why: see_failure(slots, watch, place, index, why), self.watch)

    def _register(self, module: nn.Module, place: int, register: Callable[[], Any]) -> None:
        if (layer := self._fast.get(id(module))) is not None:
            self._visiting.append((layer, place, register))
        else:
            self._stack.callback(register().remove)

    def _watch_functions(self) -> None:
        """Watch the attention functions that are chosen and registered now."""
        for attention, tap in self._by_name:
            tap.function = function_of(attention)
            name = _EAGER if tap.function == "eager" else tap.function
            if tap.function in {*_MASKED, *_FLASH}:
                self._functions.add((type(attention).__module__, name, _see))
        for module, name, see in self._functions:
            held = vars(sys.modules[module])
            functions = held if name in held else mapping_of(held.get("ALL_ATTENTION_FUNCTIONS", {}), name)
            if name in functions:
                self._of_step.enter_context(replaced(functions, name, see))


def _see(*args: Any, **named: Any) -> None:
    """Look at what an attention function of transformers is given."""
    tap = getattr(args[0] if args else named.get("module"), _TAP, None)
    if tap is not None:
        tap.hook(*args, **named)


def _see_running(*args: Any, **named: Any) -> None:
    """Look at what a function of torch is given while an attention module runs."""
    if (tap := _RUNNING.tap) is not None and tap.hook is not None:
        tap.hook(*args, **named)


def _see_logits(*args: Any, **named: Any) -> None:
    """Look at what ``softmax`` is given while an attention module runs."""
    if (tap := _RUNNING.tap) is not None and tap.logits is not None:
        tap.logits(*args, **named)


def _transformers(
    tap: HeadTap,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    _value: torch.Tensor | None = None,
    attention_mask: torch.Tensor | None = None,
    *_args: Any,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> None:
    mask = attention_mask
    if position_bias is not None and mask is not None:
        mask = position_bias.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else position_bias + mask
    elif position_bias is not None:
        mask = position_bias
    sinks = next((item for item in (s_aux, sinks) if item is not None), getattr(module, "sinks", None))
    flash = tap.function in _FLASH
    causal = (getattr(module, "is_causal", True) if is_causal is None else is_causal) and query.shape[2] > 1
    if not flash:
        causal = causal and mask is None and tap.function != "eager"
    elif mask is not None and mask.dim() == 2:  # what is padding, row by row of the batch
        mask = mask[:, None, None, :]
    see_heads(
        query.detach(),
        key.detach(),
        None if mask is None else mask.detach(),
        None if sinks is None else sinks.detach(),
        tap.slots,
        tap.watch,
        tap.place,
        tap.index,
        tap.rows,
        query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        bool(causal),
        sliding_window if flash else None,
        softcap,
    )


def _multihead(tap: HeadTap, module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Look at what ``nn.MultiheadAttention`` is given, which projects within one function."""
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = {**dict(zip(names, args, strict=False)), **named}
    query, key = given["query"], given["key"]
    if query.is_nested:
        return
    if query.dim() == 2:  # without a batch
        query, key = query[None], key[None]
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    width = module.embed_dim
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight[:width], module.in_proj_weight[width : 2 * width]
    else:
        weights = module.q_proj_weight, module.k_proj_weight
    bias = module.in_proj_bias
    biases = (None, None) if bias is None else (bias[:width].detach(), bias[width : 2 * width].detach())
    mask = _multihead_mask(query, key, given.get("key_padding_mask"), given.get("attn_mask"), module.num_heads)
    see_projected_heads(
        query.detach(),
        key.detach(),
        weights[0].detach(),
        weights[1].detach(),
        *biases,
        mask,
        tap.slots,
        tap.watch,
        tap.place,
        tap.index,
        tap.rows,
        module.num_heads,
        False,
    )


def _multihead_mask(
    query: torch.Tensor, key: torch.Tensor, padding: torch.Tensor | None, mask: torch.Tensor | None, heads: int
) -> torch.Tensor | None:
    """Return the masks of ``nn.MultiheadAttention`` as numbers that are added; there True hides a key."""
    added = None
    for item, shape in (
        (mask, (-1, heads if mask is not None and mask.dim() == 3 else 1, query.shape[1], key.shape[1])),
        (padding, (-1, 1, 1, key.shape[1])),
    ):
        if item is None:
            continue
        hides = item.dtype == torch.bool
        numbers = torch.zeros(item.shape, device=item.device).masked_fill(item, -math.inf) if hides else item.detach()
        numbers = numbers.float().reshape(shape)
        added = numbers if added is None else added + numbers
    return added


def _mapped(
    tap: HeadTap,
    query: torch.Tensor,
    key: torch.Tensor,
    _value: torch.Tensor | None = None,
    attn_mask: torch.Tensor | None = None,
    _dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    **_: Any,
) -> None:
    """Look at what a mapped module hands to ``scaled_dot_product_attention``."""
    see_heads(
        query.detach(),
        key.detach(),
        None if attn_mask is None else attn_mask.detach(),
        None,
        tap.slots,
        tap.watch,
        tap.place,
        tap.index,
        tap.rows,
        query.shape[-1] ** -0.5 if scale is None else scale,
        is_causal,
        None,
        None,
    )


def _softmax(tap: HeadTap, logits: torch.Tensor, *_args: Any, **_: Any) -> None:
    """Look at what an attention module hands to ``softmax``; a router within it hands over no rows of keys."""
    if logits.dim() >= 3:
        see_logits(logits.detach(), tap.slots, tap.watch, tap.place, tap.index, tap.rows)
