"""The toxicity screen beside its peers: ranking, calibration, speed; and how often clean text is taken for toxic.

    python benchmarks/toxicity.py --sets surge=surge.csv:text:is_toxic:Toxic ... [--words list.txt]
        [--peer-bytes 60000] [--clean 'docs=corpus/*.jsonl.zst' kernel=linux/kernel]

A set is NAME=FILE:TEXT COLUMN:LABEL COLUMN:LABEL OF TOXIC. Clean text is files of JSON lines with a field `text`, or a
folder whose every `.c`, `.h`, `.py`, `.rst`, `.txt` file is a document; it is screened where its language is English.
Peers are those that can be imported: alt-profanity-check (`profanity_check`), better_profanity; and a word list, one
word a line, as one regular expression. better_profanity sees `--peer-bytes` of a set, evenly chosen documents.
Prints Markdown: ROC AUC with a 95 % bootstrap interval, the best F1 of any threshold (chosen on the set itself), F1
where P >= 0.5, the expected calibration error over ten groups of equally many documents, the mean P, and speed.
"""

from __future__ import annotations

import csv
import glob
import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from backports import zstd
from common import buffers, has, head, megabytes, options, row
from scipy.stats import rankdata

from dataaudit.config import LanguageConfig
from dataaudit.scan.detectors import resolve_languages
from dataaudit.scan.detectors.base import LanguageBatch
from dataaudit.scan.detectors.language import load_detector
from dataaudit.scan.detectors.toxicity import ToxicityScreen, find_screen
from dataaudit.scan.kernels.words import split_words

ROUNDS = 1_000
SUFFIXES = (".c", ".h", ".py", ".rst", ".txt")
BATCH = 2_000
Scorer = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class Set:
    """Texts with labels."""

    name: str
    texts: list[str]
    labels: np.ndarray


def languages(count: int, codes: np.ndarray | None = None) -> LanguageBatch:
    """Return languages of documents: English unless they are given."""
    return LanguageBatch(
        names=("other", "en", "und"),
        codes=np.ones(count, dtype=np.int32) if codes is None else codes,
        confidence=np.ones(count, dtype=np.float32),
        sampled=np.zeros(count, dtype=bool),
        agreeing=np.zeros(count, dtype=bool),
    )


def ours(screen: ToxicityScreen, texts: list[str], codes: np.ndarray | None = None) -> np.ndarray:
    """Return P(toxic) of texts, English unless their language is given (1 is English, 0 another)."""
    values, offsets = buffers(texts)
    found = screen.score(values, offsets, split_words(values, offsets), languages(len(texts), codes))
    tie_break = found.raw / (1 + np.abs(found.raw).max(initial=0)) * 1e-9  # the table has steps, the score has not
    return np.where(found.screened, found.probability + tie_break, -1.0)


def peers(words: Path | None) -> dict[str, Scorer]:
    """Return what can be imported."""
    found: dict[str, Scorer] = {}
    if has("profanity_check", "alt-profanity-check"):
        from profanity_check import predict_prob

        found["alt-profanity-check"] = lambda texts: np.asarray(predict_prob(texts))
    if has("better_profanity", "better_profanity"):
        from better_profanity import profanity

        profanity.load_censor_words()
        found["better_profanity"] = lambda texts: np.array([float(profanity.contains_profanity(one)) for one in texts])
    if words is not None:
        listed = [re.escape(line) for line in words.read_text("utf-8").lower().split("\n") if line.strip()]
        pattern = re.compile(rf"\b(?:{'|'.join(sorted(listed, key=len, reverse=True))})\b")
        found["word list"] = lambda texts: np.array([float(pattern.search(one.lower()) is not None) for one in texts])
    return found


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return ROC AUC; ties count half."""
    ranks, toxic = rankdata(scores), labels == 1
    positive, negative = int(toxic.sum()), int((~toxic).sum())
    return float((ranks[toxic].sum() - positive * (positive + 1) / 2) / max(1, positive * negative))


def interval(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of ROC AUC."""
    rng = np.random.default_rng(0)
    rounds = ROUNDS if len(labels) < 10_000 else ROUNDS // 10
    found = [area(scores[rows], labels[rows]) for rows in rng.integers(0, len(labels), (rounds, len(labels)))]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def f1(chosen: np.ndarray, labels: np.ndarray) -> float:
    """Return the harmonic mean of precision and recall."""
    return float(2 * (chosen & (labels == 1)).sum() / max(1, chosen.sum() + labels.sum()))


def best_f1(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the best F1 of 200 thresholds."""
    return max(f1(scores >= least, labels) for least in np.unique(np.quantile(scores, np.linspace(0, 1, 200))))


def calibration_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean distance between P and the share that is toxic, over ten groups of documents."""
    groups = np.array_split(np.argsort(scores, kind="stable"), 10)
    gaps = [abs(float(scores[rows].mean()) - float(labels[rows].mean())) * len(rows) for rows in groups if len(rows)]
    return sum(gaps) / len(scores)


def read_set(described: str) -> Set:
    """Read NAME=FILE:TEXT:LABEL:TOXIC."""
    name, _, rest = described.partition("=")
    path, text, label, toxic = rest.rsplit(":", 3)
    csv.field_size_limit(1 << 24)
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.endswith(".tsv") else ","))
    return Set(name, [row[text] for row in rows], np.array([row[label] in toxic.split("|") for row in rows], dtype=int))


