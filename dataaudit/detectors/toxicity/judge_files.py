"""Where the weights, the settings and the vocabulary of a judge lie, and how published ones are fetched."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
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

from dataaudit.atomic import replacing
from dataaudit.detectors.judges import Absence, Unavailable
from dataaudit.guarded import Guarded

CONFIG_FILES = (
    "added_tokens.json",
    "config.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files that say what a model is and how it reads text."""
_VOCABULARIES = {"sentencepiece.bpe.model", "spiece.model", "tokenizer.json", "vocab.json", "vocab.txt"}
_STALL_S = 15.0
_DEADLINE_S = 1800.0
_CHUNK = 1 << 20


def offline() -> bool:
    """Whether the environment forbids fetching models."""
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in _FORBIDDING)


_FORBIDDING = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def file_sha256(path: Path) -> str:
    """Hash a file in pieces."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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
    """Fetch a file, all of it or nothing.

    Args:
        url: An https address.
        path: Where it goes.
        digits: First hexadecimal digits of its SHA-256.
        stall_s: Seconds without an answer after which it is given up.
        deadline_s: Seconds after which it is given up in any case.

    Raises:
        OSError: It does not come, or cannot be written.
        ValueError: What came has another digest, or the address is none of https.
    """
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
    """Open an address with the one handler that there is, of https; a redirection to another scheme has none.

    Args:
        url: An https address.
        timeout: Seconds without an answer after which it is given up.

    Raises:
        OSError: It does not come, or is of another scheme.
    """
    opener = OpenerDirector()
    opener.addheaders = [("User-Agent", "dataaudit")]
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        HTTPDefaultErrorHandler(),
        HTTPRedirectHandler(),
        HTTPErrorProcessor(),
        HTTPSHandler(),
    ):
        opener.add_handler(handler)
    return opener.open(url, timeout=timeout)


def config_folder(model_type: str, *, given: Path | None, beside: Path, download: bool) -> Path | Unavailable:
    """Find the folder with the settings and the vocabulary of a checkpoint.

    Args:
        model_type: What the checkpoint says: a folder (absolute or beside the checkpoint) or a name on the hub.
        given: The folder that the config names.
        beside: The checkpoint's folder.
        download: Whether the hub may be asked.
    """
    if given is not None:
        if is_config(given):
            return given
        message = f"expected config.json and a vocabulary in {given}"
        return Unavailable(reason=Absence.CONFIG_ABSENT, message=message, hint="Correct `toxicity.config_path`.")
    place = beside / model_type
    if is_config(place):
        return place
    found = _from_hub(model_type, download=download and not offline())
    if found is not None:
        return found
    return Unavailable(
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
        with Guarded():  # no such name, no network, no right to it
            folder = snapshot_download(
                name, allow_patterns=list(CONFIG_FILES), local_files_only=local, etag_timeout=_STALL_S
            )
        if folder is not None and is_config(Path(folder)):
            return Path(folder)
    return None
