"""The quality rules beside datatrove's filters, rule by rule, on the same documents: agreement, rates, speed.

    pip install --group peers
    python benchmarks/filters.py FOLDER [--documents 10000] [--whole]

FOLDER holds shards with a column `text`; documents are taken evenly from all of it. Each of datatrove's rules runs
alone, the others switched off, since a filter names only the first rule that fails. Its thresholds are set to those
of the papers where its defaults differ (C4: 3 sentences and 5 words instead of 5 and 3; FineWeb: 0.1 of characters in
repeated lines instead of 0.01). C4's filter gets documents without blank lines, which it counts as sentences when its
rules run alone. Words and the sentences of a line are computed once and kept, so that all rules can be looked at; the
time of datatrove is that of its four filters with these words at hand, plus cutting the words once. `--whole`: whole
filters, as somebody runs them, against datatrove's defaults; its settings are then brought to ours one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import head, megabytes, need, options, read_texts, row

from dataaudit.metrics.quality.stage import Filters
from dataaudit.scan.corpus.batch import DocBatch

SETS = ("gopher_quality", "gopher_repetition", "c4", "fineweb")
_TOP = ((2, 0.20), (3, 0.18), (4, 0.16))
_REPEATED = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


class Peer:
    """datatrove's filters, each rule alone."""

    def __init__(self) -> None:
        from datatrove.pipeline.filters import (
            c4_filters,
            fineweb_quality_filter,
            gopher_quality_filter,
            gopher_repetition_filter,
        )
        from datatrove.utils import text

        self._split, self._sentences = text.split_into_words, text.split_into_sentences
        self._words: list[str] = []
        self._known: dict[str, int] = {}
        for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
            module.split_into_words = lambda _text, _language=None: self._words
        c4_filters.split_into_sentences = self._line_sentences
        self.rules = {
            **_quality(gopher_quality_filter.GopherQualityFilter),
            **_repetition(gopher_repetition_filter.GopherRepetitionFilter),
            **_c4(c4_filters.C4QualityFilter),
            **_fineweb(fineweb_quality_filter.FineWebQualityFilter),
        }

    def _line_sentences(self, line: str, language: str) -> range:
        if line not in self._known:
            self._known[line] = len(self._sentences(line, language))
        return range(self._known[line])

    def cut(self, text: str) -> None:
        """Cut a document into words, for all rules that follow."""
        self._words = self._split(text)

    def rejects(self, rule: str, text: str) -> bool:
        """Ask one rule; a document without words makes some of datatrove's divide by zero, and counts as passed."""
        from datatrove.data import Document

        try:
            return self.rules[rule].filter(Document(text=text, id="")) is not True
        except ZeroDivisionError:
            return False


def _alone(kind: Callable[..., Any], off: dict[str, Any]) -> Callable[..., Any]:
    return lambda **on: kind(**{**off, **on})


def _quality(kind: Callable[..., Any]) -> dict[str, Any]:
    names = (
        "min_doc_words",
        "max_doc_words",
        "min_avg_word_length",
        "max_avg_word_length",
        "max_symbol_word_ratio",
        "max_bullet_lines_ratio",
        "max_ellipsis_lines_ratio",
        "max_non_alpha_words_ratio",
        "min_stop_words",
    )
    make = _alone(kind, dict.fromkeys(names))
    rules = {
        "word_count": make(min_doc_words=50, max_doc_words=100_000),
        "mean_word_length": make(min_avg_word_length=3, max_avg_word_length=10),
        "symbol_ratio": make(max_symbol_word_ratio=0.1),
        "bullet_lines": make(max_bullet_lines_ratio=0.9),
        "ellipsis_lines": make(max_ellipsis_lines_ratio=0.3),
        "alphabetic_words": make(max_non_alpha_words_ratio=0.8),
        "stop_words": make(min_stop_words=2),
    }
    return {f"gopher_quality.{name}": rule for name, rule in rules.items()}


