"""What vitals say before the first step: what was found in a model, what will be seen, how, and why the rest is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dataaudit.vitals import micro_batches, weights
from dataaudit.vitals.attention_pass import said_of
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.structure import Layer, Structure
from dataaudit.vitals.watching import Taps
from dataaudit.vitals.weights import Weights

_OF_HEADS = ("max_attn_logit", "attn_entropy", "dead_head_rate")
_FAMILIES = {
    "attention": _OF_HEADS,
    "activations": ("activation_mean_abs", "residual_rms", "activation_outlier_rate", "dead_neuron_count"),
    "weights": tuple(name for name, _ in (*weights.STATS, *micro_batches.STATS)),
}
METRICS = frozenset(
    {*(name for names in _FAMILIES.values() for name in names), "nan_inf_events", "gradient_spike_score"}
)
"""Names of metrics, which no number of the loop's own may have."""


def what_is_found(model: nn.Module, structure: Structure, taps: Taps) -> dict[str, Any]:
    """Return the parts of a model that were found, in words and numbers."""
    layers = structure.layers
    heads = sorted({layer.attention.heads for layer in taps.head_layers if layer.attention})
    kinds = sorted({layer.attention.kind for layer in taps.head_layers if layer.attention})
    of_heads = f", {'/'.join(map(str, heads))} heads, {'/'.join(kinds)}" if heads else ""
    return {
        "model": type(model).__name__,
        "layers": len(layers),
        "where": layers[0].name.rpartition(".")[0] or layers[0].name,
        "attention": f"{len(taps.head_layers)} of {len(layers)} layers{of_heads}",
        "mlp": f"{sum(layer.mlp is not None or layer.down is not None for layer in layers)} of {len(layers)} layers",
        "embedding": structure.embedding[0] if structure.embedding else "none",
        "final_norm": structure.final_norm[0] if structure.final_norm else "none",
        "not_seen": ", ".join(structure.others) or "nothing",
    }


def states_of_metrics(
    structure: Structure, taps: Taps, optimizers: Sequence[torch.optim.Optimizer], config: VitalsConfig
) -> dict[str, str]:
    """Return of each metric ``ok``, or ``not_applicable`` with the reason."""
    layers = structure.layers
    no_heads = None if taps.head_layers else _joined([*taps.why.values(), _missing(layers, "attention")])
    no_units = None if taps.unit_layers else _joined([_missing(layers, "units")])
    no_optimizer = None if optimizers else "no optimizer was given"
    reasons = {
        **dict.fromkeys(_OF_HEADS, no_heads),
        **dict.fromkeys(_FAMILIES["activations"]),
        "dead_neuron_count": no_units,
        **dict.fromkeys((name for name, _ in weights.STATS), no_optimizer),
        **dict.fromkeys(dict(micro_batches.STATS), micro_batches.why_not()),
        "nan_inf_events": None,
        "gradient_spike_score": no_optimizer or micro_batches.why_not(),
    }
    for family, metrics in _FAMILIES.items():
        if family not in config.measure:
            reasons.update(dict.fromkeys(metrics, "not asked for"))
    return {name: "ok" if why is None else f"not_applicable: {why}" for name, why in reasons.items()}


def estimators(taps: Taps, of_weights: Weights) -> dict[str, str]:
    """Return how numbers are estimated, by their names."""
    rows = "; ".join(sorted(set(taps.estimators.values()))) or "none"
    all_rows = said_of(taps.heads.device) if taps.head_layers else "none"
    return {
        ", ".join(_OF_HEADS): rows,
        "max_attn_logit lower and upper, attn_entropy all_rows": all_rows,
        "update_to_weight": of_weights.estimator,
    }


def what_alarms(config: VitalsConfig) -> str:
    """Return what raises an alarm, in words."""
    fixed = "fixed rules from the first step"
    if config.baseline is not None:
        return f"{fixed}; deviations from the baseline that was given"
    since = f", after step {config.healthy[1]:,}" if config.healthy is not None else ""
    return f"{fixed}; deviations of each series from its own past{since}, with the learning rate taken out"


def covered(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many series are judged, and why others are not, as a sentence or two."""
    series, judged = (sum(record[name] for record in metrics.values()) for name in ("series", "judged"))
    reasons: dict[str, list[str]] = {}
    for metric, record in metrics.items():
        if record["judged"] < record["series"] and record["why"]:
            reasons.setdefault(record["why"], []).append(f"{metric} {record['judged']} of {record['series']}")
    rest = "; ".join(f"{', '.join(own)}: {why}" for why, own in reasons.items())
    words = f"{judged:,} of {series:,} series are judged against what is expected of them"
    return f"{words}. The rest: {rest}." if rest else f"{words}."


def in_a_line(detail: Mapping[str, Any]) -> str:
    """Return an alarm or a warning that opens an incident as a sentence."""
    named = [f"{what} {detail[what]}" for what in ("layer", "head") if detail.get(what, -1) >= 0]
    where = ", ".join(named) or "whole model"
    words = detail.get("what") or f"{detail['metric']} of {where} {_WORDS.get(str(detail.get('rule')), 'is off')}"
    value = f" ({detail['value']:.4g})" if isinstance(detail.get("value"), float) and "what" not in detail else ""
    batch = f", micro-batch {detail['micro_batch']}" if "micro_batch" in detail else ""
    since = f", since step {detail['first_step']:,}"
    return f"incident {detail['incident']} (severity {detail['severity']}): {words}{value}{batch}{since}"


_WORDS = {
    "not_finite": "is not finite",
    "state": "is not finite in the optimizer's state",
    "rate": "left its schedule",
    "dead": "counts half its units or more as silent",
    "collapse": "has next to no entropy left",
    "frozen": "says that the layer does not train any more",
    "fold": "is far from its recent median",
    "jump": "jumped out of what is expected",
    "drift": "drifts out of what is expected",
    "limit": "passed a threshold of the literature",
}


def in_words(summary: dict[str, Any]) -> str:
    """Return a summary as lines for a terminal."""
    found = summary["found"]
    lines = [f"vitals of {found['model']}: {found['layers']} layers in {found['where']}"]
    lines += [f"  {name}: {value}" for name, value in found.items() if name not in {"model", "layers", "where"}]
    width = max(map(len, summary["metrics"]))
    lines += [f"  {name:<{width}}  {state}" for name, state in summary["metrics"].items()]
    return "\n".join([*lines, f"  alarms: {summary['alarms']}", f"  coverage: {covered(summary['coverage'])}"])


def _missing(layers: Sequence[Layer], what: str) -> str:
    return next((layer.why[what] for layer in layers if what in layer.why), "")


def _joined(reasons: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason)) or "none found"
