"""Contamination: items of evaluation sets that stand in training data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Cell,
    Figure,
    Prose,
    Section,
    Table,
    bad,
    bars,
    column,
    empty_section,
    table_of,
)
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.base.text import plural
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import Broken, Counted, Family, ShardStatistic, Tables, declare, statistics
from dataaudit.metrics.overlap.evidence import (
    LeakSite,
    documents_with_text_of,
    leak_sites,
    leaks_table,
    lists_all_items,
    matches_of,
    standout,
    why_absent,
)
from dataaudit.metrics.recomputed import (
    IS_DOCUMENT,
    Check,
    Condition,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    of_shard,
    recorded,
    unlimited,
)
from dataaudit.metrics.records import Records, by_scope, listed, number
from dataaudit.metrics.shown import LONG, SHORT, Highlight, Kind, Part, Shown

METRIC = "benchmark_contamination"
_PARTS = "set and entity"
_ITEMS = f"{_PARTS} and rule"
_TRAINING = {"population": "training", "sources_of": "training"}


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    return "documents that hold an item", documents_with_text_of(case, tables, tables.sets)


def _documents(case: Broken, tables: Tables) -> pa.Table:
    matches = matches_of(case, tables, tables.sets)
    return listed(matches["shard"], matches["row"], matches["tier"])


def _checks() -> Iterator[Check]:
    is_item = ~IS_DOCUMENT
    seen = Number("shards", "documents", Condition(lambda: pc.field("contaminated").is_valid()))
    yield Follows(METRIC, "train_documents", Number("shards", "contaminated"), seen, scope={"rule": "similar"})
    yield of_shard("contaminated", Number("overlap", "", is_item, ("shard", "row")), most_when=lists_all_items)
    yield Follows(METRIC, "items", _items, _items, "set")
    matches = Number("overlap", "", is_item, ("item", "entity", "shard", "row"))
    yield Follows(METRIC, "matches", least=matches, most=unlimited(matches), shapes="set")
    verbatim = is_item & Condition(lambda: pc.field("tier") == "verbatim")
    for tier, rows in {"verbatim": verbatim, "similar": is_item}.items():
        documents = Number("overlap", "", rows, ("shard", "row"))
        items = Number("overlap", "", rows & Condition(_counted), ("item",))
        shapes = "all, split, set" if tier == "verbatim" else "set"
        for bound in (
            Follows(METRIC, "train_documents", shapes=shapes, least=documents, most=documents),
            Follows(METRIC, "rate", shapes="set and entity", least=items, most=unlimited(documents)),
        ):
            yield replace(bound, scope={"rule": tier}, most_when=lists_all_items)


def _counted() -> pc.Expression:
    """Return which matches count: a question that is found alone, or only beside its answer, does not."""
    alone, beside = pc.field("found_by") == "alone", pc.field("found_by") == "context"
    return ~(alone | ((pc.field("entity") == "question") & beside))


def _items(tables: ManifestTables, shape: Shape) -> Numbers:
    items = {(record.name,): record.items for record in tables.manifest.core.protected}
    return {key: items.get(key, 0) for key in recorded(METRIC, "items")(tables, shape)}


FAMILY = Family(
    name="contamination",
    metrics=(
        declare(
            METRIC,
            statistics(
                "rate", "ratio", f"{_ITEMS}, source and {_ITEMS}", absent_is_zero=frozenset({"source"}), **_TRAINING
            ),
            statistics("rate_without_common", "ratio", _ITEMS, **_TRAINING),
            statistics("items repeated", "items", "set", **_TRAINING),
            statistics("lost", "items", "set, set and rule", **_TRAINING),
            statistics("common context_found", "items", _PARTS, **_TRAINING),
            statistics("indexed short context too_short boilerplate absent", "items", _PARTS, **_TRAINING),
            statistics("matches", "matches", "set", **_TRAINING),
            statistics(
                "train_documents",
                "ratio",
                "rule, split and rule, source and rule, split and source and rule, set and rule",
                **_TRAINING,
            ),
            in_words=True,
            reading=1,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="evaluation",
            entities=frozenset({"question", "answer", "both"}),
            area="leakage",
            columns=(
                ShardStatistic(
                    "train_documents",
                    "contaminated",
                    per_document=True,
                    population="training",
                    head="with evaluation items",
                    shown_as="count",
                    compared=True,
                ),
            ),
        ),
    ),
    stage_name="overlap",
    checked_with=("overlap", "shards"),
    checks=tuple(_checks()),
)

_MATCHED_PARTS = ("question", "answer", "both")
_NOTHING_FINDABLE = "no rule can find any of its items: all are too short, or a template"
_ONLY_BESIDE = "its items are found only beside their answers, or alone between line breaks"
_BARS = 24


@once
def set_leaks(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the evaluation sets that were looked for, by name; a row for each part that they have.

    ``context`` are questions found only beside their answer, or alone between line breaks: in no rate;
    ``context_found`` those of them that were found. ``common`` are items in very many training documents. ``why`` says
    why a rate is absent.
    """
    records = by_scope(manifest.metrics(METRIC))
    names = sorted(str(scope.set) for scope, own in records.items() if "items" in own)
    parts = [Scope(set=name, entity=part) for name in names for part in _MATCHED_PARTS]
    return [_leak(records, scope) for scope in parts if "rate" in records.get(replace(scope, rule="verbatim"), {})]


