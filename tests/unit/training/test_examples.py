"""The examples train, are killed by nobody, and go on from their checkpoints; the plain loop stays short."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from made_corpus import MadeCorpus

from dataaudit.runlog.reader import load_run

FOLDER = Path(__file__).parents[3] / "examples"
MOST_LINES = 60

pytest.importorskip("torch", reason="the examples train")
pytest.importorskip("transformers", reason="their models")
pytest.importorskip("accelerate", reason="the Trainer needs it")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries


@pytest.mark.parametrize(("name", "short"), [("plain_loop", True), ("hf_trainer", False)])
def test_an_example_trains_and_goes_on(tmp_path, name, short):
    path = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    made = MadeCorpus(tmp_path)
    for steps in (2, 3):
        example.main(str(tmp_path / "m"), tmp_path / "run", steps)
        log = load_run(tmp_path / "run")
        assert log.table("steps")["step"].to_pylist() == list(range(1, steps + 1))
        if name == "hf_trainer":
            assert (tmp_path / f"run.checkpoints/checkpoint-{steps}/dataaudit-00000.json").exists()
    assert made.uris
    events = [one["kind"] for one in log.table("events").to_pylist()]
    assert events == ["started", "closed", "resumed", "closed"]
    assert not short or len(path.read_text().splitlines()) < MOST_LINES
