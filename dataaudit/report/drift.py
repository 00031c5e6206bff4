"""Drift from the reference manifest: facts of each split and source, and the tokens that make it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table, word_column
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric

_METRIC = "token_kl_drift"
ALARM_NATS = 0.05
_TOKENS = 8
_WHY = {
    "other_tokenizer": "the reference was built with another tokenizer, so token counts cannot be compared",
    "no_histogram_in_reference": "the reference holds no token counts: its stage `histogram` was off",
    "empty_denominator": "there are no tokens to compare",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Divergence of one split, or of one source of it, from the same one of the reference."""

    split: str
    source: str
    """Empty for the whole split."""
    kl: float | None
    js: float | None
    noise: float | None
    """KL that chance alone gives on average."""
    excess_low: float | None
    """Lower bound of what is beyond chance."""
    excess: float | None
    reason: str
    """Why there is no number; empty when there is."""


def drifts(manifest: Manifest) -> list[Drift]:
    """Return the drift of every split and source; none when the build had no reference."""
    held: dict[tuple[str, str], dict[str, Metric]] = {}
    for record in manifest.metrics(_METRIC):
        if record.scope.split is not None and record.scope.shard is None and record.scope.language is None:
            held.setdefault((record.scope.split, record.scope.source or ""), {})[record.stat] = record
    found = []
    for (split, source), stats in sorted(held.items()):
        kl, excess = stats["kl"], stats["kl_excess"]
        if kl.reason == "no_reference":
            continue
        found.append(
            Drift(
                split=split,
                source=source,
                kl=kl.value,
                js=stats["js"].value,
                noise=stats["kl_bias"].value,
                excess_low=excess.low,
                excess=excess.value,
                reason=kl.reason,
            )
        )
    return found


def moved(one: Drift) -> bool:
    """Return whether a divergence is above the alarm, and surely beyond chance."""
    return _mark(one) == "<--"


def moved_perhaps(one: Drift) -> bool:
    """Return whether a divergence is above the alarm, but chance alone could give it."""
    return _mark(one) == "<-?"


def why_no_drift(found: Sequence[Drift]) -> str:
    """Return in words why nothing was measured; empty when something was."""
    reasons = {one.reason for one in found}
    if len(reasons) != 1 or reasons == {""}:
        return ""
    (reason,) = reasons
    return _WHY.get(reason, f"no number: {t.clean(reason, 60)}")


def drift_lines(manifest: Manifest, found: Sequence[Drift], width: int, limit: int) -> list[str]:
    """Return the block of drift: splits, then the sources that moved most, then the tokens behind the largest."""
    if not found:
        return []
    if why_no_drift(found):
        return section("Drift from the reference", prose(why_no_drift(found), width))
    splits = [one for one in found if not one.source]
    sources = sorted((one for one in found if one.source), key=lambda one: (-(one.kl or -1.0), one.split, one.source))
    shown = [*splits, *sources[:limit]]
    columns = [
        name_column("split"),
        name_column("source"),
        number_column("KL\nnats"),
        number_column("JS\nnats"),
        number_column("by chance"),
        number_column("beyond\nchance"),
        word_column(""),
    ]
    rows = [
        [
            t.clean(one.split, 40),
            t.clean(one.source, 40) or "(all)",
            t.ratio(one.kl),
            t.ratio(one.js),
            t.ratio(one.noise),
            t.ratio(one.excess),
            _mark(one),
        ]
        for one in shown
    ]
    lines = table(columns, rows, width)
    if len(sources) > limit:
        lines += prose(f"and {t.plural(len(sources) - limit, 'more source')}", width)
    if any(_mark(one) == "<--" for one in shown):
        lines += prose(f"<-- KL above {ALARM_NATS} nats, and surely beyond chance", width)
    if any(_mark(one) == "<-?" for one in shown):
        lines += prose(
            f"<-? KL above {ALARM_NATS} nats; documents repeat each other so much that chance alone could give it:"
            " look at the tokens, and at the duplicates",
            width,
        )
    marked = [one for one in found if moved(one) or moved_perhaps(one)]
    for one in sorted(marked, key=lambda one: -(one.kl or 0.0))[:1]:
        lines += prose(_tokens(manifest, one), width)
    return section("Drift from the reference", lines)


def _mark(one: Drift) -> str:
    if one.reason:
        return one.reason
    if one.kl is None or one.kl <= ALARM_NATS:
        return ""
    beyond = one.excess_low is None or one.excess_low > 0
    return "<--" if beyond else "<-?"


def _tokens(manifest: Manifest, one: Drift) -> str:
    """Name the tokens that make most of a divergence."""
    rows = manifest.table("drift")
    rows = rows.filter(pc.equal(rows["split"], one.split))
    named = pc.equal(rows["source"], one.source) if one.source else pc.is_null(rows["source"])
    rows = rows.filter(pc.fill_null(named, False))
    top = sorted(rows.to_pylist(), key=lambda row: row["rank"])[:_TOKENS]
    listed = ", ".join(f"{t.clean(row['piece'], 24) or row['token']} ({'+' if row['kl'] > 0 else '-'})" for row in top)
    where = f"{t.clean(one.split, 40)} {t.clean(one.source, 40)}".rstrip()
    return f"tokens that moved most in {where} (+ more often, - less): {listed}"
