"""Compares token counts of two manifests, and splits that were cut into shards anew.

Drift is the divergence that a build computes as ``token_kl_drift``, beside the least that chance gives: see
``dataaudit explain drift``.

A digest speaks of one shard's rows in their order, so no digest shows that documents are the same which were cut or
ordered otherwise. What a manifest counts of a split does not depend on the cut: if all of it agrees, another cut or
order explains the difference, but does not prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.divergence import js_terms, kl_terms, pool_counts, smoothed, token_spans
from dataaudit.decide.diff.difference import Drift, Recut, TokenShift
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope, rounded
from dataaudit.metrics.comparable import OTHER_TOKENIZER, Meaning

OTHER = "other"
"""The name under which a build adds up small sources."""
NO_HISTOGRAM = "no_histogram"
FOLDED = "folded_sources"
NEW, GONE = "new", "gone"
_TOP = 10
"""Tokens that are named for a scope."""
_Part = tuple[str | None, str | None]


class Histogram:
    """Token counts of one manifest, by split and source; None stands for all of them."""

    def __init__(self, manifest: Manifest) -> None:
        table = manifest.table("histogram")
        self._tokens = table["token"].to_numpy()
        self._counts = table["count"].to_numpy()
        self._spans = token_spans(table)
        self.size = max(manifest.core.tokenizer.vocab_size, int(self._tokens.max(initial=-1)) + 1)
        self.parts = _parts(manifest)
        named = {part for part in self.parts if None not in part}
        self.folded = bool(named - self._spans.keys()) or _capped(manifest, named)

    @property
    def empty(self) -> bool:
        """Whether there is no count at all."""
        return not self._spans

    def counts(self, part: _Part, size: int) -> np.ndarray | None:
        """Return int64[size] counts of a split (None: all) and source (None: all), or None without any."""
        total = None
        for (split, source), span in self._spans.items():
            if part[0] in {None, split} and part[1] in {None, source}:
                total = np.zeros(size, dtype=np.int64) if total is None else total
                total[self._tokens[span]] += self._counts[span]  # no token occurs twice in a span
        return total

    def same(self, other: Histogram, split: str) -> bool:
        """Return whether every source of a split has the same counts in both."""
        mine, theirs = self._of(split), other._of(split)
        return mine.keys() == theirs.keys() and all(
            np.array_equal(self._tokens[span], other._tokens[theirs[name]])
            and np.array_equal(self._counts[span], other._counts[theirs[name]])
            for name, span in mine.items()
        )

    def exceeds(self, other: Histogram, split: str) -> bool:
        """Return whether some token occurs more often in some source of a split than in the other's."""
        size = max(self.size, other.size)
        for source in self._of(split):
            mine, theirs = self.counts((split, source), size), other.counts((split, source), size)
            if mine is not None and (theirs is None or bool((mine > theirs).any())):
                return True
        return False

    def _of(self, split: str) -> dict[str, slice]:
        return {source: span for (own, source), span in self._spans.items() if own == split}


def drifts(old: Manifest, new: Manifest, *, same_tokenizer: bool) -> tuple[list[Drift], int]:
    """Return how far both are apart wherever they are, and in how many splits and sources they are not."""
    if not same_tokenizer:
        return [_without((None, None), OTHER_TOKENIZER, old.core.totals.tokens, new.core.totals.tokens)], 0
    if _same_table(old, new, "histogram") and _same_table(old, new, "sources"):
        return [], len(_parts(old))
    histogram, other = Histogram(old), Histogram(new)
    if histogram.empty or other.empty:
        if histogram.empty and other.empty and not old.core.totals.tokens and not new.core.totals.tokens:
            return [], 0
        return [_without((None, None), NO_HISTOGRAM, old.core.totals.tokens, new.core.totals.tokens)], 0
    biases = _biases(new) if old.id in new.core.parents and len(new.core.parents) == 1 else {}
    pieces = _pieces(old) | _pieces(new)
    parts = sorted(histogram.parts | other.parts, key=lambda at: (at[0] or "", at[1] or ""))
    every = (_drift(part, histogram, other, biases, pieces) for part in parts)
    moved = sorted((drift for drift in every if drift is not None), key=_order)
    return moved, len(parts) - len(moved)


def _drift(
    part: _Part,
    histogram: Histogram,
    other: Histogram,
    biases: dict[_Part, tuple[float, float]],
    pieces: dict[int, str],
) -> Drift | None:
    size = max(histogram.size, other.size)
    was, now = histogram.counts(part, size), other.counts(part, size)
    totals = (0 if was is None else int(was.sum())), (0 if now is None else int(now.sum()))
    if part[1] == OTHER and (histogram.folded or other.folded):
        return _without(part, FOLDED, *totals)
    if was is None or now is None:
        if part in (histogram if was is None else other).parts:
            return _without(part, FOLDED, *totals)
        return _without(part, NEW if was is None else GONE, *totals)
    if np.array_equal(was, now):
        return None
    apart, bias = divergence(was, now), biases.get(part)
    return Drift(
        split=part[0],
        source=part[1],
        old_tokens=totals[0],
        new_tokens=totals[1],
        kl=rounded(apart.kl),
        js=rounded(apart.js),
        by_chance=rounded(least_by_chance(was, now)) if bias is None else bias[0],
        by_chance_high=None if bias is None else bias[1],
        floor=bias is None,
        top=tuple(_top(apart.js_terms, apart.kl_terms, was, now, pieces)),
    )


