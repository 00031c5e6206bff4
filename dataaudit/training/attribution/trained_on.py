"""What a run was really trained on, against its manifest: sources, passes, tokens, lengths, padding, languages.

Targets by shard and source are exact: stretches that the log keeps, and the sums of those that it does not. Tokens are
compared with the manifest's counts of the same source; what chance gives follows from documents being read whole, in an
order that nothing but chance decides (:func:`dataaudit.base.divergence.kl_null_of_passes`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.divergence import NULL_FACTOR, clump_size, divergences, kl_null_of_passes
from dataaudit.base.statistics import Floats, Ints
from dataaudit.decide.diff.drifts import OTHER, Histogram
from dataaudit.manifest.load import Manifest
from dataaudit.runlog.reader import RunLog
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import Series
from dataaudit.training.attribution.run_findings import (
    LanguageTrained,
    LengthsTrained,
    Mark,
    SourceTrained,
    TokenDrift,
    TrainedOn,
    number,
)

POINTS = 0.02
"""Distance from the declared share from which on a source is off."""
OVER = 1.05
"""Passes over the declared epochs from which on a source was read too often."""
ALARM_NATS = 0.05
"""As of the manifest's own drift."""
GROUPS = 20
"""Stretches of a run of which an interval is made."""
_T95 = 2.093
"""97.5 % quantile of Student's t with 19 degrees of freedom."""
_Z95 = 1.96


def trained_on(data: Data) -> TrainedOn:
    """Return what a run was trained on, against its manifest."""
    _, shard, _, targets = data.amounts
    tokens, tokenizer, same = data.log.table("tokens"), data.manifest.core.tokenizer, data.same_tokens
    ids, counts = tokens["token"].to_numpy(), tokens["count"].to_numpy()
    outside = int(counts[(ids < 0) | (same & (ids >= tokenizer.vocab_size))].sum())
    special = int(counts[np.isin(ids, tokenizer.special_ids)].sum()) if same else 0
    drift, reason = _drifts(data, tokens)
    languages, known = _languages(data)
    return TrainedOn(
        tokens=int(targets.sum()),
        merged=int(targets[shard < 0].sum()),
        unit="tokens" if same else "other tokens",
        sources=_sources(data),
        counted_tokens=int(counts.sum()),
        outside=outside,
        special=special,
        drift=drift,
        drift_reason=reason,
        languages=languages,
        languages_of=known,
        lengths=_lengths(data),
    )


def source_tokens(log: RunLog) -> dict[str, int]:
    """Return the targets of each source that was met, the most first, from a log alone."""
    total = np.zeros(len(log.run.sources), np.int64)
    for name in ("stretches", "sums"):
        table = log.table(name)
        source = table["source"].to_numpy()
        known = (source >= 0) & (source < len(total))
        np.add.at(total, source[known], table["targets"].to_numpy()[known])
    order = np.argsort(-total, kind="stable").tolist()
    return {log.run.sources[code]: int(total[code]) for code in order if total[code]}


def _sources(data: Data) -> tuple[SourceTrained, ...]:
    step, _, source, targets = data.amounts
    names = data.log.run.sources
    known = (source >= 0) & (source < len(names))
    total = np.bincount(source[known], targets[known], minlength=len(names)).astype(np.int64)
    documents, corpus = _of_sources(data.opened)
    begun = _begun(data)
    declared, epochs = _declared(data.manifest, names)
    everything, audited = int(total.sum()), sum(corpus.values())
    bounds = share_bounds(step[known], source[known], targets[known], len(names))
    sources = []
    for code, name in enumerate(names):
        if not total[code] and name not in declared:
            continue
        share = total[code] / everything if everything else 0.0
        low, high = (None, None) if bounds is None else (float(bounds[0][code]), float(bounds[1][code]))
        wanted, most = declared.get(name), epochs.get(name)
        outside = wanted is not None and low is not None and high is not None and not low <= wanted <= high
        passes = begun[code] / documents[name] if begun.any() and documents.get(name) else None
        sources.append(
            SourceTrained(
                source=name,
                tokens=int(total[code]),
                share=round(float(share), 9),
                low=_rounded(low),
                high=_rounded(high),
                declared=_rounded(wanted),
                corpus_share=round(corpus.get(name, 0) / audited, 9) if audited else None,
                off=wanted is not None and outside and abs(share - wanted) > POINTS,
                documents=documents.get(name),
                begun=int(begun[code]),
                passes=None if passes is None else round(passes, 6),
                declared_epochs=most,
                over=most is not None and passes is not None and passes > OVER * most,
            )
        )
    return tuple(sorted(sources, key=lambda item: (-item.tokens, item.source)))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)


