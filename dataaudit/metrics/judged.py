"""The verdicts of a judge on a sample: estimates with intervals, what they rest on, or why there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Prose
from dataaudit.base.render.line import Interval, Line, Name, Number, Unit, join, say, share
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.records import Records
from dataaudit.metrics.records import number as count_of
from dataaudit.metrics.shown import Highlight, Kind, absence_text

_LISTED = 8
"""Languages that are named."""
_ASKED_FOR_NOTHING = {"no_judge", "no_analyzer"}


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
    """Why there is no value, or no interval, as a code."""
    suppressed: bool = False
    """Not shown, as it rests on so few documents that it points at them."""

    @property
    def span(self) -> tuple[float, float] | None:
        """Both bounds; None without them."""
        return None if self.low is None or self.high is None else (self.low, self.high)


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


def judge_of(manifest: Manifest, prefix: str, whole: Records, main: str) -> Judge:
    """Return the judge of a metric."""
    judge = next((detector for detector in manifest.core.detectors if detector.name.startswith(prefix)), None)
    version = f" ({judge.version})" if judge is not None and judge.version else ""
    reads, record = whole.get("judge_reads"), whole.get(main)
    reason = "" if record is None or reads is not None else record.reason
    return Judge(
        name=None if judge is None else f"{judge.name}{version}",
        languages=() if judge is None else judge.languages,
        judged=0 if record is None else record.n,
        reads=None if reads is None else reads.value,
        failed=count_of(whole, "judge_failed"),
        partly=count_of(whole, "judge_partly"),
        reason=reason,
        meaning=absence_text(reason) if reason else "",
    )


def rests_on(judge: Judge) -> Line:
    """Return what the numbers rest on."""
    drawn = f"{t.plural(judge.judged, 'document')}, drawn by a hash from every source, language and level of the screen"
    parts = [say("Judged by {}: {}. ", Name(judge.name or "a model", 200), drawn)]
    if judge.languages:
        more = ", ..." if len(judge.languages) > _LISTED else ""
        read = join(", ", [Name(language) for language in judge.languages[:_LISTED]])
        parts.append(
            say("It reads {}{}: {} of the documents, and the rates are of these.", read, more, share(judge.reads))
        )
    else:
        parts.append(say("It reads any language."))
    if judge.partly:
        parts.append(say(" Of {} it saw a part.", t.plural(judge.partly, "long document")))
    if judge.failed:
        parts.append(say(" It had no answer for {}.", t.plural(judge.failed, "document")))
    return join("", parts)


def not_judged(judge: Judge, how: str) -> Prose:
    """Say why nobody judged, and how to have it judged."""
    text = f"Not evaluated: {judge.meaning} ({judge.reason}). To have it judged, {how}."
    return Prose(text=text, tone="quiet")


def nothing_judged(part: str, judge: Judge) -> Iterator[Highlight]:
    """Yield that nothing was judged although a judge was asked for."""
    if judge.reason and judge.reason not in _ASKED_FOR_NOTHING:
        yield Highlight(kind=Kind.NOT_JUDGED, part=part, size=1, text=f"Nothing was judged: {judge.meaning}")


def number(item: Estimate | None, unit: Unit = "share") -> Number:
    """Return an estimate's value."""
    return Number(None if item is None else item.value, unit)


def interval(item: Estimate | None, unit: Unit = "share") -> Interval:
    """Return an estimate's bounds."""
    return Interval(item.low, item.high, unit) if item is not None else Interval(None, None)


def estimated(item: Estimate | None) -> Line:
    """Return an estimate with its interval, in words."""
    if item is None or item.value is None:
        return "an unknown share"
    return number(item) if item.low is None else say("{} (95 % interval {})", number(item), interval(item))
