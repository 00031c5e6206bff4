"""What of held-out splits and evaluation sets is in training data: a row for each split, and for each part of a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table, word_column
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric

_PARTS = ("question", "answer", "both")
_RATES = ("near_dup", "ngram", "ngram_without_common", "span")
_LABELS = dict(zip(_RATES, ("near-dup", "13-grams", "less common", "spans"), strict=True))
_NO_TRAINING = "there are no training documents"
_NO_WORDS = "no document of it has a word"
_NOTHING_FINDABLE = "no rule can find any of its items: all are too short, or a template"
_HELD_OUT_LEGEND = (
    "near-dup, 13-grams: share of documents with a near-duplicate in training, or half of whose 13-grams are in it;"
    " spans: share of their words inside copied spans of 50 words and more; less common: without 13-grams that very"
    " many training documents hold."
)
_SETS_LEGEND = (
    "findable: items that a rule can find; verbatim: share of those that are in training data word for word; similar:"
    " those, and with up to three words in ten changed; common: found in very many training documents."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutLeak:
    """A held-out split, and what of it is in training data; None where that was not evaluated."""

    split: str
    documents: int
    """Documents that were looked for."""
    near_dup: float | None
    ngram: float | None
    ngram_without_common: float | None
    span: float | None
    sampled: bool
    bounds: dict[str, tuple[float, float]]
    """Lower and upper bound, 95 %, of the rates that were measured on a sample, by name."""
    why: str
    """Why a rate is absent; empty when none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLeak:
    """A part of an evaluation set, and what of it is in training data."""

    set: str
    items: int
    part: str
    findable: int
    too_short: int | None
    boilerplate: int | None
    verbatim: float | None
    similar: float | None
    common: int
    """Items found in very many training documents."""
    why: str
    """Why a rate is absent; empty when none is."""


def held_out_leaks(manifest: Manifest) -> list[HeldOutLeak]:
    """Return the held-out splits that were looked for, by name."""
    found = _by_scope(manifest.metrics("train_val_overlap"))
    names = sorted({key[1] for key in found if key[0] == "documents" and key[1]})
    return [
        HeldOutLeak(
            split=name,
            documents=_number(found, ("documents", name, "", "")),
            near_dup=_value(found, ("near_dup", name, "", "")),
            ngram=_value(found, ("ngram", name, "", "")),
            ngram_without_common=_value(found, ("ngram_without_common", name, "", "")),
            span=_value(found, ("span", name, "", "")),
            sampled=found[("ngram", name, "", "")].method == "sampled",
            bounds={
                stat: (record.low, record.high)
                for stat in _RATES
                if (record := found.get((stat, name, "", ""))) and record.low is not None and record.high is not None
            },
            why=_why([found.get((stat, name, "", "")) for stat in _RATES], _NO_WORDS),
        )
        for name in names
    ]


def set_leaks(manifest: Manifest) -> list[SetLeak]:
    """Return the evaluation sets that were looked for, by name; a row for each part that they have."""
    found = _by_scope(manifest.metrics("benchmark_contamination"))
    leaks = []
    for name in sorted({key[1] for key in found if key[0] == "items"}):
        for part in _PARTS:
            rate = found.get(("rate", name, part, "verbatim"))
            if rate is None:
                continue
            coverage = {
                stat: _number(found, (stat, name, part, "")) if part != "both" else None
                for stat in ("too_short", "boilerplate")
            }
            leaks.append(
                SetLeak(
                    set=name,
                    items=_number(found, ("items", name, "", "")),
                    part=part,
                    findable=rate.denominator,
                    too_short=coverage["too_short"],
                    boilerplate=coverage["boilerplate"],
                    verbatim=rate.value,
                    similar=_value(found, ("rate", name, part, "similar")),
                    common=_number(found, ("common", name, part, "")),
                    why=_why([rate, found.get(("rate", name, part, "similar"))], _NOTHING_FINDABLE),
                )
            )
    return leaks


def shared_text(one: HeldOutLeak) -> tuple[str, float, str] | None:
    """Return the strictest sign that a held-out split shares text with training: its stat, its value, what it is of.

    None when there is no sign.
    """
    signs = (
        ("span", one.span, "of the words of {} lie in spans copied into training"),
        ("near_dup", one.near_dup, "of the documents of {} have a near-duplicate in training"),
        ("ngram_without_common", one.ngram_without_common, "of the documents of {} share their 13-grams with training"),
    )
    return next(((stat, value, text) for stat, value, text in signs if value), None)


