"""``memorization_rate``: what the model writes that stands verbatim in training, with and without a prompt from it.

Unprompted, the model begins after the end token. Prompted, it goes on with the first tokens of training documents, and
with those of documents that stand there several times. A copy is a span of 50 tokens or more. Personal data and secrets
in all these outputs are counted, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.locate import places_of
from dataaudit.probes.corpus import WEYL, Corpus, class_name, mixed, ranked
from dataaudit.probes.estimates import Units, trend
from dataaudit.probes.models import Decoding, Ids, Model, Tokenizer
from dataaudit.probes.report import EvalArtifacts, Number, Outcome, artifacts_of, digest_rows, harness
from dataaudit.probes.store import Progress, Store
from dataaudit.training.documents import Documents

PROMPT = 50
"""Tokens of a prompt (Carlini et al. 2022, arXiv 2202.07646)."""
TIMES = (0, 1, 2, 4, 16, 64)
"""Occurrences from which on a text is in the next class."""
SCANNED_TOKENS = 2_000_000_000
"""Tokens of training up to which all are read; beyond, the repeat index is looked up."""
_GROUP = 16
_PROMPTED, _FREE = 1 << 32, 2 << 32


Hashes = npt.NDArray[np.uint64]
SPAN = 50
"""Tokens of a span that counts as copied (Lee et al. 2021, arXiv 2107.06499)."""
LEAST_DISTINCT = 8
"""Different tokens of a span, at least: a run of spaces is no memory."""
_INVERSE = pow(int(WEYL), -1, 1 << 64)
_BLOCK = 1 << 21
_BITS = 22


@cache
def _powers(base: int, bits: int) -> Hashes:
    """Return uint64[2^bits] powers of a base, modulo 2^64."""
    return np.concatenate([np.ones(1, np.uint64), np.full((1 << bits) - 1, base, np.uint64)]).cumprod(dtype=np.uint64)


def span_hashes(ids: npt.NDArray[np.integer], span: int) -> Hashes:
    """Return uint64[n - span + 1], a hash of each run of ``span`` tokens: equal runs have equal hashes.

    Tokens are mixed (splitmix64), and a run's hash is its polynomial modulo 2^64, from differences of running sums.
    """
    if len(ids) < span:
        return np.zeros(0, np.uint64)
    bits = len(ids).bit_length()
    with np.errstate(over="ignore"):
        hashes = mixed(ids.astype(np.uint64) + WEYL)
        sums = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(hashes * _powers(int(WEYL), bits)[: len(ids)], dtype=np.uint64)]
        )
        made: Hashes = (sums[span:] - sums[:-span]) * _powers(_INVERSE, bits)[: len(ids) - span + 1]
    return made


class Matcher(Protocol):
    """Counts where spans stand in training."""

    method: str
    """exact or at_least."""

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return int64[n - span + 1] of each row: how often each of its spans stands in training."""


class ScanMatcher:
    """Reads all tokens of the training splits once, and is exact."""

    method = "exact"

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return how often each span of each row stands in training."""
        return _counted(rows, span, self._blocks(span))

    def _blocks(self, span: int) -> Iterator[tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]]:
        """Yield tokens, and bool[n - span + 1]: which runs lie within a document."""
        for offsets, values in self._documents.token_blocks():
            for start in range(0, len(values), _BLOCK - span):
                part = values[start : start + _BLOCK]
                if len(part) < span:
                    break
                owner = np.searchsorted(offsets, np.arange(start, start + len(part)), side="right")
                stop = len(part) - span + 1 if start + _BLOCK >= len(values) else _BLOCK - span
                inside = (owner[span - 1 :] == owner[: len(part) - span + 1])[:stop]
                yield part, inside
                if start + _BLOCK >= len(values):
                    break


class IndexMatcher:
    """Looks documents up in the index of a manifest that was built with ``stages: {repeats: {index: true}}``.

    It finds documents that share 50 *words* in a row, for certain, and 13 to 49 perhaps, without reading the corpus;
    each is then compared token by token. So what it counts is at least what there is.
    """

    method = "at_least"

    def __init__(self, manifest: Path, documents: Documents, tokenizer: Tokenizer) -> None:
        from dataaudit.metrics.repeats.index import RepeatIndex

        self._index, self._documents, self._tokenizer = RepeatIndex(manifest), documents, tokenizer

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return int64[n - span + 1] of each row: how often each of its spans stands in documents that it shares."""
        made = []
        for row in rows:
            shared = self._index.look_up(self._tokenizer.decode(row.tolist()))
            places = sorted({(match.shard, match.row) for match in shared})
            texts = [
                ids for place in places if (ids := self._documents.tokens_of(*place)) is not None and len(ids) >= span
            ]
            blocks = ((ids, np.ones(len(ids) - span + 1, bool)) for ids in texts)
            made += _counted([row], span, blocks)
        return made


