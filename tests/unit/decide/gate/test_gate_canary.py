"""A policy that demands a canary: its record has to be of this manifest, to pass, and not to be too old."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from dataaudit.base.errors import ConfigError, CorpusRefused, ManifestError, ManifestMismatch
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import judge, policy_of
from dataaudit.manifest.canary_record import CanaryCore, RunFacts, SeedRun, Side, sealed
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
    core = CanaryCore(changed="code", expect=expect, baseline_id=DIGEST, baseline=base, canary=now, **made)
    at = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
    rest = {"machine": "", "program": "", "environment": {}, "step_seconds": {}, "tokens_per_sec": {}}
    (folder / "canary.json").write_bytes(sealed(core, RunFacts(at=at, **rest)))


def policy(folder, **more):
    """Return a policy that demands a record."""
    return policy_of({"policy": "p", "rules": [RULE], "canary": "canary.json"} | more).from_folder(folder)


def test_a_canary_that_passes_is_accepted(tmp_path):
    """The key is part of the policy's digest only where it stands."""
    record(tmp_path, side(), days=6)
    assert judge(DEMO, policy(tmp_path, canary_days=7)).policy == "p"
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
        (side(), -2, "and may be 7 days old"),
    ],
)
def test_other_canaries_are_refused(tmp_path, now, days, said):
    """Exit code 1, with the reason and the command."""
    record(tmp_path, now, days)
    with pytest.raises(ManifestMismatch, match=said) as refused:
        judge(DEMO, policy(tmp_path, canary_days=7))
    assert "dataaudit canary run" in refused.value.hint


def test_an_absent_record_and_days_without_a_record_are_errors(tmp_path):
    """Exit code 2."""
    with pytest.raises(ManifestError, match="cannot be read"):
        judge(DEMO, policy(tmp_path))
    with pytest.raises(ConfigError, match="canary_days without canary"):
        policy_of({"policy": "p", "rules": [RULE], "canary_days": 7})


def test_a_loader_asks_for_it_too(tmp_path):
    """The policy is judged as the corpus is opened; the canary's own function opens it without that policy."""
    record(tmp_path, side(worse=1.0))
    demo = DEMO.folder
    with pytest.raises(CorpusRefused, match="does not pass"):
        open_manifest(demo, require="passed", policy=policy(tmp_path))
