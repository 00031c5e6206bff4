"""Whether a model was trained on a set of texts: ``codec_score``, ``zlib_ratio`` and ``min_k_prob``, each with a test.

* CoDeC (arXiv 2510.27055): another sample of the same set as context helps with what is new, and disturbs what is
  memorised. The score is the share of samples whose log-likelihood falls.
* zlib (Carlini et al. 2021, arXiv 2012.07805): bits of the model over bits of zlib, which does not depend on length;
  and as published, bytes of zlib over the logarithm of the perplexity, which does.
* min-k % (Shi et al. 2024, arXiv 2310.16789): mean log-probability of the 20 % least likely tokens.

Each set is compared with held-out documents that do not leak, by ranks.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import orjson

from dataaudit.base.errors import ConfigError
from dataaudit.probes.corpus import Corpus
from dataaudit.probes.estimates import Units, contrast
from dataaudit.probes.models import Ids, Model
from dataaudit.probes.report import EvalArtifacts, Number, Outcome, artifacts_of, digest_rows, harness
from dataaudit.probes.store import Progress, Store

REFERENCE = "held_out"
MIN_K = 0.2
_GROUP = 16
_SPARE = 4
"""Times as many training documents are drawn as are needed, so that sources can be matched."""
_LEAST_TOKENS = 16
JSON_LINES = frozenset({".jsonl", ".json", ".ndjson", ".jl"})
"""Suffixes of files whose lines are objects with a ``text``; lines of others are texts."""


@dataclass(frozen=True)
class TextSet:
    """Texts that may have been trained on."""

    name: str
    texts: tuple[str, ...]


def named_sets(options: Sequence[str]) -> list[TextSet]:
    """Return the sets that ``--set NAME=FILE`` names: JSON lines with a ``text``, or plain lines."""
    made: list[TextSet] = []
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not name or name in {"train", REFERENCE, *(own.name for own in made)}:
            raise ConfigError(
                f"--set: expected NAME=FILE, with a name of its own other than train and {REFERENCE}, found {option}"
            )
        try:
            lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
            texts = [orjson.loads(line)["text"] for line in lines] if Path(path).suffix in JSON_LINES else lines
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--set {name}: {path} cannot be read ({type(error).__name__})") from None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise ConfigError(f"--set {name}: {path}: expected an object with `text` on each line") from None
        if len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"--set {name}: {path}: expected two texts or more")
        made.append(TextSet(name, tuple(texts)))
    return made


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """Scores samples of sets alone and after another sample of their set.

    Args:
        sets: Tokens of the samples by set; ``held_out`` is what the others are compared with.
    """

    name: ClassVar[str] = "contamination"
    version: ClassVar[int] = 1
    sets: Mapping[str, tuple[Ids, ...]]
    progress: Progress | None = None
    doubt: str = ""
    """Why samples of ``held_out`` may have been trained on."""

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        sets: Sequence[TextSet] = (),
        *,
        samples: int = 200,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Self:
        """Return the probe of held-out documents without leaks, training documents of the same sources, and sets."""
        made: dict[str, tuple[Ids, ...]] = {}
        clean = corpus.sample(held_out=True, limit=samples, least=_LEAST_TOKENS, seed=seed)
        wanted = Counter[str]()
        if clean is not None:
            kept = np.flatnonzero(~clean.leaked).tolist()
            wanted = Counter(clean.labels["source"][at] for at in kept)
            made[REFERENCE] = tuple(clean.rows[at] for at in kept)
        trained = corpus.sample(held_out=False, limit=_SPARE * samples, least=_LEAST_TOKENS, seed=seed)
        if trained is not None:
            mine: list[int] = []
            for source, number in (wanted or Counter(trained.labels["source"])).items():
                mine += [at for at, name in enumerate(trained.labels["source"]) if name == source][:number]
            made["train"] = tuple(trained.rows[at] for at in sorted(mine)[:samples])
        for own in sets:
            rows = map(corpus.tokenizer.encode, own.texts[:samples])
            made[own.name] = tuple(row for row in rows if len(row) >= _LEAST_TOKENS)
            if len(made[own.name]) < 2:
                raise ConfigError(f"the set {own.name} has fewer than two texts of {_LEAST_TOKENS} tokens")
        return cls(sets=made, progress=progress, doubt="" if clean is None else clean.doubt)

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        rows = [row for name in sorted(self.sets) for row in (name, *self.sets[name])]
        templates = f"half of {model.context} as context, end={model.tokenizer.encoder.end}, k={MIN_K}"
        return artifacts_of(model, harness(self.name, self.version), digest_rows(rows), templates=templates)

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Score all sets, and test each against the reference."""
        del previous
        made = Outcome(notes=[f"contamination: {self.doubt}"] if self.doubt else [])
        measured: dict[str, Scores] = {}
        for name, rows in self.sets.items():
            if len(rows) < 2:  # a sample is scored after another sample
                made.absent("codec_score", "ratio", "few_samples", set=name)
                continue
            own = self._scores(model, name, rows, store)
            if own is None:
                made.absent("codec_score", "ratio", "no_losses", set=name)
                continue
            measured[name] = own
            own.add(made, name)
        reference = measured.pop(REFERENCE, None)
        for name, own in measured.items():
            scope = {"set": name, "versus": REFERENCE}
            for metric, mine in own.suspicion.items():
                theirs = np.zeros(0) if reference is None else reference.suspicion[metric]
                finite = bool(np.isfinite(mine).all() and np.isfinite(theirs).all())
                compared = contrast(mine, theirs) if finite else None
                if compared is None:
                    made.absent(metric, "auc", "no_reference" if finite else "not_finite", **scope)
                    continue
                common: dict[str, Any] = {"metric": metric, "scope": scope, "units": len(mine)}
                low, high = compared.low, compared.high
                made.numbers += [
                    Number(stat="auc", unit="auc", value=compared.auc, low=low, high=high, **common),
                    Number(stat="p", unit="p", value=compared.p, method="exact", **common),
                ]
        return made

    def _scores(self, model: Model, name: str, rows: Sequence[Ids], store: Store) -> Scores | None:
        begin, half = model.tokenizer.start, model.context // 2 - 1
        cut = [row[:half] for row in rows]

        def scored(start: int, part: Sequence[Ids]) -> list[list[float]] | None:
            pairs = []
            for at, row in enumerate(part, start):
                pairs += [(begin, row), (np.concatenate([begin, cut[(at + 1) % len(cut)], begin]), row)]
            if (losses := model.scored(pairs)) is None:
                return None
            made = []
            for row, alone, after in zip(part, losses[::2], losses[1::2], strict=True):
                count = max(1, int(MIN_K * len(alone)))
                least = -float(np.sort(alone)[-count:].mean()) if len(alone) else 0.0
                text = model.tokenizer.decode(row.tolist()).encode("utf-8", "replace")
                shift = float(alone.mean() - after[len(after) - len(alone) :].mean()) if len(alone) else 0.0
                made.append([shift, float(alone.sum()), float(len(alone)), float(len(zlib.compress(text))), least])
            return made

        listed = store.grouped(cut, _GROUP, scored, f"samples of {name}", self.progress, f"{name}-")
        return None if listed is None else Scores(*np.array(listed, dtype=np.float64).reshape(-1, 5).T)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Numbers of the samples of a set, float64[n] each."""

    shift: npt.NDArray[np.float64]
    """Mean log-likelihood of a token after a sample of the set, less that without, nats."""
    nats: npt.NDArray[np.float64]
    """Loss of the whole sample."""
    tokens: npt.NDArray[np.float64]
    """Tokens that were scored."""
    zlib_bytes: npt.NDArray[np.float64]
    least: npt.NDArray[np.float64]
    """Mean log-probability of the least likely tokens, nats."""

    def add(self, made: Outcome, name: str) -> None:
        """Add the numbers of the set; what was published is bytes of zlib over the logarithm of the perplexity."""
        falls = np.where(np.isnan(self.shift), np.nan, self.shift < 0)
        bits = Units.of(self.nats / np.log(2), 8 * self.zlib_bytes)
        published = self.zlib_bytes / np.maximum(self.nats / np.maximum(self.tokens, 1), 1e-6)
        made.add("codec_score", Units.of(falls), "ratio of samples", set=name)
        made.add("zlib_ratio", bits, "bits / bits", stat="bits", set=name)
        made.add("zlib_ratio", Units.of(published), "bytes / nats", stat="published", set=name)
        made.add("min_k_prob", Units.of(self.least), "nats", set=name)

    @property
    def suspicion(self) -> dict[str, npt.NDArray[np.float64]]:
        """By metric, float64[n]: larger where a sample looks more trained on."""
        bits = self.nats / np.log(2) / (8 * self.zlib_bytes)
        return {"codec_score": -self.shift, "zlib_ratio": -bits, "min_k_prob": self.least}
