"""What `quarantine apply` is asked for: options, checked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dataaudit.errors import ConfigError
from dataaudit.manifest.load import Manifest
from dataaudit.quarantine.documents import DETECTORS, ORIGINS, TIERS, Choice
from dataaudit.quarantine.held import today
from dataaudit.quarantine.loaders import FORMATS
from dataaudit.yamlfile import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for."""

    file: Path
    """The list."""
    manifest: Path | Manifest
    """The manifest, or its folder."""
    out: Path
    """Folder to write."""
    on: dt.date
    """The day that expiries are held against."""
    formats: tuple[str, ...] = ("list",)
    """Of :data:`dataaudit.quarantine.loaders.FORMATS`."""
    documents: Choice | None = None
    """What a drop list is made of; None for none."""
    asked: tuple[str, ...] = ()
    """Origins that the user named, so that an absent one is an error."""
    rows: bool = False
    """Whether each shard's rows are written as text too."""
    root: str | None = None
    """Where the shards lie now; the manifest's roots when None."""
    exclude_changed: bool = False
    """Leave out shards that an entry names under another digest."""
    keep_unread: bool = False
    """Keep shards that the build did not read."""
    ignore_bad_lines: bool = False
    """Go on although lines of the list cannot be read."""


def make_request(
    file: Path,
    *,
    manifest: Path | Manifest,
    out: Path,
    formats: tuple[str, ...],
    documents: bool,
    origins: Sequence[str] | None,
    findings: Sequence[str] | None,
    ngram_score: float,
    held_out: bool,
    rows: bool,
    root: str | None,
    exclude_changed: bool,
    keep_unread: bool,
    ignore_bad_lines: bool,
    on: dt.date | None,
) -> Request:
    """Return the request of the command's options.

    Raises:
        ConfigError: An option is unknown, or goes only with another one.
    """
    forms = _names(formats, "--format", list(FORMATS))
    if not 0 <= ngram_score <= 1:
        raise ConfigError(f"--ngram-score: expected 0 to 1, found {ngram_score:g}")
    if not documents and (origins is not None or findings is not None or held_out or rows):
        raise ConfigError(
            "--from, --findings, --held-out and --rows say which documents are dropped", "Add --documents."
        )
    named = _names(origins, "--from", ORIGINS)
    pairs = _names(findings, "--findings", [f"{detector}:{tier}" for detector in DETECTORS for tier in TIERS])
    choice = Choice(
        origins=tuple(origin for origin in ORIGINS if origin in (named or ORIGINS)),
        ngram_score=ngram_score,
        held_out=held_out,
    )
    if pairs:
        if "findings" not in choice.origins:
            raise ConfigError("--findings without findings in --from", "Add them to --from.")
        split = [pair.split(":") for pair in pairs]
        choice = Choice(
            origins=choice.origins,
            findings=tuple((detector, tier) for detector, tier in split),
            ngram_score=ngram_score,
            held_out=held_out,
        )
    return Request(
        file=file,
        manifest=manifest,
        out=out,
        on=on or today(),
        formats=tuple(forms) or ("list",),
        documents=choice if documents else None,
        asked=tuple(named),
        rows=rows,
        root=root,
        exclude_changed=exclude_changed,
        keep_unread=keep_unread,
        ignore_bad_lines=ignore_bad_lines,
    )


def _names(given: Sequence[str] | None, option: str, known: tuple[str, ...] | list[str]) -> list[str]:
    names = given or ()
    for name in names:
        if name not in known:
            raise ConfigError(f"{option}: no `{name}`{nearest(name, list(known))}", f"Known: {', '.join(known)}.")
    return list(dict.fromkeys(names))
