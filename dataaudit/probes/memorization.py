"""``memorization_rate``: what the model writes that stands verbatim in training, with and without a prompt from it.

Unprompted, the model begins after the end token. Prompted, it goes on with the first tokens of training documents, and
with those of documents that stand there several times. A copy is a span of 50 tokens or more. Personal data and secrets
in all these outputs are counted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.locate import places_of
from dataaudit.probes.artifacts import EvalArtifacts, digest_rows, harness
from dataaudit.probes.corpus import Corpus, ranked
from dataaudit.probes.decoding import Decoding
from dataaudit.probes.estimates import Units, trend
from dataaudit.probes.matching import SPAN, IndexMatcher, Matcher, ScanMatcher, copied_tokens
from dataaudit.probes.models import Ids, Model
from dataaudit.probes.report import Number, Outcome
from dataaudit.probes.store import Store
from dataaudit.training.documents import Documents

PROMPT = 50
"""Tokens of a prompt (Carlini et al. 2022, arXiv 2202.07646)."""
TIMES = (0, 1, 2, 4, 16, 64)
"""Occurrences from which on a text is in the next class."""
SCANNED_TOKENS = 2_000_000_000
"""Tokens of training up to which all are read; beyond, the repeat index is looked up."""
_GROUP = 16
_PROMPTED, _FREE = 1 << 32, 2 << 32


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
    progress: Callable[[str, int, int], None] | None = None

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        *,
        prompts: int = 200,
        unprompted: int | None = None,
        through: str = "",
        seed: int = 0,
        progress: Callable[[str, int, int], None] | None = None,
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
        found = (
            IndexMatcher(corpus.folder, documents, corpus.tokenizer) if through == "index" else ScanMatcher(documents)
        )
        rows = () if plain is None else plain.rows
        others = _repeated(corpus, documents, set(() if plain is None else plain.places.tolist()), prompts, least, seed)
        sources = [*(() if plain is None else plain.labels["source"]), *([""] * len(others))]
        drawn = np.arange(len(rows) + len(others)) < len(rows)
        rows = (*rows, *others)
        return cls(
            rows=rows,
            sources=sources,
            drawn=drawn,
            matcher=found,
            unprompted=prompts if unprompted is None else unprompted,
            progress=progress,
            free_decoding=more.pop("free_decoding", Decoding(tokens=256, seed=seed)),
            **more,
        )

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        decoding = [asdict(self.prompted_decoding), asdict(self.free_decoding)]
        return EvalArtifacts(
            tokenizer=model.tokenizer.digest,
            prompts=digest_rows([row[: self.prompt + self.span] for row in self.rows]),
            templates=f"{self.prompt}+{self.span} unprompted={self.unprompted} end={model.tokenizer.encoder.end}",
            decoding=canonical_json(decoding).decode(),
            harness=harness(self.name, f"{self.version} {self.matcher.method}"),
            dtype=model.dtype,
        )

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Generate, match, and count."""
        del previous
        made = Outcome()
        heads = [np.concatenate([model.tokenizer.start, row[: self.prompt]]) for row in self.rows]
        truths = [row[self.prompt : self.prompt + self.span] for row in self.rows]
        keys = [_PROMPTED + at for at in range(len(heads))]
        prompted = self._generated(model, heads, keys, self.prompted_decoding, store, "prompted")
        end, free = model.tokenizer.encoder.end, []
        if end is None:
            made.absent("memorization_rate", "ratio", "no_end_token")
        else:
            starts = [model.tokenizer.start] * self.unprompted
            free_keys = [_FREE + at for at in range(self.unprompted)]
            free = self._generated(model, starts, free_keys, self.free_decoding, store, "unprompted")
        counts = self.matcher.counts([*prompted, *free, *truths], self.span)
        times = np.array([int(own.max(initial=0)) for own in counts[len(prompted) + len(free) :]], dtype=np.int64)
        copied = [copied_tokens(row, own, self.span) for row, own in zip([*prompted, *free], counts, strict=False)]
        if free:
            self._add_free(made, copied[len(prompted) :])
        if prompted:
            self._add_prompted(made, prompted, truths, copied[: len(prompted)], times)
        else:
            made.absent("memorization_rate", "ratio", "no_long_document", prompted="yes")
        _add_findings(made, model, [*prompted, *free])
        return made

    def _generated(
        self, model: Model, prompts: Sequence[Ids], keys: Sequence[int], decoding: Decoding, store: Store, kind: str
    ) -> list[Ids]:
        for start in range(0, len(prompts), _GROUP):
            name = f"{kind}-{start}"
            if name not in store.items:
                part = model.continued(prompts[start : start + _GROUP], keys[start : start + _GROUP], decoding)
                store.add(name, [row.tolist() for row in part])
            if self.progress is not None:
                self.progress(f"{kind} outputs", min(start + _GROUP, len(prompts)), len(prompts))
        listed = [row for start in range(0, len(prompts), _GROUP) for row in store.items[f"{kind}-{start}"]]
        return [np.array(row, dtype=np.int64) for row in listed]

    def _add_free(self, made: Outcome, copied: Sequence[npt.NDArray[np.bool_]]) -> None:
        method = self.matcher.method if self.matcher.method == "at_least" else "sampled"
        marks = np.array([float(row.sum()) for row in copied])
        sizes = np.array([float(len(row)) for row in copied])
        made.add("memorization_rate", Units.of(marks, sizes), "ratio of tokens", method=method)
        made.add("memorization_rate", Units.of(marks > 0), "ratio of outputs", stat="outputs", method=method)

    def _add_prompted(
        self,
        made: Outcome,
        outputs: Sequence[Ids],
        truths: Sequence[Ids],
        copied: Sequence[npt.NDArray[np.bool_]],
        times: npt.NDArray[np.int64],
    ) -> None:
        method = self.matcher.method if self.matcher.method == "at_least" else "sampled"
        hit = np.array([bool(row.any()) for row in copied])
        extracted = np.array(
            [np.array_equal(out[: self.span], truth) for out, truth in zip(outputs, truths, strict=True)]
        )
        for stat, outcome in (("value", hit), ("extracted", extracted)):
            units = Units.of(outcome)
            made.add(
                "memorization_rate",
                units.where(self.drawn),
                "ratio of prompts",
                stat=stat,
                method=method,
                prompted="yes",
            )
            names = np.array(self.sources)
            for name in np.unique(names).tolist():
                mine = units.where(self.drawn & (names == name))
                made.add(
                    "memorization_rate", mine, "ratio of prompts", stat=stat, method=method, prompted="yes", source=name
                )
            classes = np.searchsorted(TIMES, times, side="right") - 1
            for number in np.unique(classes).tolist():
                name = times_class(number)
                mine = units.where(classes == number)
                made.add(
                    "memorization_rate", mine, "ratio of prompts", stat=stat, method=method, prompted="yes", times=name
                )
        p = trend(times, extracted)
        reason = "" if p is not None else "all_alike"
        scope = {"prompted": "yes"}
        made.numbers.append(
            Number(
                metric="memorization_rate",
                stat="times_trend_p",
                scope=scope,
                unit="p",
                value=p,
                reason=reason,
                units=len(times),
            )
        )


def times_class(number: int) -> str:
    """Return the name of a class of :data:`TIMES`: ``0``, ``1``, ``2-3``, ``64+``."""
    low = TIMES[number]
    if number == len(TIMES) - 1:
        return f"{low}+"
    high = TIMES[number + 1] - 1
    return str(low) if high == low else f"{low}-{high}"


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
        ids = (
            None
            if int(places_of(shards[at], rows[at])) in known
            else documents.tokens_of(int(shards[at]), int(rows[at]))
        )
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
