"""Whether rules of alerts have receipts: where each limit comes from, and what was shown of its monitor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import Table, names, texts, toned, words
from dataaudit.base.render.line import Name
from dataaudit.lab.receipts import FIELDS
from dataaudit.live.rules import AlertsFile, Rule

RECEIPT: Final = "receipt"
"""What a rule's ``source`` says where its limit comes from a receipt."""


def check_rules(alerts: AlertsFile, files: Sequence[Mapping[str, Any]], *, every: bool) -> dict[str, Any]:
    """Return of each rule of a metric its source, the receipt that it has, and whether it lacks one.

    A rule needs a receipt where its ``source`` says so, where the file has ``require_receipts``, or with ``every``. A
    receipt counts where its nine fields are filled and a fault was caught before a run diverged.
    """
    rows = []
    for rule in alerts.rules:
        if rule.metric is None or rule.metric == "*":
            continue
        demanded = every or alerts.require_receipts or rule.source.startswith(RECEIPT)
        receipt, why = _receipt_of(rule, files)
        own = {"rule": rule.name, "metric": rule.metric, "source": rule.source, "demanded": demanded}
        rows.append(own | {"receipt": receipt, "why_not": why})
    return {"rules": rows, "lacking": [row["rule"] for row in rows if row["demanded"] and not row["receipt"]]}


def _receipt_of(rule: Rule, files: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return which receipt a rule's metric has, in words; else why none."""
    cited = rule.source.removeprefix(RECEIPT).strip() if rule.source.startswith(RECEIPT) else ""
    why = "no receipts were given: --receipts FILE" if not files else f"no receipt is of {rule.metric}"
    for made in files:
        digest = str(made["verdicts_digest"])
        if cited and not digest.startswith(cited):
            why = f"no receipts with the digest {cited} were given"
            continue
        for name, own in made["receipts"].items():
            signal = own["signal"]
            same_stat = rule.stat is None or signal.get("stat") in {None, rule.stat}
            if signal.get("metric", name) != rule.metric or not same_stat:
                continue
            if empty := [field for field in FIELDS if not own.get(field)]:
                why = f"{name}: {empty[0]} is empty"
                continue
            caught = sum(lead["caught_before"] for lead in own["lead_time"].values())
            diverged = sum(lead["diverged"] for lead in own["lead_time"].values())
            if caught:
                return f"{name}: {caught} of {diverged} caught before divergence ({digest[:12]})", ""
            why = f"{name}: it caught none of {diverged} runs before they diverged ({digest[:12]})"
    return "", why


def demands_text(made: Mapping[str, Any]) -> str:
    """Return what the terminal shows."""
    rows = tuple(
        (
            Name(row["rule"]),
            Name(row["metric"]),
            Name(row["source"]),
            "yes" if row["demanded"] else "no",
            toned(row["receipt"] or row["why_not"], "bad", when=row["demanded"] and not row["receipt"]),
        )
        for row in made["rules"]
    )
    columns = (*names("rule", "metric", "source"), *words("demanded"), *texts("receipt"))
    table = Table(title="Rules of metrics", columns=columns, rows=rows, whole=True, noun="rule")
    number = len(made["lacking"])
    title = f"{number} rules lack a receipt that is demanded" if number else "No rule lacks a receipt that is demanded"
    return terminal.render(title, [table], most=None)