def _leak(records: Mapping[Scope, Records], scope: Scope) -> dict[str, Any]:
    name, part, own = scope.set, scope.entity, records.get(scope, {})
    rate, similar = (records.get(replace(scope, rule=tier), {}).get("rate") for tier in ("verbatim", "similar"))
    count = {stat: number(own, stat) for stat in ("too_short", "boilerplate", "common")}
    context, context_found = (
        number(own, stat) if part == "question" and stat in own else None for stat in ("context", "context_found")
    )
    return {
        "set": name,
        "items": number(records[Scope(set=name)], "items"),
        "part": part,
        "findable": rate.denominator if rate else 0,
        "too_short": None if part == "both" else count["too_short"],
        "boilerplate": None if part == "both" else count["boilerplate"],
        "verbatim": rate.value if rate else None,
        "similar": similar.value if similar else None,
        "common": count["common"],
        "why": why_absent([rate, similar], _ONLY_BESIDE if context else _NOTHING_FINDABLE),
        "context": context,
        "context_found": context_found,
    }


def _worst_parts(leaks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of each set the part of which most was found."""
    worst: dict[str, dict[str, Any]] = {}
    for leak in leaks:
        worst[leak["set"]] = max(worst.get(leak["set"], leak), leak, key=_likeness)
    return list(worst.values())


def _likeness(leak: dict[str, Any]) -> tuple[float, float]:
    return leak["verbatim"] or 0, leak["similar"] or 0


def _in_training(leak: dict[str, Any]) -> Line:
    """Return how many items of a set are in training data, in words."""
    verbatim, similar = _counts(leak)
    items = plural(leak["findable"], "item" if leak["findable"] == leak["items"] else "findable item")
    text = "{} of {} of {} in training, {} word for word"
    return say(text, similar, items, Name(leak["set"], SHORT, ends=True), verbatim)


def _counts(leak: dict[str, Any]) -> tuple[int, int]:
    """Return how many items are in training data word for word, and how many of any likeness."""
    verbatim, similar = (round(value * leak["findable"]) for value in _likeness(leak))
    return verbatim, similar


def section(leaks: Sequence[dict[str, Any]]) -> Section:
    """Return what of each part of each set was found."""
    title = "Evaluation sets"
    if not leaks:
        return empty_section("contamination", title, "There is no evaluation set.")
    worst = _worst_parts(leaks)
    leaking = [leak for leak in worst if any(_likeness(leak))]
    lead: Line = "Nothing of an evaluation set was found in training."
    if leaking:
        others = f", and of {plural(len(leaking) - 1, 'other set')}" if len(leaking) > 1 else ""
        lead = say("{}{}.", _in_training(leaking[0]), others)
    absent = (
        Prose(text=say("{}, {}: - because {}.", Name(leak["set"]), leak["part"], leak["why"]), tone="quiet")
        for leak in leaks
        if leak["why"]
    )
    made = [
        Bar(say("{}: {}", Name(leak["set"], 16, ends=True), what), value, share(value), loud=value > 0)
        for leak in worst
        for what, value in (("word for word", leak["verbatim"]), ("similar", leak["similar"]))
        if value is not None
    ]
    table = _table(leaks)
    chart = Figure(
        id="chart-contamination",
        title="Found in training data, of evaluation sets",
        chart=bars("share of the set's items", made[:_BARS], percent=True),
        table=table,
    )
    text = "{}: {} found only beside the answer, or alone between line breaks, and in no share; {} so."
    beside = (
        Prose(text=say(text, Name(leak["set"]), _are(leak["context"]), _found_so(leak)), tone="quiet")
        for leak in leaks
        if leak["context"]
    )
    return Section(
        id="contamination",
        title=title,
        lead=lead,
        tone="bad" if leaking else "good",
        blocks=(chart if made else table, *absent, *beside),
    )


def _are(count: int) -> str:
    return f"{plural(count, 'question')} {'is' if count == 1 else 'are'}"


def _found_so(leak: dict[str, Any]) -> str:
    count = leak["context_found"] or 0
    return f"{count:,} {'was' if count == 1 else 'were'} found"


def _table(leaks: Sequence[dict[str, Any]]) -> Table:
    def loud(value: float | None) -> Cell:
        return bad(share(value))

    return table_of(
        "Evaluation items in training data",
        leaks,
        column("set", shown=Name),
        column("items"),
        column("part", kind="word"),
        column("findable"),
        column("only beside", "context"),
        column("too short"),
        column("boilerplate"),
        column("verbatim", shown=loud),
        column("similar", shown=loud),
        column("common"),
        most=None,
        noun="part",
        whole=True,
        note="findable: items that a rule finds wherever they stand; only beside: short questions of common words,"
        " found beside their answer or alone between line breaks only, and in no share of questions; verbatim: share of"
        " the findable that are in training data word for word;"
        " similar: those, and with up to three words in ten changed; common: found in very many training documents.",
    )


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    for leak in _worst_parts(set_leaks(manifest)):
        if any(_likeness(leak)):
            verbatim, similar = _counts(leak)
            kind = Kind.LEAKED if verbatim else Kind.SIMILAR
            yield standout(manifest, kind, similar, _in_training(leak), leak["set"])


def _blocks(manifest: Manifest) -> list[Section | Block]:
    """Return the sets, then the shards that hold what is protected, of held-out splits too."""
    leaks, places = set_leaks(manifest), leak_sites(manifest)
    siblings = [Prose(text=text) for leak in _worst_parts(leaks) for text in _siblings(leak, places)]
    return [section(leaks), *siblings, *([leaks_table(places)] if places else [])]


def _siblings(leak: dict[str, Any], places: Sequence[LeakSite]) -> Iterator[Line]:
    """Yield a remark where more items are similar to training text than documents hold any."""
    verbatim, similar = _counts(leak)
    documents = sum(place.documents for place in places if place.set == leak["set"])
    if 0 < documents < similar - verbatim:
        text = (
            "{}: {} are only similar to text of {}. Items of one template resemble each other: inspect some documents."
        )
        yield say(text, Name(leak["set"]), f"{similar - verbatim:,} items", plural(documents, "training document"))


def _sentences(manifest: Manifest) -> Iterator[Line]:
    for leak in set_leaks(manifest):
        which = say("the evaluation set {} ({})", Name(leak["set"], LONG), leak["part"])
        if leak["verbatim"] is None:
            yield say("Items of {} were not evaluated: {}.", which, Name(leak["why"], LONG))
            continue
        also = "" if leak["similar"] is None else say(", {} with small changes", share(leak["similar"]))
        text = "{} of {} of {} are in training data word for word{}."
        yield say(text, share(leak["verbatim"]), plural(leak["findable"], "item"), which, also)
        if leak["context"]:
            text = "{} more of {} found only beside the answer, or alone between line breaks, and in no share; {} so."
            yield say(text, _are(leak["context"]), which, _found_so(leak))


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="leaks", area="leakage", blocks=_blocks),),
    highlights=_highlights,
    facts={"set_leaks": set_leaks},
)
