"""Hooks on what was found in a model: on modules, around attention functions, and the buffers that they write to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from dataaudit.vitals.attention import ABSENT
from dataaudit.vitals.hooks import Hook, Mark, mapping_of, nothing, replaced
from dataaudit.vitals.recorder import (
    ACTIVATION_STATS,
    HEAD_STATS,
    Recorder,
    Site,
    UnfitError,
    see_activations,
    see_failure,
    see_heads,
    see_logits,
    see_projected_heads,
    see_units,
)
from dataaudit.vitals.routers import Router, Routers, RouterSite
from dataaudit.vitals.sharding import is_sharded, rows_split
from dataaudit.vitals.structure import EXACT_ROWS, OWN_LOGITS, PROJECTED, Attention, Layer, Structure, function_of

_KEPT_AS = "_dataaudit_heads"
_SDPA = "scaled_dot_product_attention"
_EVALUATION = "in evaluation torch takes a faster way, which hooks would close: it is left as it is"
_EAGER = "eager_attention_forward"
_MASKED = ("sdpa", "eager")
"""Attention functions of transformers that are given masks of four dimensions."""
_FLASH = ("flash_attention_2", "flash_attention_3")
"""Those that are given what is padding, and hide later keys themselves."""


@dataclass(slots=True, kw_only=True, eq=False)
class AttentionHook(Mark):
    """Where the statistics of a layer's heads are written; an attention module carries it."""

    slots: torch.Tensor
    site: int
    function: str
    hook: Hook | None = None
    """Sees what the attention function is given."""
    logits: Hook | None = None
    """Sees what softmax is given."""


@dataclass(slots=True)
class _Running:
    """The attention that runs now, of those that a mapping names."""

    attention: AttentionHook | None = None


_RUNNING = _Running()