def _top(
    js: np.ndarray, kl: np.ndarray, was: np.ndarray, now: np.ndarray, pieces: dict[int, str]
) -> Iterator[TokenShift]:
    """Yield the tokens that add most; equal terms by token."""
    likely = np.argsort(-js, kind="stable")[: 2 * _TOP]  # rounding may swap neighbours
    ordered = sorted((-rounded(float(js[token])), int(token)) for token in likely if js[token] > 0)
    for _, token in ordered[:_TOP]:
        yield TokenShift(
            token=token,
            piece=pieces.get(token),
            old=int(was[token]),
            new=int(now[token]),
            kl=rounded(float(kl[token])),
            js=rounded(float(js[token])),
        )


def _without(part: _Part, reason: str, old_tokens: int, new_tokens: int) -> Drift:
    return Drift(split=part[0], source=part[1], old_tokens=old_tokens, new_tokens=new_tokens, reason=reason)


def _biases(new: Manifest) -> dict[_Part, tuple[float, float]]:
    """Return the KL of chance alone, as the build measured it against the old manifest: mean and upper bound."""
    return {
        (record.scope.split, record.scope.source): (record.value, record.high)
        for record in new.metrics("token_kl_drift", "kl_bias")
        if record.value is not None and record.high is not None
        if record.scope == Scope(split=record.scope.split, source=record.scope.source)
    }


def _parts(manifest: Manifest) -> set[_Part]:
    sources = manifest.table("sources").filter(pc.field("tokens") > 0)
    named: set[_Part] = set(zip(sources["split"].to_pylist(), sources["source"].to_pylist(), strict=True))
    return named | {(split, None) for split, _ in named} | ({(None, None)} if named else set())


def _same_table(old: Manifest, new: Manifest, name: str) -> bool:
    was, now = old.core.tables.get(name), new.core.tables.get(name)
    return was is not None and now is not None and was.digest == now.digest


def _pieces(manifest: Manifest) -> dict[int, str]:
    table = manifest.table("drift")
    pairs = zip(table["token"].to_pylist(), table["piece"].to_pylist(), strict=True)
    return {token: piece for token, piece in pairs if piece}


def _capped(manifest: Manifest, named: set[_Part]) -> bool:
    """Return whether the source `other` stands for several: there are as many sources as the config allows."""
    sources = {source for _, source in named}
    limit = manifest.core.config.get("max_sources", len(sources) + 1)
    return OTHER in sources and len(sources) >= limit


def _order(drift: Drift) -> tuple[int, float, str, str]:
    """Order: the dataset, splits, sources by divergence, then those without a number."""
    depth = (drift.split is not None) + (drift.source is not None)
    return depth, -(drift.js if drift.js is not None and depth == 2 else 0.0), drift.split or "", drift.source or ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far two unigram distributions are apart, nats: KL(new || old), and Jensen-Shannon."""

    kl: float
    js: float
    kl_terms: np.ndarray
    """float64[v], what each token adds to ``kl``."""
    js_terms: np.ndarray
    """float64[v], what each token adds to ``js``; 0 or more."""


def divergence(old: np.ndarray, new: np.ndarray) -> Divergence:
    """Compare int64[v] counts by token id, half a count added to each."""
    p, q = smoothed(new), smoothed(old)
    kl, js = kl_terms(p, q), js_terms(p, q)
    return Divergence(max(0.0, float(kl.sum())), float(js.sum()), kl, js)


def least_by_chance(old: np.ndarray, new: np.ndarray) -> float:
    """Return the mean of KL(new || old) had both been drawn from one pool, token by token, nats.

    Tokens of real text come in documents that repeat their words, so chance gives several times as much: this is a
    floor.
    """
    return pool_counts(new, old).kl_null(1.0)


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
    """Compare splits whose shards differ on both sides."""
    histograms = cache(lambda: (Histogram(old), Histogram(new)))
    return tuple(_recut(old, new, split, meaning, histograms) for split in sorted(splits))


def _recut(old: Manifest, new: Manifest, split: str, meaning: Meaning, histograms: _Histograms) -> Recut:
    units = ["documents", "bytes", *(["tokens"] if meaning.same_tokenizer else [])]
    unequal = [unit for unit in units if not _same_rows(old, new, "sources", split, ["split", "source", unit])]
    if unequal:
        checks: list[_Check] = [(f"{', '.join(unequal)} of a source", False, "")]
    else:
        checks = [(TOTALS if meaning.same_tokenizer else SIZES, True, "")]
        checks += _further(old, new, split, meaning, histograms)
    differ = tuple(name for name, same, _ in checks if same is False)
    return Recut(
        split=split,
        consistent=(TOKENS, True, "") in checks and not differ,
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
        histogram, other = histograms()
        counted = not histogram.empty and not other.empty
        checks.append((TOKENS, histogram.same(other, split), "") if counted else (TOKENS, None, "not counted in both"))
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
    histogram, other = histograms()
    return not histogram.empty and not other.empty and histogram.exceeds(other, split)


def _same_rows(old: Manifest, new: Manifest, name: str, split: str, columns: list[str] | None = None) -> bool:
    if columns is None and _same_table(old, new, name):
        return True
    was, now = (_rows(manifest, name, split) for manifest in (old, new))
    return bool(was.equals(now) if columns is None else was.select(columns).equals(now.select(columns)))


def _rows(manifest: Manifest, name: str, split: str) -> pa.Table:
    table = manifest.table(name)
    return table.filter(pc.equal(table["split"], split)).combine_chunks()


def _same_records(
    old: Manifest, new: Manifest, split: str, metric: str, stat: str, *, sources: bool = True
) -> tuple[bool | None, str]:
    """Return whether records of a split have the same values, and why that is not known."""
    was, now = (
        {
            (record.scope.source, record.scope.rule, record.version): record.value
            for record in manifest.metrics(metric, stat)
            if record.scope.split == split and (sources or record.scope.source is None)
        }
        for manifest in (old, new)
    )
    return (was == now, "") if was and now else (None, "not counted in both")
