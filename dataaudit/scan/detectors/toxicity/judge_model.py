"""The toxicity judge's model: from a config's settings to a judge that answers, or to the reason why there is none.

Weights, settings and vocabulary lie in caches or folders; published weights are fetched. Detoxify unpickles whatever a
checkpoint holds. Here torch reads it with ``weights_only=True`` (tensors, numbers, strings, lists and dicts, nothing
that runs), the names in it are checked, and Detoxify gets the result.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    UnknownHandler,
)

from dataaudit.base.errors import CatchErrors
from dataaudit.base.files import replacing
from dataaudit.scan.detectors.judges import Absence, Unavailable, not_installed, quiet

_VOCABULARIES = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.json", "vocab.json", "vocab.txt")
_SETTINGS = ("added_tokens.json", "config.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json")
CONFIG_FILES = sorted((*_SETTINGS, *_VOCABULARIES))
"""Settings and vocabulary of a model."""
_STALL_S = 15.0
_DEADLINE_S = 1800.0
_CHUNK = 1 << 20
_FORBIDDING = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def offline() -> bool:
    """Whether the environment forbids fetching models."""
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in _FORBIDDING)


def file_sha256(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def config_sha256(folder: Path) -> str:
    """Hash names and contents of the settings and vocabulary files in a folder."""
    digest = sha256()
    for name in CONFIG_FILES:
        if (folder / name).is_file():
            digest.update(f"{name}\0{file_sha256(folder / name)}\n".encode())
    return digest.hexdigest()


def published_weights(name: str, *, download: bool) -> Path | Unavailable:
    """Find a published checkpoint in torch hub's cache, or fetch it there.

    The file's name ends in the first digits of its SHA-256, which are checked.
    """
    import torch
    from detoxify.detoxify import MODEL_URLS

    url: str = MODEL_URLS[name]
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    digits = path.stem.rpartition("-")[2]
    if not path.is_file():
        hint = f"Put the file at {path}, or give the path of a checkpoint as `toxicity.judge`."
        if not download or offline():
            return Unavailable(reason=Absence.WEIGHTS_ABSENT, message=f"the judge `{name}` is not at {path}", hint=hint)
        try:
            fetch(url, path, digits=digits)
        except (OSError, ValueError) as error:
            return Unavailable(
                reason=Absence.WEIGHTS_ABSENT,
                message=f"the judge `{name}` is not at {path} and could not be fetched ({type(error).__name__})",
                hint=hint,
            )
    elif not file_sha256(path).startswith(digits):
        return Unavailable(
            reason=Absence.BROKEN_CHECKPOINT,
            message=f"{path} is not the published checkpoint `{name}`: its SHA-256 does not begin with {digits}",
            hint="Delete the file and run again, or copy it anew.",
        )
    return path


def fetch(url: str, path: Path, *, digits: str, stall_s: float = _STALL_S, deadline_s: float = _DEADLINE_S) -> None:
    """Fetch a file, all of it or nothing."""
    if not url.startswith("https://"):
        raise ValueError("expected an https address")
    begun = time.monotonic()
    digest = sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_https(url, timeout=stall_s) as answer, replacing(path) as part:
        while chunk := answer.read(_CHUNK):
            if time.monotonic() - begun > deadline_s:
                raise TimeoutError("the download takes too long")
            digest.update(chunk)
            part.write(chunk)
        if not digest.hexdigest().startswith(digits):
            raise ValueError("what came has another digest")


def open_https(url: str, *, timeout: float) -> Any:
    """Open an address of https; a redirection to another scheme is refused, for it has no handler."""
    opener = OpenerDirector()
    opener.addheaders = [("User-Agent", "dataaudit")]
    errors = UnknownHandler(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()
    for handler in (ProxyHandler(), *errors, HTTPRedirectHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    return opener.open(url, timeout=timeout)


def config_folder(model_type: str, *, given: Path | None, beside: Path, download: bool) -> Path | Unavailable:
    """Find the folder with the settings and the vocabulary of a checkpoint."""
    if given is not None:
        if is_config(given):
            return given
        message = f"expected config.json and a vocabulary in {given}"
        return Unavailable(reason=Absence.CONFIG_ABSENT, message=message, hint="Correct `toxicity.config_path`.")
    if is_config(beside / model_type):
        return beside / model_type
    folder = _from_hub(model_type, download=download and not offline())
    return folder or Unavailable(
        reason=Absence.CONFIG_ABSENT,
        message="the settings and vocabulary of the checkpoint are not on this machine and could not be fetched",
        hint="Copy config.json and the tokenizer's files into a folder and name it in `toxicity.config_path`.",
    )


def is_config(folder: Path) -> bool:
    """Whether a folder has settings and a vocabulary."""
    return (folder / "config.json").is_file() and any((folder / name).is_file() for name in _VOCABULARIES)


def _from_hub(name: str, *, download: bool) -> Path | None:
    from huggingface_hub import snapshot_download

    for local in (True, False) if download else (True,):
        folder = None
        with CatchErrors():  # no such name, no network, no right to it
            folder = snapshot_download(name, allow_patterns=CONFIG_FILES, local_files_only=local, etag_timeout=_STALL_S)
        if folder is not None and is_config(Path(folder)):
            return Path(folder)
    return None


NAMED = {
    "original": ("en",),
    "original-small": ("en",),
    "unbiased": ("en",),
    "unbiased-small": ("en",),
    "multilingual": ("en", "es", "fr", "it", "pt", "ru", "tr"),
}
"""Published checkpoints by name, and the languages that they were trained on."""

WINDOWS_VERSION = "1"
"""Changes when the same document may be cut in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The judge that a config requests."""

    judge: str = "original"
    """Name of a published checkpoint, or the path of one."""
    config_path: str | None = None
    """Folder with the settings and the vocabulary of the weights; needed without a network where no cache has it."""
    device: str = "auto"
    """``auto`` (a GPU where there is one), ``cpu`` or ``cuda``."""
    languages: tuple[str, ...] = ()
    """Languages that are judged; empty: those that a published judge was trained on, all for any other."""
    download: bool = True
    """Whether a published checkpoint may be fetched when it is not in the cache."""
    seed: int = 0
    """Of the draw of windows in long documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeModel:
    """A judge and its weights, named so that every worker loads the same; small enough to be sent."""

    name: str
    """Name of a published checkpoint, or ``local``."""
    version: str
    """Versions of the libraries and of the way documents are cut into windows."""
    sha256: str
    """Of the checkpoint's file."""
    config_sha256: str
    """Of the names and contents of its settings and vocabulary files."""
    classes: tuple[str, ...]
    """Names of the columns of its answers, as Detoxify spells them (``toxicity``, ``insult``, ...)."""
    languages: tuple[str, ...]
    """Codes of languages that it can judge; empty: all."""
    path: Path
    """The checkpoint."""
    config_path: Path
    """Folder with its settings and vocabulary."""
    device: str = "auto"
    seed: int = 0
    window: int = 512
    """Tokens of a window at most, those included that the tokenizer adds."""
    max_windows: int = 8
    """Windows of a document that are judged at most."""

    @property
    def title(self) -> str:
        """Name in a manifest."""
        return f"detoxify {self.name}"

    @property
    def main_class(self) -> int:
        """Index of the class of toxicity as a whole; 0 where none is called so."""
        return self.classes.index("toxicity") if "toxicity" in self.classes else 0


