"""Leakage: what of held-out documents stands in training data.

What of held-out splits is in training data: whole documents, near-duplicates, 13-grams and copied spans.

A document is an exact duplicate when an equal document came *earlier*, so a leak between two splits shows on the split
that sorts later. :func:`leaks` looks at the groups themselves: a held-out document leaks when its group has a training
document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Cell,
    Figure,
    Prose,
    Section,
    Tone,
    bad,
    bars,
    column,
    empty_section,
    table_of,
)
from dataaudit.base.render.line import Interval, Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Broken, Counted, Family, ShardStatistic, Tables, declare, statistics
from dataaudit.metrics.overlap.evidence import (
    LEAKED,
    NEARLY_ALL,
    LeakSite,
    documents_with_text_of,
    leak_sites,
    lists_all_documents,
    matches_of,
    near_copies,
    standout,
    why_absent,
)
from dataaudit.metrics.recomputed import IS_DOCUMENT, Check, Condition, Follows, Number, of_shard, unlimited
from dataaudit.metrics.records import Records, by_scope, listed, number, only
from dataaudit.metrics.shown import LONG, SHORT, Highlight, Kind, Oddity, OddShard, Part, Shown

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
    matches = matches_of(case, tables, tables.splits("held_out"))
    return listed(matches["shard"], matches["row"], matches["rule"])


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
    grams = _found_by("ngram") & Condition(lambda: pc.field(score) >= LEAKED)
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
        declare(
            METRIC,
            statistics("ngram span", "ratio", "all, set, source and set", **_WITH_SOURCES),
            statistics(
                "near_dup ngram_without_common span_without_common edited edited_without_common",
                "ratio",
                "all, set",
                **_HELD_OUT,
            ),
            statistics("common_grams", "13-grams", "all, set", **_HELD_OUT),
            statistics("documents too_short no_words", "documents", "all, set", **_HELD_OUT),
            statistics("train_documents", "ratio", SOURCES, population="training", sources_of="training"),
            in_words=True,
            reading=0,
            first_rows=3,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="held_out",
            area="leakage",
            columns=(
                ShardStatistic(
                    "train_documents",
                    "held_out_copies",
                    per_document=True,
                    population="training",
                    head="copies of held-out",
                    shown_as="count",
                    compared=True,
                ),
            ),
        ),
    ),
    stage="dataaudit.metrics.overlap.stage:Overlap",
    stage_name="overlap",
    kernels=("items", "markup", "ngrams", "overlap"),
    link="dataaudit.metrics.overlap.link:leaks",
    by_shard=("documents",),
    by_split=("documents", "sets"),
    harmless=frozenset({"max_rows", "max_grams"}),
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


@once
def leaks(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the held-out splits of which training data has equal documents, by name.

    ``documents`` are the held-out documents with an equal document, ``of`` all of the split, ``copies`` the training
    documents that are equal to any of them.
    """
    held_out = {split.name: split.documents for split in manifest.core.splits if split.held_out}
    clusters = manifest.table("clusters", ["kind", "cluster", "shard"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    if not held_out or clusters.num_rows == 0:
        return []
    splits = manifest.table("shards", ["split"])["split"].combine_chunks()
    names = splits.take(clusters["shard"].combine_chunks())
    counted = pa.table({"cluster": clusters["cluster"], "split": names}).group_by(["cluster", "split"])
    groups: dict[int, dict[str, int]] = {}
    for row in counted.aggregate([("split", "count")]).to_pylist():
        groups.setdefault(row["cluster"], {})[row["split"]] = row["split_count"]
    documents, copies = Counter[str](), Counter[str]()
    for group in groups.values():
        trained = sum(number for name, number in group.items() if name not in held_out)
        for name in group.keys() & held_out.keys() if trained else ():
            documents[name] += group[name]
            copies[name] += trained
    return [
        {"split": name, "documents": documents[name], "of": held_out[name], "copies": copies[name]}
        for name in sorted(documents)
    ]


@once
def held_out_leaks(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the held-out splits that were looked for, by name; a rate is None where it was not evaluated.

    ``bounds`` are the 95 % intervals of the rates that were measured on a sample; ``why`` says why a rate is absent.
    """
    records = by_scope(manifest.metrics(METRIC))
    names = sorted(str(scope.set) for scope, own in records.items() if only(scope, "set") and "documents" in own)
    made = []
    for name in names:
        own = records[Scope(set=name)]
        made.append(
            {
                "split": name,
                "documents": number(own, "documents"),
                **{stat: own[stat].value if stat in own else None for stat in _LABELS},
                "sampled": own["ngram"].method == "sampled",
                "bounds": {
                    stat: (own[stat].low, own[stat].high)
                    for stat in _LABELS
                    if stat in own and own[stat].low is not None and own[stat].high is not None
                },
                "why": _why(own),
            }
        )
    return made


def _why(own: Records) -> str:
    """Return why nothing is known of a split; empty where something is."""
    without, of = (number(own, stat) for stat in ("no_words", "documents"))
    if without and without >= NEARLY_ALL * of:
        return f"{without:,} of its {of:,} documents have no word"
    return why_absent([own.get(stat) for stat in _LABELS], _NO_WORDS)


def shared_text(leak: dict[str, Any]) -> tuple[str, Line] | None:
    """Return the strictest statistic by which a split shares text with training, and words; None when none does."""
    for stat, text in _SIGNS.items():
        if value := leak[stat]:
            shown: Line = share(value)
            if stat in leak["bounds"]:
                shown = say("{} ({})", shown, Interval(*leak["bounds"][stat]))
            return stat, say(text, shown, Name(leak["split"], SHORT, ends=True))
    return None


def section(
    exact: Sequence[dict[str, Any]], looked_for: Sequence[dict[str, Any]], places: Sequence[LeakSite]
) -> Section:
    """Return what of each held-out split was found, in the shards of ``places``."""
    title = "Held-out splits"
    if not looked_for and not exact:
        return empty_section("overlap", title, "There is no held-out split.")
    whole = {leak["split"] for leak in exact}
    leads = [_whole(leak, places) for leak in exact]
    leads += [
        say("{}{}.", sign[1], _where(leak["split"], places))
        for leak in looked_for
        if leak["split"] not in whole and (sign := shared_text(leak))
    ]
    blocks: list[Block] = [_figure(looked_for)] if looked_for else []
    for leak in looked_for:
        if bounds := leak["bounds"]:
            intervals = join("; ", (say("{} {}", _LABELS[name], Interval(*bounds[name])) for name in sorted(bounds)))
            text = say("{}, from a sample, 95 % intervals: {}.", Name(leak["split"]), intervals)
            blocks.append(Prose(text=text, tone="quiet"))
    blocks += [
        Prose(text=say("{}: - because {}.", Name(leak["split"]), leak["why"]), tone="quiet")
        for leak in looked_for
        if leak["why"]
    ]
    if len(leads) > _LEADS:
        leads = [*leads[:_LEADS], f"And {t.plural(len(leads) - _LEADS, 'other split')}."]
    tone: Tone = "bad"
    if not leads:
        unknown = all(leak["why"] for leak in looked_for)
        common = any(leak[stat] for leak in looked_for for stat in ("span", "ngram", "edited"))
        tone = "quiet" if unknown else "good"
        leads = [_UNKNOWN if unknown else _NOTICES if common else _NOTHING]
    return Section(id="overlap", title=title, lead=join(" ", leads), tone=tone, blocks=tuple(blocks))


def _whole(leak: dict[str, Any], places: Sequence[LeakSite]) -> Line:
    """Say how many documents are in training data whole, where, and where passages are copied besides."""
    own = [place for place in places if place.set == leak["split"]]
    text = say(
        "{} of {} of {} ({}) are also in training data, white space aside, as {}: remove these from training.",
        leak["documents"],
        t.plural(leak["of"], "document"),
        Name(leak["split"]),
        share(leak["documents"] / leak["of"]),
        t.plural(leak["copies"], "training document"),
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


def _where(which: str, places: Sequence[LeakSite]) -> Line:
    """Name the shards that hold most of a set."""
    shown = []
    for place in places:
        if place.set == which:
            what = "passages" if place.copied else "parts"
            documents = t.plural(place.copied or place.items, "document")
            shown.append(say("{} holds {} of {} of it", Name(place.name, 80), what, documents))
    return _most(shown)


def _most(shown: Sequence[Line]) -> Line:
    """Return the first two shards."""
    if not shown:
        return ""
    rest = f" (and {t.plural(len(shown) - 2, 'more shard')})" if len(shown) > 2 else ""
    return say(": {}{}", join("; ", shown[:2]), rest)


def _figure(looked_for: Sequence[dict[str, Any]]) -> Block:
    def loud(value: float | None) -> Cell:
        return bad(share(value))

    columns = [column("documents"), column("near-dup", "near_dup", loud)]
    for head, stat in (("13-grams", "ngram"), ("spans", "span"), ("edited", "edited")):
        columns += [column(head, stat, share), column("less common", f"{stat}_without_common", loud)]
    table = table_of(
        "Held-out documents in training data",
        looked_for,
        column("split", shown=Name),
        *columns,
        column("", lambda leak: "sampled" if leak["sampled"] else "", kind="word"),
        most=None,
        noun="split",
        whole=True,
        note="near-dup, 13-grams: share of documents with a near-duplicate in training, or half of whose 13-grams are"
        " in it; spans: share of their words inside copied spans of 50 words and more; edited: share of documents"
        " with an edited copy in training; less common: without text that very many training documents share, as"
        " notices and licences.",
    )
    made = [
        Bar(
            say("{}: {}", Name(leak["split"], 16, ends=True), _LABELS[stat]),
            leak[stat],
            share(leak[stat]),
            span=leak["bounds"].get(stat),
            loud=leak[stat] > 0,
        )
        for leak in looked_for
        for stat in ("near_dup", "ngram_without_common", "span_without_common", "edited_without_common")
        if leak[stat] is not None
    ]
    if not made:
        return table
    chart = bars("share of the split's documents or words", made[:_BARS], percent=True)
    return Figure(id="chart-leaks", title="Found in training data, of held-out splits", chart=chart, table=table)


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    exact = leaks(manifest)
    for leak in exact:
        name, part = Name(leak["split"], SHORT, ends=True), share(leak["documents"] / leak["of"])
        text = say("{} of {} of {} in training ({})", leak["documents"], t.plural(leak["of"], "document"), name, part)
        yield standout(manifest, Kind.LEAKED, leak["documents"], text, leak["split"])
    whole = {leak["split"] for leak in exact}
    for leak in held_out_leaks(manifest):
        if leak["split"] not in whole and (sign := shared_text(leak)):
            stat, words = sign
            kind = Kind.LEAKED if stat == "span_without_common" else Kind.SIMILAR
            yield standout(manifest, kind, leak[stat] * leak["documents"], words, leak["split"])


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    """Yield the shards that hold copies of what is protected: documents of held-out splits, and evaluation items."""
    for place in leak_sites(manifest):
        if place.copied:
            kind = Oddity.LEAK if place.share >= _MUCH or place.is_worst else Oddity.FEW_COPIES
            what, shared = _copies(place)
            size, documents = max(place.whole, place.copied), t.plural(place.of, "document")
            text = say("holds {}, in {} of its {} ({})", what, place.copies, documents, share(place.share))
            yield OddShard(shard=place.shard, kind=kind, size=size, text=text, shared=shared)


def _copies(place: LeakSite) -> tuple[Line, Line]:
    """Return what is copied, with numbers, and the same whatever the shard.

    The latter may be common to most shards: licences and forms that are everywhere are in held-out data, too.
    """
    name, passages = Name(place.set, 60), ""
    if not place.held_out:
        what, shared = f"copies of {t.plural(place.copied, 'item')}", "copies of items of {}"
    elif place.whole:
        what, shared = f"whole copies of {t.plural(place.whole, 'document')}", "whole copies of documents of {}"
        passages = f" (passages of {t.count(place.copied)})" if place.copied > place.whole else ""
    else:
        what, shared = f"copied passages of {t.plural(place.copied, 'document')}", "copied passages of {}"
    return say("{} of {}{}", what, name, passages), say(shared, name)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    for leak in held_out_leaks(manifest):
        split = say("the held-out split {}", Name(leak["split"], LONG))
        for stat, meaning in _RATES.items():
            if leak[stat] is not None:
                yield say("{} of the documents of {} {}.", share(leak[stat]), split, meaning)
        if leak["why"]:
            yield say("Leakage of {} was not evaluated: {}.", split, Name(leak["why"], LONG))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(
            name="leaks",
            area="leakage",
            blocks=lambda manifest: [section(leaks(manifest), held_out_leaks(manifest), leak_sites(manifest))],
        ),
    ),
    highlights=_highlights,
    odd_shards=_odd_shards,
    facts={"leaks": leaks, "held_out_leaks": held_out_leaks},
)