def _repetition(kind: Callable[..., Any]) -> dict[str, Any]:
    off: dict[str, Any] = dict.fromkeys(("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac"))
    make = _alone(kind, {**off, "top_n_grams": (), "dup_n_grams": ()})
    rules = {
        "duplicate_lines": make(dup_line_frac=0.3),
        "duplicate_paragraphs": make(dup_para_frac=0.3),
        "duplicate_line_chars": make(dup_line_char_frac=0.2),
        "duplicate_paragraph_chars": make(dup_para_char_frac=0.2),
        **{f"top_{size}_gram_chars": make(top_n_grams=((size, limit),)) for size, limit in _TOP},
        **{f"duplicate_{size}_gram_chars": make(dup_n_grams=((size, limit),)) for size, limit in _REPEATED},
    }
    return {f"gopher_repetition.{name}": rule for name, rule in rules.items()}


def _c4(kind: Callable[..., Any]) -> dict[str, Any]:
    off = {
        "filter_no_terminal_punct": False,
        "min_num_sentences": -1,
        "min_words_per_line": -1,
        "max_word_length": -1,
        "filter_lorem_ipsum": False,
        "filter_javascript": False,
        "filter_curly_bracket": False,
        "filter_policy": False,
    }
    make, sentences = _alone(kind, off), _alone(kind, {**off, "min_num_sentences": 3})
    whole = kind(min_num_sentences=3, min_words_per_line=5, filter_lorem_ipsum=False, filter_curly_bracket=False)
    rules = {
        "lorem_ipsum": make(filter_lorem_ipsum=True),
        "curly_bracket": make(filter_curly_bracket=True),
        "sentences": whole,
        "none": sentences(),
        "terminal_punctuation": sentences(filter_no_terminal_punct=True),
        "words_per_line": sentences(min_words_per_line=5),
        "long_words": sentences(max_word_length=1000),
        "javascript": sentences(filter_javascript=True),
        "policy": sentences(filter_policy=True),
    }
    return {f"c4.{name}": rule for name, rule in rules.items()}


def _fineweb(kind: Callable[..., Any]) -> dict[str, Any]:
    off = {"line_punct_thr": 0, "short_line_thr": 9, "char_duplicates_ratio": 9, "new_line_ratio": 1e9}
    make = _alone(kind, off)
    rules = {
        "line_punctuation": make(line_punct_thr=0.12),
        "duplicate_line_chars": make(char_duplicates_ratio=0.1),
        "short_lines": make(short_line_thr=0.67),
        "new_lines": make(new_line_ratio=0.3),
    }
    return {f"fineweb.{name}": rule for name, rule in rules.items()}


def peer_verdicts(texts: list[str]) -> tuple[dict[str, np.ndarray], float]:
    """Return bool[n] by rule, and the CPU seconds of one pass of all rules."""
    peer = Peer()
    peer.cut("Load the tokenizer.")
    found = {rule: np.zeros(len(texts), dtype=bool) for rule in peer.rules}
    begun = time.process_time()
    for place, text in enumerate(texts):
        peer.cut(text)
        dense = "\n".join(line for line in text.splitlines() if line.strip())
        for rule, verdicts in found.items():
            verdicts[place] = peer.rejects(rule, dense if rule.startswith("c4.") else text)
    seconds = time.process_time() - begun
    short = found.pop("c4.none")
    for name in ("terminal_punctuation", "words_per_line", "long_words", "javascript", "policy"):
        found[f"c4.{name}"] &= ~short
    return found, seconds


def our_verdicts(texts: list[str]) -> tuple[dict[str, np.ndarray], float]:
    """Return bool[n] by rule, and the CPU seconds of the first pass."""
    stage = Filters(sets=SETS)
    stage.rejections(_batch(texts[:1]))
    parts, seconds = [], 0.0
    for start in range(0, len(texts), 500):
        batch = _batch(texts[start : start + 500])
        begun = time.process_time()
        parts.append(stage.rejections(batch))
        seconds += time.process_time() - begun
    return {rule: np.concatenate([part[rule] for part in parts]) for rule in parts[0]}, seconds


