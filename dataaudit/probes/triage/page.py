"""Triage for people: a page in a terminal, or Markdown for an issue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dataaudit.base import text as t
from dataaudit.base.render import markdown
from dataaudit.base.render.blocks import Facts, Table, table_of
from dataaudit.base.render.line import Line, Name, say
from dataaudit.base.render.terminal import render
from dataaudit.probes.triage.steps import TITLES, Check, Triage

_STATES: Final = {
    "found": "off",
    "clean": "clean",
    "not_evaluated": "not evaluated",
    "not_applicable": "not applicable",
}


def headline(result: Triage) -> Line:
    """Return the verdict in a line."""
    suspect = result.suspect
    if result.verdict == "no_data":
        return f"No data: the run log has no step{f'; it is {result.log}' if result.log else ''}."
    if result.verdict == "none":
        return "Cause: none. Artifacts, data, internal behaviour and architecture are clean."
    if result.verdict == "found" and suspect is not None:
        return say("Cause: {}. {}.", suspect.named, suspect.found[0].words)
    missing = ", ".join(dict.fromkeys(check.name for check in result.missing)) or "all checks of a step"
    if suspect is None:
        return f"Undecidable: nothing is off in what could be looked at, and this is missing: {missing}."
    return f"Undecidable: {suspect.named} is off, but of the steps before it this is missing: {missing}."


def blocks(result: Triage) -> Iterator[Facts | Table]:
    """Yield what is shown below the verdict."""
    pairs: list[tuple[Line, Line]] = [
        ("run", say("{}, {} steps", Name(result.run, ends=True), result.steps_seen)),
        ("manifest", result.manifest),
        ("baseline", Name(result.baseline, ends=True) if result.baseline else "none"),
    ]
    if result.log:
        pairs.insert(1, ("run log", result.log))
    yield Facts(pairs=(*pairs, *((check.name, check.words) for check in result.symptoms)))
    for number, step in enumerate(result.steps, 1):
        yield table_of(
            f"{number}. {TITLES[step.name]}: {_STATES[step.state]}",
            step.checks,
            ("check", "word", lambda check: check.name),
            ("", "word", _state),
            ("evidence", "text", lambda check: check.words),
        )
    feeds: dict[str, list[str]] = {}
    last = len(result.steps) if result.suspect is None else result.steps.index(result.suspect) + 1
    for check in (check for step in result.steps[:last] for check in step.checks if check.feed):
        feeds.setdefault(check.feed, []).append(check.name)
    yield table_of(
        "What to type next",
        list(feeds.items()),
        ("for", "word", lambda item: ", ".join(dict.fromkeys(item[1]))),
        ("line", "text", lambda item: Name(item[0], 400)),
    )
    if result.experiments and (result.suspect is None or result.suspect.name == "architecture"):
        yield _experiments(result.experiments)


def _state(check: Check) -> Line:
    return _STATES[check.state] + ("" if check.needed or check.state != "not_evaluated" else ", not needed")


def _experiments(experiments: tuple[Mapping[str, Any], ...]) -> Table:
    def cost(name: str) -> Any:
        def cell(own: Mapping[str, Any]) -> Line:
            known = own[name] if own["state"] == "named" else None
            return "-" if known is None else f"{known[0]:.2g} to {known[1]:.2g}"

        return cell

    steps = experiments[0]["steps"]
    return table_of(
        "Controlled experiments, where the three steps before are clean",
        experiments,
        ("experiment", "word", lambda own: own["name"]),
        *(
            (head, "word", cost(name))
            for head, name in (("tokens", "tokens"), ("FLOPs", "flops"), ("h", "device_hours"))
        ),
        ("two arms", "text", lambda own: own["words"]),
        note=f"Of two arms of {steps[0]:,} to {steps[1]:,} steps at this run's batch; h: device hours. Pin tokenizer,"
        " manifest and evaluation artifacts, and change an axis at a time.",
    )


def shown(result: Triage, form: str) -> str:
    """Return the page as ``text``, ``md`` or ``json``."""
    if form == "json":
        return t.as_json(result.document())
    if form == "text":
        return render(headline(result), blocks(result), most=None)
    lines = [f"## {markdown.markdown(headline(result))}"]
    for block in blocks(result):
        own = markdown.lines_of([block])
        title = [f"### {markdown.markdown(block.title)}", ""] if block.title else []
        lines += ["", *title, *own] if own else []
    return "\n".join(lines) + "\n"