def worst_parts(sets: Sequence[SetLeak]) -> list[SetLeak]:
    """Return of each set the part of which most was found."""
    worst: dict[str, SetLeak] = {}
    for one in sets:
        held = worst.get(one.set)
        if held is None or (one.verbatim or 0, one.similar or 0) > (held.verbatim or 0, held.similar or 0):
            worst[one.set] = one
    return list(worst.values())


def _why(records: Sequence[Metric | None], empty: str) -> str:
    """Return why a rate has no value, in words; ``empty`` says what a denominator of 0 means."""
    words = {"no_training_documents": _NO_TRAINING, "empty_denominator": empty}
    reasons = sorted({record.reason for record in records if record is not None and record.reason})
    return "; ".join(words.get(reason, reason) for reason in reasons)


_Key = tuple[str, str, str, str]


def _by_scope(records: Sequence[Metric]) -> dict[_Key, Metric]:
    """Return the records that speak of all training data, by (stat, set, entity, rule)."""
    return {
        (record.stat, record.scope.set or "", record.scope.entity or "", record.scope.rule or ""): record
        for record in records
        if record.scope.split is None and record.scope.source is None
    }


def _value(found: dict[_Key, Metric], key: _Key) -> float | None:
    record = found.get(key)
    return None if record is None else record.value


def _number(found: dict[_Key, Metric], key: _Key) -> int:
    return int(_value(found, key) or 0)


def protected_facts(manifest: Manifest) -> dict[str, list[dict[str, Any]]]:
    """Return both as plain JSON values."""
    return {
        "held_out_leaks": [asdict(one) for one in held_out_leaks(manifest)],
        "set_leaks": [asdict(one) for one in set_leaks(manifest)],
    }


def protected_lines(manifest: Manifest, width: int) -> tuple[list[str], list[str]]:
    """Return both blocks."""
    return held_out_lines(held_out_leaks(manifest), width), set_lines(set_leaks(manifest), width)


def held_out_lines(found: Sequence[HeldOutLeak], width: int) -> list[str]:
    """Return the block of held-out splits; empty without any."""
    columns = [
        name_column("split"),
        number_column("docs"),
        number_column("near-dup"),
        number_column("13-grams"),
        number_column("less\ncommon"),
        number_column("spans"),
        word_column(""),
    ]
    rows = [
        [
            t.clean(one.split),
            t.count(one.documents),
            t.ratio(one.near_dup),
            t.ratio(one.ngram),
            t.ratio(one.ngram_without_common),
            t.ratio(one.span),
            "sampled" if one.sampled else "",
        ]
        for one in found
    ]
    if not rows:
        return []
    lines = table(columns, rows, width)
    for one in (one for one in found if one.bounds):
        intervals = (
            f"{_LABELS[name]} {t.ratio(low)} to {t.ratio(high)}" for name, (low, high) in sorted(one.bounds.items())
        )
        lines += prose(f"{t.clean(one.split)}, from a sample, 95 % intervals: {'; '.join(intervals)}", width)
    lines += [line for one in found if one.why for line in prose(f"{t.clean(one.split)}: - because {one.why}", width)]
    lines += prose(_HELD_OUT_LEGEND, width)
    return section("Held-out documents in training data", lines)


def set_lines(found: Sequence[SetLeak], width: int) -> list[str]:
    """Return the block of evaluation sets; empty without any."""
    columns = [
        name_column("set"),
        number_column("items"),
        word_column("part"),
        number_column("findable"),
        number_column("too\nshort"),
        number_column("boiler-\nplate"),
        number_column("verbatim"),
        number_column("similar"),
        number_column("common"),
    ]
    rows = [
        [
            t.clean(one.set),
            t.count(one.items),
            one.part,
            t.count(one.findable),
            t.count(one.too_short),
            t.count(one.boilerplate),
            t.ratio(one.verbatim),
            t.ratio(one.similar),
            t.count(one.common),
        ]
        for one in found
    ]
    if not rows:
        return []
    lines = table(columns, rows, width)
    for one in (one for one in found if one.why):
        lines += prose(f"{t.clean(one.set)}, {one.part}: - because {one.why}", width)
    lines += prose(_SETS_LEGEND, width)
    return section("Evaluation items in training data", lines)