def share_bounds(step: Ints, source: Ints, targets: Ints, sources: int) -> tuple[Floats, Floats] | None:
    """Return the 95 % interval of each source's share, by leaving out each of twenty stretches of the run in turn.

    Batches that follow each other are alike where shards are read in turn; stretches of a twentieth of the
    run are nearly not. None where there are fewer than as many steps, or windows.
    """
    steps, inverse = np.unique(step, return_inverse=True)
    if len(steps) < GROUPS:
        return None
    group = inverse * GROUPS // len(steps)
    table = np.bincount(group * sources + source, targets, minlength=GROUPS * sources).reshape(GROUPS, sources)
    total = table.sum(axis=0)
    share = total / total.sum()
    rest = total - table
    without = rest / rest.sum(axis=1, keepdims=True)
    error = np.sqrt((GROUPS - 1) / GROUPS * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    return np.maximum(share - _T95 * error, 0.0), np.minimum(share + _T95 * error, 1.0)


def _of_sources(opened: pa.Table) -> tuple[dict[str, int], dict[str, int]]:
    """Return documents and tokens of the opened shards by source."""
    documents: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in opened["sources"].to_pylist():
        for item in row or ():
            documents[item["source"]] += item["documents"]
            tokens[item["source"]] += item["tokens"]
    return documents, tokens


def _begun(data: Data) -> Ints:
    """Return int64[sources] documents of which the first token was trained on."""
    table = data.log.table("lengths")
    source = table["source"].to_numpy().astype(np.int64)
    known = source >= 0
    size = len(data.log.run.sources)
    return np.bincount(source[known], table["begun"].to_numpy()[known], minlength=size).astype(np.int64)


def _declared(manifest: Manifest, names: tuple[str, ...]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the declared shares, of sources that are there, and the declared epochs."""
    mixture = manifest.core.mixture
    weights = {name: entry["weight"] for name, entry in mixture.items() if name in names}
    whole = sum(weights.values())
    shares = {name: weight / whole for name, weight in weights.items()} if whole > 0 else {}
    return shares, {name: mixture[name]["epochs"] for name in shares if "epochs" in mixture[name]}


def _drifts(data: Data, tokens: pa.Table) -> tuple[tuple[TokenDrift, ...], Any]:
    """Return the drift of all tokens and of each source, or why there is none."""
    if not data.same_tokens:
        return (), "other_tokenizer"
    if not len(tokens):
        return (), "no_labels"
    histogram = Histogram(data.manifest)
    if histogram.empty:
        return (), "no_histogram"
    size = max(histogram.size, int(tokens["token"].to_numpy().max(initial=-1)) + 1)
    names, special = data.log.run.sources, data.manifest.core.tokenizer.special_ids

    def audited(name: str | None) -> Ints:
        """Return the audited counts of a source, of all for None, without special tokens."""
        each = [histogram.counts((split, name), size) for split in data.splits]
        total = np.zeros(size, np.int64) + sum(counts for counts in each if counts is not None)
        total[[token for token in special if token < size]] = 0
        return total

    drifts = []
    everything, reference = np.zeros(size, np.int64), audited(None)
    source = tokens["source"].to_numpy()
    for code in (-1, *range(len(names))):
        now, half = _dense(tokens.filter(pa.array(source == code)), size, special)
        everything += now
        if code < 0 or not now.any() or (names[code] == OTHER and histogram.folded):
            continue
        if (own := audited(names[code])).any():
            drifts.append(drift_of(names[code], now, half, own))
    if not everything.any() or not reference.any():
        return (), "no_histogram" if everything.any() else "no_labels"
    if len(drifts) != 1:
        drifts.insert(0, drift_of("", everything, None, reference))
    else:
        drifts[0] = drifts[0].model_copy(update={"source": ""})
    return tuple(drifts), ""


def _dense(tokens: pa.Table, size: int, special: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return int64[size] counts by token, without special tokens, and those of the half of the documents."""
    ids = tokens["token"].to_numpy()
    kept = (ids >= 0) & ~np.isin(ids, special)
    every, half = (
        np.bincount(ids[kept], tokens[name].to_numpy()[kept], minlength=size).astype(np.int64)
        for name in ("count", "half")
    )
    return every, half


def drift_of(source: str, now: Ints, half: Ints | None, reference: Ints) -> TokenDrift:
    """Compare counts with those that were audited."""
    kl, js = divergences(now, reference)
    passes = float(now.sum()) / float(reference.sum())
    bias = None
    if half is not None and half.any() and (now - half).any():
        clump = max(1.0, clump_size(half, now - half) / max(1.0, passes))
        bias = kl_null_of_passes(reference, passes, clump)
    high = None if bias is None else bias * NULL_FACTOR
    mark: Mark = ""
    if kl > ALARM_NATS:
        mark = "unknown" if high is None else "beyond" if kl > high else "perhaps"
    return TokenDrift(
        source=source,
        tokens=int(now.sum()),
        passes=round(passes, 6),
        kl=round(kl, 9),
        js=round(js, 9),
        kl_bias=_rounded(bias),
        kl_bias_high=_rounded(high),
        mark=mark,
    )


def _languages(data: Data) -> tuple[tuple[LanguageTrained, ...], float | None]:
    """Return the estimated shares of languages, and of which part of the targets."""
    _, shard, _, targets = data.amounts
    opened = data.opened
    pairs = zip(opened["shard"].to_pylist(), opened["languages"].to_pylist(), strict=True)
    rows = {ordinal: row for ordinal, row in pairs if row}
    if not rows or not int(targets.sum()):
        return (), None
    ordinals = np.array(sorted(rows), np.int64)
    trained = np.bincount(shard[shard >= 0], targets[shard >= 0], minlength=int(ordinals.max()) + 1)[ordinals]
    names = sorted({item["language"] for row in rows.values() for item in row})
    table = np.zeros((len(ordinals), len(names)))
    for order, ordinal in enumerate(ordinals.tolist()):
        for item in rows[ordinal]:
            table[order, names.index(item["language"])] = item["tokens"]
    tokens = table.sum(axis=1)
    kept = (trained > 0) & (tokens > 0)
    if not kept.any():
        return (), None
    documents = np.array([sum(row["documents"] for row in rows[ordinal]) for ordinal in ordinals.tolist()])
    share, error = language_shares(
        trained[kept], tokens[kept], documents[kept], table[kept], spread=_spread(data), sampled=data.same_tokens
    )
    audited = table.sum(axis=0) / tokens.sum()
    languages = [
        LanguageTrained(
            language=name,
            share=round(float(share[code]), 9),
            low=None if error is None else round(max(0.0, float(share[code] - _Z95 * error[code])), 9),
            high=None if error is None else round(min(1.0, float(share[code] + _Z95 * error[code])), 9),
            corpus_share=round(float(audited[code]), 9),
        )
        for code, name in enumerate(names)
    ]
    part = float(trained[kept].sum() / targets.sum())
    return tuple(sorted(languages, key=lambda item: (-item.share, item.language))), round(part, 9)


def language_shares(
    trained: Floats, tokens: Floats, documents: Ints, by_language: Floats, *, spread: float, sampled: bool
) -> tuple[Floats, Floats | None]:
    """Return the estimated share of each language, and its standard error.

    What was read of a shard is taken to be a random part of its documents: a shard that was read to its end adds
    nothing to the error, of another the documents that were read are a sample without replacement, whose
    tokens vary as documents' lengths do.
    """
    part = by_language / tokens[:, None]
    weight = trained / trained.sum()
    share: Floats = weight @ part
    if not sampled:
        return share, None
    passes = trained / tokens
    rest = passes - np.floor(passes)
    read = np.maximum(rest * documents, 1.0)
    variance = part * (1 - part) * (1 + spread) / read[:, None] * (1 - rest)[:, None]
    error: Floats = np.sqrt(((weight * rest / passes)[:, None] ** 2 * variance).sum(axis=0))
    return share, error


def _spread(data: Data) -> float:
    """Return the variance of a document's tokens over their squared mean, of the training data."""
    middle, documents = _documents_by_length(data)
    total = float(documents.sum())
    mean = float((middle * documents).sum()) / total if total else 0.0
    return float((documents * (middle - mean) ** 2).sum() / total / mean**2) if mean else 1.0


def _documents_by_length(data: Data) -> tuple[Floats, Ints]:
    table = data.manifest.table("lengths", ["split", "low", "high", "documents"])
    table = table.filter(pc.is_in(table["split"], pa.array(data.splits, pa.string())))
    middle: Floats = (table["low"].to_numpy() + table["high"].to_numpy()) / 2
    return middle, table["documents"].to_numpy()


def _lengths(data: Data) -> LengthsTrained:
    table = data.log.table("lengths")
    length, stretches = table["length"].to_numpy(), table["stretches"].to_numpy()
    known = length > 0
    length, stretches = length[known], stretches[known]
    total = int((length * stretches).sum())
    begun = int(table["begun"].to_numpy().sum())
    middle, documents = _documents_by_length(data)
    audited = int(pc.sum(data.opened["documents"]).as_py() or 0)
    tokens = int(pc.sum(data.opened["tokens"]).as_py() or 0)
    series = Series(data.log.table("values"))
    context = series.of("context")[2]
    positions, filled = _positions(data.log, series)
    same = data.same_tokens
    return LengthsTrained(
        tokens=total,
        stretches=int(stretches.sum()),
        mean=number(total / int(stretches.sum())) if len(stretches) else None,
        p50=_quantile(length, stretches, 0.5),
        p95=_quantile(length, stretches, 0.95),
        document_p50=_quantile(middle, documents, 0.5),
        document_p95=_quantile(middle, documents, 0.95),
        tokens_per_document=number(total / begun) if begun else None,
        tokens_per_document_audited=number(tokens / audited) if audited and same else None,
        positions=positions,
        pad_fraction=round(1 - filled / positions, 9) if positions else None,
        context=int(context[-1]) if len(context) else None,
        audited_pad_fraction=_audited_padding(data, int(context[-1])) if len(context) else {},
    )


def _positions(log: RunLog, series: Series) -> tuple[int, int]:
    """Return the positions of batches, and the targets in them, of steps where both are known."""
    step, rank, positions = series.of("positions")
    table = log.table("steps")
    key, own = table["step"].to_numpy().astype(np.int64) << 20 | table["rank"].to_numpy(), step << 20 | rank
    return int(positions[np.isin(own, key)].sum()), int(table["targets"].to_numpy()[np.isin(key, own)].sum())


def _audited_padding(data: Data, context: int) -> dict[str, float]:
    scope = (data.splits[0] if len(data.splits) == 1 else None, None)
    padding = {}
    for record in data.manifest.metrics("pad_fraction"):
        way, _, length = record.stat.rpartition("_")
        if length == str(context) and (record.scope.split, record.scope.source) == scope and record.value is not None:
            padding[way] = record.value
    return dict(sorted(padding.items()))


def _quantile(values: Any, weights: Any, part: float) -> Any:
    """Return the least value that a part of the weight is no greater than; None where there is none."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(np.asarray(weights)[order])
    if not len(below) or not below[-1]:
        return None
    return np.asarray(values)[order][int(np.searchsorted(below, part * below[-1]))].item()
