"""Model and hardware FLOPs utilisation: what a decoder computes for a token, over what its device can.

MFU counts what the model needs, HFU also what is computed again (activation checkpointing). PaLM (arXiv 2204.02311,
appendix B) counts 6N + 12·L·H·Q·T FLOPs a token: N parameters, embeddings too and a tied table once; L layers of H
heads of Q dimensions; T keys for each query, masked or not. Here N holds what a token meets: of routed experts k of E.
A layer with a window of W has min(W, T) keys. ``attention="causal"`` counts the keys that the mask leaves, on average.
Numbers of two conventions do not compare, so the log says which it is. What a fused kernel computes again in its own
backward pass is counted in neither.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from dataaudit.base.errors import ConfigError

if TYPE_CHECKING:
    import torch

WINDOW = 16
"""Steps of a window; it ends at a multiple of it."""
PEAKS = (
    ("A100", 312e12, "NVIDIA A100 datasheet"),
    ("H100 PCIe", 756.5e12, "NVIDIA H100 datasheet"),
    ("H100 NVL", 835.5e12, "NVIDIA H100 NVL datasheet"),
    ("H100", 989.4e12, "NVIDIA H100 datasheet, SXM"),
    ("H200 NVL", 835.5e12, "NVIDIA H200 datasheet, NVL"),
    ("H200", 989.4e12, "NVIDIA H200 datasheet, SXM"),
    ("GH200", 989.4e12, "NVIDIA GH200 datasheet"),
    ("B200", 2250e12, "NVIDIA HGX B200 datasheet"),
    ("GB200", 2500e12, "NVIDIA GB200 NVL72 datasheet"),
    ("MI250X", 191.5e12, "AMD Instinct MI250X datasheet, one of two dies"),
    ("MI300X", 1307.4e12, "AMD Instinct MI300X datasheet"),
    ("MI325X", 1307.4e12, "AMD Instinct MI325X datasheet"),
)
"""Words of a device's name, the first match counts; FLOP/s of dense bfloat16 matrices, without sparsity; the source."""
_CHOICES = {"attention": "full causal", "embeddings": "counted left_out", "recomputed": "nothing attention layers"}
_NUMBERS = "Give what is missing: ModelFlops.of(model, layers=...), or all numbers: ModelFlops(...)."
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Names in configs of transformers: experts of a token, and all of them."""
_KNOWN_LAYERS = {"full_attention": False, "attention": False, "sliding_attention": True}
"""Types of layers in a config, and whether they have the window."""


@dataclass(frozen=True, kw_only=True)
class ModelFlops:
    """What a decoder computes for a token that it trains on, and by which convention that is counted.

    Args:
        parameters: That a token meets: of routed experts those that are chosen for it, shared ones all; tied ones once.
        layers: That have attention.
        heads: Of queries, in a layer; fewer heads of keys change the parameters alone.
        head_dim: Of queries and keys.
        value_dim: Of values; 0: as ``head_dim``.
        windows: Keys that a query sees at most, itself included, by layer; 0: all before it. Empty: no layer has any.
        lookups: Of ``parameters``, tables that are looked up and multiply nothing.
        head: Of ``parameters``, those of the output head, which checkpointing of layers does not compute again.
        frozen: Of ``parameters``, those that do not train: their gradient, 2 of the 6 FLOPs, is not computed.
        attention: ``full``: all keys of a row or window, masked ones too. ``causal``: those that the mask leaves.
        embeddings: ``counted`` in N, as PaLM does, or ``left_out``: of these the head alone counts.
        recomputed: In the backward pass: ``nothing``, ``attention`` (scores and weighted values), whole ``layers``.
        sequence: Tokens of a sequence, where a row is several that do not see each other; 0: a row is one.
        peak: FLOP/s of a device; None: of its name in :data:`PEAKS`.
        devices: That share the rows of a process: tensor, context or pipeline parallel.
    """

    parameters: int
    layers: int
    heads: int
    head_dim: int
    value_dim: int = 0
    windows: tuple[int, ...] = ()
    lookups: int = 0
    head: int = 0
    frozen: int = 0
    attention: Literal["full", "causal"] = "full"
    embeddings: Literal["counted", "left_out"] = "counted"
    recomputed: Literal["nothing", "attention", "layers"] = "nothing"
    sequence: int = 0
    peak: float | None = None
    devices: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = name in ("parameters", "layers", "heads", "head_dim", "devices")
            if isinstance(value, int | float) and (value < least or (name == "peak" and not value > 0)):
                raise ConfigError(f"flops: {name}: expected a number above 0, found {value}")
            if isinstance(value, str) and value not in (allowed := _CHOICES[name].split()):
                raise ConfigError(f"flops: {name}: expected {' or '.join(allowed)}, found {value!r}")
        if self.windows and (len(self.windows) != self.layers or min(self.windows) < 0):
            raise ConfigError(f"flops: windows: expected {self.layers}, of 0 or more, found {self.windows}")

    @classmethod
    def of(cls, model: torch.nn.Module, config: Any = None, **given: Any) -> Self:
        """Return the counts of a model; raise a ConfigError where its config lacks a number, or no formula is for it.

        Args:
            model: Before it is sharded; on any device, ``meta`` too. Routed experts lie below a name ``experts``.
            config: Of transformers; by default ``model.config``. Without one name layers, heads and ``head_dim``.
            given: Arguments of the class, which count before what is read.
        """
        config = getattr(model, "config", None) if config is None else config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        if text is not config or getattr(config, "is_encoder_decoder", False):
            raise ConfigError("flops: the model is more than a decoder of text", _NUMBERS)
        known = {**({} if "parameters" in given else _parameters(model, text)), **_attention(text), **given}
        if missing := sorted({"layers", "heads", "head_dim"} - known.keys()):
            raise ConfigError(f"flops: the model's config lacks {', '.join(missing)}", _NUMBERS)
        return cls(**known)

    def per_token(self, row: int) -> tuple[float, float]:
        """Return the FLOPs of a token of the model and of the hardware, in rows of so many tokens."""
        length = self.sequence or row
        keys = 0.0
        for window in self.windows or (0,) * self.layers:
            most = min(window or length, length)
            keys += most if self.attention == "full" else most - most * (most - 1) / (2 * length)
        scores = 2 * self.heads * (self.head_dim + (self.value_dim or self.head_dim)) * keys
        weights = self.parameters - (self.lookups if self.embeddings == "left_out" else 0)
        layers = 2 * (self.parameters - self.lookups - self.head) + scores
        needed = 3 * (2 * weights + scores) - 2 * self.frozen
        return needed, needed + {"nothing": 0.0, "attention": scores, "layers": layers}[self.recomputed]


def _parameters(model: torch.nn.Module, config: Any) -> dict[str, int]:
    """Return what a token meets of a model's parameters, and of these lookups, the head, and what does not train."""
    import torch

    modules = list(model.modules())
    tables = {id(item.weight): item.weight for item in modules if isinstance(item, torch.nn.Embedding)}
    others = [item for item in modules if not isinstance(item, torch.nn.Embedding)]
    multiplied = {id(weight) for item in others for weight in item.parameters(recurse=False)}
    rows = max((len(table) for table in tables.values()), default=0)
    heads = {id(item.weight): item.weight for item in others if isinstance(item, torch.nn.Linear)}
    chosen, number = (_first(config, names) for names in (_CHOSEN, _EXPERTS))
    met = {False: 0, True: 0}
    for name, weight in model.named_parameters():  # a tied one once
        if (routed := ".experts." in name) and not (chosen and number):
            raise ConfigError("flops: the config does not say how many experts a token meets", _NUMBERS)
        met[weight.requires_grad] += weight.numel() * (chosen if routed else max(1, number))
    frozen, trained = (total // max(1, number) for total in met.values())
    return {
        "parameters": frozen + trained,
        "frozen": frozen,
        "lookups": sum(table.numel() for key, table in tables.items() if key not in multiplied),
        "head": sum(weight.numel() for weight in heads.values() if len(weight) == rows),
    }


def _attention(config: Any) -> dict[str, Any]:
    """Return heads, their dimensions and windows of a config of transformers."""
    layers, heads, window = (
        _first(config, (name,)) for name in ("num_hidden_layers", "num_attention_heads", "sliding_window")
    )
    if not layers or not heads:
        return {}
    kinds = list(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ())
    window = window if getattr(config, "use_sliding_window", True) else 0
    if unknown := sorted(set(kinds) - _KNOWN_LAYERS.keys()):
        raise ConfigError(f"flops: no formula is for layers of type {', '.join(unknown)}", _NUMBERS)
    latent = _first(config, ("qk_nope_head_dim",)) + _first(config, ("qk_rope_head_dim",))
    return {
        "layers": layers,
        "heads": heads,
        "head_dim": latent or _first(config, ("head_dim",)) or config.hidden_size // heads,
        "value_dim": _first(config, ("v_head_dim",)),
        "windows": tuple(window if not kinds or _KNOWN_LAYERS[kinds[at]] else 0 for at in range(layers)),
    }


def _first(config: Any, names: tuple[str, ...]) -> int:
    """Return the first of some numbers that a config has; 0: none."""
    return next((int(value) for name in names if (value := getattr(config, name, None))), 0)


class Utilisation:
    """Follows the batches of a process; where no :class:`ModelFlops` is given it does nothing."""

    def __init__(self, flops: ModelFlops | None) -> None:
        self._flops, self._begun = flops, False
        self._peak: float | None = None
        self._step, self._window = np.zeros(2), np.zeros(3)
        """FLOPs of the model and of the hardware, of the step and the window under way; seconds of the window."""

    def batch(self, rows: int, row: int) -> None:
        """Add a batch of so many rows, of so many tokens each, padding too."""
        if self._flops is not None:
            self._step += np.multiply(rows * row, self._flops.per_token(row))

    def begin(self, device: int) -> dict[str, Any] | None:
        """Return, once, how it is counted and the peak of the GPU of this number; or why there is no number."""
        if self._flops is None or self._begun:
            return None
        torch, self._begun = sys.modules.get("torch"), True
        on_gpu = torch is not None and torch.cuda.is_initialized()
        name = str(torch.cuda.get_device_name(device)) if torch is not None and on_gpu else "a CPU"
        peak, source = (self._flops.peak, "given") if self._flops.peak else peak_of(name)
        names = ("attention", "embeddings", "recomputed", "parameters", "devices")
        state = {**{key: getattr(self._flops, key) for key in names}, "device": name}
        if not self._step.all():
            return {**state, "why": "batches come without labels, losses or logits: how long rows are is not known"}
        if peak is None:
            return {**state, "why": f"the peak of {name} is not known; ModelFlops(peak=) gives it, in FLOP/s"}
        self._peak = peak * self._flops.devices
        return {**state, "peak": peak, "source": source}

    def end_step(self, step: int, seconds: float | None) -> dict[str, float]:
        """Return ``mfu`` and ``hfu`` at the end of a window; steps that are not timed, as the first, do not count."""
        if seconds is not None:
            self._window += (*self._step, seconds)
        self._step[:] = 0
        if step % WINDOW or not self._window[2]:
            return {}
        model, hardware, spent = self._window.tolist()
        self._window[:] = 0
        return {} if self._peak is None else {"mfu": model / spent / self._peak, "hfu": hardware / spent / self._peak}


def peak_of(name: str) -> tuple[float | None, str]:
    """Return the peak of a device by its name and where it stands; None for others, and for a part of a device."""
    words = set(re.split(r"[^A-Za-z0-9]+", name))
    known = [(peak, source) for wanted, peak, source in PEAKS if words >= set(wanted.split())]
    return known[0] if known and "MIG" not in words else (None, "")
