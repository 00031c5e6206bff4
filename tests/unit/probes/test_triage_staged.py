"""Real small runs with a single thing wrong: triage names it, as the benchmark does with longer runs and more seeds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="runs are trained")

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]
SEED, STEPS, ONSET = 1002, 200, 40


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """Return the benchmark's module, a folder for runs, and its manifest."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import triage_staged
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("staged")
    yield triage_staged, out, triage_staged.prepare(out)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("what", ["none", "harness", "shard_mix", "attention", "router", "too_small"])
def test_what_is_staged_is_named(staged, what):
    from dataaudit.probes.triage.run import triage

    module, out, manifest = staged
    short = {"steps": STEPS, "onset": ONSET}
    baseline = module.stage(manifest, out, SEED + module.OTHER_SEED, "none", **short)
    result = triage(module.stage(manifest, out, SEED, what, **short), manifest, baseline=baseline)
    assert result.cause.startswith(module.CAUSES[what]), result.document()
