"""The numbers of a case as text (value, interval, limit, baseline), and the texts of reason codes.

Outputs of the gate go into pull requests and logs, so they keep the reports' rule: a count of 1 to 4 documents that
hold personal data is never shown, and a larger count is rounded, so that no exact number follows from two of them. The
number of documents that hits are in is not known here; hits are shown from ten times as many on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dataaudit.base import text as t
from dataaudit.decide.gate.policy import Rule
from dataaudit.decide.gate.verdict import Case, Evidence
from dataaudit.metrics.disclosure import FEW as FEW_DOCUMENTS
from dataaudit.metrics.disclosure import about, two_digits
from dataaudit.metrics.registry import PERSONAL

FEW_HITS = 50
WITHHELD = "withheld (few)"
_KINDS = {"budget": "", "change": "change ", "relative_change": "relative change ", "robust_sd": "distance "}
_WAYS = {"up": "up ", "down": "down ", "either": ""}
_SIGNIFICANT = 12
_ROUNDED_AWAY = 1.12
"""At least what two roundings to two digits can take away, as a factor."""
_FEWEST_STEP = 5
"""Half a step of counts that are rounded to tens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Texts of plain ASCII, but for the unit; empty where there is no number."""

    limit: str
    """``<= 0.001``, ``change up <= 0.05``: what was allowed."""
    value: str = ""
    interval: str = ""
    """``0.0010 to 0.0014``."""
    baseline: str = ""
    judged: str = ""
    """The number that was compared with the limit, unless it is the value."""


def numbers(rule: Rule, case: Case | None) -> Numbers:
    """Return the numbers of a case, and the limit of its rule."""
    limit = f"{_KINDS[rule.limit_kind]}{_WAYS[rule.direction]}{rule.comparator} {_as_written(rule.limit)}"
    limit = limit if rule.budget_from is None else limit.replace(" ", f" from {rule.budget_from} ", 1)
    limit = limit if rule.warn is None else f"{limit} (warns at {_as_written(rule.warn)})"
    if case is None:
        return Numbers(limit=limit)
    if rule.metric in PERSONAL:
        return _discreet(rule, case, limit)
    judged = number(case.judged)
    if case.judged is not None and judged == number(rule.limit) and case.judged != rule.limit:
        judged = _as_written(case.judged)
    value = judged if case.value == case.judged else number(case.value)
    return Numbers(
        value=value,
        interval=_interval(number(case.low), number(case.high)),
        limit=limit,
        baseline=number(case.baseline),
        judged="" if case.judged == case.value else judged,
    )


def evidence_count(rule: Rule, evidence: Evidence) -> str:
    """Return ``12 documents with copied spans``."""
    noun = t.clean(evidence.noun, 100)
    new = ", in a shard that changed since the baseline" if evidence.changed else ""
    new = ", new since the baseline" if evidence.fresh else new
    if rule.metric not in PERSONAL:
        return f"{evidence.count:,} {_singular(noun) if evidence.count == 1 else noun}{new}"
    few = _fewest(evidence.noun)
    return f"fewer than {few} {noun}{new}" if evidence.count < few else f"about {about(evidence.count):,} {noun}{new}"


def shown_count(rule: Rule, count: int, noun: str) -> int:
    """Return a count of evidence as it may be passed on: of personal data rounded, 0 where it is small."""
    if rule.metric not in PERSONAL:
        return count
    return about(count) if count >= _fewest(noun) else 0


def number(value: float | None) -> str:
    """Return a number with four significant digits; a count is given whole."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(float(value))
    if value == int(value):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.3g}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def with_unit(shown: str, unit: str) -> str:
    """Return a number with its unit; a ratio has none."""
    if not unit or unit == "ratio" or not shown.startswith(("-", "about", *"0123456789")):
        return shown
    return f"{shown} {t.clean(unit, 60)}"


def _singular(noun: str) -> str:
    """Return ``document that holds an item`` for ``documents that hold an item``."""
    words = noun.split(" ")
    first = next((index for index, word in enumerate(words) if word.endswith("s")), None)
    if first is not None:
        words[first] = words[first].removesuffix("s")
    return " ".join(words).replace(" that hold ", " that holds ")


def _as_written(value: float) -> str:
    return number(value) if value == int(value) else f"{value:.{_SIGNIFICANT}g}"


def _interval(low: str, high: str) -> str:
    return f"{low} to {high}" if low and high else ""


def discreet(rule: Rule, case: Case) -> Case:
    """Return a case whose numbers may be passed on: those of personal data rounded, or None where they are few.

    Every writer shows these, so that two outputs of a run tell no more together than each alone.
    """
    if rule.metric not in PERSONAL:
        return case
    value, low, high = (_rounded(case, number, case.denominator) for number in (case.value, case.low, case.high))
    baseline = _rounded(case, case.baseline, case.baseline_denominator)
    if low is None or high is None:
        low = high = None
    few = (value is None and case.value is not None) or (baseline is None and case.baseline is not None)
    judged = None if few else case.judged
    if judged is not None:
        of_value = rule.limit_kind == "budget"
        judged = _rounded(case, judged, case.denominator) if of_value else two_digits(judged)
    counts = [(evidence, shown_count(rule, evidence.count, evidence.noun)) for evidence in case.evidence]
    return replace(
        case,
        value=value,
        low=low,
        high=high,
        baseline=baseline,
        judged=judged,
        evidence=tuple(replace(evidence, count=count) for evidence, count in counts if count),
        reason=case.reason or ("withheld" if few else ""),
    )


