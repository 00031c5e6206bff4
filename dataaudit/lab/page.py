"""Receipts as people read them: what the terminal shows, and the page with each signal, its band and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import (
    Block,
    Column,
    Curves,
    Facts,
    Figure,
    Page,
    Point,
    Row,
    Section,
    Table,
    Tone,
    names,
    numbers,
    texts,
    words,
)
from dataaudit.base.render.line import Line, Name
from dataaudit.base.text import plural
from dataaudit.lab.monitors import BANDED, EVERY, MECHANISM, OUTSIDE, less_own, read_run, run_path
from dataaudit.lab.plan import Plan
from dataaudit.lab.scenarios import BY_NAME as SCENARIO

_SHOWN = 4
"""Signals of a fault that are drawn, the earliest first."""


def terminal_text(made: Mapping[str, Any]) -> str:
    """Return what the terminal shows."""
    return terminal.render("Receipts of monitors", sections_of(made), most=None)


def sections_of(made: Mapping[str, Any]) -> list[Section]:
    """Return the sections that terminal and page share."""
    lead = "Runs that a signal caught before they diverged, and its median lead over divergence in steps."
    fired = "Runs in which a module's signals fired before divergence, and in parentheses as the first."
    sections = [
        Section(id="aims", title="Aims", lead=_lead(made), blocks=(_aims(made), _false_alarms(made))),
        Section(id="faults", title="Monitors by fault", lead=lead, blocks=(_scenarios(made), *_by_fault(made))),
        Section(id="specificity", title="Specificity", lead=fired, blocks=(_specificity(made),)),
    ]
    if len(made["verdicts"]) == 1:
        sections.insert(1, Section(id="alarms", title="First alarms", blocks=(_first_alarms(made),)))
    if made["order_of_arxiv_2606_28116"]:
        sections.append(Section(id="claims", title="Claims of arXiv 2606.28116", blocks=(_claims(made),)))
    return [*sections, Section(id="about", title="How it was made", blocks=(_about(made),))]


def write_page(made: Mapping[str, Any], plan: Plan, folder: Path, out: Path) -> None:
    """Write the page of receipts, with pictures of runs that are in the folder."""
    from dataaudit.base.extras import require

    require("lab page", "report")
    from dataaudit.base.render.html import render
    from dataaudit.manifest.outfiles import write_file

    aims = made["aims"]
    missed = [name for name, own in aims.items() if own["verdict"] != "met"]
    rate = made["false_alarms"]["monitors"]
    often = (rate["per_10000_steps"] or 0) > rate["aim_per_10000_steps"]
    headline = f"{len(missed)} of {len(aims)} aims are not met" if missed else "There are too many false alarms"
    if not missed and not often:
        headline = "Every aim is met" if aims else "No fault here has an aim"
    tone: Tone = "good" if aims and not missed and not often else "warn"
    sections = sections_of(made)
    pictures = [
        Section(id=f"run-{name}", title=f"{name}, seed {seed}", lead=own["words"], blocks=blocks)
        for name, own in made["scenarios"].items()
        for seed, blocks in [_pictures(made, plan, folder, name)]
        if blocks
    ]
    page = Page(
        title="Receipts of monitors",
        version="",
        meta=f"dataaudit {made['versions']['dataaudit']}, plan {made['plan'][:12]}, {len(made['seeds'])} seeds",
        headline=headline,
        tone=tone,
        subline=_lead(made),
        findings=tuple(_findings(made)),
        others=(),
        findings_left_out=0,
        figures=(),
        sections=(*sections[:2], *pictures, *sections[2:]),
    )
    write_file(out, render(page).encode())


def _findings(made: Mapping[str, Any]) -> Iterator[Point]:
    """Yield the aims, then what monitors missed, then faults that made no run diverge."""
    for name, own in made["aims"].items():
        text = f"{name}: {own['caught_before']} of {own['diverged']} caught before divergence: {own['verdict']}"
        yield Point(text=text, tone="good" if own["verdict"] == "met" else "warn", section="aims")
    faults = {name: own for name, own in made["scenarios"].items() if not name.startswith(("healthy", "sham"))}
    for name, own in faults.items():
        monitors, others = own["any_monitor"], own["any_loss_or_gradient"]
        if monitors["caught_before"] < monitors["diverged"]:
            text = (
                f"{name}: {monitors['caught_before']} of {monitors['diverged']} caught before divergence: missed;"
                f" by loss and gradient norm {others['caught_before']}"
            )
            yield Point(text=text, tone="warn", section="faults")
    if calm := [name for name, own in faults.items() if not own["any_monitor"]["diverged"]]:
        yield Point(text=f"No run diverged, so no lead is known: {', '.join(calm)}", section="faults")


def _lead(made: Mapping[str, Any]) -> str:
    rate = made["false_alarms"]["monitors"]
    return (
        f"{plural(len(made['seeds']), 'seed')}, {plural(made['runs'], 'run')}. All monitors together: "
        f"{plural(rate['alarms'], 'false alarm')} in "
        f"{rate['healthy_steps']:,} healthy steps (aim: {rate['aim_per_10000_steps']:g} in 10,000)."
    )


def _aims(made: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            Name(name),
            f"{own['caught_before']} of {own['diverged']}",
            f"{own['low']:.3f}",
            f"{own['aim']:g}",
            own["verdict"],
        )
        for name, own in made["aims"].items()
    )
    heads = (*names("fault"), *numbers("caught before divergence", "lower bound", "aim"), *texts("verdict"))
    return Table(title="Faults that any monitor catches", columns=heads, rows=rows, noun="family", whole=True)


def _first_alarms(made: Mapping[str, Any]) -> Table:
    """Return when each signal of a single run was first beyond its limit, in steps of that run's own log."""
    verdict, offset = made["verdicts"][0], made.get("first_step", 1) - 1
    known = sorted((step + offset, signal) for signal, step in verdict["first"].items() if step is not None)
    rows = tuple((Name(signal), made["receipts"][signal]["module"], f"{step:,}") for step, signal in known)
    ended = f"diverged at step {verdict['diverged'] + offset:,}" if verdict["diverged"] else "did not diverge"
    note = f"The run {ended}; steps up to {verdict['onset'] + offset:,} are the healthy span."
    columns = (*names("signal"), *words("module"), *numbers("step"))
    return Table(title="Signals", columns=columns, rows=rows, whole=True, note=note, empty="No signal left its limits.")


