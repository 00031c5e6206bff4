"""A build from Python: wrong arguments, what it leaves as it was, what it says and to whom."""

import json
import math
import os
import signal
from pathlib import Path

import pytest
import typed_use
from made_keys import write_keys

from dataaudit import api
from dataaudit.api import building
from dataaudit.base.errors import ConfigError, DataAuditError, ExitCode, ManifestMismatch, NothingEvaluated
from dataaudit.config import parse_config


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with one shard of training data and one that is held out, and a config of it."""
    root = tmp_path_factory.mktemp("corpus")
    for split, number in (("train", 30), ("val", 5)):
        (root / split).mkdir()
        texts = (f"Number {row * 17} of {split} is a text like no other." for row in range(number))
        lines = [json.dumps({"text": text}) for text in texts]
        (root / split / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return root


def config(**more):
    """Return a config of the corpus, as the file would say it."""
    return {"splits": {"train": {"paths": "train"}, "val": {"paths": "val", "held_out": True}}, **more}


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"inputs": 3}, TypeError, "inputs: expected a text or several, found int"),
        ({"inputs": ["a", 3]}, TypeError, "inputs: expected texts, found int"),
        ({"manifest": None}, TypeError, "manifest: expected a path, found NoneType"),
        ({"workers": "4"}, TypeError, "workers: expected a whole number, found str"),
        ({"workers": True}, TypeError, "workers: expected a whole number, found bool"),
        ({"workers": -1}, ConfigError, "workers: expected 0 or more, found -1"),
        ({"workers": 1, "client": object()}, ConfigError, "workers and client exclude each other"),
        ({"client": object()}, TypeError, r"expected a distributed\.Client that is not asynchronous"),
        ({"progress": "yes"}, ConfigError, "expected True, False, `warnings` or a function, found `yes`"),
        ({"inputs": "nowhere"}, ConfigError, "no such file or folder"),
        ({"inputs": "none.yaml"}, ConfigError, "cannot read the config file none.yaml"),
        ({"inputs": {"splits": {"t": {"path": "x"}}}}, ConfigError, "did you mean `paths`"),
        ({"inputs": {"splits": {"t": {"paths": "x"}}}, "text": "body"}, ConfigError, "text goes with paths"),
        ({"base": "."}, ConfigError, "base goes with a config that is a mapping"),
        ({"hmac_key": b"short"}, ConfigError, "the key hmac_key has 5 bytes, expected 16 or more"),
        ({"samples": (3, None)}, TypeError, "samples: expected a path, found NoneType"),
        ({"samples": 3}, TypeError, "samples: expected a number and a folder, found int"),
        ({"samples": (0, "s")}, ConfigError, "samples: expected a number from 1 to 1000, and a folder"),
        ({"trust_state": "no"}, TypeError, "trust_state: expected True or False, found str"),
        ({"shard_timeout": "10"}, TypeError, "shard_timeout: expected a number, found str"),
        ({"shard_timeout": math.nan}, ConfigError, "shard_timeout: expected 1 or more, found nan"),
        ({"memory_limit": "much", "workers": 0}, ConfigError, "expected a size like 2GiB"),
    ],
)
def test_wrong_arguments_are_said(given, kind, says, tmp_path, monkeypatch):
    """Types that make no sense are TypeErrors, all else is an error of ours; nothing is published."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("one line")
    arguments = {"inputs": "data.txt", "manifest": "m"} | given
    with pytest.raises(kind, match=says):
        api.build(**arguments)
    assert not (tmp_path / "m").exists()


def test_a_build_leaves_the_process_as_it_was(corpus, tmp_path, capfd):
    """Nothing is printed; signals, environment and folder are as before; the result says it all."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], dict(os.environ), os.getcwd()
    built = api.build(config(), tmp_path / "m", base=corpus, workers=0)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], dict(os.environ), os.getcwd()
    assert before == after
    assert capfd.readouterr() == ("", "")
    assert (built.exit_code, built.complete, built.scanned, built.planned) == (ExitCode.PASS, True, 2, 2)
    assert (built.unread, built.warnings) == ((), ())
    assert built.manifest.core.totals.documents == 35
    assert built.id == built.manifest.id == api.load(tmp_path / "m").id
    assert repr(built).startswith("<Build exit code 0, 2 of 2 parts read: <Manifest dataset 0.0.0: 35 documents")
    assert built._repr_html_() == built.manifest._repr_html_()


def test_what_is_not_read_is_a_result(corpus, tmp_path, capfd):
    """A shard that cannot be read ends in code 3; without any document a good manifest stays."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/b.jsonl").write_bytes(b"no JSON\n" * 20)
    lines = []
    splits = {"train": {"paths": [str(corpus / "train"), str(tmp_path / "bad")], "text": "text"}}
    checked = parse_config({"splits": splits}, where="test")
    built = api.build(checked, tmp_path / "m", workers=0, progress=lines.append)
    [(uri, reason)] = built.unread
    assert (built.exit_code, built.complete, reason) == (3, False, "too_many_bad_records")
    assert uri.endswith("bad/b.jsonl")
    assert "bad/b.jsonl" in built._repr_html_()
    assert [line for line in lines if line.startswith("found: train 2 shards")]
    splits["train"]["paths"] = str(tmp_path / "bad")
    with pytest.raises(NothingEvaluated):
        api.build({"splits": splits}, tmp_path / "m", workers=0, progress="warnings")
    assert api.load(tmp_path / "m").id == built.id
    assert capfd.readouterr() == ("", "")


def test_a_typed_program_runs(corpus, tmp_path, monkeypatch):
    """What mypy has checked does what it says."""
    monkeypatch.chdir(corpus)
    built = typed_use.build(config(dataset={"name": "typed"}), tmp_path / "m")
    assert isinstance(built, api.Build)
    assert typed_use.build({"splits": {}}, tmp_path / "none").startswith("config: ")
    rule = {"name": "r", "metric": "exact_dup_rate", "stat": "rate", "unit": "ratio", "budget": 0.5}
    assert typed_use.read(built.manifest.folder, {"policy": "mine", "rules": [rule]}) == ExitCode.PASS
    assert typed_use.hold_back(tmp_path / "q.jsonl", built.manifest) == ["drift", "drift"]
    write_keys(tmp_path)
    assert typed_use.attest(built.manifest.folder, tmp_path / "build.pem") == "attestation.json"


def test_a_result_never_speaks_of_another_builds_manifest():
    """Replaced in the meantime, the manifest is not taken for this build's."""
    with pytest.raises(ManifestMismatch, match="this build published sha256:0"):
        building._published(Path(__file__).parents[3] / "manifests/demo", "sha256:0")


def test_every_error_of_a_user_is_one_of_ours():
    """So `except DataAuditError` is enough, and says the command's exit code."""
    with pytest.raises(DataAuditError) as caught:
        api.load("nowhere")
    assert caught.value.exit_code == ExitCode.WRONG_USE
