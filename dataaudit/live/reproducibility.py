"""The reproducibility manifest of a checkpoint: what a run was made of, by digests, and what of it is not known."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from dataaudit import __version__
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.files import open_safely

_GIT_SECONDS = 10.0
_LIBRARIES: Final = ("torch", "numpy", "transformers", "lightning", "safetensors", "accelerate")
_HINTS: Final = {
    "code": "no git repository: `code=FOLDER` names it",
    "lock": "`lock=[FILE]` names the lock file",
    "model_config": "`model=` takes the model, or its config",
    "tokenizer": "`tokenizer=` takes its file, its folder or a tokenizer",
    "data_manifest": "`corpus=` takes what `open_manifest` returned, or the manifest's id",
    "quarantine": "`corpus=` takes what `open_manifest` returned",
    "evaluation": "`evaluation={name: FILE}` names prompts, templates, decoding parameters",
}


def reproducibility_manifest(
    *,
    code: str | os.PathLike[str] = ".",
    lock: Iterable[str | os.PathLike[str]] = (),
    model: Any | None = None,
    tokenizer: Any | None = None,
    corpus: Any | None = None,
    evaluation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a run is made of, in plain types; ``unknown`` names what was not given, and how to give it.

    Args:
        code: A folder of the git repository: commit, and the digest of what differs from it.
        lock: Lock files; versions of what is installed are listed by digest in any case.
        model: A module (its config, and names, shapes and types of its parameters) or a config.
        tokenizer: A file, a folder, a tokenizer of transformers or tokenizers, or a digest.
        corpus: What ``open_manifest`` returned, or the id of a manifest.
        evaluation: Artifacts by name: files or folders, or plain values such as decoding parameters.

    Raises:
        ConfigError: A file that is named cannot be read.
    """
    digests = getattr(corpus, "digests", None)
    own: Mapping[str, Any] = digests if isinstance(digests, Mapping) else {"manifest": corpus or ""}
    known = {
        "code": _code(Path(code)),
        "lock": {Path(file).name: _digest(file) for file in lock} or None,
        "model_config": None if model is None else _model(model),
        "tokenizer": _tokenizer(tokenizer) or own.get("tokenizer") or None,
        "data_manifest": own.get("manifest") or None,
        "quarantine": _quarantine(own),
        "evaluation": {name: _digest(item) for name, item in (evaluation or {}).items()} or None,
    }
    return {
        "format": 1,
        **{name: value for name, value in known.items() if value is not None},
        "installed": _installed(),
        "unknown": {name: _HINTS[name] for name, value in known.items() if value is None},
    }


def _quarantine(digests: Mapping[str, Any]) -> dict[str, str] | None:
    names = ("quarantine", "applied", "held")
    return {name: digests.get(name) or "none" for name in names} if "quarantine" in digests else None


def _code(folder: Path) -> dict[str, Any] | None:
    """Return commit, and whether and how the files differ from it; None outside of a repository."""

    def git(*words: str) -> bytes:
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
        command = ["git", "-C", str(folder), *words]
        how: dict[str, Any] = {"timeout": _GIT_SECONDS, "env": environment, "stdin": subprocess.DEVNULL}
        printed: bytes = subprocess.run(command, check=True, capture_output=True, **how).stdout
        return printed

    with CatchErrors() as call:
        commit = git("rev-parse", "HEAD").decode().strip()
        changed = git("status", "--porcelain", "--untracked-files=normal")
        known: dict[str, Any] = {"commit": commit, "dirty": bool(changed)}
        if changed:
            known["difference"] = _hex(git("diff", "HEAD", "--binary") + changed)
    return None if call.error is not None else known


def _model(model: Any) -> dict[str, str]:
    """Return digests of a model's config and of its parameters' names, shapes and types; of a config alone, its own."""
    named = getattr(model, "named_parameters", None)
    config = getattr(model, "config", None) if callable(named) else model
    known = {}
    if config is not None:
        known["config"] = _digest(config.to_dict() if hasattr(config, "to_dict") else config)
    if callable(named):
        parameters = [(name, list(item.shape), str(item.dtype)) for name, item in named()]
        known |= {"parameters": _hex(orjson.dumps(parameters)), "class": type(model).__name__}
    return known


def _tokenizer(tokenizer: Any) -> str:
    if tokenizer is None:
        return ""
    if isinstance(tokenizer, str) and tokenizer.startswith("sha256:"):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return _hex(backend.to_str().encode()) if hasattr(backend, "to_str") else _digest(tokenizer)


def _digest(item: Any) -> str:
    """Return the digest of a file, of the files of a folder by name, or of a plain value as JSON."""
    path = Path(item) if isinstance(item, str | os.PathLike) else None
    if path is None:
        return _hex(orjson.dumps(item, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str))
    try:
        files = sorted(own for own in path.rglob("*") if own.is_file()) if path.is_dir() else [path]
        digests = []
        for file in files:
            with open(file, "rb", opener=open_safely) as opened:
                digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    except OSError as error:
        raise ConfigError(f"reproducibility: {path} cannot be read: {error.strerror or error}") from None
    if not path.is_dir():
        return f"sha256:{digests[0]}"
    names = [file.relative_to(path).as_posix() for file in files]
    return _hex(orjson.dumps(list(zip(names, digests, strict=True))))


def _installed() -> dict[str, str]:
    """Return versions that decide bits, and the digest of all that is installed."""
    every = sorted({f"{own.name}=={own.version}".lower() for own in importlib.metadata.distributions() if own.name})
    versions = {own.split("==")[0]: own.split("==")[1] for own in every}
    return {
        "python": platform.python_version(),
        "dataaudit": __version__,
        **{name: versions[name] for name in _LIBRARIES if name in versions},
        "all": _hex("\n".join(every).encode()),
        "command": _hex("\0".join(sys.argv).encode()),
    }


def _hex(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
