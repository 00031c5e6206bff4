"""Which judge a config gets, and why it gets none."""

import io
import json
import os
from dataclasses import replace
from hashlib import sha256

import pytest
from tiny_judge import write_checkpoint

from dataaudit.scan.detectors.judges import Absence, Unavailable
from dataaudit.scan.detectors.toxicity import judge_model
from dataaudit.scan.detectors.toxicity.judge_model import NAMED, JudgeModel, JudgeSettings, resolve_judge

pytestmark = pytest.mark.judges


class RunsCode:
    """What a checkpoint must not be able to do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def reason_of(path, **settings):
    found = resolve_judge(JudgeSettings(judge=path.name, **settings), path.parent)
    assert isinstance(found, Unavailable), found
    assert found.message
    assert found.hint
    return found.reason


def rewrite(path, change):
    import torch

    checkpoint = torch.load(path, weights_only=True)
    torch.save(change(checkpoint) or checkpoint, path)
    return path


def test_a_checkpoint_is_named_by_its_bytes_and_those_of_its_vocabulary(tmp_path):
    path = write_checkpoint(tmp_path / "a")
    model = resolve_judge(JudgeSettings(judge="a/tiny.ckpt", languages=("en", "de")), tmp_path)
    assert isinstance(model, JudgeModel)
    assert (model.name, model.languages) == ("local", ("en", "de"))
    assert model.sha256 == sha256(path.read_bytes()).hexdigest()
    with (tmp_path / "a" / "vocab.txt").open("a") as file:
        file.write("more\n")
    again = resolve_judge(JudgeSettings(judge="a/tiny.ckpt"), tmp_path)
    assert again.sha256 == model.sha256
    assert again.config_sha256 != model.config_sha256


def test_the_settings_may_lie_in_another_folder_than_where_the_checkpoint_was_made(tmp_path):
    path = write_checkpoint(tmp_path / "a", beside=False)
    rewrite(path, lambda checkpoint: checkpoint["config"]["arch"]["args"].update(model_type="bert-base-uncased"))
    (tmp_path / "settings").mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / "a" / name).rename(tmp_path / "settings" / name)
    assert reason_of(path) is Absence.CONFIG_ABSENT
    assert reason_of(path, config_path="a") is Absence.CONFIG_ABSENT
    model = resolve_judge(JudgeSettings(judge=str(path), config_path="settings"), tmp_path)
    assert isinstance(model, JudgeModel)
    assert model.config_path == tmp_path / "settings"


def test_a_file_that_is_not_there_is_a_reason(tmp_path):
    assert reason_of(tmp_path / "absent.ckpt") is Absence.WEIGHTS_ABSENT


def test_settings_that_the_hub_has_are_taken_from_its_cache_or_fetched(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "a")
    rewrite(path, lambda checkpoint: checkpoint["config"]["arch"]["args"].update(model_type="bert-base-uncased"))
    path = path.rename(tmp_path / "tiny.ckpt")
    asked = []

    def snapshot(name, *, local_files_only, **_):
        asked.append((name, local_files_only))
        if local_files_only:
            raise FileNotFoundError
        return str(tmp_path / "a")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert reason_of(path) is Absence.CONFIG_ABSENT
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert reason_of(path, download=False) is Absence.CONFIG_ABSENT
    assert isinstance(resolve_judge(JudgeSettings(judge=path.name), tmp_path), JudgeModel)
    name = "bert-base-uncased"
    assert asked == [(name, True), (name, True), (name, True), (name, False)]


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.99])
def test_a_file_that_is_cut_short_is_a_reason(tmp_path, kept):
    path = write_checkpoint(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    assert reason_of(path) is Absence.BROKEN_CHECKPOINT


@pytest.mark.parametrize("data", [b'{"text": "a"}\n', b"text,label\n", b"PK", b"\0" * 99])
def test_a_file_of_something_else_is_no_checkpoint_and_wants_to_run_nothing(tmp_path, data):
    path = write_checkpoint(tmp_path)
    path.write_bytes(data)
    assert reason_of(path) is Absence.BROKEN_CHECKPOINT


def test_a_checkpoint_that_wants_to_run_code_is_not_let(tmp_path):
    path = write_checkpoint(tmp_path)
    rewrite(path, lambda checkpoint: {**checkpoint, "more": RunsCode(tmp_path / "made")})
    assert reason_of(path) is Absence.UNSAFE_CHECKPOINT
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda checkpoint: ["a list"],
        lambda checkpoint: {"state_dict": checkpoint["state_dict"]},
        lambda checkpoint: checkpoint["config"]["dataset"]["args"].update(classes=[]),
        lambda checkpoint: checkpoint["config"]["dataset"]["args"].update(classes=["toxic", "insult"]),
        lambda checkpoint: checkpoint["config"]["arch"]["args"].update(model_name="pipeline"),
        lambda checkpoint: checkpoint["config"]["arch"]["args"].update(tokenizer_name="AutoConfig"),
        lambda checkpoint: checkpoint["config"]["arch"]["args"].update(model_name="GoneForSequenceClassification"),
        lambda checkpoint: checkpoint["state_dict"].pop("classifier.weight"),
        lambda checkpoint: checkpoint["state_dict"].update(
            {"classifier.weight": checkpoint["state_dict"]["classifier.bias"]}
        ),
        lambda checkpoint: checkpoint["state_dict"]["classifier.bias"].fill_(float("nan")),
        lambda checkpoint: checkpoint["state_dict"].update(other="text"),
    ],
    ids=["list", "parts", "no-classes", "classes", "model", "tokenizer", "unknown", "tensor", "shape", "nan", "text"],
)
def test_a_checkpoint_that_does_not_fit_is_a_reason(tmp_path, change):
    path = write_checkpoint(tmp_path)

    def changed(checkpoint):
        made = change(checkpoint)
        return made if isinstance(made, list) or (isinstance(made, dict) and "state_dict" in made) else None

    rewrite(path, changed)
    assert reason_of(path) is Absence.BROKEN_CHECKPOINT


def test_broken_settings_are_a_reason(tmp_path):
    path = write_checkpoint(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"hidden_size": 64}))
    assert reason_of(path) is Absence.BROKEN_CHECKPOINT
    (tmp_path / "config.json").write_text("{")
    assert reason_of(path) is Absence.BROKEN_CHECKPOINT


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_published_checkpoint_is_not_fetched_where_the_environment_forbids_it(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(judge_model, "open_https", None)
    found = resolve_judge(JudgeSettings(judge=name), tmp_path)
    assert (found.reason, str(tmp_path) in found.message) == (Absence.WEIGHTS_ABSENT, True)


def test_a_published_checkpoint_that_another_file_poses_as_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / "toxic_original-c1212f89.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other")
    assert resolve_judge(JudgeSettings(), tmp_path).reason is Absence.BROKEN_CHECKPOINT


def test_a_published_checkpoint_of_the_cache_is_used(tmp_path, monkeypatch):
    import detoxify.detoxify

    made = write_checkpoint(tmp_path / "made")
    digits = sha256(made.read_bytes()).hexdigest()[:8]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = f"https://models.invalid/toxic_original-{digits}.ckpt"
    monkeypatch.setattr(detoxify.detoxify, "MODEL_URLS", {"original": url})
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    made.rename(tmp_path / "hub" / "checkpoints" / f"toxic_original-{digits}.ckpt")
    model = resolve_judge(JudgeSettings(config_path="made"), tmp_path)
    assert (model.name, model.languages, model.classes) == ("original", ("en",), ("toxicity",))
    asked = resolve_judge(JudgeSettings(config_path="made", languages=("en", "fr")), tmp_path)
    assert asked.languages == ("en", "fr")


def test_a_network_that_does_not_answer_is_a_reason(tmp_path, monkeypatch):
    def silent(url, timeout):
        assert 0 < timeout <= 60
        raise TimeoutError

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(judge_model, "open_https", silent)
    assert resolve_judge(JudgeSettings(), tmp_path).reason is Absence.WEIGHTS_ABSENT
    assert not list((tmp_path / "hub" / "checkpoints").iterdir())


@pytest.mark.parametrize("url", ["http://models.invalid/a", "file:///etc/passwd", "ftp://models.invalid/a", "data:,a"])
def test_nothing_but_https_is_opened_wherever_a_server_redirects_to(url):
    with pytest.raises(OSError, match="unknown url type"):
        judge_model.open_https(url, timeout=1.0)


def test_what_is_fetched_is_kept_only_with_the_digest_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(judge_model, "open_https", lambda url, timeout: io.BytesIO(b"weights"))
    digits = sha256(b"weights").hexdigest()[:8]
    judge_model.fetch("https://models.invalid/a", tmp_path / "a", digits=digits)
    assert (tmp_path / "a").read_bytes() == b"weights"
    with pytest.raises(ValueError, match="another digest"):
        judge_model.fetch("https://models.invalid/b", tmp_path / "b", digits="00000000")
    with pytest.raises(TimeoutError):
        judge_model.fetch("https://models.invalid/b", tmp_path / "b", digits=digits, deadline_s=-1.0)
    with pytest.raises(ValueError, match="https"):
        judge_model.fetch("file:///etc/passwd", tmp_path / "b", digits=digits)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_device_that_is_not_here_is_a_reason(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path)
    monkeypatch.setattr("dataaudit.scan.detectors.toxicity.judge_model.has_cuda", lambda: False)
    assert reason_of(path, device="cuda") is Absence.NO_DEVICE


def test_without_the_library_the_reason_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    absent = resolve_judge(JudgeSettings(), tmp_path)
    assert (absent.reason, "dataaudit[toxicity]" in absent.hint) == (Absence.NOT_INSTALLED, True)


def test_the_main_class_is_the_first_where_none_is_called_toxicity(tmp_path):
    path = write_checkpoint(tmp_path, classes=("insult", "toxic"))
    model = resolve_judge(JudgeSettings(judge=path.name), tmp_path)
    assert model.main_class == 1
    assert replace(model, classes=("rude", "insult")).main_class == 0