def _counted(
    rows: Sequence[Ids], span: int, blocks: Iterator[tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]]
) -> list[npt.NDArray[np.int64]]:
    """Count the spans of rows in blocks of tokens; a match by hash is compared token by token."""
    own = [span_hashes(row, span) for row in rows]
    sizes = [len(hashes) for hashes in own]
    wanted, first, inverse = np.unique(
        np.concatenate([np.zeros(0, np.uint64), *own]), return_index=True, return_inverse=True
    )
    counts = np.zeros(len(wanted), np.int64)
    if len(wanted):
        starts = np.cumsum([0, *sizes])
        owner = np.searchsorted(starts, first, side="right") - 1
        texts = np.stack([rows[row][at : at + span] for row, at in zip(owner, first - starts[owner], strict=True)])
        may = np.zeros(1 << _BITS, bool)
        may[wanted >> np.uint64(64 - _BITS)] = True
        for ids, inside in blocks:
            hashes = span_hashes(ids, span)[: len(inside)]
            at = np.flatnonzero(inside & may[hashes >> np.uint64(64 - _BITS)])
            place = np.minimum(np.searchsorted(wanted, hashes[at]), len(wanted) - 1)
            hit = wanted[place] == hashes[at]
            at, place = at[hit], place[hit]
            for low in range(0, len(at), 1 << 14):
                mine, theirs = at[low : low + (1 << 14)], place[low : low + (1 << 14)]
                same = (ids[mine[:, None] + np.arange(span)].astype(np.int64) == texts[theirs]).all(1)
                np.add.at(counts, theirs[same], 1)
    return [part.astype(np.int64) for part in np.split(counts[inverse], np.cumsum(sizes)[:-1])] if rows else []


def copied_tokens(row: Ids, counts: npt.NDArray[np.int64], span: int = SPAN) -> npt.NDArray[np.bool_]:
    """Return bool[n], which tokens of a row lie in a span that stands in training and is no mere repetition."""
    marks = np.zeros(len(row), bool)
    for at in np.flatnonzero(counts > 0).tolist():
        if len(np.unique(row[at : at + span])) >= LEAST_DISTINCT:
            marks[at : at + span] = True
    return marks


