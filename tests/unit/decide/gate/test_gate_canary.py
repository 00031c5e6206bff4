"""A policy that demands a canary: its record has to be of this manifest, to pass, and not to be too old."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from dataaudit.base.errors import ConfigError, CorpusRefused, ManifestError, ManifestMismatch
from dataaudit.decide.gate.document import gate_json, gate_schema, read_verdict
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import judge, policy_of
from dataaudit.decide.gate.writers.annotations import PolicyFile
from dataaudit.decide.gate.writers.blocks import terminal_text
from dataaudit.decide.gate.writers.junit import junit_xml
from dataaudit.decide.gate.writers.sarif import sarif_json
from dataaudit.decide.gate.writers.writing import comment
from dataaudit.manifest.canary_record import CanaryCore, RunFacts, SeedRun, Side, read_canary, sealed
from dataaudit.manifest.canary_record import judge as judge_runs
from dataaudit.manifest.load import load_manifest
from dataaudit.training import open_manifest

DEMO = load_manifest(Path(__file__).parents[4] / "manifests/demo")
DIGEST = "sha256:" + "0" * 64
RULE = {"name": "r", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}


def side(manifest=DEMO.id, worse=0.0):
    """Return runs of eight seeds."""
    losses = np.linspace(2, 2.1, 8) + worse
    runs = [
        SeedRun(seed=seed, order=DIGEST, values={"train_loss_raw": loss}, problem="")
        for seed, loss in enumerate(losses.tolist())
    ]
    digests = dict.fromkeys(("training_shards", "held_out_shards", "code"), DIGEST)
    return Side(manifest=manifest, **digests, function="f", config={}, steps=200, last=20, seeds=runs)


def record(folder, now, days=0.0, expect=None):
    """Write the record of a canary that ended some days ago."""
    base = side()
    made = judge_runs("code", base, now, expect)
    core = CanaryCore(changed="code", expect=expect, baseline_id=base.id, baseline=base, canary=now, **made)
    at = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
    rest = {"machine": "", "program": "", "environment": {}, "step_seconds": {}, "tokens_per_sec": {}}
    (folder / "canary.json").write_bytes(sealed(core, RunFacts(at=at, **rest)))


def policy(folder, **more):
    """Return a policy that demands a record."""
    return policy_of({"policy": "p", "rules": [RULE], "canary": "canary.json"} | more).from_folder(folder)


def test_a_canary_that_passes_is_accepted(tmp_path):
    """The key is part of the policy's digest only where it stands."""
    record(tmp_path, side(), days=6)
    verdict = judge(DEMO, policy(tmp_path, canary_days=7))
    seen = f"{verdict.canary.id}, {verdict.canary.verdict}, 8 pairs, {verdict.canary.on}"
    assert f'name="canary" value="{seen}"' in junit_xml(verdict).decode()
    assert f'"canary":"{seen}"' in sarif_json(verdict, PolicyFile()).decode()
    record(tmp_path, side(worse=-1.0), expect="better")
    assert judge(DEMO, policy(tmp_path)).policy == "p"
    plain = {"policy": "p", "rules": [RULE]}
    assert policy(tmp_path).digest != Policy.model_validate(plain).digest


@pytest.mark.parametrize(
    ("now", "days", "said"),
    [
        (side(manifest=DIGEST), 0, "is of the manifest sha256:000"),
        (side(worse=1.0), 0, "does not pass: regressed, train_loss_raw is out of its interval"),
        (side(worse=-1.0), 0, "does not pass: better, train_loss_raw is .* sd below healthy seeds"),
        (side(), 8, "and may be 7 days old"),
        (side(), -2, "is of 2.*, which is later than this machine's clock"),
    ],
)
def test_other_canaries_are_refused(tmp_path, now, days, said):
    """Exit code 1, with the reason and the command."""
    record(tmp_path, now, days)
    with pytest.raises(ManifestMismatch, match=said) as refused:
        judge(DEMO, policy(tmp_path, canary_days=7))
    assert "dataaudit canary run" in refused.value.hint


def test_a_policy_says_how_many_pairs_and_of_which_healthy_runs(tmp_path):
    """Eight pairs, where it says nothing; the baseline by its id, which is the digest of its runs."""
    few = side()
    record(tmp_path, few.model_copy(update={"seeds": few.seeds[:3]}))
    with pytest.raises(ManifestMismatch, match="has 3 pairs of seeds, and 8 are demanded"):
        judge(DEMO, policy(tmp_path))
    assert judge(DEMO, policy(tmp_path, canary_seeds=3)).canary.pairs == 3
    assert judge(DEMO, policy(tmp_path, canary_seeds=3, canary_baseline=few.id)).canary is not None
    with pytest.raises(ManifestMismatch, match=f"is beside the baseline {few.id}, demanded is {DIGEST}"):
        judge(DEMO, policy(tmp_path, canary_seeds=3, canary_baseline=DIGEST))


def test_what_the_gate_writes_names_the_record(tmp_path):
    """Its id, verdict, pairs and day, wherever the verdict goes; nothing where none is demanded."""
    record(tmp_path, side(), days=1)
    made = read_canary(tmp_path / "canary.json")
    verdict = judge(DEMO, policy(tmp_path))
    day = made.run.at.date().isoformat()
    pinned = {"id": made.id, "verdict": "pass", "pairs": 8, "on": day}
    document = json.loads(gate_json(verdict))
    jsonschema.validate(document, gate_schema())
    assert document["verdict"]["canary"] == pinned
    (tmp_path / "gate.json").write_bytes(gate_json(verdict))
    assert read_verdict(tmp_path / "gate.json").canary == verdict.canary
    assert f"{made.id}, pass, 8 pairs, {day}" in " ".join(terminal_text(verdict, width=300).split())
    assert f"Canary: `{made.id}`, pass, 8 pairs, `{day}`." in comment(verdict)
    without = judge(DEMO, policy_of({"policy": "p", "rules": [RULE]}))
    assert without.canary is None
    assert "anary" not in terminal_text(without) + comment(without)


def test_an_absent_record_and_days_without_a_record_are_errors(tmp_path):
    """Exit code 2."""
    with pytest.raises(ManifestError, match="cannot be read"):
        judge(DEMO, policy(tmp_path))
    for key, value in (("canary_days", 7), ("canary_seeds", 3), ("canary_baseline", DIGEST)):
        with pytest.raises(ConfigError, match=f"{key} without canary"):
            policy_of({"policy": "p", "rules": [RULE], key: value})
    for key, value in (("canary_seeds", 2), ("canary_baseline", "baseline.json")):
        with pytest.raises(ConfigError, match=key):
            policy(tmp_path, **{key: value})


def test_a_loader_asks_for_it_too(tmp_path):
    """The policy is judged as the corpus is opened; the canary's own function opens it without that policy."""
    record(tmp_path, side(worse=1.0))
    demo = DEMO.folder
    with pytest.raises(CorpusRefused, match="does not pass"):
        open_manifest(demo, require="passed", policy=policy(tmp_path))
