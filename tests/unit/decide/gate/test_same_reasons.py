"""Gate and diff name the same reason the same: every statistic, at every shape of scope, for every reason there is."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from lanes import sample
from made_facts import covered, facts, policy, record, rule

from dataaudit.decide.diff.compared_records import compare_metrics
from dataaudit.decide.diff.difference import MetricChangeKind
from dataaudit.decide.gate.number_texts import REASONS
from dataaudit.decide.gate.run import evaluate
from dataaudit.decide.gate.verdict import State
from dataaudit.manifest.core import DetectorRecord, ProtectedRecord, StageRecord
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics import comparable
from dataaudit.metrics.comparable import Meaning
from dataaudit.metrics.family import JUDGE, LANGUAGE_DETECTION, TRUNCATED
from dataaudit.metrics.registry import FAMILIES, METRICS

TODAY = dt.date(2026, 11, 22)
VALUES = {
    "source": ["web"],
    "language": ["en"],
    "entity": ["question"],
    "rule": ["c4.sentences", "repeated_ngrams.periodic_run"],
}


def scopes(stat):
    """Return a scope of each shape that a statistic is kept for; rules that look at words, and at tokens."""
    held_out = stat.population == "held_out"
    for shape in sorted(stat.shapes, key=sorted):
        for name in VALUES["rule"] if "rule" in shape else [""]:
            known = {one: VALUES[one][0] for one in shape & VALUES.keys()} | ({"rule": name} if name else {})
            if "split" in shape:
                known["split"] = "val" if held_out else "train"
            if "set" in shape:
                known["set"] = "val" if METRICS[stat.metric].sets == "held_out" else "quiz"
            yield known


RECORDS = tuple(
    record(stat.metric, stat.stat, 0.4, stat.unit, version="1", **scope)
    for metric in METRICS.values()
    for stat in metric.statistics
    for scope in scopes(stat)
)
"""One of every statistic at every shape."""
RULES = tuple(
    rule(f"r{number}", one.metric, one.stat, one.unit, change=1, scope=one.scope.as_dict())
    for number, one in enumerate(RECORDS)
)
_NAMED = {
    name
    for metric in METRICS.values()
    if metric.decided_by is not None
    for stat in metric.statistics
    for name in metric.decided_by(stat.stat)
}
DETECTORS = [*sorted(_NAMED - {JUDGE, LANGUAGE_DETECTION}), "cld2", "a judge"]


@dataclass(frozen=True)
class Change:
    """What is other in the newer manifest: fields of its core, its tokenizer, or of every record."""

    core: tuple = ()
    tokenizer: str = "t" * 64
    fields: tuple = ()


def core(detector="", stage="", config="", parents="1", quiz="1"):
    """Return what decides the meaning of numbers; what is named is not as usual."""
    held = {
        name: {"detector": "cld2", "other": name == config}
        for name in ("language", *(family.config for family in FAMILIES if family.config))
    }
    return (
        ("parents", (parents,)),
        ("protected", (ProtectedRecord(name="quiz", items=5, sha256=quiz * 64),)),
        (
            "detectors",
            tuple(DetectorRecord(name=name, version="1", sha256="12"[name == detector] * 64) for name in DETECTORS),
        ),
        (
            "stages",
            tuple(
                StageRecord(name=name, version="1", parameters={"threshold": 1 + (name == stage)})
                for name in sorted({family.stage_name for family in FAMILIES if family.stage_name})
            ),
        ),
        ("config", held),
    )


CHANGES = {
    "nothing": Change(core()),
    "unit": Change(core(), fields=(("unit", "percent"),)),
    "version": Change(core(), fields=(("version", "2"),)),
    "unit and version": Change(core(), fields=(("unit", "percent"), ("version", "2"))),
    "tokenizer": Change(core(), tokenizer="u" * 64),
    "reference": Change(core(parents="2")),
    "evaluation set": Change(core(quiz="2")),
    **{f"detector {name}": Change(core(detector=name)) for name in DETECTORS},
    **{
        f"parameters of {name}": Change(core(stage=name))
        for name in sorted({family.stage_name for family in FAMILIES if family.stage_name})
    },
    **{f"config of {name}": Change(core(config=name)) for name in ("language", "pii", "toxicity")},
    "everything but the records": Change(core("secrets", "overlap", "pii", "2", "2"), tokenizer="u" * 64),
    "everything": Change(core("secrets", "overlap", "pii", "2", "2"), tokenizer="u" * 64, fields=(("version", "2"),)),
}


def facts_of(change, value):
    # All documents were searched whole: else the gate compares nothing with a lower bound, which diff shows as it is.
    values = {TRUNCATED: 0.0}
    made = [replace(one, value=values.get(one.stat, value), **dict(change.fields)) for one in RECORDS]
    return facts(covered(), *made, tokenizer=change.tokenizer, core=dict(change.core), protected=("quiz",))


def tables_of(made):
    """Return what gives the tables of a manifest that has records alone."""
    rows = metrics_table([record for held in made.records.values() for record in held.values()])
    return lambda name, columns=None: rows if name == "metrics" else TABLES[name].schema.empty_table()


def by_diff(old, new):
    """Return the reason of each record that diff does not compare, by metric, statistic and scope."""
    sides = [SimpleNamespace(core=side.core, table=tables_of(side), kept=lambda _: None) for side in (old, new)]
    found, _, _ = compare_metrics(*sides, Meaning(old.core, new.core))
    return {
        (one.metric, one.stat, one.scope): one.reason if one.fate == MetricChangeKind.NOT_COMPARABLE else ""
        for one in found
    }


def by_gate(old, new):
    """Return the reason of each case that is not evaluated; of others nothing."""
    found = {}
    for result in evaluate(policy(*RULES), new, old, on=TODAY).rules[: len(RULES)]:
        (case,) = result.cases
        assert (case.judged is None) == bool(case.reason)
        assert case.state == (State.NOT_EVALUATED if case.reason else State.PASSED)
        found[result.rule.metric, case.stat, case.scope] = case.reason
    return found


@pytest.mark.tables
@pytest.mark.parametrize(
    ("name", "turned"), sample([(name, turned) for name in CHANGES for turned in (False, True)], 3)
)
def test_what_diff_does_not_compare_the_gate_does_not_judge_for_the_same_reason(name, turned):
    """Whichever of the two manifests is the one that differs from the usual."""
    changes = [CHANGES[name], CHANGES["nothing"]][:: -1 if turned else 1]
    old, new = facts_of(changes[0], 0.3), facts_of(changes[1], 0.4)
    told, judged = by_diff(old, new), by_gate(old, new)
    assert len(judged) == len(RECORDS)
    alike = {key: told.get(key, "") for key in judged}  # diff lists no record that is the same
    assert {key: (alike[key], reason) for key, reason in judged.items() if alike[key] != reason} == {}


def test_every_reason_there_is_comes_up_and_has_a_text_in_the_gate():
    """And where nothing differs, everything is compared."""
    codes = {value for name, value in vars(comparable).items() if name.startswith("OTHER_")}
    found = {
        name: set(by_diff(facts_of(one, 0.3), facts_of(CHANGES["nothing"], 0.4)).values())
        for name, one in CHANGES.items()
    }
    assert found.pop("nothing") == {""}
    assert set().union(*found.values()) - {""} == codes
    assert codes <= REASONS.keys()
    assert all(reasons - {""} for reasons in found.values())
