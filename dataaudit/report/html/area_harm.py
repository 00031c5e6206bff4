"""What is in the documents that should not be: toxic text, personal data, secrets. Counts and places, never text."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.report.few import ROUNDED, SHARED, count_cell
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Figure,
    Finding,
    Grid,
    Prose,
    Section,
    Tone,
    cell,
    first,
    label,
    more,
    name,
    named,
    numbers,
    percent,
    row,
)
from dataaudit.report.judged import Estimate, Judge, per_million
from dataaudit.report.pii import Pii, PiiSample, personal_data
from dataaudit.report.pii_cells import TIERS
from dataaudit.report.secrets import Secrets, secrets
from dataaudit.report.toxicity import Toxic, ToxicClass, ToxicScope, toxic

_ROWS = 50
_BARS = 15


def toxicity_section(manifest: Manifest) -> Section:
    """Return the screen's estimate of every document, and the judge's rates of a sample."""
    found, title = toxic(manifest), "Toxicity"
    if found is None:
        return Section(id="toxicity", title=title, lead="Toxicity was not measured in this build.", tone="quiet")
    judged = not found.judge.reason
    chosen = found.total.rate if judged else found.total.screen
    who = f"A judge of {t.plural(found.judge.judged, 'sampled document')}" if judged else "The screen"
    lead = f"{who} estimates {_estimated(chosen)} of the documents to be toxic."
    blocks: list[Block] = [_by_source(found, judged=judged)]
    if judged:
        blocks += _judged(found)
    else:
        blocks.append(Prose(text=f"No judge scored a sample: {found.judge.meaning}.", tone="quiet"))
    return Section(id="toxicity", title=title, lead=lead, blocks=tuple(blocks))


def privacy_section(manifest: Manifest) -> Section:
    """Return personal data by kind and source; small counts are left out."""
    found, title = personal_data(manifest), "Personal data"
    if found is None:
        return Section(
            id="privacy", title=title, lead="Personal data was not searched for in this build.", tone="quiet"
        )
    total = found.total.found
    if total.suppressed:
        lead = "There is so little personal data that no number of it is shown."
    elif not total.documents:
        lead = "No personal data was found."
    else:
        holding = f"{t.plural(total.documents, 'document')} ({percent(total.share)}) hold some"
        lead = f"{holding}: {per_million(total.per_million)} hits per million tokens."
    blocks: list[Block] = _entities(found) + _pii_sources(found)
    if found.suppressed:
        blocks.append(Prose(text=SHARED, tone="quiet"))
    blocks += _presidio(found)
    return Section(id="privacy", title=title, lead=lead, blocks=tuple(blocks))


def secret_section(manifest: Manifest) -> tuple[Section, list[Finding]]:
    """Return secrets by kind and where most of them lie, and the warning that stands above everything else."""
    found, title = secrets(manifest), "Secrets"
    if found is None:
        return Section(id="secrets", title=title, lead="Secrets were not searched for in this build.", tone="quiet"), []
    total, findings = found.total, []
    hits = total.validated + total.contextual + total.pattern
    lead = f"{t.plural(hits, 'secret')} in {t.plural(total.documents, 'document')}, none confirmed by its structure."
    if not hits:
        lead = "No secret was found."
    if total.validated:
        kinds = ", ".join(f"{named(one.entity, 40)} {one.validated}" for one in found.entities[:3] if one.validated)
        place = f"; most in {named(f'{found.places[0].split}/{found.places[0].uri}', 80)}" if found.places else ""
        lead = (
            f"{t.plural(total.validated, 'secret')} confirmed by structure in"
            f" {t.plural(total.validated_documents, 'document')} ({kinds}){place}. Revoke them."
        )
        findings.append(Finding(tone="bad", text=lead, section="secrets"))
    tone: Tone = "bad" if total.validated else "warn" if hits else "good"
    blocks = _secret_tables(found) if hits or total.reserved else ()
    return Section(id="secrets", title=title, lead=lead, tone=tone, blocks=blocks), findings


def _by_source(found: Toxic, *, judged: bool) -> Block:
    scopes = [*found.sources, found.total]
    pairs = [(one, one.rate if judged else one.screen) for one in scopes]
    shown = first(pairs, _ROWS)
    rows = tuple(
        row(
            named(one.name) or "all",
            t.count(one.documents),
            percent(one.screened),
            percent(_value(one.screen)),
            _interval(one.screen),
            percent(one.screen_positive),
            *_rate(one, judged=judged),
        )
        for one, _ in shown
    )
    heads = ["documents", "screened", "screen's estimate", "95 % interval", "over 0.5"]
    heads += ["judged rate", "its 95 % interval"] if judged else []
    grid = Grid(
        title="Toxic documents by source",
        columns=(name("source"), *numbers(*heads)),
        rows=rows,
        more=more(pairs, shown, "source"),
        note="screened: documents that the screen can judge; its estimate holds as far as its calibration does here.",
    )
    bars = [(one, chosen) for one, chosen in pairs if chosen is not None and chosen.value is not None][:_BARS]
    if not bars:
        return grid
    return Figure(
        id="chart-toxicity",
        title="Share of toxic documents by source",
        table=grid,
        chart=Bars(
            labels=tuple(label(one.name) or "all" for one, _ in bars),
            values=tuple(chosen.value or 0.0 for _, chosen in bars),
            shown=tuple(_estimated(one) for _, one in bars),
            spans=tuple(_span(chosen) for _, chosen in bars),
            unit="share of documents",
            percent=True,
        ),
        says="; ".join(f"{label(one.name) or 'all'} {_estimated(chosen)}" for one, chosen in bars[:5]),
        note=f"{'Judged in a sample' if judged else 'By the screen alone'}; lines are 95 % intervals.",
    )


def _judged(found: Toxic) -> list[Block]:
    lists: tuple[tuple[str, Sequence[ToxicScope | ToxicClass]], ...] = (
        ("class", found.classes),
        ("language", found.languages),
    )
    grids: list[Block] = [
        Grid(
            title=f"Judged rate by {kind}",
            columns=(name(kind), *numbers("share", "95 % interval")),
            folded=True,
            rows=tuple(
                row(named(one.name), percent(_value(one.rate)), _interval(one.rate)) for one in first(rates, _ROWS)
            ),
            more=more(rates, first(rates, _ROWS), kind),
        )
        for kind, rates in lists
        if len(rates) > 1
    ]
    return [*grids, Prose(text=_rests_on(found.judge), tone="quiet")]


def _entities(found: Pii) -> list[Block]:
    shown = first(found.entities, _ROWS)
    every = [*shown, found.total] if found.entities else []
    rows = tuple(
        row(
            named(one.entity) or "all",
            per_million(one.found.per_million),
            count_cell(one.found, one.found.documents),
            *(count_cell(one.tiers[tier], one.tiers[tier].hits) for tier in TIERS),
            t.count(one.reserved),
        )
        for one in every
    )
    grid = Grid(
        title="Personal data by kind",
        rows=rows,
        more=more(found.entities, shown, "kind"),
        columns=(name("kind"), *numbers("hits per million tokens", "documents", *TIERS, "reserved")),
        note="validated, contextual, pattern: hits by how sure they are; reserved: examples, in no other number.",
        empty="None was found.",
    )
    bars = [
        (one, one.found.per_million) for one in found.entities if not one.found.suppressed and one.found.per_million
    ]
    if not bars:
        return [grid]
    chosen = bars[:_BARS]
    return [
        Figure(
            id="chart-privacy",
            title="Hits per million tokens by kind",
            table=grid,
            chart=Bars(
                labels=tuple(label(one.entity) for one, _ in chosen),
                values=tuple(rate for _, rate in chosen),
                shown=tuple(f"{per_million(rate)} per million tokens" for _, rate in chosen),
                unit="hits per million tokens",
            ),
            says="; ".join(f"{label(one.entity)} {per_million(rate)}" for one, rate in chosen[:5]),
        )
    ]


def _pii_sources(found: Pii) -> list[Block]:
    holding = [one for one in found.sources if one.found.suppressed or one.found.documents]
    if len(found.sources) < 2 or not holding:
        return []
    shown = first(holding, _ROWS)
    rows = tuple(
        row(
            named(one.source),
            per_million(one.found.per_million),
            count_cell(one.found, one.found.hits),
            count_cell(one.found, one.found.documents),
            percent(one.found.share),
        )
        for one in shown
    )
    heads = ("hits per million tokens", "hits", "documents", "share of documents")
    return [
        Grid(
            title="Personal data by source",
            columns=(name("source"), *numbers(*heads)),
            rows=rows,
            more=more(holding, shown, "source"),
            note=f"Numbers {ROUNDED}.",
        )
    ]


def _presidio(found: Pii) -> list[Block]:
    if found.judge is None:
        return []
    if found.judge.reason:
        return [Prose(text=f"No judge scored a sample: {found.judge.meaning}.", tone="quiet")]
    seen = [one for one in found.sample if _is_shown(one)]
    rows = tuple(
        row(
            named(one.entity) or "any",
            percent(_value(one.documents)),
            _interval(one.documents),
            per_million(_value(one.hits)),
            percent(_value(one.confirmed)),
        )
        for one in first(seen, _ROWS)
    )
    heads = ("share of documents", "95 % interval", "hits per million tokens", "confirmed")
    grid = Grid(
        title="Personal data in a sample, by presidio",
        columns=(name("kind"), *numbers(*heads)),
        rows=rows,
        more=more(seen, first(seen, _ROWS), "kind"),
        folded=True,
        note="confirmed: of what the patterns alone are not sure of, the share that presidio confirms.",
    )
    return [grid, Prose(text=_rests_on(found.judge), tone="quiet")]


def _secret_tables(found: Secrets) -> tuple[Block, ...]:
    kinds, sources = first(found.entities, _ROWS), first(found.sources, _ROWS)
    rows = tuple(
        row(
            named(one.entity) or "all",
            cell(t.count(one.validated), "bad" if one.validated else ""),
            t.count(one.contextual),
            t.count(one.pattern),
            t.count(one.documents),
            t.count(one.reserved),
        )
        for one in [*kinds, found.total]
    )
    by_kind = Grid(
        title="Secrets by kind",
        rows=rows,
        more=more(found.entities, kinds, "kind"),
        columns=(name("kind"), *numbers("validated", "contextual", "pattern", "documents", "reserved")),
        note="validated: structure or checksum confirms it; contextual: words beside it say so; pattern: form alone;"
        " reserved: placeholders and examples, in no other number.",
    )
    by_source = Grid(
        title="Secrets by source",
        columns=(name("source"), *numbers("validated", "all hits", "documents")),
        rows=tuple(
            row(named(one.source), t.count(one.validated), t.count(one.hits), t.count(one.documents)) for one in sources
        ),
        more=more(found.sources, sources, "source"),
        empty="No source holds one.",
    )
    by_shard = Grid(
        title="Shards with most of them",
        columns=(*numbers("shard"), name("split/uri"), *numbers("validated", "all hits")),
        rows=tuple(
            row(t.count(one.shard), named(f"{one.split}/{one.uri}"), t.count(one.validated), t.count(one.hits))
            for one in found.places
        ),
        more=f"{t.plural(found.shards, 'shard')} hold some; the table of shards below has all." if found.shards else "",
        empty="No shard holds one.",
    )
    return by_kind, by_source, by_shard


def _rests_on(judge: Judge) -> str:
    parts = [f"Judged by {named(judge.name or 'a model')}: {t.plural(judge.judged, 'document')}, drawn by a hash."]
    if judge.languages:
        parts.append(f"It reads {percent(judge.reads)} of the documents; the rates are of these.")
    if judge.failed:
        parts.append(f"It had no answer for {t.plural(judge.failed, 'document')}.")
    return " ".join(parts)


def _rate(one: ToxicScope, *, judged: bool) -> tuple[str, ...]:
    return (percent(_value(one.rate)), _interval(one.rate)) if judged else ()


def _is_shown(one: PiiSample) -> bool:
    return not one.entity or bool(one.documents and one.documents.value)


def _value(one: Estimate | None) -> float | None:
    return None if one is None else one.value


def _span(one: Estimate) -> tuple[float, float] | None:
    return None if one.low is None or one.high is None else (one.low, one.high)


def _interval(one: Estimate | None) -> str:
    return t.NOTHING if one is None or one.low is None else f"{percent(one.low)} to {percent(one.high)}"


def _estimated(one: Estimate | None) -> str:
    if one is None or one.value is None:
        return "an unknown share"
    bounds = _interval(one)
    return percent(one.value) + ("" if bounds == t.NOTHING else f" (95 % interval {bounds})")
