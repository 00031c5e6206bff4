"""Both language detectors on labelled text: accuracy, what they leave undetermined, confidence, speed.

    python benchmarks/language.py FOLDER [--model lid.176.bin] [--corpus SHARDS] [--per-language]

FOLDER holds a file a language, `de.txt`, one sentence a line. Three sets are drawn from it with a fixed seed: single
sentences, three sentences joined, and documents of at least 1 KB. `--corpus` measures the CPU time a MB of text on
shards with a column `text`, and how often the windows that are looked at give another answer than the whole text.
Prints Markdown.
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import head, options, read_batches, row, shards_below

from dataaudit.config import LanguageConfig
from dataaudit.detectors import cld2, lid176, resolve_languages, windows
from dataaudit.detectors.base import DetectorModel, LanguageDetector
from dataaudit.detectors.language import load_detector

LABELS = {"nb": "no"}
"""File names whose language both detectors know by another code."""
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
KINDS = {"sentence": 500, "3 sentences": 100, "1 KB": 40}
"""Texts of a language at most, by kind."""
MIN_CONFIDENCE = LanguageConfig().min_confidence


@dataclass(frozen=True)
class Answers:
    """What a detector said of a labelled set."""

    truth: np.ndarray
    guess: np.ndarray
    confidence: np.ndarray
    seconds: float
    num_bytes: int

    def right_of(self, chosen: np.ndarray) -> str:
        """Return the share of some guesses that are right, and their number."""
        return f"{(self.guess == self.truth)[chosen].mean():.2f} of {chosen.sum():,}" if chosen.any() else "-"

    def cells(self, known: np.ndarray) -> list[str]:
        """Return the cells of a table's row."""
        right, said = self.guess == self.truth, self.confidence >= MIN_CONFIDENCE
        return [
            f"{right.mean():.3f}",
            f"{right[known].mean():.3f}",
            f"{(right & said).mean():.3f}",
            f"{(~right & said).mean():.3f}",
            f"{(~said).mean():.3f}",
            f"{len(right) / self.seconds:,.0f}",
            f"{self.num_bytes / self.seconds / 1e6:.1f}",
        ]


def draw(folder: Path, kind: str, each: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return (labels, texts) of one set: ``sentence``, ``3 sentences`` or ``1 KB``."""
    rng = random.Random(seed)
    labels, texts = [], []
    for path in sorted(folder.glob("*.txt")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for line in rng.sample(lines, min(each, len(lines))):
            text = line if kind == "sentence" else " ".join(rng.sample(lines, 3))
            while kind == "1 KB" and len(text.encode()) < 1024:
                text += " " + rng.choice(lines)
            labels.append(LABELS.get(path.stem, path.stem))
            texts.append(text)
    return labels, texts


def ask(detector: LanguageDetector, labels: list[str], texts: list[str]) -> Answers:
    """Have a set identified."""
    array = pa.array(texts, pa.large_string())
    detector.detect(array[:10])
    begun = time.process_time()
    codes, confidence = detector.detect(array)
    seconds = time.process_time() - begun
    names = np.array(detector.model.languages, dtype=object)
    size = sum(len(text.encode()) for text in texts)
    return Answers(np.array(labels, dtype=object), names[codes], confidence, seconds, size)


def on_corpus(detector: LanguageDetector, texts: pa.LargeStringArray) -> list[str]:
    """Return CPU time a MB, and how the answer by windows compares with that by the whole text."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        codes, confidence = detector.detect(texts)
        times.append(time.process_time() - begun)
    sizes = np.diff(np.frombuffer(texts.buffers()[1], dtype=np.int64, count=len(texts) + 1))
    everything = windows.Windows(first=(2, 1 << 18), second=(2, 1 << 18), sure=0.0)
    whole, sure = windows.identify(texts, everything, detector.classify)
    said, truth = (np.where(c >= MIN_CONFIDENCE, k, 0) for k, c in ((codes, confidence), (whole, sure)))
    other = (said != truth) & (said != 0) & (truth != 0)
    return [
        f"{min(times) / sizes.sum() * 1e9:.2f}",
        f"{min(times) / len(texts) * 1e6:.0f}",
        f"{(said == truth).mean():.4f}",
        f"{other.mean():.4f}",
        f"{(truth == 0).mean():.4f}",
    ]


def main() -> None:
    """Run everything that is asked for."""
    given = options(__doc__, folder=Path, model=(Path, None), corpus=(Path, None), per_language=False)
    with tempfile.TemporaryDirectory() as cache:
        found = resolve_languages(LanguageConfig(), base_dir=Path(), cache_dir=Path(cache))
        models: dict[str, DetectorModel] = {"pycld2": found.chosen, "fasttext, lid.176.ftz": found.second}
        assert (found.chosen.name, found.second.name) == (cld2.NAME, lid176.NAME)
        if given.model is not None:
            models[f"fasttext, {given.model.name}"] = lid176.find_model(given.model, cache_dir=Path(cache))
        detectors = {name: load_detector(model) for name, model in models.items()}
    sets = {kind: draw(given.folder, kind, each) for kind, each in KINDS.items()}
    answers = {(kind, name): ask(detector, *sets[kind]) for kind in sets for name, detector in detectors.items()}
    labels = sorted(set(sets["sentence"][0]))
    known = {name: set(model.languages) for name, model in models.items()}
    print(f"{len(labels)} languages. Not known, so never right:\n")
    for name in models:
        print(f"- {name}: {' '.join(label for label in labels if label not in known[name]) or 'none'}")
    both = set.intersection(*known.values()) & set(labels)
    print()
    shares = ("right", f"right, {len(both)} known to all", "said and right", "said and wrong", "`und`")
    head("text, detector", *shares, "texts/s", "MB/s")
    for (kind, name), found in answers.items():
        row(f"{kind}, {name}", *found.cells(np.isin(found.truth.astype(str), sorted(both))))
    print()
    names = [f"{name}: {kind}" for kind, name in answers]
    head("confidence", *names)
    for low, high in pairwise(EDGES):
        chosen = [(found.confidence >= low) & (found.confidence < high) for found in answers.values()]
        cells = [found.right_of(some) for found, some in zip(answers.values(), chosen, strict=True)]
        row(f"{low:.1f} to {min(high, 1):.1f}", *cells)
    if given.per_language:
        print()
        head("language", *names)
        for label in labels:
            row(label, *(found.right_of(found.truth == label) for found in answers.values()))
    if given.corpus is not None:
        batches = read_batches(*shards_below(given.corpus))
        texts = pa.array([text for batch in batches for text in batch.texts.to_pylist()[::8]], pa.large_string())
        print()
        head("detector", "ms/MB", "us/document", "as by the whole text", "another language", "`und` by the whole text")
        for name, detector in detectors.items():
            row(name, *on_corpus(detector, texts))


if __name__ == "__main__":
    main()
