"""What the corpus is made of beyond its sources: languages, quality rules, padding, drift; facts, then blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.core import DetectorRecord
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.report.drift import drifts
from dataaudit.text import plural

UND = "und"
_NAME_LIMIT = 60
_LANGUAGE_DETECTORS = ("pycld2", "fasttext")
"""Names of those that say a language, among all detectors of a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagePart:
    """One language's part of the training tokens."""

    language: str
    documents: int
    bytes: int
    tokens: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Languages of the training data (of everything when every split is held out)."""

    parts: tuple[LanguagePart, ...]
    """Largest first, ``und`` among them."""
    detectors: tuple[str, ...]
    """Name and version of each; the first one decides."""
    agreement: Metric | None
    """How often the detectors agree on a sample."""
    trained: bool
    """Whether the shares are those of training splits; without one, of all, which are then held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Documents that a quality rule would reject."""

    rule: str
    """``set.rule``, or the name of a set for any of its rules; empty for any rule at all."""
    rates: dict[str, float | None]
    """By split; the whole dataset under ''."""


def languages(manifest: Manifest) -> Languages | None:
    """Return the languages, or None when they were not looked for."""
    core = manifest.core
    detectors = [one for one in core.detectors if one.name in _LANGUAGE_DETECTORS]
    if not detectors:
        return None
    trained = [split.name for split in core.splits if not split.held_out]
    training = trained or [split.name for split in core.splits]
    rows = manifest.table("languages")
    rows = rows.filter(pc.is_in(rows["split"], pa.array(training, pa.string())))
    names = ("documents", "bytes", "tokens")
    sums = rows.group_by("language").aggregate([(name, "sum") for name in names]).to_pylist()
    total = sum(row["tokens_sum"] for row in sums)
    parts = [
        LanguagePart(
            language=row["language"],
            **{name: row[f"{name}_sum"] for name in names},
            share=row["tokens_sum"] / total if total else None,
        )
        for row in sorted(sums, key=lambda row: (-row["tokens_sum"], row["language"]))
    ]
    agreement = manifest.metrics("language_share", "detector_agreement", Scope())
    return Languages(
        parts=tuple(parts),
        detectors=tuple(f"{one.name} {one.version}" for one in sorted(detectors, key=_decides(core.config))),
        agreement=agreement[0] if agreement and agreement[0].status == "ok" else None,
        trained=bool(trained),
    )


def rules(manifest: Manifest) -> list[Rule]:
    """Return every quality rule with its rate by split, in the order of their names, any rule first."""
    rates: dict[str, dict[str, float | None]] = {}
    for record in manifest.metrics("filter_reject_rate", "rate"):
        if record.scope.source is None:
            rates.setdefault(record.scope.rule or "", {})[record.scope.split or ""] = record.value
    return [Rule(rule=name, rates=found) for name, found in sorted(rates.items())]


def composition(manifest: Manifest) -> dict[str, Any]:
    """Return languages, rules, padding and drift as plain values for JSON."""
    found = languages(manifest)
    spoken = None
    if found is not None:
        agreement = found.agreement
        spoken = {
            "detectors": found.detectors,
            "training": [asdict(part) for part in found.parts],
            "detector_agreement": None
            if agreement is None
            else {"value": agreement.value, "low": agreement.low, "high": agreement.high, "documents": agreement.n},
        }
    padding = {record.stat: record.value for record in manifest.metrics("pad_fraction", None, _training(manifest))}
    return {
        "languages": spoken,
        "rules": [asdict(rule) for rule in rules(manifest)],
        "padding": padding,
        "drift": [asdict(one) for one in drifts(manifest)],
    }


def language_lines(found: Languages | None, width: int, limit: int) -> list[str]:
    """Return the block of languages."""
    if found is None or not found.parts:
        return []
    columns = [
        name_column("language"),
        number_column("docs"),
        number_column("text"),
        number_column("tokens"),
        number_column("share"),
    ]
    shown = found.parts if len(found.parts) <= limit + 1 else found.parts[:limit]
    if not any(part.language == UND for part in shown):
        shown += tuple(part for part in found.parts if part.language == UND)
    rows = [
        [t.clean(part.language), t.count(part.documents), t.size(part.bytes), t.count(part.tokens), t.ratio(part.share)]
        for part in shown
    ]
    lines = table(columns, rows, width)
    if len(shown) < len(found.parts):
        lines += prose(f"and {plural(len(found.parts) - len(shown), 'more language')}", width)
    notes = [f"decided by {t.clean(found.detectors[0])}; {UND}: not sure enough, or no letters"]
    if found.agreement is not None and len(found.detectors) > 1:
        record = found.agreement
        notes.append(
            f"{t.clean(found.detectors[1])} agrees on {t.ratio(record.value)} of {t.plural(record.n, 'document')}"
            f" sampled ({t.ratio(record.low)} to {t.ratio(record.high)})"
        )
    kind = "training" if found.trained else "held-out"
    return section(f"Languages, by share of {kind} tokens", [*lines, *prose("; ".join(notes), width)])


def rule_lines(found: Sequence[Rule], splits: Sequence[str], width: int) -> list[str]:
    """Return the block of quality rules."""
    if not found:
        return []
    columns = [name_column("rule"), *(number_column(t.clean(split, 24)) for split in splits)]
    if len(splits) > 1:
        columns.append(number_column("(all)"))
    wanted = [*splits, ""] if len(splits) > 1 else list(splits)
    rows = [
        [t.clean(rule.rule) or "any of all rules", *(t.ratio(rule.rates.get(split)) for split in wanted)]
        for rule in found
    ]
    note = "share of documents that each rule would reject; nothing was removed"
    return section("Quality rules", [*table(columns, rows, width), *prose(note, width)])


def padding_lines(manifest: Manifest, width: int) -> list[str]:
    """Return the block of padding of the training data: a row a context length, a column a way to batch."""
    scope = _training(manifest)
    found: dict[int, dict[str, float | None]] = {}
    for record in manifest.metrics("pad_fraction", None, scope):
        way, _, context = record.stat.rpartition("_")
        found.setdefault(int(context), {})[way] = record.value
    ways = ("padded", "padded_batch", "packed", "concatenated")
    heads = ("padded", "padded\nbatch", "packed", "concat-\nenated")
    columns = [number_column("context"), *(number_column(head) for head in heads)]
    rows = [
        [t.count(context), *(t.ratio(values.get(way)) for way in ways)] for context, values in sorted(found.items())
    ]
    of = f" of {t.clean(scope.split)}" if scope.split else " of all splits together"
    return section(f"Padding{of}, as a share of what would be fed", table(columns, rows, width))


def _decides(config: Mapping[str, Any]) -> Callable[[DetectorRecord], bool]:
    """Return a key that puts the detector first whose answer counts."""
    decider = config.get("language", {}).get("detector")
    return lambda record: record.name != decider


def _training(manifest: Manifest) -> Scope:
    """Return the scope of the training split; everything when there are several, or none."""
    names = [split.name for split in manifest.core.splits if not split.held_out]
    return Scope(split=names[0]) if len(names) == 1 else Scope()