def _false_alarms(made: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            Name(name),
            f"{own['alarms']}",
            f"{own['healthy_runs']}",
            f"{own['healthy_steps']:,}",
            "-" if own["per_10000_steps"] is None else f"{own['per_10000_steps']:g}",
            ", ".join(f"{scenario} {seed} at {step}: {' '.join(by)}" for scenario, seed, step, by in own["which"][:6])
            or "-",
        )
        for name, own in made["false_alarms"].items()
        if name != "vitals_own_rules"
    )
    own = made["false_alarms"]["vitals_own_rules"]
    by = ", ".join(f"{metric} {number}" for metric, number in own["runs_by_metric"].items())
    note = (
        f"By their own rules, without bands, vitals raised incidents in {own['runs_with_an_alarm']} of "
        f"{own['healthy_runs']} healthy runs{': ' if by else ''}{by}."
    )
    heads = (*names("family"), *numbers("alarms", "runs", "steps", "in 10,000"), *texts("which"))
    return Table(title="False alarms of healthy and sham runs", columns=heads, rows=rows, whole=True, note=note)


def _scenarios(made: Mapping[str, Any]) -> Table:
    rows = []
    for name, own in made["scenarios"].items():
        ours, theirs = own["any_monitor"], own["any_loss_or_gradient"]
        rows.append(
            (
                Name(name),
                f"{ours['diverged']} of {ours['runs']}",
                "-" if (after := ours["median_steps_to_divergence"]) is None else f"{after:g}",
                f"{ours['caught_before']} of {ours['diverged']}",
                _lead_of(ours["lead_over_divergence"]),
                f"{theirs['caught_before']} of {theirs['diverged']}",
                _lead_of(ours["lead_over_earliest_loss_or_gradient"]),
            )
        )
    heads = (
        *names("fault"),
        *numbers("diverged", "after", "any monitor", "lead", "any loss, gradient", "lead over these"),
    )
    note = "Runs that did not diverge are censored: no lead counts. Leads: median (least to largest), steps."
    return Table(title="Faults", columns=heads, rows=tuple(rows), whole=True, note=note)


def _by_fault(made: Mapping[str, Any]) -> tuple[Block, ...]:
    scenarios = [name for name, own in made["scenarios"].items() if own["any_monitor"]["diverged"]]
    blocks: list[Block] = []
    for title, signals in (("Monitors", MECHANISM), ("Detectors of loss and gradient norm", OUTSIDE)):
        rows = []
        for signal in signals:
            leads = made["receipts"][signal]["lead_time"]
            cells: list[Line] = [_cell(leads.get(name)) for name in scenarios]
            if any(cell != "-" for cell in cells):
                rows.append((Name(signal), *cells, f"{made['receipts'][signal]['false_alarms']['alarms']}"))
        columns: tuple[Column, ...] = (*names("signal"), *numbers(*scenarios, "false alarms"))
        blocks.append(Table(title=title, columns=columns, rows=tuple(rows), whole=True, noun="signal"))
    return tuple(blocks)


def _cell(own: Mapping[str, Any] | None) -> str:
    if own is None or not own["diverged"]:
        return "-"
    lead = own["lead_over_divergence"]
    return f"{own['caught_before']} of {own['diverged']}" + (f", {lead['median']:g}" if lead else "")