def read_clean(described: str, most: int) -> tuple[str, list[str]]:
    """Read NAME=PATTERN or NAME=FOLDER; evenly chosen documents, about ``most`` bytes of them."""
    name, _, place = described.partition("=")
    texts: list[str] = []
    if Path(place).is_dir():
        files = [path for path in sorted(Path(place).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
        texts = [path.read_bytes().decode("utf-8", "replace") for path in files]
    for path in sorted(glob.glob(place)) if not texts else ():
        opener = partial(zstd.open, mode="rt") if path.endswith(".zst") else open
        with opener(path, encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    step = max(1, sum(map(len, texts)) // most)
    return name, texts[::step]


def timed(scorer: Scorer, texts: list[str]) -> tuple[np.ndarray, float]:
    """Return scores, and KB a second of CPU time."""
    size, start = sum(len(text.encode("utf-8", "replace")) for text in texts), time.process_time()
    found = np.concatenate([scorer(texts[place : place + BATCH]) for place in range(0, len(texts), BATCH)])
    return found, size / 1000 / (time.process_time() - start)


def print_sets(sets: list[Set], scorers: dict[str, Scorer], peer_bytes: int) -> None:
    """Print the table of labelled sets."""
    head("set", "scorer", "documents", "toxic", "AUC", "95 %", "best F1", "F1 at 0.5", "ECE", "mean P", "KB/s")
    for one in sets:
        for name, scorer in scorers.items():
            texts, labels = one.texts, one.labels
            if name == "better_profanity":
                step = max(1, sum(map(len, texts)) // peer_bytes)
                texts, labels = texts[::step], labels[::step]
            scores, speed = timed(scorer, texts)
            low, high = interval(scores, labels)
            chance = np.clip(scores, 0, 1)
            shares = [
                f"{labels.mean():.3f}",
                f"{area(scores, labels):.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{best_f1(scores, labels):.2f}",
                f"{f1(scores >= 0.5, labels):.2f}",
                f"{calibration_error(chance, labels):.3f}",
                f"{chance.mean():.3f}",
            ]
            row(one.name, name, f"{len(texts):,}", *shares, f"{speed:,.0f}")


def print_clean(clean: list[tuple[str, list[str]]], screen: ToxicityScreen, scorers: dict[str, Scorer]) -> None:
    """Print the table of clean text."""
    with tempfile.TemporaryDirectory() as folder:
        models = resolve_languages(LanguageConfig(), base_dir=Path(), cache_dir=Path(folder))
        detector = load_detector(models.chosen)
    print()
    head("clean text", "scorer", "MB", "documents", "in English", "P >= 0.5", "P >= 0.1", "mean P", "MB/s")
    speeds = []
    for name, texts in clean:
        codes, _ = detector.detect(pa.array(texts, pa.large_string()))
        known = np.array([{"en": 1, "und": 2}.get(code, 0) for code in models.chosen.languages], dtype=np.int32)[codes]
        screened = ours(screen, texts, known) >= 0
        english = [text for text, chosen in zip(texts, screened.tolist(), strict=True) if chosen]
        for label, scorer in scorers.items():
            if label != "better_profanity":
                scores, speed = timed(scorer, english)
                sizes = f"{megabytes(english):.1f}", f"{len(texts):,}", f"{len(english):,}"
                shares = (f"{share:.4f}" for share in ((scores >= 0.5).mean(), (scores >= 0.1).mean(), scores.mean()))
                row(name, label, *sizes, *shares, f"{speed / 1000:.1f}")
        values, offsets = buffers(texts)
        times = [time.process_time()]
        words = split_words(values, offsets)
        times.append(time.process_time())
        screen.score(values, offsets, words, languages(len(texts)))
        times.append(time.process_time())
        split, score = ((after - before) / len(values) * 1e9 for before, after in pairwise(times))
        speeds.append(f"{name}: words {split:.1f} ms/MB, screen {score:.1f} ms/MB")
    print("", *speeds, sep="\n")


def main() -> None:
    """Parse, measure, print."""
    some = (str, [])
    given = options(__doc__, sets=some, clean=some, clean_bytes=20_000_000, words=(Path, None), peer_bytes=60_000)
    screen = ToxicityScreen(find_screen())
    ours(screen, ["warm"])
    scorers = {"screen": partial(ours, screen), **peers(given.words)}
    print(f"screen {screen.model.version}, {screen.model.sha256[:12]}\n")
    if given.sets:
        print_sets([read_set(one) for one in given.sets], scorers, given.peer_bytes)
    if given.clean:
        print_clean([read_clean(one, given.clean_bytes) for one in given.clean], screen, scorers)


if __name__ == "__main__":
    main()
