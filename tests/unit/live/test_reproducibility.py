"""The reproducibility manifest: what is known by digest, and what is listed as not known."""

import hashlib
import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from made_corpus import MadeCorpus
from saved_steps import write

from dataaudit.base.errors import ConfigError
from dataaudit.live import Checkpoints, reproducibility_manifest

NAMES = {"code", "lock", "model_config", "tokenizer", "data_manifest", "quarantine", "evaluation"}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository with a commit, which is the current folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "A")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.org")
    (folder / "train.py").write_text("x = 1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "First")):
        subprocess.run(["git", *words], check=True)
    return folder


def head():
    return subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_and_what_differs_from_it(repository):
    """Two states of the same commit differ; a new file counts."""
    assert reproducibility_manifest()["code"] == {"commit": head(), "dirty": False}
    seen = []
    for text in ("x = 2\n", "x = 3\n", "x = 2\n"):
        (repository / "train.py").write_text(text)
        made = reproducibility_manifest()["code"]
        assert made["dirty"]
        seen.append(made["difference"])
    assert seen[0] == seen[2] != seen[1]
    (repository / "train.py").write_text("x = 1\n")
    (repository / "new.py").write_text("")
    assert reproducibility_manifest()["code"]["dirty"]


def test_what_is_not_given_is_listed_with_the_argument_that_gives_it(tmp_path):
    """Outside of a repository nothing but the libraries is known."""
    made = reproducibility_manifest(code=tmp_path)
    assert set(made["unknown"]) == NAMES
    assert not NAMES & set(made)
    assert "`tokenizer=`" in made["unknown"]["tokenizer"]
    assert made["installed"]["numpy"]


def test_everything_that_is_given_has_a_digest(repository):
    """Files, folders, plain values; a model that is no module is a config."""
    (repository / "lock").write_text("torch==1\n")
    (repository / "eval").mkdir()
    (repository / "eval/a.jsonl").write_text("{}")
    made = reproducibility_manifest(
        lock=["lock"],
        model={"layers": 2},
        tokenizer=SimpleNamespace(to_str=lambda: "{}"),
        corpus="sha256:" + "0" * 64,
        evaluation={"prompts": "eval", "decoding": {"temperature": 0.0}},
    )
    assert set(made["unknown"]) == {"quarantine"}
    assert made["lock"] == {"lock": f"sha256:{hashlib.sha256(b'torch==1' + bytes([10])).hexdigest()}"}
    assert made["tokenizer"] == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert made["data_manifest"] == "sha256:" + "0" * 64
    (repository / "eval/a.jsonl").write_text("{ }")
    again = reproducibility_manifest(
        model={"layers": 3}, evaluation={"prompts": "eval", "decoding": {"temperature": 0.0}}
    )
    assert again["evaluation"]["prompts"] != made["evaluation"]["prompts"]
    assert again["evaluation"]["decoding"] == made["evaluation"]["decoding"]
    assert again["model_config"] != made["model_config"]
    with pytest.raises(ConfigError, match="nothing cannot be read: No such file"):
        reproducibility_manifest(lock=["nothing"])


def test_a_corpus_gives_manifest_tokenizer_and_quarantine(tmp_path):
    """Of what was opened, as a monitor among the sinks has it."""
    (tmp_path / "corpus").mkdir()
    corpus = MadeCorpus(tmp_path / "corpus").open()
    made = reproducibility_manifest(corpus=corpus, code=tmp_path)
    assert made["data_manifest"] == corpus.digests["manifest"]
    assert set(made["quarantine"]) == {"quarantine", "applied", "held"}
    monitor = SimpleNamespace(corpus=corpus, add_values=lambda _: None, add_event=lambda *_: None)
    with Checkpoints(tmp_path / "c", sinks=[monitor]) as checkpoints:
        own = checkpoints.save(1, write(1))
    written = json.loads((own.folder / "reproducibility.json").read_text())
    assert written["data_manifest"] == corpus.digests["manifest"]
    assert "reproducibility.json" in own.files
    assert os.path.basename(own.folder) == "step-00000001"


@pytest.mark.torch
def test_a_module_gives_its_config_and_the_names_of_its_parameters():
    torch = pytest.importorskip("torch")
    made = [reproducibility_manifest(model=torch.nn.Linear(2, width))["model_config"] for width in (2, 2, 3)]
    assert made[0] == made[1] != made[2]
    assert made[0]["class"] == "Linear"
    model = torch.nn.Linear(2, 2)
    model.config = SimpleNamespace(to_dict=lambda: {"layers": 1})
    assert set(reproducibility_manifest(model=model)["model_config"]) == {"config", "parameters", "class"}
