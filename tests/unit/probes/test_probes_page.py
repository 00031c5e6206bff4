"""The page of probes: its Python runs, and it names every metric, artifact and option."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from probe_world import sentence, tiny

torch = pytest.importorskip("torch", reason="the page trains")
from dataaudit.cli.probing import PROBES, probe  # noqa: E402
from dataaudit.live import ProbeBatch  # noqa: E402
from dataaudit.probes import EvalArtifacts, Tokenizer  # noqa: E402
from dataaudit.runlog.reader import load_run  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/probes/probes.md").read_text("utf-8")


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    """Three looks in 300 steps, in the run log."""
    import random

    monkeypatch.chdir(tmp_path)
    (loop,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    model, draw = tiny(), random.Random(0)
    names = {"model": model, "texts": [sentence(draw, 9) for _ in range(4)], "train_step": lambda: None}
    exec(compile(loop, "loop", "exec"), names)  # noqa: S102 - our own page
    assert names["suite"].failures == []
    table = load_run(tmp_path / "runs/7").table("values")
    assert set(table["step"].to_pylist()) == {100, 200, 300}
    assert {"fixed_probe_loss", "output_kl_to_prev"} <= set(table["metric"].to_pylist())


def test_the_page_names_all_artifacts_and_probes():
    assert re.findall(r"^\| `(\w+)` \| (?:digest|how|lengths|program|of the)", PAGE, re.MULTILINE) == [
        field.name for field in fields(EvalArtifacts)
    ]
    options = {option for parameter in probe.params for option in parameter.opts}
    named = set(re.findall(r"(--[a-z]+)\b", PAGE))
    assert named <= options | {"--probes"}
    assert {"--probes", "--set", "--rtp", "--domains", "--out", "--run", "--alert", "--model", "--task"} <= named
    assert len(PROBES) == 7


def test_the_page_names_every_metric_that_probes_give(world):
    """Of a suite of all that needs no judge."""
    from dataaudit.probes import (
        Cloze,
        Contamination,
        Frozen,
        HeldOutLoss,
        Memorization,
        ProbeModel,
        ProbeSuite,
    )

    held_out = world.corpus.sample(held_out=True, limit=10)
    probes = [
        Frozen(batch=ProbeBatch.of_rows(held_out.rows[:4], world.tokenizer.digest)),
        HeldOutLoss(documents=held_out),
        Cloze.of(world.corpus, items=4),
        Memorization.of(world.corpus, prompts=3, unprompted=2),
        Contamination.of(world.corpus, samples=4),
    ]
    report = ProbeSuite(probes).run(ProbeModel(tiny().eval(), world.tokenizer, context=160), 1)
    assert {number.metric for number in report.numbers if f"`{number.metric}`" not in PAGE} == set()
    assert Tokenizer.of_bytes(256).digest == world.tokenizer.digest
