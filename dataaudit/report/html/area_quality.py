"""Quality rules: what each would reject, by split."""

from __future__ import annotations

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.report.html.pieces import Bars, Block, Figure, Grid, Section, cell, label, name, named, numbers, percent
from dataaudit.report.html.pieces import row as cells
from dataaudit.report.quality import rules

_BARS = 15


def quality_section(manifest: Manifest) -> Section:
    """Return the share of documents that each rule would reject."""
    found = rules(manifest)
    title = "Quality filters"
    if not found:
        return Section(id="quality", title=title, lead="Quality rules were not applied in this build.", tone="quiet")
    splits = [split.name for split in manifest.core.splits]
    whole = "" if "" in found[0].rates else splits[0]
    wanted = [*splits, whole] if whole == "" and len(splits) > 1 else splits
    by_rate = sorted(
        (one for one in found if "." in one.rule), key=lambda one: (-(one.rates.get(whole) or 0), one.rule)
    )
    sets = [one for one in found if one.rule and "." not in one.rule]
    lead = "No document was removed. " + "; ".join(
        f"{named(one.rule, 40)} would reject {percent(one.rates.get(whole))}" for one in sets[:5]
    )
    rows = tuple(
        cells(
            named(one.rule) or "any of all rules",
            *(cell(percent(one.rates.get(split))) for split in wanted),
        )
        for one in [*found[:1], *sets, *by_rate]
    )
    grid = Grid(
        title="Documents that each rule would reject",
        rows=rows,
        folded=True,
        columns=(name("rule"), *numbers(*(named(split, 24) or "all" for split in wanted))),
    )
    blocks: list[Block] = []
    bars = [one for one in by_rate if one.rates.get(whole)][:_BARS]
    if bars:
        chart = Bars(
            labels=tuple(label(one.rule.partition(".")[2]) for one in bars),
            values=tuple(one.rates[whole] or 0.0 for one in bars),
            shown=tuple(f"{named(one.rule)}: {percent(one.rates[whole])}" for one in bars),
            unit="share of documents",
            percent=True,
        )
        says = "; ".join(f"{named(one.rule, 60)} {percent(one.rates[whole])}" for one in bars[:4])
        blocks.append(
            Figure(
                id="chart-quality",
                title="The rules that would reject most",
                chart=chart,
                says=says,
                table=grid,
                note=f"The first {len(bars)} of {len(by_rate)} rules.",
            )
        )
    else:
        blocks.append(grid)
    blocks += _upstream(manifest)
    return Section(id="quality", title=title, lead=f"{lead}.", blocks=tuple(blocks))


def _upstream(manifest: Manifest) -> list[Block]:
    """Return the filters that ran before the build, as declared."""
    declared = manifest.core.upstream_filters
    if not declared:
        return []
    rows = tuple(
        cells(
            named(one.name),
            named(one.version, 40),
            t.count(one.documents_in),
            t.count(one.documents_out),
            percent(1 - one.documents_out / one.documents_in if one.documents_in else None),
        )
        for one in declared
    )
    columns = (name("filter"), name("version"), *numbers("documents in", "documents out", "removed"))
    return [Grid(title="Filters that ran before, as the config declares them", columns=columns, rows=rows)]
