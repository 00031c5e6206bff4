"""The language detectors on labelled text: accuracy, what they leave undetermined, confidence, speed.

    python benchmarks/language.py FOLDER [--unseen] [--model lid.176.bin] [--corpus SHARDS] [--per-language]

FOLDER holds a file a language, `de.txt`, one sentence a line. Sets are drawn from it with a fixed seed: a few words of
a sentence, single sentences, three sentences joined, and documents of at least 1 KB. `--unseen` keeps to the half of
the sentences that the weights of `combined` were not fitted on. A table shows where `combined` and CLD2 alone are less
often right than lid.176.ftz on the same texts, with the 95 % interval of the difference. `--corpus` measures the CPU
time a MB of text on shards with a column `text`, and how often the windows that are looked at give another answer than
the whole text.
Prints Markdown.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import head, options, read_batches, row, shards_below

from dataaudit.config import LanguageConfig
from dataaudit.scan.detectors import base, language_detectors, resolve_languages
from dataaudit.scan.detectors.base import DetectorModel, LanguageDetector
from dataaudit.scan.detectors.language import load_detector

LABELS = {"nb": "no"}
"""File names whose language both detectors know by another code."""
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
KINDS = {
    "1 to 3 words": 500,
    "4 to 8 words": 500,
    "9 to 20 words": 500,
    "sentence": 500,
    "3 sentences": 100,
    "1 KB": 40,
}
"""Texts of a language at most, by kind."""
LARGE = "en de fr es it pt nl pl ru uk cs sv da no fi hu ro bg el tr ar fa he hi ja zh ko vi id mk"
"""Languages of most pages of the web that every detector knows, and Macedonian."""
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


def read_lines(path: Path, *, unseen: bool) -> list[str]:
    """Return the sentences of a language; the half of them that the weights were not fitted on, if so asked."""
    lines = list(dict.fromkeys(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()))
    random.Random(f"7{path.stem}").shuffle(lines)
    return lines[1::2] if unseen else lines


def cut(rng: random.Random, line: str, low: int, high: int) -> str:
    """Return some words of a sentence that follow each other; in Chinese, Japanese and Thai some characters."""
    parts = re.findall(
        r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]|[^\s\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]+\s*", line
    )
    number = rng.randint(low, max(low, min(high, len(parts))))
    start = rng.randrange(max(1, len(parts) - number + 1))
    return "".join(parts[start : start + number]).strip() if len(parts) >= low else ""


def draw(folder: Path, kind: str, each: int, *, unseen: bool = False, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return (labels, texts) of one of the sets ``KINDS``."""
    rng = random.Random(seed)
    labels, texts = [], []
    for path in sorted(folder.glob("*.txt")):
        lines = read_lines(path, unseen=unseen)
        for line in rng.sample(lines, min(each, len(lines))):
            text = " ".join(rng.sample(lines, 3)) if kind in {"3 sentences", "1 KB"} else line
            if kind.endswith("words"):
                text = cut(rng, line, *(int(word) for word in kind.split() if word.isdigit()))
            while kind == "1 KB" and len(text.encode()) < 1024:
                text += " " + rng.choice(lines)
            if text:
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


def behind(found: Answers, bar: Answers) -> Iterator[tuple[str, float, float, float]]:
    """Yield (language, difference, low, high) for each that is less often right than the bar on the same texts."""
    for label in sorted(set(found.truth)):
        these = found.truth == label
        pairs = (found.guess[these] == label) * 1.0 - (bar.guess[these] == label)
        half = 1.96 * pairs.std() / len(pairs) ** 0.5
        if pairs.mean() < 0:
            yield str(label), pairs.mean(), pairs.mean() - half, pairs.mean() + half


def print_behind(answers: dict[tuple[str, str], Answers]) -> None:
    """Print where the default and CLD2 alone are less often right than lid.176.ftz, beyond the interval."""
    print()
    head("text, detector", "behind fasttext, of the large languages", "of others")
    for kind in KINDS:
        for name in (language_detectors.COMBINED, language_detectors.CLD2):
            less = [
                (label in LARGE.split(), f"{label} {difference:.3f} ({low:.3f} to {high:.3f})")
                for label, difference, low, high in behind(
                    answers[kind, name], answers[kind, language_detectors.LID176]
                )
                if high < 0
            ]
            cells = ("; ".join(cell for large, cell in less if large is wanted) for wanted in (True, False))
            row(f"{kind}, {name}", *(cell or "none" for cell in cells))


def on_corpus(detector: LanguageDetector, texts: pa.LargeStringArray) -> list[str]:
    """Return CPU time a MB, and how the answer by windows compares with that by the whole text."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        codes, confidence = detector.detect(texts)
        times.append(time.process_time() - begun)
    sizes = np.diff(np.frombuffer(texts.buffers()[1], dtype=np.int64, count=len(texts) + 1))
    everything = base.Windows(first=(2, 1 << 18), second=(2, 1 << 18), sure=0.0)
    whole, sure = base.identify(texts, everything, detector.classify)
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
    given = options(__doc__, folder=Path, unseen=False, model=(Path, None), corpus=(Path, None), per_language=False)
    with tempfile.TemporaryDirectory() as cache:
        found = resolve_languages(LanguageConfig(), base_dir=Path(), cache_dir=Path(cache))
        models: dict[str, DetectorModel] = {model.name: model for model in found.named}
        assert list(models) == [language_detectors.COMBINED, language_detectors.LID176, language_detectors.CLD2]
        if given.model is not None:
            models[f"fasttext, {given.model.name}"] = language_detectors.find_lid176(given.model, cache_dir=Path(cache))
        detectors = {name: load_detector(model) for name, model in models.items()}
    sets = {kind: draw(given.folder, kind, each, unseen=given.unseen) for kind, each in KINDS.items()}
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
    print_behind(answers)
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
