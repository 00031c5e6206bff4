"""Contamination: items of evaluation sets that stand in training data.

What of evaluation sets is in training data: a row for each part of a set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Prose,
    Row,
    Section,
    Table,
    bad,
    bars,
    names,
    numbers,
    words,
)
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.base.text import plural
from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.family import (
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import (
    by_scope,
    documents_with_text_of,
    leak_places,
    lists_all_items,
    matches_of,
    number_of,
    places_table,
    standout,
    value_of,
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
from dataaudit.metrics.records import listed
from dataaudit.metrics.shown import LONG, SHORT, Kind, Part, Shown, Standout

METRIC = "benchmark_contamination"
_PARTS = "set and entity"
_ITEMS = f"{_PARTS} and rule"
_TRAINING = {"population": "training", "sources_of": "training"}


def _evidence(case: Broken, tables: Tables) -> tuple[str, Mapping[int, int]]:
    return "documents that hold an item", documents_with_text_of(case, tables, tables.sets)


def _documents(case: Broken, tables: Tables) -> pa.Table:
    found = matches_of(case, tables, tables.sets)
    return listed(found["shard"], found["row"], found["tier"])


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
        found, items = (
            Number("overlap", "", rows, ("shard", "row")),
            Number("overlap", "", rows & Condition(_counted), ("item",)),
        )
        shapes = "all, split, set" if tier == "verbatim" else "set"
        for bound in (
            Follows(METRIC, "train_documents", shapes=shapes, least=found, most=found),
            Follows(METRIC, "rate", shapes="set and entity", least=items, most=unlimited(found)),
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
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(
                    METRIC,
                    "rate",
                    "ratio",
                    f"{_ITEMS}, source and {_ITEMS}",
                    absent_is_zero=frozenset({"source"}),
                    **_TRAINING,
                ),
                *statistics(METRIC, "rate_without_common", "ratio", _ITEMS, **_TRAINING),
                *statistics(METRIC, "items repeated", "items", "set", **_TRAINING),
                *statistics(METRIC, "lost", "items", "set, set and rule", **_TRAINING),
                *statistics(METRIC, "common context_found", "items", _PARTS, **_TRAINING),
                *statistics(METRIC, "indexed short context too_short boilerplate absent", "items", _PARTS, **_TRAINING),
                *statistics(METRIC, "matches", "matches", "set", **_TRAINING),
                *statistics(
                    METRIC,
                    "train_documents",
                    "ratio",
                    "rule, split and rule, source and rule, split and source and rule, set and rule",
                    **_TRAINING,
                ),
            ),
            reading=1,
            evidence=Counted(count=_evidence),
            documents=_documents,
            sets="evaluation",
            entities=frozenset({"question", "answer", "both"}),
            area="leakage",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="train_documents",
            column="contaminated",
            per_document=True,
            population="training",
            head="with evaluation items",
            shown_as="count",
            compared=True,
        ),
    ),
    stage_name="overlap",
    checked_with=("overlap", "shards"),
    checks=tuple(_checks()),
    shown="dataaudit.metrics.contamination.definition:SHOWN",
)

_MATCHED_PARTS = ("question", "answer", "both")
_NOTHING_FINDABLE = "no rule can find any of its items: all are too short, or a template"
_ONLY_BESIDE = "its items are found only beside their answers, or alone between line breaks"
_BARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLeak:
    """A part of an evaluation set, and what of it is in training data."""

    set: str
    items: int
    part: str
    findable: int
    too_short: int | None
    boilerplate: int | None
    verbatim: float | None
    similar: float | None
    common: int
    """Items found in very many training documents."""
    why: str
    """Why a rate is absent; empty when none is."""
    context: int | None = None
    """Questions found only beside their answer, or alone between line breaks: in no rate."""
    context_found: int | None = None
    """Those of them that were found."""


@once
def set_leaks(manifest: Manifest) -> list[SetLeak]:
    """Return the evaluation sets that were looked for, by name; a row for each part that they have."""
    found = by_scope(manifest.metrics("benchmark_contamination"))
    leaks = []
    for name in sorted({key[1] for key in found if key[0] == "items"}):
        for part in _MATCHED_PARTS:
            rate = found.get(("rate", name, part, "verbatim"))
            if rate is None:
                continue
            coverage = {
                stat: number_of(found, (stat, name, part, "")) if part != "both" else None
                for stat in ("too_short", "boilerplate")
            }
            beside = {
                stat: value_of(found, (stat, name, part, "")) if part == "question" else None
                for stat in ("context", "context_found")
            }
            empty = _ONLY_BESIDE if beside["context"] else _NOTHING_FINDABLE
            leaks.append(
                SetLeak(
                    set=name,
                    items=number_of(found, ("items", name, "", "")),
                    part=part,
                    findable=rate.denominator,
                    too_short=coverage["too_short"],
                    boilerplate=coverage["boilerplate"],
                    verbatim=rate.value,
                    similar=value_of(found, ("rate", name, part, "similar")),
                    common=number_of(found, ("common", name, part, "")),
                    why=why_absent([rate, found.get(("rate", name, part, "similar"))], empty),
                    **{stat: None if value is None else int(value) for stat, value in beside.items()},
                )
            )
    return leaks


def _worst_parts(sets: Sequence[SetLeak]) -> list[SetLeak]:
    """Return of each set the part of which most was found."""
    worst: dict[str, SetLeak] = {}
    for set_leak in sets:
        held = worst.get(set_leak.set)
        if held is None or (set_leak.verbatim or 0, set_leak.similar or 0) > (held.verbatim or 0, held.similar or 0):
            worst[set_leak.set] = set_leak
    return list(worst.values())


def _found_in_training(set_leak: SetLeak) -> Line:
    """Return how many items of a set are in training data, in words."""
    verbatim, similar = _counts(set_leak)
    items = plural(set_leak.findable, "item" if set_leak.findable == set_leak.items else "findable item")
    return say(
        "{} of {} of {} in training, {} word for word", similar, items, Name(set_leak.set, SHORT, ends=True), verbatim
    )


def _counts(set_leak: SetLeak) -> tuple[int, int]:
    """Return how many items are in training data word for word, and how many of any likeness."""
    return round((set_leak.verbatim or 0) * set_leak.findable), round((set_leak.similar or 0) * set_leak.findable)


def section(found: Sequence[SetLeak]) -> Section:
    """Return what of each part of each set was found."""
    title = "Evaluation sets"
    if not found:
        return Section(id="contamination", title=title, lead="There is no evaluation set.", tone="quiet")
    leaking = [set_leak for set_leak in _worst_parts(found) if set_leak.similar or set_leak.verbatim]
    lead: Line = "Nothing of an evaluation set was found in training."
    if leaking:
        others = f", and of {plural(len(leaking) - 1, 'other set')}" if len(leaking) > 1 else ""
        lead = say("{}{}.", _found_in_training(leaking[0]), others)
    reasons = [(set_leak, set_leak.why) for set_leak in found if set_leak.why]
    absent = (
        Prose(text=say("{}, {}: - because {}.", Name(set_leak.set), set_leak.part, why), tone="quiet")
        for set_leak, why in reasons
    )
    made = [
        Bar(say("{}: {}", Name(set_leak.set, 16, ends=True), what), value, share(value), loud=value > 0)
        for set_leak in _worst_parts(found)
        for what, value in (("word for word", set_leak.verbatim), ("similar", set_leak.similar))
        if value is not None
    ]
    table = _table(found)
    chart = Figure(
        id="chart-contamination",
        title="Found in training data, of evaluation sets",
        chart=bars("share of the set's items", made[:_BARS], percent=True),
        table=table,
    )
    return Section(
        id="contamination",
        title=title,
        lead=lead,
        tone="bad" if leaking else "good",
        blocks=(chart if made else table, *absent, *_not_counted(found)),
    )


def _not_counted(found: Sequence[SetLeak]) -> Iterator[Prose]:
    """Yield how many questions of a set no share speaks of, and how many of these were found nevertheless."""
    for set_leak in found:
        if set_leak.context:
            text = "{}: {} found only beside the answer, or alone between line breaks, and in no share; {} so."
            yield Prose(text=say(text, Name(set_leak.set), _are(set_leak.context), _found_so(set_leak)), tone="quiet")


def _are(count: int) -> str:
    return f"{plural(count, 'question')} {'is' if count == 1 else 'are'}"


def _found_so(leak: SetLeak) -> str:
    found = leak.context_found or 0
    return f"{found:,} {'was' if found == 1 else 'were'} found"


def _table(found: Sequence[SetLeak]) -> Table:
    def row(leak: SetLeak) -> Row:
        sizes = (leak.items, leak.part, leak.findable, leak.context, leak.too_short, leak.boilerplate)
        return Name(leak.set), *sizes, bad(share(leak.verbatim)), bad(share(leak.similar)), leak.common

    return Table(
        title="Evaluation items in training data",
        columns=(
            *names("set"),
            *numbers("items"),
            *words("part"),
            *numbers("findable", "only beside", "too short", "boilerplate", "verbatim", "similar", "common"),
        ),
        rows=tuple(map(row, found)),
        noun="part",
        whole=True,
        note="findable: items that a rule finds wherever they stand; only beside: short questions of common words,"
        " found beside their answer or alone between line breaks only, and in no share of questions; verbatim: share of"
        " the findable that are in training data word for word;"
        " similar: those, and with up to three words in ten changed; common: found in very many training documents.",
    )


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    for set_leak in _worst_parts(set_leaks(manifest)):
        if set_leak.similar or set_leak.verbatim:
            verbatim, similar = _counts(set_leak)
            kind = Kind.LEAKED if verbatim else Kind.SIMILAR
            yield standout(manifest, kind, similar, _found_in_training(set_leak), set_leak.set)


def _blocks(manifest: Manifest) -> list[Section | Block]:
    """Return the sets, then the shards that hold what is protected, of held-out splits too."""
    places = leak_places(manifest)
    return [section(set_leaks(manifest)), *([places_table(places)] if places else [])]


def _sentences(manifest: Manifest) -> Iterator[Line]:
    for set_leak in set_leaks(manifest):
        which = say("the evaluation set {} ({})", Name(set_leak.set, LONG), set_leak.part)
        if set_leak.verbatim is None:
            yield say("Items of {} were not evaluated: {}.", which, Name(set_leak.why, LONG))
            continue
        also = "" if set_leak.similar is None else say(", {} with small changes", share(set_leak.similar))
        text = "{} of {} of {} are in training data word for word{}."
        yield say(text, share(set_leak.verbatim), plural(set_leak.findable, "item"), which, also)
        if set_leak.context:
            text = "{} more of {} found only beside the answer, or alone between line breaks, and in no share; {} so."
            yield say(text, _are(set_leak.context), which, _found_so(set_leak))


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="leaks", area="leakage", blocks=_blocks),),
    standouts=_standouts,
    facts={"set_leaks": set_leaks},
)
