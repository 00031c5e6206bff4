"""What doctor says of the detectors of content: the screen, the patterns, and the models that judges need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

from dataaudit.detectors.toxicity import find_screen
from dataaudit.errors import DetectorError

Found = tuple[str, Literal["ok", "missing", "broken", "note"], str, str]
"""Name, state, what was found, advice."""
_SPACY_MODELS = "spacy_models"


def content_checks() -> Iterator[Found]:
    """Look for what is shipped and what judges need; nothing heavy is imported."""
    try:
        model = find_screen()
    except DetectorError as error:
        yield "toxicity screen", "broken", error.message, error.hint
    else:
        languages = ", ".join(model.languages) or "any language"
        about = f"`{model.name}` {model.version}, {languages}, sha256 {model.sha256[:12]}..."
        yield "toxicity screen", "ok", about, ""
    yield _weights()
    yield _models()


def _weights() -> Found:
    """Return the published checkpoints of Detoxify that lie in torch hub's cache."""
    folder = hub_folder()
    names = sorted(path.name for path in folder.glob("*.ckpt")) if folder.is_dir() else []
    if names:
        return "detoxify models", "ok", f"{', '.join(names)} in {folder}", ""
    advice = "a build whose config names a published judge fetches it there; `toxicity.judge` also takes a file"
    return "detoxify models", "note", f"none in {folder}", advice


def _models() -> Found:
    """Return the spaCy models that are installed as packages."""
    names = sorted(
        {f"{one.name} {one.dist.version if one.dist else ''}".strip() for one in entry_points(group=_SPACY_MODELS)}
    )
    if names:
        return "spacy models", "ok", ", ".join(names), ""
    advice = "`python -m spacy download en_core_web_sm`, then `pii.model: en_core_web_sm` in a config, or a folder"
    return "spacy models", "missing", "none; names, places and organisations are not searched for without one", advice


def hub_folder() -> Path:
    """Return where torch hub keeps checkpoints, as torch finds it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "torch"
    return Path(os.environ.get("TORCH_HOME", str(cache))).expanduser() / "hub" / "checkpoints"