def _batch(texts: list[str]) -> DocBatch:
    return DocBatch(
        texts=pa.array(texts, pa.large_string()),
        rows=np.arange(len(texts)),
        source_codes=np.zeros(len(texts), dtype=np.int32),
        source_names=("all",),
    )


def agreement_table(texts: list[str]) -> tuple[list[tuple[str, float, float, float]], float, float]:
    """Return (rule, agreement, our rate, datatrove's rate) of every rule, and both CPU times."""
    theirs, their_seconds = peer_verdicts(texts)
    ours, our_seconds = our_verdicts(texts)
    rows = [
        (rule, float((ours[rule] == verdicts).mean()), float(ours[rule].mean()), float(verdicts.mean()))
        for rule, verdicts in theirs.items()
    ]
    return rows, our_seconds, their_seconds


WHOLE: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "gopher_quality": (),
    "gopher_repetition": (),
    "c4": (
        ("3 sentences instead of 5", {"min_num_sentences": 3}),
        ("5 words a line instead of 3", {"min_words_per_line": 5}),
        ("`{` and lorem ipsum anywhere", {"filter_lorem_ipsum": False, "filter_curly_bracket": False}),
    ),
    "fineweb": (("0.1 of characters in repeated lines instead of 0.01", {"char_duplicates_ratio": 0.1}),),
}
"""By filter: what is done otherwise, and the settings that make datatrove do it so, one after another."""


def whole_table(texts: list[str]) -> list[tuple[str, str, float, float, float]]:
    """Return (filter, settings, agreement, our rate, datatrove's rate), first with all of its defaults."""
    from datatrove.data import Document
    from datatrove.pipeline import filters as theirs

    peer = Peer()
    kinds = {
        "gopher_quality": theirs.GopherQualityFilter,
        "gopher_repetition": theirs.GopherRepetitionFilter,
        "c4": theirs.C4QualityFilter,
        "fineweb": theirs.FineWebQualityFilter,
    }
    made: list[tuple[str, str, Any]] = []
    for name, steps in WHOLE.items():
        given: dict[str, Any] = {}
        made.append((name, "datatrove's defaults", kinds[name]()))
        for label, settings in steps:
            given |= settings
            made.append((name, f"and {label}", kinds[name](**given)))
    verdicts = np.zeros((len(made), len(texts)), dtype=bool)
    for place, text in enumerate(texts):
        peer.cut(text)
        page = "{" in text or "lorem ipsum" in text.lower()
        for number, (name, label, one) in enumerate(made):
            try:
                verdicts[number, place] = one.filter(Document(text=text, id="")) is not True
            except ZeroDivisionError:  # a document without words
                verdicts[number, place] = False
            if name == "c4" and "anywhere" in label:
                verdicts[number, place] |= page
    ours, _ = our_verdicts(texts)
    whole = {
        name: np.any([held for rule, held in ours.items() if rule.startswith(f"{name}.")], axis=0) for name in SETS
    }
    return [
        (name, label, float((whole[name] == found).mean()), float(whole[name].mean()), float(found.mean()))
        for (name, label, _), found in zip(made, verdicts, strict=True)
    ]


def main() -> None:
    """Print the table."""
    given = options(__doc__, folder=Path, documents=10_000, whole=False)
    need("datatrove")
    need("spacy")
    texts = read_texts(given.folder, given.documents)
    size = megabytes(texts)
    print(f"{len(texts):,} documents, {size:,.1f} MB")
    if given.whole:
        head("filter, datatrove with", "agreement", "dataaudit rejects", "datatrove rejects")
        for name, label, *shares in whole_table(texts):
            row(f"`{name}`, {label}", *(f"{share:.2%}" for share in shares))
        return
    rows, ours, theirs = agreement_table(texts)
    head("rule", "agreement", "dataaudit rejects", "datatrove rejects")
    for rule, *shares in rows:
        row(f"`{rule}`", *(f"{share:.2%}" for share in shares))
    ms_each = f"{ours * 1000 / size:.2f} against {theirs * 1000 / size:,.0f} ms a MB"
    print(f"\nCPU: {ms_each}, {theirs / ours:,.0f} times less")


if __name__ == "__main__":
    main()
