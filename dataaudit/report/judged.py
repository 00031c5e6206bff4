"""What a judge of a sample said: estimates with intervals, what they rest on, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataaudit import text as t
from dataaudit.layout import prose
from dataaudit.manifest.core import DetectorRecord
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric
from dataaudit.report.meanings import absence_text

_LISTED = 8
"""Languages that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value estimated from a sample, or from a screen."""

    value: float | None
    low: float | None
    """Lower bound, 95 %."""
    high: float | None
    documents: int
    """Documents behind it."""
    reason: str = ""
    """Why there is no value, as a code."""
    suppressed: bool = False
    """Not shown, as it rests on so few documents that it points at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Who judged a sample, and how much of the corpus that speaks of."""

    name: str | None
    """Name and version; None when nobody judged."""
    languages: tuple[str, ...]
    """Languages that it reads; empty: any."""
    judged: int
    """Documents with a verdict."""
    reads: float | None
    """Share of the documents that are in languages that it reads: what the rates speak of."""
    failed: int
    """Documents of the sample that it has no answer for."""
    partly: int
    """Documents so long that it looked at a part."""
    reason: str
    """Why nobody judged, as a code; empty when somebody did."""
    meaning: str
    """The same in words."""


def estimate(record: Metric | None, *, hidden: bool = False) -> Estimate | None:
    """Return a record of the manifest as an estimate, without its numbers when these are hidden."""
    if record is None:
        return None
    if hidden:
        return Estimate(value=None, low=None, high=None, documents=record.n, suppressed=True)
    return Estimate(value=record.value, low=record.low, high=record.high, documents=record.n, reason=record.reason)


def judge_of(manifest: Manifest, prefix: str, whole: Mapping[str, Metric], main: str) -> Judge:
    """Return the judge of a metric.

    Args:
        manifest: Whose detectors name it.
        prefix: That its name begins with.
        whole: Records of the metric for the whole dataset, by stat.
        main: The stat that it was asked for.
    """
    found = next((one for one in manifest.core.detectors if one.name.startswith(prefix)), None)
    reads, record = whole.get("judge_reads"), whole.get(main)
    reason = "" if record is None or reads is not None else record.reason
    return Judge(
        name=None if found is None else _named(found),
        languages=() if found is None else found.languages,
        judged=0 if record is None else record.n,
        reads=None if reads is None else reads.value,
        failed=_number(whole, "judge_failed"),
        partly=_number(whole, "judge_partly"),
        reason=reason,
        meaning=absence_text(reason) if reason else "",
    )


def judge_lines(judge: Judge, width: int) -> list[str]:
    """Return what the numbers rest on."""
    reads = "It reads any language"
    if judge.languages:
        listed = ", ".join(judge.languages[:_LISTED]) + (", ..." if len(judge.languages) > _LISTED else "")
        reads = f"It reads {t.clean(listed)}: {t.ratio(judge.reads)} of the documents, and the rates are of these"
    drawn = f"{t.plural(judge.judged, 'document')}, drawn by a hash from every source, language and level of the screen"
    parts = [f"Judged by {t.clean(judge.name or 'a model', 200)}: {drawn}", reads]
    if judge.partly:
        parts.append(f"Of {t.plural(judge.partly, 'long document')} it saw a part")
    if judge.failed:
        parts.append(f"It had no answer for {t.plural(judge.failed, 'document')}")
    return prose(". ".join(parts) + ".", width)


def interval(one: Estimate | None, *, unit: str = "ratio") -> str:
    """Return ``0.0012 to 0.0034``."""
    if one is None or one.low is None:
        return t.NOTHING
    return f"{short(one.low, unit=unit)} to {short(one.high, unit=unit)}"


def short(value: float | None, *, unit: str = "ratio") -> str:
    """Return a share, or hits per million with at most one decimal."""
    if unit == "ratio" or value is None:
        return t.ratio(value)
    return per_million(value)


def per_million(value: float | None) -> str:
    """Return hits per million tokens, three digits where there are less."""
    if value is None or value == 0:
        return t.NOTHING if value is None else "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _named(found: DetectorRecord) -> str:
    return f"{found.name} ({found.version})" if found.version else found.name


def _number(whole: Mapping[str, Metric], stat: str) -> int:
    record = whole.get(stat)
    return 0 if record is None else int(record.value or 0)