def _specificity(made: Mapping[str, Any]) -> Table:
    matrix = made["specificity"]
    models = {own["scenario"]: own["model"] for own in made["verdicts"]}
    judged = {
        (own["module"], limit.partition(",")[0])
        for own in made["receipts"].values()
        if isinstance(own["threshold"], dict)
        for limit in own["threshold"]
    }
    rows: tuple[Row, ...] = tuple(
        (
            Name(scenario),
            *(
                "no series" if (module, model) not in judged else "{} ({}) of {}".format(*own[scenario])
                for module, own in matrix.items()
            ),
        )
        for scenario, model in models.items()
    )
    return Table(title="Fired (first) of runs", columns=(*names("fault"), *numbers(*matrix)), rows=rows, whole=True)


def _claims(made: Mapping[str, Any]) -> Block:
    shown = {
        "first_order_fired": "first order fired",
        "delta_w_fired": "update entropy fired",
        "first_order_before_delta_w": "first order before updates",
        "delta_w_before_loss": "updates before loss",
        "all_in_order": "all in order",
    }
    rows: tuple[Row, ...] = tuple(
        (Name(name), *(f"{own[key]} of {own['runs']}" for key in shown))
        for name, own in made["order_of_arxiv_2606_28116"].items()
    )
    columns = (*names("fault"), *numbers(*shown.values()))
    return Table(title="First order of QK before updates before loss", columns=columns, rows=rows)


def _about(made: Mapping[str, Any]) -> Facts:
    versions, machine = made["versions"], made["machine"]
    return Facts(
        pairs=(
            ("command", Name(made["command"])),
            ("plan", Name(made["plan"])),
            ("verdicts", Name(made["verdicts_digest"])),
            ("text", f"{made['text']['name']}, {made['text']['digest'][:12]}"),
            ("seeds", f"{made['seeds'][0]} to {made['seeds'][-1]}"),
            ("versions", ", ".join(f"{name} {value}" for name, value in versions.items())),
            ("machine", f"{machine['cpu']}, {machine['device']}"),
        )
    )


def _pictures(made: Mapping[str, Any], plan: Plan, folder: Path, name: str) -> tuple[int, tuple[Block, ...]]:
    """Return the first seed of a fault, and pictures of its loss and of the signals that were the earliest."""
    own = next((item for item in made["verdicts"] if item["scenario"] == name), None)
    if own is None or name not in SCENARIO or not run_path(folder, name, own["seed"]).exists():
        return 0, ()
    if plan.digest != made["plan"]:
        raise ConfigError(f"lab: the receipts are of the plan {made['plan'][:12]}", "Name it, too: --plan FILE.")
    seed, onset, model = int(own["seed"]), int(own["onset"]), own["model"]
    curves, _ = read_run(run_path(folder, name, seed), plan.digest, made["text"]["digest"])
    grid = curves.grid(plan.steps)
    fired = sorted((step, signal) for signal, step in own["first"].items() if step and signal in MECHANISM)
    drawn = ["loss.band", *[signal for _, signal in fired[:_SHOWN]]]
    figures = []
    for signal in drawn:
        known = plan.content["bands"][model].get(signal, {}).get("later" if onset else "start")
        if known is None:
            continue
        values = less_own(grid[signal], onset)
        limit = plan.limit(signal, model, onset)
        steps = [(at + 1) * EVERY for at, value in enumerate(values) if np.isfinite(value)]
        band = tuple(
            ((at + 1.0) * EVERY, middle - limit * spread, middle + limit * spread)
            for at, (middle, spread) in enumerate(zip(known["middle"], known["spread"], strict=True))
            if middle is not None
        )
        first = own["first"].get(signal)
        said = [f"fault from step {onset + 1}"]
        said += [f"first alarm at step {first}"] if first else ["no alarm"]
        said += [f"diverged at step {own['diverged']}"] if own["diverged"] else ["did not diverge"]
        shown = ((float(onset + 1), float(own["diverged"] or own["steps"]), ", ".join(said)),)
        series = ((Name(signal), tuple(map(float, steps)), tuple(values[np.isfinite(values)].tolist())),)
        title = "Loss, mean of 16 steps" if signal in BANDED else signal
        rows = tuple((str(step), f"{value:.4g}") for step, value in list(zip(steps, series[0][2], strict=True))[::16])
        table = Table(title=title, columns=numbers("step", "value"), rows=rows, folded=True)
        chart = Curves(series=series, unit=_unit(signal, onset), band=band, spans=shown)
        figures.append(
            Figure(id=f"{name}-{signal}".replace(".", "-"), title=title, chart=chart, table=table, says="; ".join(said))
        )
    return seed, tuple(figures)


def _unit(signal: str, onset: int) -> str:
    what = "nats/token" if signal in BANDED else signal
    return f"{what}, less its median before the fault" if onset else what


def _lead_of(lead: Mapping[str, float] | None) -> str:
    return "-" if lead is None else f"{lead['median']:g} ({lead['least']:g} to {lead['largest']:g})"
