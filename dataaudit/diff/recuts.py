"""Splits that were cut into shards anew: what of them does not depend on the cut, and whether it agrees.

A digest speaks of one shard's rows in their order. When the same documents are cut or ordered otherwise no digest
stays, so none can show that they are the same. What is left is everything that a manifest counts of a split whatever
its cut: if all of it agrees, another cut or order explains the difference, but does not prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.diff.difference import Recut
from dataaudit.diff.drifts import Histogram
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.comparable import Meaning

TOTALS = "documents, bytes and tokens of each source"
SIZES = "documents and bytes of each source"
TOKENS = "how often each token occurs in each source"
LENGTHS = "lengths of the documents of each source, in tokens"
LANGUAGES = "languages of each source"
DUPLICATES = "documents equal to another of the split"
RULES = "documents that each quality rule would reject"
_Check = tuple[str, bool | None, str]
_Histograms = Callable[[], tuple[Histogram, Histogram]]


def recuts(old: Manifest, new: Manifest, splits: Iterable[str], meaning: Meaning) -> tuple[Recut, ...]:
    """Compare splits whose shards differ on both sides.

    Args:
        old: The older manifest.
        new: The newer one.
        splits: Names of the splits.
        meaning: What can be compared.

    Raises:
        ManifestError: A table is absent or damaged.
        ManifestMismatch: A table is not the one that its manifest was published with.
    """
    histograms = cache(lambda: (Histogram(old), Histogram(new)))
    return tuple(_recut(old, new, split, meaning, histograms) for split in sorted(splits))


def _recut(old: Manifest, new: Manifest, split: str, meaning: Meaning, histograms: _Histograms) -> Recut:
    columns = ["split", "source", "documents", "bytes", *(["tokens"] if meaning.same_tokenizer else [])]
    sizes = _same_rows(old, new, "sources", split, columns)
    checks: list[_Check] = [(TOTALS if meaning.same_tokenizer else SIZES, sizes, "")]
    if sizes:
        checks += _further(old, new, split, meaning, histograms)
    counted = next((same for name, same, _ in checks if name == TOKENS), None)
    differ = tuple(name for name, same, _ in checks if same is False)
    return Recut(
        split=split,
        consistent=bool(counted) and not differ,
        differ=differ,
        fell=bool(differ) and _fell(old, new, split, meaning, histograms),
        agree=tuple(name for name, same, _ in checks if same),
        unknown=tuple(f"{name} ({reason})" for name, same, reason in checks if same is None),
    )


def _further(old: Manifest, new: Manifest, split: str, meaning: Meaning, histograms: _Histograms) -> list[_Check]:
    """Return the checks that are worth it when the totals agree."""
    checks: list[_Check] = []
    if not meaning.same_tokenizer:
        checks += [(TOKENS, None, "other tokenizer"), (LENGTHS, None, "other tokenizer")]
    else:
        one, other = histograms()
        counted = not one.empty and not other.empty
        checks.append((TOKENS, one.same(other, split), "") if counted else (TOKENS, None, "not counted in both"))
        checks.append((LENGTHS, _same_rows(old, new, "lengths", split), ""))
    if meaning.same_languages():
        checks.append((LANGUAGES, _same_rows(old, new, "languages", split), ""))
    else:
        checks.append((LANGUAGES, None, "other language detector"))
    checks.append((DUPLICATES, *_same_records(old, new, split, "exact_dup_rate", "within_split_rate", sources=False)))
    if meaning.same_stage("filters"):
        checks.append((RULES, *_same_records(old, new, split, "filter_reject_rate", "rate")))
    return checks


def _fell(old: Manifest, new: Manifest, split: str, meaning: Meaning, histograms: _Histograms) -> bool:
    """Return whether there is less of anything in a source than there was."""
    units = ["documents", "bytes", *(["tokens"] if meaning.same_tokenizer else [])]
    was, now = (
        {row["source"]: [row[unit] for unit in units] for row in _rows(manifest, "sources", split).to_pylist()}
        for manifest in (old, new)
    )
    nothing = [0] * len(units)
    if any(new < old for source in was for old, new in zip(was[source], now.get(source, nothing), strict=True)):
        return True
    if not meaning.same_tokenizer:
        return False
    one, other = histograms()
    return not one.empty and not other.empty and one.exceeds(other, split)


def _same_rows(old: Manifest, new: Manifest, name: str, split: str, columns: list[str] | None = None) -> bool:
    """Return whether a table has the same rows of a split in both."""
    if columns is None and _digest(old, name) == _digest(new, name):
        return True
    one, other = (_rows(manifest, name, split) for manifest in (old, new))
    if columns is not None:
        one, other = one.select(columns), other.select(columns)
    return bool(one.equals(other))


def _rows(manifest: Manifest, name: str, split: str) -> pa.Table:
    table = manifest.table(name)
    return table.filter(pc.equal(table["split"], split)).combine_chunks()


def _digest(manifest: Manifest, name: str) -> str | None:
    record = manifest.core.tables.get(name)
    return None if record is None else record.digest


def _same_records(
    old: Manifest, new: Manifest, split: str, metric: str, stat: str, *, sources: bool = True
) -> tuple[bool | None, str]:
    """Return whether records of a split have the same values, and why that is not known.

    Args:
        old: The older manifest.
        new: The newer one.
        split: Name of the split.
        metric: Name of the metric.
        stat: Its statistic.
        sources: Whether the records of its sources count as well; which of two equal documents of two sources is the
            earlier one depends on the order.
    """
    held = []
    for manifest in (old, new):
        chosen = ((one, one.scope) for one in manifest.metrics(metric, stat) if one.scope.split == split)
        values = {(scope.source, scope.rule, one.version): one.value for one, scope in chosen}
        held.append({key: value for key, value in values.items() if sources or key[0] is None})
    if not held[0] or not held[1]:
        return None, "not counted in both"
    return held[0] == held[1], ""
