"""What vitals say before the first step: what was found in a model, what will be seen, how, and why the rest is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from dataaudit.vitals.attention_pass import source_of
from dataaudit.vitals.config import FAMILIES, VitalsConfig
from dataaudit.vitals.incidents import OTHER, RULES
from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metrics import declared

_ORDER = (*FAMILIES, "")
_MOST = 8
"""Layers and parameters that do not train, by name."""
_SHARDED = (
    "weights and gradients are added up over these, at fixed steps; activations and heads are of this rank's batch"
    " and part"
)


def summary_of(
    model: nn.Module, sources: Sources, measurements: Sequence[Measurement], config: VitalsConfig
) -> dict[str, Any]:
    """Return what was found in a model, of each metric ``ok`` or why not, and how numbers are made; plain JSON."""
    hooks, asked = sources.hooks, config.measure
    states: dict[str, str] = {}
    for item in sorted(measurements, key=lambda item: _ORDER.index(item.FAMILY)):
        listed = [metric.name for metric in item.METRICS if metric.listed]
        unasked = item.FAMILY and item.FAMILY not in asked
        why = f'not asked for: VitalsConfig(measure=(..., "{item.FAMILY}"))'
        reasons = dict.fromkeys(listed, why) if unasked else item.reasons()
        states |= {name: f"not_applicable: {reasons[name]}" if name in reasons else "ok" for name in listed}
    of_heads = ", ".join(metric.name for item in measurements if item.FAMILY == "attention" for metric in item.METRICS)
    return {
        "found": _what_is_found(model, sources),
        "metrics": states,
        "estimators": {
            of_heads: "; ".join(sorted(set(hooks.estimators.values()))) or "none",
            "max_attn_logit lower and upper, attn_entropy all_rows": source_of(hooks.heads.device)
            if hooks.head_layers
            else "none",
            "update_to_weight": sources.weights.estimator,
            "router_token_entropy": hooks.routers.estimator,
        },
        "preset": config.preset,
        "alarms": _what_alarms(config),
    }


def _what_is_found(model: nn.Module, sources: Sources) -> dict[str, Any]:
    """Return the parts of a model that were found, in words and numbers."""
    structure, hooks, seen = sources.structure, sources.hooks, sources.hooks.head_layers
    layers = structure.layers
    heads = sorted({layer.attention.heads for layer in seen if layer.attention})
    kinds = sorted({layer.attention.kind for layer in seen if layer.attention})
    of_heads = f", {'/'.join(map(str, heads))} heads, {'/'.join(kinds)}" if heads else ""
    return {
        "model": type(model).__name__,
        "parameters": sum(item.numel() for item in model.parameters()),
        "layers": len(layers),
        **({"width": structure.width} if structure.width else {}),
        "where": layers[0].name.rpartition(".")[0] or layers[0].name,
        "attention": f"{len(seen)} of {len(layers)} layers{of_heads}",
        "mlp": f"{sum(layer.mlp is not None or layer.down is not None for layer in layers)} of {len(layers)} layers",
        "experts": hooks.routers.in_words(len(layers)),
        "embedding": structure.embedding[0] if structure.embedding else "none",
        "final_norm": structure.final_norm[0] if structure.final_norm else "none",
        "not_seen": ", ".join(structure.others) or "nothing",
        **({"not_trained": left} if (left := _not_trained(model, sources)) else {}),
        **({"sharded": f"{sources.sharding}; {_SHARDED}"} if sources.sharding else {}),
    }


def _not_trained(model: nn.Module, sources: Sources) -> str:
    """Return which layers and parameters no optimizer moves, in words; empty where each is moved, or none is known."""
    moved, layers = sources.masters.owns, sources.structure.layers if sources.weights.groups else ()
    left = {id(item): name for name, item in model.named_parameters() if not (item.requires_grad and moved(item))}
    whole = [layer for layer in layers if {*map(id, layer.module.parameters())} <= left.keys()]
    inside = {id(item) for layer in whole for item in layer.module.parameters()}
    names = [*(layer.name for layer in whole), *(name for key, name in left.items() if key not in inside)]
    more = f", and {len(names) - _MOST:,} others" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more if layers and sources.optimizers else ""


def _what_alarms(config: VitalsConfig) -> str:
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
    parts = (("layer", "layer"), ("head", declared(str(detail.get("metric"))).part))
    named = [f"{word} {detail[what]}" for what, word in parts if detail.get(what, -1) >= 0]
    where = ", ".join(named) or "whole model"
    words = detail.get("what") or f"{detail['metric']} of {where} {RULES.get(str(detail.get('rule')), OTHER)[1]}"
    value = f" ({detail['value']:.4g})" if isinstance(detail.get("value"), float) and "what" not in detail else ""
    batch = f", micro-batch {detail['micro_batch']}" if "micro_batch" in detail else ""
    since = f", since step {detail['first_step']:,}"
    return f"incident {detail['incident']} (severity {detail['severity']}): {words}{value}{batch}{since}"


def in_words(summary: dict[str, Any]) -> str:
    """Return a summary as lines for a terminal."""
    found = summary["found"]
    lines = [f"vitals of {found['model']}: {found['layers']} layers in {found['where']}"]
    lines += [f"  {name}: {value}" for name, value in found.items() if name not in {"model", "layers", "where"}]
    width = max(map(len, summary["metrics"]))
    lines += [f"  {name:<{width}}  {state}" for name, state in summary["metrics"].items()]
    return "\n".join([*lines, f"  alarms: {summary['alarms']}", f"  coverage: {covered(summary['coverage'])}"])