_LOCK = threading.Lock()
_OLD_NAMES = {"gamma": "weight", "beta": "bias"}
_OF_CODE = ("GLOBAL", "Unsupported global", "Unsupported class")
"""Words of torch's refusal of what would run."""


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message shows nothing of its content but names of its parts."""

    def __init__(self, reason: Absence, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint and check that it has the parts that Detoxify reads."""
    import pickle

    import torch

    loaded: Any = None
    with CatchErrors() as call, quiet():
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(call.error, pickle.UnpicklingError) and any(word in str(call.error) for word in _OF_CODE):
        raise CheckpointError(
            Absence.UNSAFE_CHECKPOINT, "it holds more than tensors, numbers, strings, lists and dicts"
        )
    if call.error is not None:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "it is no whole file of torch.save")
    _check(loaded)
    checked: dict[str, Any] = loaded
    return checked


def arguments_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``model_type``, ``model_name``, ``tokenizer_name`` and ``num_classes`` of a checkpoint."""
    arguments: dict[str, Any] = checkpoint["config"]["arch"]["args"]
    return arguments


def build(path: Path, config_path: Path, device: str) -> Any:
    """Build ``detoxify.Detoxify`` for inference from a checkpoint and the folder of its settings and vocabulary."""
    from detoxify import Detoxify
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    checkpoint = read_checkpoint(path)
    arguments_of(checkpoint)["model_type"] = str(config_path)
    judge: Any = None
    with CatchErrors() as call, _LOCK, quiet(), _given(checkpoint):
        judge = Detoxify(checkpoint=str(path), device=device)
    if call.error is not None:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, f"it does not fit its settings ({call.kind})")
    absent = _absent(judge.model, checkpoint["state_dict"])
    if absent:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, f"{absent} of the model's tensors are not in it")
    judge.model.eval()
    return judge


@contextmanager
def _given(checkpoint: dict[str, Any]) -> Iterator[None]:
    """Let Detoxify's ``torch.load`` return a checkpoint that was read safely."""
    from detoxify import detoxify

    torch = detoxify.torch
    detoxify.torch = SimpleNamespace(load=lambda *_, **__: checkpoint)
    try:
        yield
    finally:
        detoxify.torch = torch


