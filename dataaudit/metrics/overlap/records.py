"""Records of what was looked for in all training data: of held-out splits and of evaluation sets."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit.manifest.metric import Metric

NO_TRAINING = "there are no training documents"
NEARLY_ALL = 0.9
"""Share of documents without a word from which on nothing is looked for in a part: 0 of it is no good news."""


def why_absent(records: Sequence[Metric | None], empty: str) -> str:
    """Return why a rate has no value, in words; ``empty`` says what a denominator of 0 means."""
    words = {"no_training_documents": NO_TRAINING, "empty_denominator": empty}
    reasons = sorted({record.reason for record in records if record is not None and record.reason})
    return "; ".join(words.get(reason, reason) for reason in reasons)


Key = tuple[str, str, str, str]


def by_scope(records: Sequence[Metric]) -> dict[Key, Metric]:
    """Return the records that speak of all training data, by (stat, set, entity, rule)."""
    return {
        (record.stat, record.scope.set or "", record.scope.entity or "", record.scope.rule or ""): record
        for record in records
        if record.scope.split is None and record.scope.source is None
    }


def value_of(found: dict[Key, Metric], key: Key) -> float | None:
    """Return the value of a record, None without one."""
    record = found.get(key)
    return None if record is None else record.value


def number_of(found: dict[Key, Metric], key: Key) -> int:
    """Return the value of a record as a count, 0 without one."""
    return int(value_of(found, key) or 0)
