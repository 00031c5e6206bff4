"""Parts of a corpus whose texts hold no words: nothing can be found in them, and a rate of 0 is no good news."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import Statistic
from dataaudit.metrics.overlap.records import NEARLY_ALL
from dataaudit.metrics.registry import METRICS
from dataaudit.text import plural

NO_WORDS = "no_words"
"""Reason of a case that would hold because nothing could be found."""
_MANY = 0.5
"""Share of documents without a word from which on a part is remarked on."""
Wordless = Mapping[Scope, tuple[int, int]]
"""By split, source, or both: documents without a word, of so many."""


def wordless_parts(manifest: Manifest) -> Wordless:
    """Return the parts of a manifest that have documents without a word, as far as a stage has counted them.

    Raises:
        ManifestError: A table is absent or damaged.
    """
    records = [
        *((record.scope, record) for record in manifest.metrics("near_dup_rate", "no_words")),
        *((Scope(split=record.scope.set), record) for record in manifest.metrics("train_val_overlap", "no_words")),
    ]
    return {scope: (int(record.value), record.n) for scope, record in records if record.value}


def cannot_be_found(stat: Statistic, scope: Scope, held_out: Mapping[str, bool], wordless: Wordless) -> bool:
    """Return whether nine of ten documents and more, in all that a number speaks of, hold no word.

    Args:
        stat: The statistic.
        scope: Of the number.
        held_out: Of every split: whether it is held out.
        wordless: Of the manifest.
    """
    if not (wordless and METRICS[stat.metric].in_words):
        return False
    trained = [name for name in held_out if not held_out[name]]
    if METRICS[stat.metric].sets and _are_empty(trained, wordless):
        return True  # what is looked for can stand nowhere
    if scope.source is not None and scope.set is None:
        return _is_empty(Scope(split=scope.split, source=scope.source), wordless)
    named = scope.split or scope.set
    population = {"all": held_out.keys(), "training": trained, "held_out": held_out.keys() - trained}[stat.population]
    return _are_empty([named] if named in held_out else population, wordless)


def _are_empty(splits: Collection[str | None], wordless: Wordless) -> bool:
    return bool(splits) and all(_is_empty(Scope(split=name), wordless) for name in splits)


def _is_empty(scope: Scope, wordless: Wordless) -> bool:
    without, of = wordless.get(scope, (0, 1))
    return without >= NEARLY_ALL * of


def wordless_remarks(wordless: Wordless) -> Iterator[str]:
    """Say which splits have many documents without a word."""
    for scope, (without, of) in sorted(wordless.items(), key=lambda item: item[0].split or ""):
        if scope.as_dict().keys() == {"split"} and without >= _MANY * of:
            some = f"{without:,} of {plural(of, 'document')} of the split {scope.split}"
            yield f"No word is in {some}: look whether these are its texts; nothing can be found in them."
