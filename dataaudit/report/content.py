"""What is in the documents, in the order it is shown: toxicity, personal data, secrets; facts and blocks together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dataaudit.manifest.load import Manifest
from dataaudit.report.pii import Pii, personal_data, pii_facts, pii_lines
from dataaudit.report.secrets import Secrets, secret_facts, secret_lines, secret_warning, secrets
from dataaudit.report.toxicity import Toxic, toxic, toxic_facts, toxic_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What was found in the documents; None where it was not looked for."""

    toxic: Toxic | None
    personal: Pii | None
    secrets: Secrets | None


def content(manifest: Manifest) -> Content:
    """Return what was found in the documents of a manifest."""
    return Content(toxic=toxic(manifest), personal=personal_data(manifest), secrets=secrets(manifest))


def content_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the same as plain JSON values."""
    return {**toxic_facts(manifest), **pii_facts(manifest), **secret_facts(manifest)}


def content_warning(found: Content, width: int) -> list[str]:
    """Return what has to stand above everything else."""
    return secret_warning(found.secrets, width)


def content_lines(found: Content, width: int, limit: int, *, details: bool = True) -> tuple[list[str], ...]:
    """Return the blocks.

    Args:
        found: Of :func:`content`.
        width: Of the terminal.
        limit: Rows of each table.
        details: Whether to show what only some ask for.
    """
    return (
        toxic_lines(found.toxic, width, limit, details=details),
        pii_lines(found.personal, width, limit),
        secret_lines(found.secrets, width, limit),
    )