def discreet_ceiling(rule: Rule, case: Case) -> float:
    """Return a number of personal data that is not below the judged one, computed from what is shown of it alone.

    A limit drawn from it can be published: it tells no more than :func:`discreet` does. Where the number is withheld,
    it is that of the fewest hits or documents that are shown.
    """
    unit = case.unit.lower()
    item = 1.0 if unit in {"hits", "documents"} else (1e6 if "million" in unit else 1.0) / max(1, case.denominator)
    shown = discreet(rule, case).judged
    if shown == 0:
        return 0.0
    if shown is None:
        return _fewest(unit) * item
    return shown * _ROUNDED_AWAY + _FEWEST_STEP * item


def _discreet(rule: Rule, case: Case, limit: str) -> Numbers:
    rounded = discreet(rule, case)
    is_value = case.judged == case.value or rule.limit_kind == "budget"
    return Numbers(
        value=_about_words(rounded.value, case.value),
        interval=_interval(_about_words(rounded.low), _about_words(rounded.high)),
        limit=limit,
        baseline=_about_words(rounded.baseline, case.baseline),
        judged="" if is_value else _about_words(rounded.judged),
    )


def _about_words(shown: float | None, known: float | None = None) -> str:
    if shown is None:
        return "" if known is None else WITHHELD
    return number(shown) if shown == 0 or not math.isfinite(shown) else f"about {number(shown)}"


def _rounded(case: Case, value: float | None, denominator: int) -> float | None:
    """Return a number of as many documents or hits, rounded to tens, and two digits; None where they are few."""
    if value is None or not math.isfinite(value) or value == 0:
        return value
    unit = case.unit.lower()
    scale = 1.0 if unit in {"hits", "documents"} else denominator / (1e6 if "million" in unit else 1.0)
    counted = value * scale
    if not math.isfinite(counted) or abs(counted) < _fewest(unit):
        return None
    return two_digits(about(round(counted)) / scale)


def _fewest(noun: str) -> int:
    """Return from which count on hits or documents are shown; a ratio is of documents."""
    return FEW_HITS if "hits" in noun else FEW_DOCUMENTS


REASONS: dict[str, str] = {
    "missing": "the manifest has no such number",
    "lost": "the baseline has this number, the manifest lost it",
    "other_than_demanded": "the policy demands another detector",
    "no_such_part": "the corpus has no split, source, language or set of that name",
    "empty_denominator": "there is nothing to divide by",
    "no_words": "its documents hold no words, so nothing could be found",
    "nothing_to_judge": "the corpus has no part that the rule speaks of",
    "other_unit": "it is in another unit than the rule's or the baseline's",
    "unread_bytes": "not everything was read",
    "unknown_bytes": "a shard was not read, and nobody knows how many bytes it holds",
    "too_few_shards": "fewer than 5 shards have no usual value",
    "no_baseline": "no baseline was given",
    "no_mixture": "the build's config declares no mixture",
    "new_scope": "the baseline did not have this part",
    "baseline_missing": "the baseline has no such number",
    "other_tokenizer": "the baseline was counted with another tokenizer",
    "other_detector": "the baseline was searched by another detector or model",
    "other_protected_set": "the baseline's evaluation set of that name holds other items",
    "other_reference": "the baseline was measured against another reference manifest",
    "other_parameters": "the baseline's stage had other parameters",
    "other_version": "the baseline has it by another version of the definition",
    "withheld": "so few that the number could point at a person",
    "no_judge": "the build had no judge",
    "no_analyzer": "the build had no analyzer",
    "no_reference": "the build had no reference",
    "no_training_documents": "no training document was read",
    "too_few_documents": "too few documents for an estimate",
    "no_cluster": "no cluster was found",
    "not_installed": "a library that the judge needs was not installed",
    "weights_absent": "the judge's model could not be had",
    "config_absent": "the settings of the judge's model could not be had",
    "broken_checkpoint": "the file of the judge's model was damaged",
    "unsafe_checkpoint": "the file of the judge's model asked to run code",
    "no_device": "the device that the config names was not there",
    "not_judged": "the judge answered for no document of the sample",
    "pairs_left_out": "no interval: some pairs were not compared; the value itself is compared with the limit",
    "held_out_sampled": "at least this: a sample of the held-out documents was searched for",
    "at_least": "at least this: documents with very many candidates were not searched to their end",
    "screen_alone": "no interval: screen not judged; the value itself is compared with the limit",
}
"""Texts by code."""
_OF_BASELINE = "baseline_"


def reason_text(code: str) -> str:
    """Return what a code means; of an unknown code, the code."""
    if code in REASONS:
        return REASONS[code]
    if code.startswith(_OF_BASELINE) and code.removeprefix(_OF_BASELINE) in REASONS:
        return f"of the baseline: {REASONS[code.removeprefix(_OF_BASELINE)]}"
    return code.replace("_", " ")
