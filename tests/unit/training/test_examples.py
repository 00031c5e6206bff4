"""The examples train, are killed by nobody, and go on from their checkpoints; the plain loop stays short."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from made_corpus import MadeCorpus
from reconstructed import Tokenized, call

from dataaudit.runlog.reader import load_run

FOLDER = Path(__file__).parents[3] / "examples"
MOST_LINES = 60

pytest.importorskip("torch", reason="the examples train")
pytest.importorskip("transformers", reason="their models")
pytest.importorskip("accelerate", reason="the Trainer needs it")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries


def loaded(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_the_example_of_megatron_files_trains_by_our_reader_or_is_replayed(tmp_path, capsys):
    """By Megatron's own data set where it is installed: the command that it prints writes the log."""
    corpus, example = Tokenized(tmp_path, 60), loaded("megatron_files")
    ways = {"run": False} | ({"own": True} if importlib.util.find_spec("megatron") else {})
    for name, megatron in ways.items():
        capsys.readouterr()
        example.main(str(corpus.manifest), corpus.files[0], tmp_path / name, 3, megatron=megatron)
        printed = capsys.readouterr().out.replace("\\\n", " ").splitlines()
        if megatron:
            done = call(*printed[0].split()[1:])
            assert done.exit_code == 0, done.output
        log = load_run(tmp_path / name)
        assert log.table("steps")["step"].to_pylist() == [1, 2, 3]
        assert None not in log.table("steps")["user_loss"].to_pylist()
        assert corpus.labels(tmp_path / name)
        assert printed[-1] == f"dataaudit attribute {tmp_path / name} --manifest {corpus.manifest}"


@pytest.mark.parametrize(("name", "short"), [("plain_loop", True), ("hf_trainer", False)])
def test_an_example_trains_and_goes_on(tmp_path, name, short):
    path, example = FOLDER / f"{name}.py", loaded(name)
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
