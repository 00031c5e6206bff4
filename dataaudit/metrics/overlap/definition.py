"""Leakage: what of held-out documents stands in training data.

What of held-out splits is in training data: whole documents, near-duplicates, 13-grams and copied spans.

A document is an exact duplicate when an equal one came *earlier*, so a leak between two splits shows on the one that
sorts later. :func:`leaks` looks at the groups themselves: a held-out document leaks when its group has a training
document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Prose,
    Row,
    Section,
    Table,
    Tone,
    bad,
    bars,
    names,
    numbers,
    words,
)
from dataaudit.base.render.line import Interval, Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.family import (
    SOURCES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import (
    NEARLY_ALL,
    Key,
    LeakPlace,
    by_scope,
    documents_with_text_of,
    leak_places,
    lists_all_documents,
    matches_of,
    near_copies,
    number_of,
    standout,
    value_of,
    why_absent,
)
from dataaudit.metrics.recomputed import IS_DOCUMENT, Check, Condition, Follows, Number, of_shard, unlimited
from dataaudit.metrics.records import listed
from dataaudit.metrics.shown import LONG, SHORT, Kind, Oddity, OddShard, Part, Shown, Standout

METRIC = "train_val_overlap"


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    if case.stat.startswith("near_dup"):
        shards, counts = np.unique(near_copies(case, tables)[:, 0], return_counts=True)
        return "near-duplicates of held-out documents", dict(zip(shards.tolist(), counts.tolist(), strict=True))
    return "documents with text of it", documents_with_text_of(case, tables, tables.splits("held_out"))


def _documents(case: Broken, tables: Tables) -> pa.Table:
    if case.stat.startswith("near_dup"):
        copies = near_copies(case, tables)
        return listed(copies[:, 0], copies[:, 1], "near_duplicate")
    found = matches_of(case, tables, tables.splits("held_out"))
    return listed(found["shard"], found["row"], found["rule"])


_HELD_OUT = {"population": "held_out", "sources_of": "training"}
_WITH_SOURCES = _HELD_OUT | {"headline": True, "absent_is_zero": frozenset({"source"})}


def _checks() -> Iterator[Check]:
    own = Condition(lambda: pc.field("score_without_common") > 0)
    seen = Number("shards", "documents", Condition(lambda: pc.field("held_out_copies").is_valid()))
    yield Follows(METRIC, "train_documents", Number("shards", "held_out_copies"), seen)
    copied = Condition(lambda: pc.field("found_by").isin(["span", "whole", "edited"]))
    copies = Number("overlap", "", IS_DOCUMENT & own & copied, ("shard", "row"))
    yield of_shard("held_out_copies", copies, most_when=lists_all_documents)
    held_out = Number("shards", "documents", Condition(lambda: pc.field("held_out")))
    yield Follows(METRIC, "documents", held_out, held_out, "all, set", when=_all_looked_for)
    for suffix, rows in (("", IS_DOCUMENT), ("_without_common", IS_DOCUMENT & own)):
        whole = _items(rows & _leaked(f"score{suffix}"))
        edited, passages = (_items(rows & _found_by(rule)) for rule in ("edited", "span"))
        words, most = _items(rows & _found_by("span"), _passage_words), None if suffix else unlimited(passages)
        yield Follows(METRIC, f"ngram{suffix}", shapes="all, set", least=whole)
        for stat, least, limit in (("span", words, most), ("edited", edited, edited)):
            bound = Follows(METRIC, f"{stat}{suffix}", shapes="all, set", least=least, most=limit)
            yield replace(bound, most_when=lists_all_documents)


def _found_by(rule: str) -> Condition:
    return Condition(lambda: pc.field("found_by") == rule)


def _leaked(score: str) -> Condition:
    """Return which documents stand in training whole, or share half of their 13-grams with it."""
    grams = _found_by("ngram") & Condition(lambda: pc.field(score) >= 0.5)
    return Condition(lambda: _found_by("whole").make() | grams.make())


def _items(rows: Condition, column: str | Callable[[pa.Table], pa.ChunkedArray] = "") -> Number:
    return Number("overlap", column, rows, ("set", "item"))


def _passage_words(rows: pa.Table) -> pa.ChunkedArray:
    """A copied passage has 50 words at least."""
    return pa.chunked_array([np.full(len(rows), 50)])


def _all_looked_for(manifest: Manifest) -> bool:
    """Return whether every held-out document was looked for in training data, of which some was read."""
    copies = manifest.table("shards", ["held_out_copies"])["held_out_copies"]
    return copies.null_count < len(copies) and all(record.method != "sampled" for record in manifest.metrics(METRIC))


FAMILY = Family(
    name="overlap",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(METRIC, "ngram span", "ratio", "all, set, source and set", **_WITH_SOURCES),
                *statistics(
                    METRIC,
                    "near_dup ngram_without_common span_without_common edited edited_without_common",
                    "ratio",
                    "all, set",
                    **_HELD_OUT,
                ),
                *statistics(METRIC, "common_grams", "13-grams", "all, set", **_HELD_OUT),
                *statistics(METRIC, "documents too_short no_words", "documents", "all, set", **_HELD_OUT),
                *statistics(METRIC, "train_documents", "ratio", SOURCES, population="training", sources_of="training"),
            ),
            reading=0,
            first_rows=3,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="held_out",
            area="leakage",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="train_documents",
            column="held_out_copies",
            per_document=True,
            population="training",
            head="copies of held-out",
            shown_as="count",
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.overlap.stage:Overlap",
    stage_name="overlap",
    link="dataaudit.metrics.contamination.records:leaks",
    by_shard=("documents",),
    by_split=("documents", "sets"),
    harmless=frozenset({"max_rows", "max_grams"}),
    shown="dataaudit.metrics.overlap.definition:SHOWN",
    checked_with=("shards", "overlap"),
    checks=tuple(_checks()),
    looked_for=True,
)

_LABELS = {
    "near_dup": "near-duplicates",
    "ngram": "13-grams",
    "ngram_without_common": "less common 13-grams",
    "span": "spans",
    "span_without_common": "less common spans",
    "edited": "edited copies",
    "edited_without_common": "less common edited copies",
}
_SIGNS = {
    "span_without_common": "{} of the words of {} lie in spans copied into training",
    "near_dup": "{} of the documents of {} have a near-duplicate in training",
    "edited_without_common": "{} of the documents of {} have an edited copy in training",
    "ngram_without_common": "{} of the documents of {} share their 13-grams with training",
}
"""What tells of a leak, the strictest first; text that very many training documents share tells of none."""
_RATES = {
    "near_dup": "have a near-duplicate in training data",
    "ngram": "share half of their 13-grams with it",
    "edited": "have an edited copy in it",
}
_NO_WORDS = "no document of it has a word"
_NOTHING = "Nothing of a held-out split was found in training."
_UNKNOWN = "What training data holds of held-out splits is not known."
_NOTICES = (
    "Of held-out splits training holds only what very many of its documents share: notices, or one text many times."
)
_BARS, _LEADS = 24, 3
_MUCH = 0.01
"""Share of a shard's documents that hold copies, from which it needs action; below it the worst of a set alone does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """One held-out split that shares texts with training data."""

    split: str
    documents: int
    """Held-out documents with an equal one in training data."""
    of: int
    """Documents of the split."""
    copies: int
    """Training documents that are equal to one of them."""