def _check(loaded: Any) -> None:
    import torch

    try:
        arguments = arguments_of(loaded)
        classes = loaded["config"]["dataset"]["args"]["classes"]
        tensors = loaded["state_dict"]
        known = {"model_type", "model_name", "tokenizer_name", "num_classes"} == set(arguments)
        model, tokenizer = str(arguments["model_name"]), str(arguments["tokenizer_name"])
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            Absence.BROKEN_CHECKPOINT, "expected `config` and `state_dict` as Detoxify writes them"
        ) from None
    named = isinstance(classes, list) and bool(classes) and all(isinstance(name, str) for name in classes)
    whole = isinstance(tensors, Mapping) and all(map(torch.is_tensor, tensors.values()))
    if not (known and named and whole and len(set(classes)) == len(classes)):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected classes, arguments and tensors as Detoxify writes")
    if not (model.endswith("ForSequenceClassification") and model.isidentifier()):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected a model for sequence classification")
    if not (tokenizer.endswith(("Tokenizer", "TokenizerFast")) and tokenizer.isidentifier()):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected the name of a tokenizer")
    if not (isinstance(arguments["num_classes"], int) and arguments["num_classes"] >= len(classes)):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected at least as many answers as classes")


def _absent(model: Any, tensors: Mapping[str, Any]) -> int:
    """Count the parameters that a checkpoint lacks; the library would make them up at random."""
    given = set()
    for name in tensors:
        head, _, tail = name.rpartition(".")
        given.add(f"{head}.{_OLD_NAMES.get(tail, tail)}")
    return sum(name not in given for name, _ in model.named_parameters())


def resolve_judge(settings: JudgeSettings, base_dir: Path) -> JudgeModel | Unavailable:
    """Find the judge that a config requests, load it once and let it answer."""
    absent = not_installed("the toxicity judge", "toxicity")
    if absent is not None:
        return absent
    if settings.device == "cuda" and not has_cuda():
        return Unavailable(
            reason=Absence.NO_DEVICE, message="toxicity.device: no CUDA device is here", hint="Use `auto` or `cpu`."
        )
    with quiet():
        path = _weights(settings, base_dir)
        if isinstance(path, Unavailable):
            return path
        return _loaded(settings, path, base_dir)


def has_cuda() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def _weights(settings: JudgeSettings, base_dir: Path) -> Path | Unavailable:
    if settings.judge in NAMED:
        return published_weights(settings.judge, download=settings.download)
    path = base_dir / settings.judge
    if path.is_file():
        return path
    return Unavailable(
        reason=Absence.WEIGHTS_ABSENT,
        message=f"toxicity.judge: expected one of {', '.join(NAMED)} or a file, found nothing at {path}",
        hint="Correct the path.",
    )


def _loaded(settings: JudgeSettings, path: Path, base_dir: Path) -> JudgeModel | Unavailable:
    try:
        arguments = arguments_of(read_checkpoint(path))
        given = None if settings.config_path is None else base_dir / settings.config_path
        folder = config_folder(
            str(arguments["model_type"]), given=given, beside=path.parent, download=settings.download
        )
        if isinstance(folder, Unavailable):
            return folder
        judge = build(path, folder, "cpu")
        answers = judge.predict("Good morning, and thank you for the letter.")
        if not all(math.isfinite(answer) for answer in answers.values()):
            raise CheckpointError(Absence.BROKEN_CHECKPOINT, "its answers are no numbers")
    except CheckpointError as error:
        return Unavailable(
            reason=error.reason,
            message=f"toxicity.judge: {path} cannot be used: {error.message}",
            hint="Give a checkpoint that `Detoxify(checkpoint=...)` loads with `weights_only=True`.",
        )
    named = settings.judge in NAMED
    return JudgeModel(
        name=settings.judge if named else "local",
        version=(
            f"detoxify {version('detoxify')}, transformers {version('transformers')}, torch {version('torch')}"
            f"+windows.{WINDOWS_VERSION}"
        ),
        sha256=file_sha256(path),
        config_sha256=config_sha256(folder),
        classes=tuple(judge.class_names),
        languages=settings.languages or NAMED.get(settings.judge, ()),
        path=path,
        config_path=folder,
        device=settings.device,
        seed=settings.seed,
    )
