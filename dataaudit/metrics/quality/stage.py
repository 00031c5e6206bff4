"""``filter_reject_rate``: how many documents each published quality rule would reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.annotators.tokens import TOKENS
from dataaudit.config import nearest
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.texts import text_buffers
from dataaudit.kernels.filter_tables import COUNTS
from dataaudit.kernels.filters import count_for_filters, has_periodic_run
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.quality.rules import (
    BY_NAME,
    MOST_PERIOD,
    RULES,
    SETS,
    SHORT_LINE_CHARS,
    Rule,
    bounds_of,
    rejected,
    whole_bound,
)
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.groups import Groups
from dataaudit.stages.partial import Partial, TableShape, group

_SHAPES = {
    "filters": TableShape(keys={"source": pa.string(), "rule": pa.string()}, sums=("documents",)),
    "totals": TableShape(keys={"source": pa.string()}, sums=("documents",)),
}
_ANY = ""
"""Key of the documents that any rule of any set rejects."""
_COUNTED = ("c4.words_per_line", "c4.long_words", "c4.sentences", "repeated_ngrams.periodic_run")
"""Rules whose bound is a whole number, and only one of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(StageDefaults):
    """Counts, per source, the documents that each rule, any rule of a set, and any rule at all would reject.

    Nothing is removed. Each rule is judged alone, as if no other had run. The rules are for English prose: stop words
    are English, words are what white space and punctuation separate.
    """

    sets: tuple[str, ...] = SETS
    """Rule sets that are looked at."""
    thresholds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Bounds by rule that replace the published ones: [low, high], null for none."""

    name: ClassVar[str] = "filters"
    version: ClassVar[str] = "2"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            ValueError: A set, a rule or a bound that does not exist.
        """
        for chosen in self.sets:
            if chosen not in SETS:
                raise ValueError(f"sets: unknown set {chosen!r}{nearest(chosen, list(SETS))}")
        if not self.sets or len(set(self.sets)) < len(self.sets):
            raise ValueError("sets: expected each set at most once, and one at least")
        for name in self.thresholds:
            if name not in BY_NAME:
                raise ValueError(f"thresholds: unknown rule {name!r}{nearest(name, list(BY_NAME))}")
            self._check_bounds(BY_NAME[name])

    def _check_bounds(self, rule: Rule) -> None:
        low, high = bounds_of(rule, self.thresholds)
        given = [rule.low is not None or low is None, rule.high is not None or high is None]
        if not all(given) or (low is None and high is None):
            raise ValueError(f"thresholds: {rule.name} has {_kinds(rule)}")
        if rule.name in _COUNTED and any(bound is not None and bound.denominator > 1 for bound in (low, high)):
            raise ValueError(f"thresholds: {rule.name} counts whole things, found {self.thresholds[rule.name]}")
        if rule.name.startswith("repeated_ngrams") and (high or 0) < 2:
            raise ValueError(f"thresholds: {rule.name} needs at least 2 repetitions")
        if low is not None and high is not None and low > high:
            raise ValueError(f"thresholds: {rule.name}: the lower bound is above the upper one")

    def rules(self) -> list[Rule]:
        """Return the rules of the chosen sets, in their order."""
        return [rule for rule in RULES if rule.name.split(".")[0] in self.sets]

    def rejections(self, batch: DocBatch) -> dict[str, np.ndarray]:
        """Return bool[n] by rule, by set, and of any rule (the empty name)."""
        rules, overrides = self.rules(), self.thresholds
        offsets, data = text_buffers(batch.texts)
        rows = count_for_filters(
            data,
            offsets,
            short_line_chars=SHORT_LINE_CHARS,
            least_words=whole_bound("c4.words_per_line", overrides),
            most_word_chars=whole_bound("c4.long_words", overrides),
        )
        counts = {name: rows[:, index] for index, name in enumerate(COUNTS)}
        counts["text_chars"] = counts["chars"] - counts["break_chars"]
        found: dict[str, np.ndarray] = {}
        for rule in rules:
            if rule.name.startswith("repeated_ngrams"):
                found[rule.name] = self._runs(batch)
            else:
                found[rule.name] = rejected(rule, counts, overrides)
        for chosen in sorted(self.sets):
            members = [found[rule.name] for rule in rules if rule.name.startswith(f"{chosen}.")]
            found[chosen] = np.logical_or.reduce(members)
        found[_ANY] = np.logical_or.reduce([found[chosen] for chosen in self.sets])
        return found

    def _runs(self, batch: DocBatch) -> np.ndarray:
        times = whole_bound("repeated_ngrams.periodic_run", self.thresholds)
        ids = np.ascontiguousarray(batch.get(TOKENS).ids, dtype=np.uint32)
        return has_periodic_run(ids, batch.get(TOKENS).offsets, most_period=MOST_PERIOD, times=times)

    def shapes(self) -> Mapping[str, TableShape]:
        """Rejected documents by source and rule, and all documents by source."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Judge one batch."""
        found, names = self.rejections(batch), batch.source_names
        codes, size = batch.source_codes, len(names)
        table = {
            "source": [source for _ in found for source in names],
            "rule": [rule for rule in found for _ in names],
            "documents": np.concatenate([np.bincount(codes[mask], minlength=size) for mask in found.values()]),
        }
        documents = np.bincount(codes, minlength=size)
        totals = {"source": list(names), "documents": documents}
        return {
            "filters": group(_SHAPES["filters"], pa.table(table, schema=_SHAPES["filters"].schema())),
            "totals": group(_SHAPES["totals"], pa.table(totals, schema=_SHAPES["totals"].schema())),
        }

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rates of the scope and of each source: every rule, every set, any rule."""
        groups = Groups.of(partial["totals"], context.scope, self.version)
        documents = groups.sums(partial["totals"], "documents")
        rules = partial["filters"]["rule"].combine_chunks()
        metrics = []
        for name in (_ANY, *sorted(self.sets), *(rule.name for rule in self.rules())):
            rejected = groups.sums(partial["filters"].filter(pc.equal(rules, name)), "documents")
            metrics.append(groups.among(rule=name or None).ratios("filter_reject_rate", "rate", rejected, documents))
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, object]:
        """Fill filter_reject_rate, of any rule, and filters: the documents that each rule and each set rejects."""
        documents = sum(partial["totals"]["documents"].to_pylist())
        rules = self.rules()
        counts: dict[str, int] = {rule.name: 0 for rule in rules} | dict.fromkeys(self.sets, 0) | {_ANY: 0}
        for row in partial["filters"].to_pylist():
            if row["rule"] in counts:
                counts[row["rule"]] += row["documents"]
        rejecting = counts.pop(_ANY)
        return {
            "filter_reject_rate": rejecting / documents if documents else None,
            "filters": [{"rule": rule, "documents": counts[rule]} for rule in sorted(counts)],
        }


def _kinds(rule: Rule) -> str:
    kinds = [kind for kind, bound in (("a lower", rule.low), ("an upper", rule.high)) if bound is not None]
    return f"{' and '.join(kinds)} bound, as [low, high]" if kinds else "no bound of its own"