@once
def leaks(manifest: Manifest) -> list[Leak]:
    """Return the held-out splits that leak, by name."""
    held_out = {split.name: split.documents for split in manifest.core.splits if split.held_out}
    clusters = manifest.table("clusters", ["kind", "cluster", "shard"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    if not held_out or clusters.num_rows == 0:
        return []
    splits = manifest.table("shards", ["split"])["split"].combine_chunks()
    names = splits.take(clusters["shard"].combine_chunks())
    counted = pa.table({"cluster": clusters["cluster"], "split": names}).group_by(["cluster", "split"])
    found: dict[str, list[int]] = {name: [0, 0] for name in held_out}
    groups: dict[int, dict[str, int]] = {}
    for row in counted.aggregate([("split", "count")]).to_pylist():
        groups.setdefault(row["cluster"], {})[row["split"]] = row["split_count"]
    for group in groups.values():
        trained = sum(number for name, number in group.items() if name not in held_out)
        for name in group.keys() & held_out.keys() if trained else ():
            found[name][0] += group[name]
            found[name][1] += trained
    return [
        Leak(split=name, documents=documents, of=held_out[name], copies=copies)
        for name, (documents, copies) in sorted(found.items())
        if documents
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutLeak:
    """A held-out split, and what of it is in training data; None where that was not evaluated."""

    split: str
    documents: int
    """Documents that were looked for."""
    near_dup: float | None
    ngram: float | None
    ngram_without_common: float | None
    span: float | None
    span_without_common: float | None
    edited: float | None
    edited_without_common: float | None
    sampled: bool
    bounds: dict[str, tuple[float, float]]
    """Lower and upper bound, 95 %, of the rates that were measured on a sample, by name."""
    why: str
    """Why a rate is absent; empty when none is."""


@once
def held_out_leaks(manifest: Manifest) -> list[HeldOutLeak]:
    """Return the held-out splits that were looked for, by name."""
    found = by_scope(manifest.metrics("train_val_overlap"))
    names = sorted({key[1] for key in found if key[0] == "documents" and key[1]})
    return [
        HeldOutLeak(
            split=name,
            documents=number_of(found, ("documents", name, "", "")),
            **{stat: value_of(found, (stat, name, "", "")) for stat in _LABELS},
            sampled=found[("ngram", name, "", "")].method == "sampled",
            bounds={
                stat: (record.low, record.high)
                for stat in _LABELS
                if (record := found.get((stat, name, "", ""))) and record.low is not None and record.high is not None
            },
            why=_why(found, name),
        )
        for name in names
    ]


def _why(found: dict[Key, Metric], name: str) -> str:
    """Return why nothing is known of a split; empty where something is."""
    without, of = (number_of(found, (stat, name, "", "")) for stat in ("no_words", "documents"))
    if without and without >= NEARLY_ALL * of:
        return f"{without:,} of its {of:,} documents have no word"
    return why_absent([found.get((stat, name, "", "")) for stat in _LABELS], _NO_WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The strictest sign that a held-out split shares text with training."""

    stat: str
    value: float
    text: Line
    """The whole in words, with the interval of a sampled value."""


def shared_text(held_out_leak: HeldOutLeak) -> Sign | None:
    """Return the strictest sign that a held-out split shares text with training; None when there is none."""
    for stat, told in _SIGNS.items():
        if value := getattr(held_out_leak, stat):
            shown: Line = share(value)
            if stat in held_out_leak.bounds:
                shown = say("{} ({})", shown, Interval(*held_out_leak.bounds[stat]))
            return Sign(stat=stat, value=value, text=say(told, shown, Name(held_out_leak.split, SHORT, ends=True)))
    return None


def section(exact: Sequence[Leak], found: Sequence[HeldOutLeak], places: Sequence[LeakPlace]) -> Section:
    """Return what of each held-out split was found, in the shards of ``places``."""
    title = "Held-out splits"
    said = {leak.split for leak in exact}
    leads = [_whole(leak, places) for leak in exact]
    leads += [
        say("{}{}.", sign.text, _where(held_out_leak.split, places))
        for held_out_leak in found
        if held_out_leak.split not in said and (sign := shared_text(held_out_leak))
    ]
    if not found and not exact:
        return Section(id="overlap", title=title, lead="There is no held-out split.", tone="quiet")
    blocks: list[Block] = []
    if found:
        blocks.append(_figure(found))
    for held_out_leak in (held_out_leak for held_out_leak in found if held_out_leak.bounds):
        intervals = join(
            "; ",
            (
                say("{} {}", _LABELS[name], Interval(*held_out_leak.bounds[name]))
                for name in sorted(held_out_leak.bounds)
            ),
        )
        blocks.append(
            Prose(
                text=say("{}, from a sample, 95 % intervals: {}.", Name(held_out_leak.split), intervals), tone="quiet"
            )
        )
    blocks += [
        Prose(text=say("{}: - because {}.", Name(held_out_leak.split), held_out_leak.why), tone="quiet")
        for held_out_leak in found
        if held_out_leak.why
    ]
    if len(leads) > _LEADS:
        leads = [*leads[:_LEADS], f"And {t.plural(len(leads) - _LEADS, 'other split')}."]
    tone: Tone = "bad"
    if not leads:
        unknown = all(held_out_leak.why for held_out_leak in found)
        tone = "quiet" if unknown else "good"
        leads = [_UNKNOWN if unknown else _NOTICES if any(map(_has_common, found)) else _NOTHING]
    return Section(id="overlap", title=title, lead=join(" ", leads), tone=tone, blocks=tuple(blocks))


def _has_common(leak: HeldOutLeak) -> bool:
    return bool(leak.span or leak.ngram or leak.edited)


def _whole(leak: Leak, places: Sequence[LeakPlace]) -> Line:
    """Say how many documents are in training data whole, where, and where passages are copied besides."""
    own = [place for place in places if place.set == leak.split]
    text = say(
        "{} of {} of {} ({}) are also in training data, white space aside, as {}: remove these from training.",
        leak.documents,
        t.plural(leak.of, "document"),
        Name(leak.split),
        share(leak.documents / leak.of),
        t.plural(leak.copies, "training document"),
    )
    if whole := [say("{} holds {} of them", Name(place.name, 80), place.whole) for place in own if place.whole]:
        text = say("{} Whole documents{}.", text, _most(whole))
    if all(place.copied == place.whole for place in own):
        return text
    own = sorted(own, key=lambda place: (-place.copied, place.shard))
    passages = [
        say("{} holds passages of {} of it", Name(place.name, 80), t.plural(place.copied, "document"))
        for place in own
        if place.copied
    ]
    return say("{} Counted apart, copied passages of 50 words and more{}.", text, _most(passages))


def _where(which: str, places: Sequence[LeakPlace]) -> Line:
    """Name the shards that hold most of a set."""
    shown = []
    for leak_place in (leak_place for leak_place in places if leak_place.set == which):
        what = (
            f"passages of {t.plural(leak_place.copied, 'document')}"
            if leak_place.copied
            else f"parts of {t.plural(leak_place.items, 'document')}"
        )
        shown.append(say("{} holds {} of it", Name(leak_place.name, 80), what))
    return _most(shown)


def _most(shown: Sequence[Line]) -> Line:
    """Return the first two places."""
    if not shown:
        return ""
    rest = f" (and {t.plural(len(shown) - 2, 'more shard')})" if len(shown) > 2 else ""
    return say(": {}{}", join("; ", shown[:2]), rest)


def _figure(found: Sequence[HeldOutLeak]) -> Block:
    def row(leak: HeldOutLeak) -> Row:
        grams = share(leak.ngram), bad(share(leak.ngram_without_common))
        spans = share(leak.span), bad(share(leak.span_without_common))
        edited = share(leak.edited), bad(share(leak.edited_without_common))
        sampled = "sampled" if leak.sampled else ""
        return Name(leak.split), leak.documents, bad(share(leak.near_dup)), *grams, *spans, *edited, sampled

    table = Table(
        title="Held-out documents in training data",
        columns=(
            *names("split"),
            *numbers("documents", "near-dup", "13-grams", "less common", "spans", "less common"),
            *numbers("edited", "less common"),
            *words(""),
        ),
        rows=tuple(map(row, found)),
        noun="split",
        whole=True,
        note="near-dup, 13-grams: share of documents with a near-duplicate in training, or half of whose 13-grams are"
        " in it; spans: share of their words inside copied spans of 50 words and more; edited: share of documents"
        " with an edited copy in training; less common: without text that very many training documents share, as"
        " notices and licences.",
    )
    made = [
        Bar(
            say("{}: {}", Name(held_out_leak.split, 16, ends=True), _LABELS[stat]),
            value,
            share(value),
            span=held_out_leak.bounds.get(stat),
            loud=value > 0,
        )
        for held_out_leak in found
        for stat in ("near_dup", "ngram_without_common", "span_without_common", "edited_without_common")
        if (value := getattr(held_out_leak, stat)) is not None
    ]
    if not made:
        return table
    chart = bars("share of the split's documents or words", made[:_BARS], percent=True)
    return Figure(id="chart-leaks", title="Found in training data, of held-out splits", chart=chart, table=table)


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    exact = leaks(manifest)
    for leak in exact:
        name, part = Name(leak.split, SHORT, ends=True), share(leak.documents / leak.of)
        text = say("{} of {} of {} in training ({})", leak.documents, t.plural(leak.of, "document"), name, part)
        yield standout(manifest, Kind.LEAKED, leak.documents, text, leak.split)
    said = {leak.split for leak in exact}
    for other in held_out_leaks(manifest):
        if other.split not in said and (sign := shared_text(other)):
            kind = Kind.LEAKED if sign.stat == "span_without_common" else Kind.SIMILAR
            yield standout(manifest, kind, sign.value * other.documents, sign.text, other.split)


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    """Yield the shards that hold copies of what is protected: documents of held-out splits, and evaluation items."""
    for place in leak_places(manifest):
        if place.copied:
            kind = Oddity.LEAK if place.share >= _MUCH or place.is_worst else Oddity.FEW_COPIES
            size = max(place.whole, place.copied)
            yield OddShard(shard=place.shard, kind=kind, size=size, text=_held(place), shared=_shared(place))


def _shared(place: LeakPlace) -> Line:
    """Say what is copied, whatever the shard: licences and forms that are everywhere are in held-out data, too."""
    if not place.held_out:
        return say("copies of items of {}", Name(place.set, 60))
    return say("whole copies of documents of {}" if place.whole else "copied passages of {}", Name(place.set, 60))


def _held(place: LeakPlace) -> Line:
    """Say what is copied and in how many documents of the shard."""
    passages = ""
    if not place.held_out:
        held = f"copies of {t.plural(place.copied, 'item')}"
    elif place.whole:
        held = f"whole copies of {t.plural(place.whole, 'document')}"
        passages = f" (passages of {t.count(place.copied)})" if place.copied > place.whole else ""
    else:
        held = f"copied passages of {t.plural(place.copied, 'document')}"
    documents = t.plural(place.of, "document")
    return say(
        "holds {} of {}{}, in {} of its {} ({})",
        *(held, Name(place.set, 60), passages, place.copies, documents, share(place.share)),
    )


def _sentences(manifest: Manifest) -> Iterator[Line]:
    for held_out_leak in held_out_leaks(manifest):
        split = say("the held-out split {}", Name(held_out_leak.split, LONG))
        for stat, meaning in _RATES.items():
            if (value := getattr(held_out_leak, stat)) is not None:
                yield say("{} of the documents of {} {}.", share(value), split, meaning)
        if held_out_leak.why:
            yield say("Leakage of {} was not evaluated: {}.", split, Name(held_out_leak.why, LONG))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(
            name="leaks",
            area="leakage",
            blocks=lambda manifest: [section(leaks(manifest), held_out_leaks(manifest), leak_places(manifest))],
        ),
    ),
    standouts=_standouts,
    odd_shards=_odd_shards,
    facts={"leaks": leaks, "held_out_leaks": held_out_leaks},
)
