"""``filter_reject_rate``: how many documents each published quality rule would reject.

A rule compares a count, or a ratio of two counts, with bounds that are exact fractions; whole numbers are
cross-multiplied, so nothing is rounded at a threshold. A ratio with a denominator of 0 rejects nothing.
``dataaudit explain quality-rules`` defines every count and says in words what each rule rejects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import TOKENS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.filter_words import COUNTS
from dataaudit.scan.kernels.filters import count_for_filters, has_periodic_run
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

SHORT_LINE_CHARS = 30
"""FineWeb: a line of at most so many characters is short."""
MOST_PERIOD = 13
"""OLMo 2: longest period of a run, tokens."""
_EXACT = 10**6
"""Largest denominator of a threshold: products of counts and thresholds stay within 63 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a set."""

    name: str
    """``set.rule``."""
    parts: tuple[str, ...]
    """Counts that are compared; any of them rejects."""
    whole: str | None = None
    """Count that they are divided by."""
    low: Fraction | None = None
    """Rejects below it."""
    high: Fraction | None = None
    """Rejects above it."""
    at_bound: bool = False
    """Whether a value at the bound is rejected, too."""
    kept_lines: bool = False
    """Whether the rule drops lines (of C4): it rejects when that leaves too few sentences, and there were enough."""


def _rule(name: str, *parts: str, low: str | None = None, high: str | None = None, **more: Any) -> Rule:
    lower, upper = (None if bound is None else Fraction(bound) for bound in (low, high))
    return Rule(name=name, parts=parts, low=lower, high=upper, **more)


_TOP = {2: "0.20", 3: "0.18", 4: "0.16"}
_REPEATED = {5: "0.15", 6: "0.14", 7: "0.13", 8: "0.12", 9: "0.11", 10: "0.10"}

RULES: tuple[Rule, ...] = (
    # Rae et al. 2021, arXiv 2112.11446, appendix A.1.1, quality filtering
    _rule("gopher_quality.word_count", "plain_words", low="50", high="100000"),
    _rule("gopher_quality.mean_word_length", "plain_chars", whole="plain_words", low="3", high="10"),
    _rule("gopher_quality.symbol_ratio", "hashes", "ellipses", whole="words", high="0.1"),
    _rule("gopher_quality.bullet_lines", "bullet_lines", whole="lines", high="0.9"),
    _rule("gopher_quality.ellipsis_lines", "ellipsis_lines", whole="lines", high="0.3"),
    _rule("gopher_quality.alphabetic_words", "letter_words", whole="words", low="0.8"),
    _rule("gopher_quality.stop_words", "stop_words", low="2"),
    # the same appendix, table A1
    _rule("gopher_repetition.duplicate_lines", "duplicate_lines", whole="content_lines", high="0.30"),
    _rule("gopher_repetition.duplicate_paragraphs", "duplicate_paragraphs", whole="paragraphs", high="0.30"),
    _rule("gopher_repetition.duplicate_line_chars", "duplicate_line_chars", whole="chars", high="0.20"),
    _rule("gopher_repetition.duplicate_paragraph_chars", "duplicate_paragraph_chars", whole="chars", high="0.20"),
    *(
        _rule(f"gopher_repetition.{name}", name, whole="chars", high=limit)
        for kind, limits in (("top", _TOP), ("duplicate", _REPEATED))
        for name, limit in ((f"{kind}_{size}_gram_chars", limit) for size, limit in limits.items())
    ),
    # Raffel et al. 2020, arXiv 1910.10683, section 2.2; numbers of words and sentences as in its code, c4_utils.py of
    # tensorflow_datasets, which has the rule on long words alone
    _rule("c4.lorem_ipsum", "lorem_ipsum", high="0"),
    _rule("c4.curly_bracket", "curly_brackets", high="0"),
    _rule("c4.sentences", "sentences_left", low="3"),
    _rule("c4.terminal_punctuation", "sentences_terminal", kept_lines=True),
    _rule("c4.words_per_line", "sentences_long_enough", low="5", kept_lines=True),
    _rule("c4.long_words", "sentences_short_words", high="1000", kept_lines=True),
    _rule("c4.javascript", "sentences_no_javascript", kept_lines=True),
    _rule("c4.policy", "sentences_no_policy", kept_lines=True),
    # Penedo et al. 2024, arXiv 2406.17557, section 3.6
    _rule("fineweb.line_punctuation", "terminal_lines", whole="content_lines", low="0.12", at_bound=True),
    _rule("fineweb.duplicate_line_chars", "duplicate_line_chars", whole="text_chars", high="0.1", at_bound=True),
    _rule("fineweb.short_lines", "short_lines", whole="content_lines", high="0.67", at_bound=True),
    # FineWebQualityFilter of datatrove, with which FineWeb was made; not in the paper
    _rule("fineweb.new_lines", "breaks", whole="words", high="0.3"),
    # OLMo 2, arXiv 2501.00656, section on training stability; InstanceFilterConfig of OLMo-core
    _rule("repeated_ngrams.periodic_run", "periodic_run", high="32", at_bound=True),
)
"""Every rule, sets together."""

SETS = tuple(dict.fromkeys(rule.name.split(".")[0] for rule in RULES))
"""Names of the sets."""
BY_NAME = {rule.name: rule for rule in RULES}
Bounds = Mapping[str, tuple[float | None, float | None]]


def exact(value: float) -> Fraction:
    """Return the fraction that a decimal number is written as."""
    fraction = Fraction(repr(value))
    if not 0 <= fraction <= 10**9 or fraction.denominator > _EXACT:
        raise ValueError(f"expected a number from 0 to 10^9 with at most six decimals, found {value!r}")
    return fraction


def bounds_of(rule: Rule, overrides: Bounds) -> tuple[Fraction | None, Fraction | None]:
    """Return the bounds that are in force."""
    if rule.name not in overrides:
        return rule.low, rule.high
    low, high = overrides[rule.name]
    return (None if low is None else exact(low)), (None if high is None else exact(high))


def whole_bound(name: str, overrides: Bounds) -> int:
    """Return the only bound of a rule on whole numbers."""
    bound = next(value for value in bounds_of(BY_NAME[name], overrides) if value is not None)
    return bound.numerator


def rejected(rule: Rule, counts: Mapping[str, np.ndarray], overrides: Bounds) -> np.ndarray:
    """Return bool[n]: the documents that a rule rejects."""
    if rule.kept_lines:
        least = whole_bound("c4.sentences", overrides)
        return np.asarray((counts["sentences"] >= least) & (counts[rule.parts[0]] < least))
    low, high = bounds_of(rule, overrides)
    out = np.zeros(len(counts["chars"]), dtype=bool)
    for part in rule.parts:
        values = counts[part]
        whole = np.ones(len(values), dtype=np.int64) if rule.whole is None else counts[rule.whole]
        for bound, sign in ((low, -1), (high, 1)):
            if bound is not None:
                excess = sign * (values * bound.denominator - whole * bound.numerator)
                out |= (whole > 0) & ((excess > 0) | (rule.at_bound & (excess == 0)))
    return out


_SHAPES = {
    "filters": TableShape(keys={"source": pa.string(), "rule": pa.string()}, sums=("documents",)),
    "totals": TableShape(keys={"source": pa.string()}, sums=("documents",)),
}
_ANY = ""
"""Key of the documents that any rule of any set rejects."""
_COUNTED = ("c4.words_per_line", "c4.long_words", "c4.sentences", "repeated_ngrams.periodic_run")
"""Rules with a single bound, which is a whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(StageDefaults):
    """Counts, per source, the documents that each rule, any rule of a set, and any rule at all would reject.

    Nothing is removed. Each rule is judged alone, as if no other had run. The rules are for English prose: stop words
    are English, words are what white space and punctuation separate.
    """

    sets: tuple[str, ...] = SETS
    """Rule sets that are evaluated."""
    thresholds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Bounds by rule that replace the published ones: [low, high], null for none."""

    name: ClassVar[str] = "filters"
    version: ClassVar[str] = "2"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters."""
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
        masks: dict[str, np.ndarray] = {}
        for rule in rules:
            is_run = rule.name.startswith("repeated_ngrams")
            masks[rule.name] = self._runs(batch) if is_run else rejected(rule, counts, overrides)
        for chosen in sorted(self.sets):
            members = [masks[rule.name] for rule in rules if rule.name.startswith(f"{chosen}.")]
            masks[chosen] = np.logical_or.reduce(members)
        masks[_ANY] = np.logical_or.reduce([masks[chosen] for chosen in self.sets])
        return masks

    def _runs(self, batch: DocBatch) -> np.ndarray:
        times = whole_bound("repeated_ngrams.periodic_run", self.thresholds)
        ids = np.ascontiguousarray(batch.get(TOKENS).ids, dtype=np.uint32)
        return has_periodic_run(ids, batch.get(TOKENS).offsets, most_period=MOST_PERIOD, times=times)

    def shapes(self) -> Mapping[str, TableShape]:
        """Rejected documents by source and rule, and all documents by source."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the rejected documents of a batch."""
        masks, names = self.rejections(batch), batch.source_names
        codes, size = batch.source_codes, len(names)
        table = {
            "source": [source for _ in masks for source in names],
            "rule": [rule for rule in masks for _ in names],
            "documents": np.concatenate([np.bincount(codes[mask], minlength=size) for mask in masks.values()]),
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
