"""JudgeSettings and JudgeModel: which toxicity judge a config asks for, and the one that was found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAMED = {
    "original": ("en",),
    "original-small": ("en",),
    "unbiased": ("en",),
    "unbiased-small": ("en",),
    "multilingual": ("en", "es", "fr", "it", "pt", "ru", "tr"),
}
"""Published checkpoints by name, and the languages that they were trained on."""

WINDOWS_VERSION = "1"
"""Changes when the same document may be shown to the model in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The judge that a config asks for."""

    judge: str = "original"
    """Name of a published checkpoint, or the path of one."""
    config_path: str | None = None
    """Folder with the settings and the vocabulary of the weights; needed without a network where no cache has it."""
    device: str = "auto"
    """``auto`` (a GPU where there is one), ``cpu`` or ``cuda``."""
    languages: tuple[str, ...] = ()
    """Languages that it is asked about; empty: those that a published one was trained on, all of any other."""
    download: bool = True
    """Whether a published checkpoint may be fetched when it is not in the cache."""
    seed: int = 0
    """Of the choice of windows in long documents."""


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
    """Of the names and contents of the settings and vocabulary files that belong to it."""
    classes: tuple[str, ...]
    """Names of the columns of its answers, as Detoxify spells them (``toxicity``, ``insult``, ...)."""
    languages: tuple[str, ...]
    """Codes of languages that it can judge; empty: all."""
    path: Path
    """The checkpoint."""
    config_path: Path
    """Folder with its settings and vocabulary."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``."""
    seed: int = 0
    """Of the choice of windows in long documents."""
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
        """Index of the class that says toxic as a whole; the first where none is called so."""
        return self.classes.index("toxicity") if "toxicity" in self.classes else 0
