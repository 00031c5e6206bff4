"""Documents of a manifest as tokens, with what slices them: source, language, length, domain, and whether they leak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import places_of
from dataaudit.probes.models import Ids, Tokenizer
from dataaudit.probes.report import digest_rows
from dataaudit.training.documents import Documents
from dataaudit.training.opening import open_manifest

LENGTHS = (0, 128, 512, 2_048, 8_192)
"""Tokens from which on a document is in the next class of length."""
WEYL = np.uint64(0x9E3779B97F4A7C15)
_NGRAM_SCORE = 0.5
"""Share of its 13-grams in training from which on a held-out document leaks; ``quarantine apply`` takes the same."""


def leaked_places(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return ``shard << 40 | row``, sorted, of held-out documents that stand in training data.

    These have an equal or verified near-duplicate training document, a copied span, an edited copy, or half of their
    13-grams there; text that very many training documents share is left aside.
    """
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    splits = manifest.table("shards", ["split"])["split"].to_pylist()
    outside = np.array([name in held_out for name in splits], dtype=bool)
    found: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    table = manifest.table("overlap", ["set", "item", "part", "rule", "score_without_common"])
    score = table["score_without_common"]
    enough = pc.or_(pc.not_equal(table["rule"], "ngram"), pc.greater_equal(score, _NGRAM_SCORE))
    documents = pc.and_(pc.equal(table["part"], "document"), pc.and_(pc.greater(score, 0), enough))
    items = [item.split(":") for item in pc.unique(table.filter(documents)["item"]).to_pylist()]
    found.append(np.array([int(shard) << 40 | int(row) for shard, row in items], dtype=np.int64))
    clusters = manifest.table("clusters", ["kind", "cluster", "shard", "row"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    number, shard, row = (clusters[name].to_numpy() for name in ("cluster", "shard", "row"))
    trained = np.unique(number[~outside[shard]])
    mine = outside[shard] & np.isin(number, trained)
    found.append(places_of(shard[mine], row[mine]))
    pairs = manifest.table("pairs")
    pairs = pairs.filter(pairs["verified"])
    sides = [(pairs[f"{side}_shard"].to_numpy(), pairs[f"{side}_row"].to_numpy()) for side in ("left", "right")]
    for (shard, row), (other, _) in (sides, sides[::-1]):
        mine = outside[shard] & ~outside[other]
        found.append(places_of(shard[mine], row[mine]))
    return np.unique(np.concatenate(found))


@dataclass(frozen=True, eq=False)
class Sampled:
    """Documents of some splits as tokens."""

    rows: tuple[Ids, ...]
    """int64[tokens] of each, with the end token where the tokenizer has one."""
    places: npt.NDArray[np.int64]
    """int64[n] ``shard << 40 | row``."""
    labels: Mapping[str, Sequence[str]]
    """By dimension (split, source, language, length, domain) the class of each; only what is known."""
    leaked: npt.NDArray[np.bool_]
    """bool[n]"""
    of: int
    """Documents that there are."""
    documents: Documents
    leaks_unknown: str = ""
    """Why it is not known which of them leak."""
    leaks_sampled: bool = False
    """Whether the build looked for leaks of some of them alone."""

    @property
    def doubt(self) -> str:
        """Why documents that are taken for clean may stand in training; empty where all that leak are known."""
        if self.leaks_unknown:
            return "the build looked for no leaks: held-out documents may stand in training"
        sampled = "the build looked for leaks of a sample of held-out documents: others may leak"
        return sampled if self.leaks_sampled else ""

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of all tokens in order."""
        return digest_rows(self.rows)


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each number, by splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def ranked(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Return int64[n], the order of numbers by a hash of each and a seed: its beginning is a sample."""
    with np.errstate(over="ignore"):
        return np.argsort(mixed(numbers.astype(np.uint64) + np.uint64(seed + 1) * WEYL), kind="stable")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Where documents of a manifest are read from.

    Args:
        folder: Of the manifest.
        tokenizer: Of the model.
        root: Folder that holds the shards now; as the manifest says when None.
        cache: Folder of encoded documents; in the user's cache folder when None.
    """

    folder: Path
    tokenizer: Tokenizer
    root: Path | None = None
    cache: Path | None = None

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        return load_manifest(self.folder)

    def splits(self, *, held_out: bool) -> list[str]:
        """Return the names of splits that are held out, or of those that are trained on."""
        return [split.name for split in self.manifest.core.splits if split.held_out == held_out]

    def documents(self, splits: Sequence[str]) -> Documents:
        """Open the documents of splits."""
        corpus = open_manifest(self.folder, require="verified", splits=splits, root=self.root, cache=self.cache)
        return Documents(corpus, splits, self.tokenizer.encoder)

    def sample(
        self,
        *,
        held_out: bool,
        limit: int | None = None,
        least: int = 2,
        domains: Mapping[str, str] | None = None,
        languages: bool = False,
        seed: int = 0,
    ) -> Sampled | None:
        """Return documents that are drawn by a hash of their index; None where there is no such split.

        Args:
            held_out: Whether of held-out splits, or of training.
            limit: Most documents; all by default.
            least: Tokens of a document, at least.
            domains: Domain of each source.
            languages: Whether to identify languages; needs the extra ``build``.
            seed: Of the draw.
        """
        names = self.splits(held_out=held_out)
        if not names:
            return None
        documents = self.documents(names)
        indices = np.flatnonzero(~documents.held & (documents.lengths >= least))
        if not len(indices):
            return None
        chosen = np.sort(indices[ranked(indices, seed)[:limit]]).tolist()
        located = np.array(documents.places(chosen), dtype=np.int64)
        places = places_of(located[:, 0], located[:, 1])
        rows = tuple(documents.tokens(index).astype(np.int64) for index in chosen)
        shards = documents.corpus.table["split"].to_pylist()
        sources = [documents.corpus.sources[code] if code >= 0 else "?" for code in located[:, 2].tolist()]
        labels: dict[str, Sequence[str]] = {
            "split": [shards[shard] for shard in located[:, 0].tolist()],
            "source": sources,
            "length": [class_name(LENGTHS, int(np.searchsorted(LENGTHS, len(row), side="right")) - 1) for row in rows],
        }
        if domains is not None:
            labels["domain"] = [domains.get(source, "other") for source in sources]
        if languages:
            labels["language"] = languages_of([self.tokenizer.decode(row.tolist()) for row in rows])
        leaked = np.isin(places, leaked_places(self.manifest)) if held_out else np.zeros(len(rows), bool)
        ran = {stage.name for stage in self.manifest.core.stages}
        why = "" if {"exact_dup", "overlap"} <= ran else "overlap_not_built"
        seen = any(record.method == "sampled" for record in self.manifest.metrics("train_val_overlap", "ngram"))
        return Sampled(rows, places, labels, leaked, len(indices), documents, why, seen)


def class_name(least: Sequence[int], number: int) -> str:
    """Return the name of a class of counts by the least of each class: ``0``, ``1``, ``2-3``, ``64+``."""
    low, high = least[number], [*least, 0][number + 1] - 1
    return f"{low}+" if high < 0 else str(low) if high == low else f"{low}-{high}"


def languages_of(texts: Sequence[str]) -> list[str]:
    """Return the language of each text by the audit's detector, BCP 47; ``und`` where it is not sure."""
    from dataaudit.base.cache import private_folder, user_places

    with CatchErrors(ConfigError) as call:
        from dataaudit.config import LanguageConfig
        from dataaudit.scan.detectors.language import load_languages, resolve_languages
        from dataaudit.scan.kernels.words import split_words

        cache = private_folder(*user_places("languages"))
        if cache is None:
            raise ConfigError("no folder for the language models can be written")
        identifier = load_languages(resolve_languages(LanguageConfig(), base_dir=Path(), cache_dir=cache), seed=0)
        data = [text.encode("utf-8", "replace") for text in texts]
        bounds = np.cumsum([0, *map(len, data)]).astype(np.int64)
        words = split_words(np.frombuffer(b"".join(data), np.uint8), bounds)
        keys, decoded = np.arange(len(texts), dtype=np.uint64), pa.array([d.decode() for d in data], pa.large_string())
        made: Any = identifier.identify(decoded, keys, words.num_words())
        return list(made.languages().to_pylist())
    raise ConfigError(f"languages cannot be identified ({call.origin})", "pip install 'dataaudit[build]'")