class ModelHooks:
    """Hooks on a model, and the buffers that they write to.

    Torch has a faster evaluation of ``nn.TransformerEncoderLayer`` that it leaves where a hook is set within. So hooks
    there are set for a step alone, and only where the layer trains.
    """

    def __init__(
        self,
        model: nn.Module,
        structure: Structure,
        device: torch.device,
        *,
        micro_batches: int,
        rows: int,
        routers: Sequence[Router] = (),
    ) -> None:
        self.why: dict[str, str] = {}
        """By the name of an attention module: why it is not measured."""
        self.estimators: dict[str, str] = {}
        outputs = _outputs(structure)
        self.unit_layers = [layer for layer in structure.layers if layer.down is not None]
        self.head_layers = [layer for layer in structure.layers if self._can_see(layer.attention)]
        sites = len(outputs) + len(self.unit_layers) + len(self.head_layers) + len(routers)
        self.recorder = Recorder(sites, micro_batches)
        self._stack, self._of_step = ExitStack(), ExitStack()
        self._fast = {
            id(inner): layer
            for layer in model.modules()
            if isinstance(layer, nn.TransformerEncoderLayer)
            for inner in layer.modules()
        }
        """By what lies within: layers with a faster evaluation."""
        self._for_a_step: list[tuple[nn.Module, int, Callable[[], Any]]] = []
        """Layers, sites, and what sets a hook there for a step."""
        self._by_name: list[tuple[nn.Module, AttentionHook]] = []
        """Attention that calls a function by its name."""
        self._functions: set[tuple[str, str, Callable[..., None]]] = set()
        """Modules, and which of their functions are watched."""
        self.sites: list[Site] = []
        self.outputs = [self._site(index, layer, part) for index, (layer, part, _) in enumerate(outputs)]
        """Sites of activations; of units and of heads, below."""
        self.inputs = [self._site(index, layer.index, "units") for index, layer in enumerate(self.unit_layers)]
        self.attention = [
            self._site(index, layer.index, "heads", **_heads_of(layer), rows=rows)
            for index, layer in enumerate(self.head_layers)
        ]
        self.routers = Routers(routers, device)
        self.routed = [self.routers.site(row, self.recorder, len(self.sites) + row) for row in range(len(routers))]
        """Sites of routers."""
        self.sites += self.routed

        def empty(*shape: int) -> torch.Tensor:
            return torch.full(shape, torch.nan, device=device)

        blocks = [site.index for site in self.outputs if site.part == "block"]
        self.blocks = torch.tensor(blocks, dtype=torch.int64, device=device)
        """int64[blocks]: their rows of activations."""
        widest = max((layer.units for layer in self.unit_layers), default=1)
        most_heads = max((site.heads for site in self.attention), default=1)
        self.activations = empty(len(outputs), micro_batches, len(ACTIVATION_STATS))
        self.units = empty(len(self.inputs), micro_batches, widest)
        self.heads = empty(len(self.attention), micro_batches, most_heads, len(HEAD_STATS))
        for site, (_, _, module) in zip(self.outputs, outputs, strict=True):
            self._hook_output(module, site)
        for site, layer in zip(self.inputs, self.unit_layers, strict=True):
            assert layer.down is not None
            self._hook_input(layer.down, site)
        for site, layer in zip(self.attention, self.head_layers, strict=True):
            assert layer.attention is not None
            self._hook_attention(layer.attention, site)
        for routed in self.routed:
            self._hook_router(routed)
        for above in model.modules():  # a compiler guards on the step here, as it does at hooks that stay
            called = id(above) not in self._fast and not isinstance(above, nn.ModuleList)
            if called and any(id(item) in self._fast for item in above.modules()):
                self._stack.callback(above.register_forward_pre_hook(Hook(nothing, nothing, self.recorder)).remove)

    def start(self, families: Collection[str], *, turn: int, closely: bool) -> None:
        """Begin a step in which some families are measured: ``activations`` with units, ``attention``, ``experts``."""
        self.clear()
        self._watch_functions()
        recorder = self.recorder
        of = {"heads": "attention", "router": "experts"}
        sites = [site.number for site in self.sites if of.get(site.part, "activations") in families]
        recorder.start(sites, turn=turn, closely=closely)
        for layer, site, register in self._for_a_step:
            if layer.training:
                self._of_step.callback(register().remove)
            elif recorder.on[site]:
                recorder.on[site] = 0
                recorder.why[site] = _EVALUATION

    def stop(self) -> None:
        """Measure nothing until the next step."""
        self.recorder.stop()
        self._of_step.close()

    def close(self) -> None:
        """Take every hook off."""
        self.stop()
        self._stack.close()

    def clear(self) -> None:
        """Forget what the last step wrote."""
        for slots, none in ((self.activations, torch.nan), (self.units, torch.nan), (self.heads, ABSENT)):
            slots.fill_(none)
        self.routers.clear()

    def _site(self, index: int, layer: int, part: str, **more: int) -> Site:
        site = Site(recorder=self.recorder, number=len(self.sites), index=index, layer=layer, part=part, **more)
        self.sites.append(site)
        return site

    def _can_see(self, attention: Attention | None) -> bool:
        if attention is None:
            return False
        why = None
        if attention.kind == "transformers" and attention.function not in {*_MASKED, *_FLASH}:
            why = f"attention function {attention.function}: how it hides keys is not known here"
        if attention.kind == "multihead" and (attention.module.bias_k is not None or attention.module.add_zero_attn):
            why = "it adds keys of its own: add_bias_kv, add_zero_attn"
        if attention.heads % rows_split(attention.module)[0]:
            why = f"{attention.heads} heads are not split evenly by tensor parallelism"
        if attention.heads < 1:
            why = "how many heads it has is not known: Mapping(..., heads=...)"
        if why is not None:
            self.why[attention.name] = why
        else:
            self.estimators[attention.name] = {"multihead": PROJECTED, "softmax": OWN_LOGITS}.get(
                attention.kind, EXACT_ROWS
            )
        return why is None

    def _hook_output(self, module: nn.Module, site: Site) -> None:
        slots, id_ = self.activations, site.id

        def see(_: nn.Module, _args: object, output: object) -> None:
            first = _first_tensor(output)
            if first is not None and not first.is_nested:
                see_activations(_here(first), slots, id_)

        hook = self._hook(see, slots, site)
        self._register(module, site, lambda: module.register_forward_hook(hook))

    def _hook_input(self, module: nn.Module, site: Site) -> None:
        slots, id_ = self.units, site.id

        def see(_: nn.Module, args: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> None:
            values = args[0] if args else next(iter(named.values()))
            if not values.is_nested:
                see_units(_here(values), slots, id_)

        hook = self._hook(see, slots, site)
        self._register(module, site, lambda: module.register_forward_pre_hook(hook, with_kwargs=True))

    def _hook_router(self, site: RouterSite) -> None:
        def see(_: nn.Module, _args: object, output: object) -> None:
            self.routers.see(site, output)

        hook = self._hook(see, self.routers.sums, site)
        self._register(site.router.module, site, lambda: site.router.module.register_forward_hook(hook))

    def _hook_attention(self, attention: Attention, site: Site) -> None:
        module = attention.module
        own = AttentionHook(slots=self.heads, site=site.id, function=attention.function)
        sees: dict[str, Callable[..., None]] = {"multihead": _multihead, "transformers": _transformers}
        sees |= {"mapped": _mapped, "softmax": _softmax, "either": _mapped}
        hook = own.hook = self._hook(partial(sees[attention.kind], own), self.heads, site)
        if attention.kind == "multihead":
            self._register(module, site, lambda: module.register_forward_pre_hook(hook, with_kwargs=True))
        elif attention.kind == "transformers":
            vars(module)[_KEPT_AS] = own
            self._stack.callback(vars(module).pop, _KEPT_AS, None)
            self._by_name.append((module, own))
        else:

            def begin(_: nn.Module, _args: object) -> None:
                _RUNNING.attention = own

            def end(_: nn.Module, _args: object, _output: object) -> None:
                _RUNNING.attention = None

            before = self._hook(begin, self.heads, site)
            after = Hook(end, nothing, self.recorder)
            self._stack.callback(module.register_forward_pre_hook(before).remove)
            self._stack.callback(module.register_forward_hook(after, always_call=True).remove)
            seen = {"mapped": (_SDPA,), "softmax": ("softmax",)}.get(attention.kind, (_SDPA, "softmax"))
            for item in (nn.functional.__name__, type(module).__module__):
                self._functions |= {(item, name, _see_running if name == _SDPA else _see_logits) for name in seen}
            own.logits = self._hook(partial(_softmax, own), self.heads, site)

    def _hook(self, see: Callable[..., None], slots: torch.Tensor, site: Site) -> Hook:
        """Return a hook that measures at a site, and costs its number alone where it fails.

        A compiler sees the operators always; without one, they are not called where nothing is measured.
        """
        on, number, id_ = self.recorder.on, site.number, site.id

        def measure(*args: Any, **named: Any) -> None:
            if torch.compiler.is_compiling() or on[number]:
                see(*args, **named)

        return Hook(measure, lambda why: see_failure(slots, id_, why), self.recorder)

    def _register(self, module: nn.Module, site: Site, register: Callable[[], Any]) -> None:
        if (layer := self._fast.get(id(module))) is not None:
            self._for_a_step.append((layer, site.number, register))
        else:
            self._stack.callback(register().remove)

    def _watch_functions(self) -> None:
        """Watch the attention functions that are chosen and registered now."""
        for attention, own in self._by_name:
            own.function = function_of(attention)
            name = _EAGER if own.function == "eager" else own.function
            if own.function in {*_MASKED, *_FLASH}:
                self._functions.add((type(attention).__module__, name, _see))
        for module, name, see in self._functions:
            names = vars(sys.modules[module])
            functions = names if name in names else mapping_of(names.get("ALL_ATTENTION_FUNCTIONS", {}), name)
            if name in functions:
                self._of_step.enter_context(replaced(functions, name, see))


def _outputs(structure: Structure) -> list[tuple[int, str, nn.Module]]:
    """Return the modules whose output is measured, each with its layer and what part of it that is."""
    ends = (("embedding", structure.embedding), ("final_norm", structure.final_norm))
    outputs = [(-1, part, named[1]) for part, named in ends if named is not None]
    for layer in structure.layers:
        parts = (("attention", layer.attention and layer.attention.module), ("mlp", layer.mlp), ("block", layer.module))
        outputs += [(layer.index, part, module) for part, module in parts if module is not None]
    return outputs


def _heads_of(layer: Layer) -> dict[str, int]:
    """Return how many heads of a layer are on this rank, and the number of the first."""
    assert layer.attention is not None
    parts, here = rows_split(layer.attention.module)
    own = layer.attention.heads // parts
    return {"heads": own, "first_head": own * here}


def _here(values: Any, *dims: int) -> torch.Tensor:
    """Return what of values lies on this rank, detached.

    Raises:
        UnfitError: They are sums over ranks, or spread over them by other dimensions than some, where these are given.
    """
    for item in values.placements if is_sharded(values) else ():
        if item.is_partial() or (dims and not item.is_replicate() and not any(map(item.is_shard, dims))):
            raise UnfitError(f"it is spread over ranks as {item}")
    values = values.detach()
    return values.to_local() if is_sharded(values) else values


def _first_tensor(output: object) -> torch.Tensor | None:
    """Return what a module returns, or the first of it; None where that is no tensor."""
    if isinstance(output, dict):
        output = next(iter(output.values()), None)
    first = output[0] if isinstance(output, tuple | list) and output else output
    return first if isinstance(first, torch.Tensor) else None


def _see(*args: Any, **named: Any) -> None:
    """See what an attention function of transformers is given."""
    own = getattr(args[0] if args else named.get("module"), _KEPT_AS, None)
    if own is not None:
        own.hook(*args, **named)


def _see_running(*args: Any, **named: Any) -> None:
    """See what a function of torch is given while an attention module runs."""
    if (own := _RUNNING.attention) is not None and own.hook is not None:
        own.hook(*args, **named)


def _see_logits(*args: Any, **named: Any) -> None:
    """See what ``softmax`` is given while an attention module runs."""
    if (own := _RUNNING.attention) is not None and own.logits is not None:
        own.logits(*args, **named)


def _transformers(
    own: AttentionHook,
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
    position_ids: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **_: Any,
) -> None:
    mask = attention_mask
    if position_bias is not None and mask is not None:
        mask = position_bias.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else position_bias + mask
    elif position_bias is not None:
        mask = position_bias
    sinks = next((item for item in (s_aux, sinks) if item is not None), getattr(module, "sinks", None))
    flash = own.function in _FLASH
    causal = (getattr(module, "is_causal", True) if is_causal is None else is_causal) and query.shape[2] > 1
    if not flash:
        causal = causal and mask is None and own.function != "eager"
    elif mask is not None and mask.dim() == 2:  # what is padding, row by row of the batch
        mask = mask[:, None, None, :]
    elif mask is None:
        mask = _documents(query, position_ids, cu_seq_lens_q)
    see_heads(
        _here(query, 0, 1),
        _here(key, 0, 1),
        None if mask is None else mask.detach(),
        None if sinks is None else sinks.detach(),
        own.slots,
        own.site,
        query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        bool(causal),
        sliding_window if flash else None,
        softcap,
    )


def _documents(query: torch.Tensor, positions: torch.Tensor | None, ends: torch.Tensor | None) -> torch.Tensor | None:
    """Return which of the packed documents that FlashAttention keeps apart each row is of, int64[rows]; None: of one.

    Raises:
        UnfitError: They go on from one row of the batch to the next.
    """
    rows = query.shape[2]
    if ends is not None and query.shape[0] > 1:
        raise UnfitError("documents are packed over several rows of the batch")
    if ends is not None:
        return torch.searchsorted(ends.long(), torch.arange(rows, device=query.device), right=True)
    packed = positions is not None and query.shape[0] == 1 and positions.numel() == rows > 1
    return (positions == positions.min()).flatten().cumsum(0) if positions is not None and packed else None


def _multihead(own: AttentionHook, module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """See what ``nn.MultiheadAttention`` is given, which projects within one function."""
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
        query.detach(), key.detach(), weights[0].detach(), weights[1].detach(), *biases, mask, own.slots, own.site
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
    own: AttentionHook,
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
    """See what a mapped module hands to ``scaled_dot_product_attention``."""
    see_heads(
        _here(query, 0, 1),
        _here(key, 0, 1),
        None if attn_mask is None else attn_mask.detach(),
        None,
        own.slots,
        own.site,
        query.shape[-1] ** -0.5 if scale is None else scale,
        is_causal,
        None,
        None,
    )


def _softmax(own: AttentionHook, logits: torch.Tensor, *_args: Any, **_: Any) -> None:
    """See what an attention module hands to ``softmax``; a router within it hands over no rows of keys."""
    if logits.dim() >= 3:
        see_logits(_here(logits, 0, 1), own.slots, own.site)