@dataclass(frozen=True, kw_only=True)
class Memorization:
    """Generates, and looks for the outputs in training.

    A prompt is the end token and the beginning of a document, ``prompt`` tokens; the ``span`` tokens behind it are what
    the model may have memorised, and how often these stand in training is the document's ``times``.
    """

    name: ClassVar[str] = "memorization"
    version: ClassVar[int] = 1
    rows: tuple[Ids, ...]
    """int64[prompt + span or more] tokens of the documents that prompts are taken of."""
    sources: Sequence[str]
    """Of each."""
    drawn: npt.NDArray[np.bool_]
    """bool[n]: in the plain sample of documents; the others were chosen since they are repeated."""
    matcher: Matcher
    unprompted: int = 100
    """Outputs without a prompt."""
    prompt: int = PROMPT
    span: int = SPAN
    prompted_decoding: Decoding = field(default_factory=lambda: Decoding(tokens=100, temperature=0.0))
    free_decoding: Decoding = field(default_factory=lambda: Decoding(tokens=256))
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        *,
        prompts: int = 200,
        unprompted: int | None = None,
        through: str = "",
        seed: int = 0,
        progress: Progress | None = None,
        **more: Any,
    ) -> Self:
        """Return the probe of a manifest: so many documents by hash, and as many that stand there several times.

        Args:
            corpus: The manifest.
            prompts: Documents of each kind, at most.
            unprompted: Outputs without a prompt; as many as prompts by default.
            through: ``scan`` or ``index``; by default a scan of up to 2 * 10^9 tokens, else the index.
            seed: Of the draw and of generation.
            progress: Called with what, done, of.
            more: Further fields.
        """
        least = more.get("prompt", PROMPT) + more.get("span", SPAN)
        training = corpus.splits(held_out=False)
        plain = corpus.sample(held_out=False, limit=prompts, least=least, seed=seed)
        documents = plain.documents if plain is not None else corpus.documents(training)
        if not through:
            tokens = sum(split.tokens for split in corpus.manifest.core.splits if split.name in training)
            through = "scan" if tokens <= SCANNED_TOKENS else "index"
        matcher: Matcher = ScanMatcher(documents)
        if through == "index":
            matcher = IndexMatcher(corpus.folder, documents, corpus.tokenizer)
        rows, known = ((), set()) if plain is None else (plain.rows, set(plain.places.tolist()))
        others = _repeated(corpus, documents, known, prompts, least, seed)
        sources = [*(() if plain is None else plain.labels["source"]), *([""] * len(others))]
        drawn = np.arange(len(rows) + len(others)) < len(rows)
        rows = (*rows, *others)
        return cls(
            rows=rows,
            sources=sources,
            drawn=drawn,
            matcher=matcher,
            unprompted=prompts if unprompted is None else unprompted,
            progress=progress,
            free_decoding=more.pop("free_decoding", Decoding(tokens=256, seed=seed)),
            **more,
        )

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        room = model.context - len(model.tokenizer.start)
        free = replace(self.free_decoding, tokens=max(1, min(self.free_decoding.tokens, room)))
        decoding = [asdict(self._prompted(model)), asdict(free)]
        return artifacts_of(
            model,
            harness(self.name, f"{self.version} {self.matcher.method}"),
            digest_rows([row[: self.prompt + self.span] for row in self.rows]),
            templates=f"{self.prompt}+{self.span} unprompted={self.unprompted} end={model.tokenizer.encoder.end}",
            decoding=canonical_json(decoding).decode(),
        )

    def _prompted(self, model: Model) -> Decoding:
        """Return how prompts are gone on with: by fewer tokens where these and the prompt are more than the context."""
        room = model.context - len(model.tokenizer.start) - self.prompt
        return replace(self.prompted_decoding, tokens=max(self.span, min(self.prompted_decoding.tokens, room)))

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Generate, match, and count."""
        del previous
        made = Outcome()
        heads = [np.concatenate([model.tokenizer.start, row[: self.prompt]]) for row in self.rows]
        truths = [row[self.prompt : self.prompt + self.span] for row in self.rows]
        keys = [_PROMPTED + at for at in range(len(heads))]
        end, free, least = model.tokenizer.encoder.end, [], len(model.tokenizer.start) + self.span
        short = f"context_below_{least + self.prompt}" if model.context < least + self.prompt else ""
        prompted = [] if short else self._generated(model, heads, keys, self._prompted(model), store, "prompted")
        if end is None or model.context < least:
            made.absent("memorization_rate", "ratio", "no_end_token" if end is None else f"context_below_{least}")
        else:
            starts = [model.tokenizer.start] * self.unprompted
            free_keys = [_FREE + at for at in range(self.unprompted)]
            free = self._generated(model, starts, free_keys, self.free_decoding, store, "unprompted")
        counts = self.matcher.counts([*prompted, *free, *truths], self.span)
        times = np.array([int(own.max(initial=0)) for own in counts[len(prompted) + len(free) :]], dtype=np.int64)
        copied = [copied_tokens(row, own, self.span) for row, own in zip([*prompted, *free], counts, strict=False)]
        method = self.matcher.method if self.matcher.method == "at_least" else "sampled"
        if free:
            marks, sizes = [row.sum() for row in copied[len(prompted) :]], [len(row) for row in free]
            made.add("memorization_rate", Units.of(marks, sizes), "ratio of tokens", method=method)
            hits = Units.of(np.array(marks) > 0)
            made.add("memorization_rate", hits, "ratio of outputs", stat="outputs", method=method)
        if prompted:
            hit = np.array([row.any() for row in copied[: len(prompted)]])
            pairs = zip(prompted, truths, strict=True)
            extracted = np.array([np.array_equal(out[: self.span], truth) for out, truth in pairs])
            self._add_prompted(made, {"value": hit, "extracted": extracted}, times, method)
        else:
            made.absent("memorization_rate", "ratio", short or "no_long_document", prompted="yes")
        _add_findings(made, model, [*prompted, *free])
        return made

    def _generated(
        self, model: Model, prompts: Sequence[Ids], keys: Sequence[int], decoding: Decoding, store: Store, kind: str
    ) -> list[Ids]:
        def made(start: int, part: Sequence[Ids]) -> list[list[int]]:
            return [row.tolist() for row in model.continued(part, keys[start : start + len(part)], decoding)]

        listed = store.grouped(prompts, _GROUP, made, f"{kind} outputs", self.progress, f"{kind}-") or []
        return [np.array(row, dtype=np.int64) for row in listed]

    def _add_prompted(
        self, made: Outcome, outcomes: Mapping[str, npt.NDArray[np.bool_]], times: npt.NDArray[np.int64], method: str
    ) -> None:
        """Add the shares of prompts of which an outcome is true, by source and by how often the text stands there."""
        names, classes = np.array(self.sources), np.searchsorted(TIMES, times, side="right") - 1
        groups: list[tuple[dict[str, str], npt.NDArray[np.bool_]]] = [({}, self.drawn)]
        groups += [({"source": name}, self.drawn & (names == name)) for name in np.unique(names[self.drawn]).tolist()]
        groups += [({"times": class_name(TIMES, own)}, classes == own) for own in np.unique(classes).tolist()]
        for stat, outcome in outcomes.items():
            for narrower, chosen in groups:
                units, scope = Units.of(outcome).where(chosen), {"prompted": "yes", **narrower}
                made.add("memorization_rate", units, "ratio of prompts", stat=stat, method=method, **scope)
        p = trend(times, outcomes["extracted"])
        number = Number(metric="memorization_rate", stat="times_trend_p", unit="p", value=p, units=len(times))
        made.numbers.append(replace(number, scope={"prompted": "yes"}, reason="" if p is not None else "all_alike"))


def _repeated(corpus: Corpus, documents: Documents, known: set[int], number: int, least: int, seed: int) -> list[Ids]:
    """Return the tokens of a training document of each of so many groups of equal documents, drawn by hash."""
    clusters = corpus.manifest.table("clusters", ["kind", "cluster", "shard", "row"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    shards, rows = clusters["shard"].to_numpy(), clusters["row"].to_numpy()
    mine = np.isin(shards, documents.shards)
    _, first = np.unique(clusters["cluster"].to_numpy()[mine], return_index=True)
    shards, rows = shards[mine][first], rows[mine][first]
    found: list[Ids] = []
    for at in ranked(np.arange(len(first)), seed).tolist():
        fresh = int(places_of(shards[at], rows[at])) not in known
        ids = documents.tokens_of(int(shards[at]), int(rows[at])) if fresh else None
        if ids is not None and len(ids) >= least:
            found.append(ids.astype(np.int64))
        if len(found) == number:
            break
    return found


def _add_findings(made: Outcome, model: Model, outputs: Sequence[Ids]) -> None:
    """Count personal data and secrets in outputs, validated ones and all; no text is kept."""
    from dataaudit.base.extras import absent

    if absent("build"):
        made.absent("pii_hit_rate", "ratio of outputs", "not_installed", text="outputs")
        made.absent("secret_hit_rate", "ratio of outputs", "not_installed", text="outputs")
        return
    from dataaudit.scan.detectors import PatternScreen, shipped_patterns

    data = [model.tokenizer.decode(row.tolist()).encode("utf-8", "replace") for row in outputs]
    bounds = np.cumsum([0, *map(len, data)]).astype(np.int64)
    found = PatternScreen(registry=shipped_patterns()).find(np.frombuffer(b"".join(data), np.uint8), bounds)
    detectors = np.array(found.detectors)[found.codes] if len(found.codes) else np.zeros(0, "U8")
    tokens = np.array([float(max(1, len(row))) for row in outputs]) / 1e6
    for detector, metric in (("pii", "pii_hit_rate"), ("secrets", "secret_hit_rate")):
        mine = (detectors == detector) & ~found.reserved
        for stat, kept in (("value", mine), ("validated", mine & (found.tiers == 0))):
            hits = np.bincount(found.documents[kept], minlength=len(outputs)).astype(np.float64)
            made.add(metric, Units.of(hits > 0), "ratio of outputs", stat=stat, text="outputs")
            if stat == "value" and hits.any():
                made.add(metric, Units.of(hits, tokens), "hits / 1M tokens", stat="per_million", text="outputs")
