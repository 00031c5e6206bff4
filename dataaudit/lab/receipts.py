"""Receipts: what was shown of each monitor, by which faults and runs; written as JSON, compared, demanded by rules."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from dataaudit import __version__
from dataaudit.base.errors import ConfigError
from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import Facts, Table, names, texts, toned, words
from dataaudit.base.render.line import Name
from dataaudit.lab.monitors import BANDED, BY_NAME, DETECTORS, MECHANISM, OUTSIDE, SIGNALS, module_of
from dataaudit.lab.plan import Plan
from dataaudit.lab.scoring import AIM, Verdict, false_alarms, order, outcome, specificity, verdicts_digest
from dataaudit.live.rules import AlertsFile, Rule

FORMAT: Final = "dataaudit-receipts-1"
FILE: Final = "receipts.json"
RECEIPT: Final = "receipt"
"""What a rule's ``source`` says where its limit comes from a receipt."""
FIELDS: Final = (
    *("module", "signal", "fault_model", "injection", "lead_time"),
    *("healthy_baseline", "threshold", "recovery", "limits"),
)
"""What a receipt has to hold, each not empty."""
LIMITS: Final = (
    "Two layers, 64 wide, bytes of one text: sizes, optimizers and data of other runs were not tried.",
    "Strengths were chosen so that runs diverge within hundreds of steps; a weaker fault may take thousands.",
    "Limits hold for this size, text and number of signals: calibrate your own on healthy runs of yours.",
)


