"""``filter_reject_rate``: how many documents each published quality rule would reject.

The published quality rules: names, thresholds, sources, and how counts decide.

A rule compares a count, or a ratio of two counts, with bounds that are exact fractions; whole numbers are
cross-multiplied, so nothing is rounded at a threshold. A ratio with a denominator of 0 rejects nothing.
``dataaudit explain quality-rules`` defines every count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.config import nearest
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import TOKENS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.texts import text_buffers
from dataaudit.scan.kernels.filter_words import COUNTS
from dataaudit.scan.kernels.filters import count_for_filters, has_periodic_run
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

_GOPHER = "Rae et al. 2021, arXiv 2112.11446, appendix A.1.1, quality filtering"
_TABLE = "Rae et al. 2021, arXiv 2112.11446, appendix A.1.1, table A1"
_C4 = "Raffel et al. 2020, arXiv 1910.10683, section 2.2"
_C4_CODE = f"{_C4}; threshold of its code (c4_utils.py of tensorflow_datasets)"
_FINEWEB = "Penedo et al. 2024, arXiv 2406.17557, section 3.6"
_FINEWEB_CODE = "FineWebQualityFilter of datatrove, with which FineWeb was made; not in the paper"
_OLMO = "OLMo 2, arXiv 2501.00656, section on training stability (repeated n-grams); InstanceFilterConfig of OLMo-core"

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
    """Whether a value at the bound is rejected too."""
    kept_lines: bool = False
    """Whether the rule drops lines (of C4): it rejects when that leaves too few sentences, and there were enough."""
    about: str
    """What is rejected, in words."""
    source: str
    """Paper and section."""


def _ratio(name: str, part: str, whole: str, high: str, about: str, source: str, *, at_bound: bool = False) -> Rule:
    return Rule(
        name=name, parts=(part,), whole=whole, high=Fraction(high), at_bound=at_bound, about=about, source=source
    )


def _line_rule(
    name: str, part: str, about: str, source: str, *, low: Fraction | None = None, high: Fraction | None = None
) -> Rule:
    return Rule(name=f"c4.{name}", parts=(part,), kept_lines=True, low=low, high=high, about=about, source=source)


_TOP = {2: "0.20", 3: "0.18", 4: "0.16"}
_REPEATED = {5: "0.15", 6: "0.14", 7: "0.13", 8: "0.12", 9: "0.11", 10: "0.10"}

RULES: tuple[Rule, ...] = (
    Rule(
        name="gopher_quality.word_count",
        parts=("plain_words",),
        low=Fraction(50),
        high=Fraction(100_000),
        about="fewer than 50 or more than 100,000 words, marks not counted",
        source=_GOPHER,
    ),
    Rule(
        name="gopher_quality.mean_word_length",
        parts=("plain_chars",),
        whole="plain_words",
        low=Fraction(3),
        high=Fraction(10),
        about="mean length of a word below 3 or above 10 characters",
        source=_GOPHER,
    ),
    Rule(
        name="gopher_quality.symbol_ratio",
        parts=("hashes", "ellipses"),
        whole="words",
        high=Fraction("0.1"),
        about="more than 0.1 hash signs, or more than 0.1 ellipses, a word",
        source=_GOPHER,
    ),
    _ratio(
        "gopher_quality.bullet_lines",
        "bullet_lines",
        "lines",
        "0.9",
        "more than 90 % of lines begin with a bullet",
        _GOPHER,
    ),
    _ratio(
        "gopher_quality.ellipsis_lines",
        "ellipsis_lines",
        "lines",
        "0.3",
        "more than 30 % of lines end with an ellipsis",
        _GOPHER,
    ),
    Rule(
        name="gopher_quality.alphabetic_words",
        parts=("letter_words",),
        whole="words",
        low=Fraction("0.8"),
        about="fewer than 80 % of words have a letter",
        source=_GOPHER,
    ),
    Rule(
        name="gopher_quality.stop_words",
        parts=("stop_words",),
        low=Fraction(2),
        about="fewer than two of the, be, to, of, and, that, have, with",
        source=_GOPHER,
    ),
    _ratio(
        "gopher_repetition.duplicate_lines",
        "duplicate_lines",
        "content_lines",
        "0.30",
        "more than 30 % of lines are a repetition",
        _TABLE,
    ),
    _ratio(
        "gopher_repetition.duplicate_paragraphs",
        "duplicate_paragraphs",
        "paragraphs",
        "0.30",
        "more than 30 % of paragraphs are a repetition",
        _TABLE,
    ),
    _ratio(
        "gopher_repetition.duplicate_line_chars",
        "duplicate_line_chars",
        "chars",
        "0.20",
        "more than 20 % of characters are in repeated lines",
        _TABLE,
    ),
    _ratio(
        "gopher_repetition.duplicate_paragraph_chars",
        "duplicate_paragraph_chars",
        "chars",
        "0.20",
        "more than 20 % of characters are in repeated paragraphs",
        _TABLE,
    ),
    *(
        _ratio(
            f"gopher_repetition.top_{size}_gram_chars",
            f"top_{size}_gram_chars",
            "chars",
            limit,
            f"more than {Fraction(limit) * 100} % of characters are in the most frequent {size}-gram",
            _TABLE,
        )
        for size, limit in _TOP.items()
    ),
    *(
        _ratio(
            f"gopher_repetition.duplicate_{size}_gram_chars",
            f"duplicate_{size}_gram_chars",
            "chars",
            limit,
            f"more than {Fraction(limit) * 100} % of characters are in repeated {size}-grams",
            _TABLE,
        )
        for size, limit in _REPEATED.items()
    ),
    Rule(name="c4.lorem_ipsum", parts=("lorem_ipsum",), high=Fraction(0), about="holds 'lorem ipsum'", source=_C4),
    Rule(name="c4.curly_bracket", parts=("curly_brackets",), high=Fraction(0), about="holds '{'", source=_C4),
    Rule(
        name="c4.sentences",
        parts=("sentences_left",),
        low=Fraction(3),
        about="fewer than 3 sentences are left in the lines that all rules on lines keep",
        source=_C4_CODE,
    ),
    _line_rule(
        "terminal_punctuation", "sentences_terminal", "lines that end with no mark leave fewer than 3 sentences", _C4
    ),
    _line_rule(
        "words_per_line",
        "sentences_long_enough",
        "lines of fewer than 5 words leave fewer than 3 sentences",
        _C4_CODE,
        low=Fraction(5),
    ),
    _line_rule(
        "long_words",
        "sentences_short_words",
        "lines with a word of more than 1,000 characters leave fewer than 3 sentences",
        "c4_utils.py of tensorflow_datasets; not in the paper",
        high=Fraction(1000),
    ),
    _line_rule("javascript", "sentences_no_javascript", "lines with 'javascript' leave fewer than 3 sentences", _C4),
    _line_rule("policy", "sentences_no_policy", "lines on policies and cookies leave fewer than 3 sentences", _C4_CODE),
    Rule(
        name="fineweb.line_punctuation",
        parts=("terminal_lines",),
        whole="content_lines",
        low=Fraction("0.12"),
        at_bound=True,
        about="at most 12 % of lines end with a terminal mark",
        source=_FINEWEB,
    ),
    _ratio(
        "fineweb.duplicate_line_chars",
        "duplicate_line_chars",
        "text_chars",
        "0.1",
        "at least 10 % of characters are in repeated lines",
        _FINEWEB,
        at_bound=True,
    ),
    _ratio(
        "fineweb.short_lines",
        "short_lines",
        "content_lines",
        "0.67",
        "at least 67 % of lines are short",
        _FINEWEB,
        at_bound=True,
    ),
    _ratio("fineweb.new_lines", "breaks", "words", "0.3", "more than 0.3 line breaks a word", _FINEWEB_CODE),
    Rule(
        name="repeated_ngrams.periodic_run",
        parts=("periodic_run",),
        high=Fraction(32),
        at_bound=True,
        about="1 to 13 tokens that are repeated at least 32 times in a row",
        source=_OLMO,
    ),
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
    """Return the one bound of a rule that counts whole things."""
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
