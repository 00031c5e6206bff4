"""The cloze set of a corpus: who knows the endings gets all, who does not a quarter."""

import sys

import numpy as np
import pytest
from probe_world import Memory, tiny

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit.probes import Cloze, ProbeModel, ProbeSuite  # noqa: E402
from dataaudit.probes.cloze import HarnessTasks  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_model_that_knows_the_documents_knows_their_endings(world):
    probe = Cloze.of(world.corpus, items=20)
    assert len(probe.items) == 20
    assert len({item.endings[0].tobytes() for item in probe.items}) == 20
    rows = [np.concatenate([item.beginning, item.endings[0]]) for item in probe.items]
    report = ProbeSuite([probe]).run(ProbeModel(Memory(rows), world.tokenizer, context=128), 1)
    assert report.get("microbench_score", task="cloze").value == 1.0
    report = ProbeSuite([probe]).run(ProbeModel(tiny().eval(), world.tokenizer, context=128), 1)
    assert report.get("microbench_score", task="cloze").value < 0.6


def test_a_model_that_finds_all_endings_alike_is_not_right(world):
    flat = ProbeModel(lambda ids: torch.zeros(*ids.shape, 257), world.tokenizer, context=128)
    assert ProbeSuite([Cloze.of(world.corpus, items=8)]).run(flat, 1).get("microbench_score", task="cloze").value == 0.0


def test_the_set_is_the_same_each_time_and_leaves_leaks_out(world):
    first, second = Cloze.of(world.corpus, items=12), Cloze.of(world.corpus, items=12)
    model = ProbeModel(tiny().eval(), world.tokenizer, context=128)
    assert first.artifacts(model) == second.artifacts(model)
    beginnings = {bytes(item.beginning.astype(np.uint8)).decode() for item in Cloze.of(world.corpus, items=99).items}
    assert beginnings.isdisjoint(text[:64] for text in world.held_out["web"][:3])


def test_the_harness_that_is_not_installed_is_named(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    model = ProbeModel(tiny().eval(), world.tokenizer, context=128)
    report = ProbeSuite([HarnessTasks(tasks=("arc_easy",))]).run(model, 1)
    assert report.numbers[0].reason == "not_installed: pip install lm-eval"


def test_the_harness_runs_a_task_of_ours(world, tmp_path):
    """Choices that the model knows by heart, through the harness's own scoring."""
    pytest.importorskip("lm_eval", reason="it is the harness")
    from lm_eval.tasks import TaskManager

    texts = ["alpha goes to the river", "beta goes to the stone", "gamma goes to the cloud"]
    lines = [f'{{"q": "{text[:-5]}", "c": ["wrong", "{text[-5:]}"], "a": 1}}' for text in texts]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    config = {
        "task": "ours",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "t.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "{{c}}",
        "doc_to_target": "{{a}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    rows = [world.tokenizer.encode(text) for text in texts]
    probe = HarnessTasks(tasks=(config,), manager=TaskManager(include_defaults=False))
    report = ProbeSuite([probe]).run(ProbeModel(Memory(rows), world.tokenizer, context=128), 1)
    assert report.get("microbench_score", "acc", task="ours").value == 1.0


def test_a_context_that_cuts_beginnings_is_another_template(world):
    """Scores of a context of 40 and of 400 were compared as if the model had changed."""
    probe = Cloze.of(world.corpus, items=4)
    short, enough, more = (
        probe.artifacts(ProbeModel(Memory([]), world.tokenizer, context=context)) for context in (40, 81, 400)
    )
    assert short.differing(more) == ("templates",)
    assert enough == more