def receipts(
    plan: Plan,
    verdicts: Sequence[Verdict],
    lifted: Sequence[Mapping[str, Any]],
    *,
    command: str,
    device: str,
    text: Mapping[str, str],
) -> dict[str, Any]:
    """Return the file of receipts of scored runs.

    ``lifted`` is what followed where a fault was withdrawn at its first alarm; ``command`` makes the same again.
    """
    healthy = [item for item in verdicts if item.family in {"healthy", "sham"}]
    faults = {name: own for name, own in _by(verdicts, "scenario").items() if own[0] not in healthy}
    families = {name: own for name, own in _by(verdicts, "family").items() if own[0] not in healthy}
    seeds = sorted({item.seed for item in verdicts})
    return {
        "format": FORMAT,
        "plan": plan.digest,
        "command": command,
        "seeds": seeds,
        "bands_from_seeds": plan.content["seeds"]["band"],
        "text": dict(text),
        "text_is_the_plans": text["digest"] == plan.content["text"]["digest"],
        "versions": {
            "dataaudit": __version__,
            "torch": _version("torch"),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "machine": {"machine": platform.machine(), "system": platform.system(), "cpu": _cpu(), "device": device},
        "runs": len(verdicts),
        "verdicts_digest": verdicts_digest(verdicts),
        "aims": {name: _aim(families[name], share) for name, share in AIM.items() if name in families},
        "families": {name: outcome(own, MECHANISM) for name, own in families.items()},
        "scenarios": {
            name: {"words": plan.content["scenarios"][name]["words"], "model": own[0].model, "family": own[0].family}
            | {"pilot": plan.content["scenarios"][name].get("verdict", "")}
            | {"any_monitor": outcome(own, MECHANISM), "any_loss_or_gradient": outcome(own, OUTSIDE)}
            for name, own in faults.items()
        },
        "false_alarms": {
            "monitors": false_alarms(healthy, MECHANISM),
            "loss_and_gradient": false_alarms(healthy, OUTSIDE),
            "vitals_own_rules": {
                "healthy_runs": len(healthy),
                "runs_with_an_alarm": sum(bool(item.vitals) for item in healthy),
                "runs_by_metric": dict(sorted(Counter(metric for item in healthy for metric in item.vitals).items())),
            },
        },
        "specificity": specificity(verdicts),
        "order_of_arxiv_2606_28116": {name: order(own) for name, own in faults.items() if own[0].family == "attention"},
        "receipts": {name: _receipt(plan, name, healthy, faults, lifted) for name in SIGNALS},
        "verdicts": [asdict(item) for item in verdicts],
    }


def _receipt(
    plan: Plan,
    signal: str,
    healthy: Sequence[Verdict],
    faults: Mapping[str, Sequence[Verdict]],
    lifted: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the receipt of a signal: the nine fields, and its false alarms."""
    monitor = BY_NAME.get(signal)
    stored = plan.content["limits"]
    threshold = {
        f"{model}, fault {'later' if mode == 'later' else 'from the start'}": round(own[signal], 4)
        for model, modes in stored.items()
        for mode, own in modes.items()
        if signal in own
    }
    models = {name.split(",")[0] for name in threshold}
    own = {name: outcome(runs, [signal]) for name, runs in faults.items() if runs[0].model in models}
    seeds = plan.content["seeds"]["band"]
    return {
        "module": module_of(signal),
        "signal": {"metric": monitor.metric, "stat": monitor.stat, "over": monitor.over, "log": monitor.logarithm}
        if monitor
        else {"detector": signal},
        "fault_model": {name: plan.content["scenarios"][name]["words"] for name in own},
        "injection": {
            name: f"{faults[name][0].model} model, from step {faults[name][0].onset + 1} on, seeds "
            f"{min(item.seed for item in faults[name])} to {max(item.seed for item in faults[name])}"
            for name in own
        },
        "lead_time": own,
        "healthy_baseline": f"{len(seeds)} healthy runs of each model, seeds {seeds[0]} to {seeds[-1]}, none scored",
        "threshold": threshold
        or "it has no series in the models that were tried: no layer of them has what it measures",
        "threshold_unit": "standard deviations of healthy runs at the step, three points in a row"
        if monitor or signal in BANDED
        else DETECTORS[signal][0] + ", in the unit of the detector",
        "recovery": [
            {key: row[key] for key in ("scenario", "seed", "lifted", "diverged")}
            | {"last_score": row["scores"].get(signal)}
            for row in lifted
            if row["scenario"] in own
        ]
        or "not tried",
        "limits": list(LIMITS),
        "false_alarms": false_alarms(healthy, [signal]),
    }


def _by(verdicts: Sequence[Verdict], field: str) -> dict[str, list[Verdict]]:
    made: dict[str, list[Verdict]] = {}
    for item in verdicts:
        made.setdefault(getattr(item, field), []).append(item)
    return made


def lower_bound(caught: int, runs: int) -> float:
    """Return the exact lower bound of a share, one-sided, 95 % (Clopper and Pearson 1934): 0.902 of 29 in 29."""
    low, high = 0.0, 1.0
    at = range(caught, runs + 1)
    ways = [math.lgamma(runs + 1) - math.lgamma(of + 1) - math.lgamma(runs - of + 1) for of in at]
    for _ in range(50 if caught else 0):
        middle = (low + high) / 2
        own, rest = math.log(middle), math.log1p(-middle)
        tail = sum(math.exp(way + of * own + (runs - of) * rest) for way, of in zip(ways, at, strict=True))
        low, high = (middle, high) if tail < 0.05 else (low, middle)
    return low


def _aim(verdicts: Sequence[Verdict], share: float) -> dict[str, Any]:
    own = outcome(verdicts, MECHANISM)
    low = lower_bound(own["caught_before"], own["diverged"])
    verdict = "met" if low >= share else "share met, its lower bound not: more seeds are needed"
    if not own["diverged"]:
        verdict = "not evaluated: no run diverged"
    elif own["caught_before"] < share * own["diverged"]:
        verdict = "missed"
    caught = {name: own[name] for name in ("caught_before", "diverged")}
    return {"aim": share, **caught, "low": round(low, 4), "verdict": verdict}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def load_receipts(path: Path) -> dict[str, Any]:
    """Read a file of receipts, or that of a folder, whose verdicts are those of its digest."""
    file = path / FILE if path.is_dir() else path
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"lab: {file} cannot be read: {error}", "`dataaudit lab run` writes receipts.json.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ConfigError(f"lab: {file} is no file of receipts", "`dataaudit lab run` and `lab ingest` write them.")
    try:
        intact = verdicts_digest([Verdict(**item) for item in value["verdicts"]]) == value["verdicts_digest"]
    except (KeyError, TypeError):
        intact = False
    if not intact:
        raise ConfigError(f"lab: the verdicts of {file} are not those of its digest", "Make the receipts again.")
    return value


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two files of receipts differ in: settings, and by run the steps that differ."""
    fields = ("plan", "seeds", "text", "versions", "machine")
    runs = [{(item["scenario"], item["seed"]): _flat(item) for item in side["verdicts"]} for side in (first, second)]
    both = sorted(runs[0].keys() & runs[1].keys())
    changed = [
        {"scenario": key[0], "seed": key[1], "what": {name: [old, new.get(name)] for name, old in own.items()}}
        for key in both
        for new in [runs[1][key]]
        if (own := {name: value for name, value in runs[0][key].items() if value != new.get(name)})
    ]
    return {
        "same_verdicts": first["verdicts_digest"] == second["verdicts_digest"],
        "settings": {name: [first[name], second[name]] for name in fields if first[name] != second[name]},
        "runs_in_both": len(both),
        "runs_in_one": len(runs[0].keys() ^ runs[1].keys()),
        "runs_that_differ": changed,
    }


def _flat(verdict: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: verdict[name] for name in ("onset", "diverged", "steps")}, **verdict["first"]}


def compared_text(made: Mapping[str, Any]) -> str:
    """Return what the terminal shows of a comparison."""
    rows = tuple(
        (
            Name(f"{item['scenario']}, seed {item['seed']}"),
            Name(", ".join(f"{name} {old} and {new}" for name, (old, new) in item["what"].items()), 300),
        )
        for item in made["runs_that_differ"]
    )
    title = "The same verdicts" if made["same_verdicts"] else f"{len(rows)} of {made['runs_in_both']} runs differ"
    title += f", and {made['runs_in_one']} are in a single file" if made["runs_in_one"] else ""
    settings = tuple((name, Name(f"{old} and {new}", 200)) for name, (old, new) in made["settings"].items())
    number = (("runs in both", f"{made['runs_in_both']}"), ("in a single file", f"{made['runs_in_one']}"))
    columns = (*names("run"), *texts("steps of the first and the second file"))
    table = Table(title="Runs that differ", columns=columns, rows=rows, noun="run")
    return terminal.render(title, [Facts(title="Receipts", pairs=(*number, *settings)), table])


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
