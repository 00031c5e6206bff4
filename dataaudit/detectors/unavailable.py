"""Unavailable: why an expensive detector cannot be had here, as a value and not as an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dataaudit.extras import absent, install_line


class Absence(StrEnum):
    """Why a judge cannot work; the codes stand in the manifest beside ``not_evaluated``."""

    NOT_INSTALLED = "not_installed"
    """A library that it needs is not installed."""
    WEIGHTS_ABSENT = "weights_absent"
    """Its weights are not on this machine and cannot be fetched."""
    CONFIG_ABSENT = "config_absent"
    """The settings or the vocabulary that belong to the weights are not on this machine and cannot be fetched."""
    BROKEN_CHECKPOINT = "broken_checkpoint"
    """The file is not a whole checkpoint of a form that is known, or does not fit its settings."""
    UNSAFE_CHECKPOINT = "unsafe_checkpoint"
    """The file asks to run code while it is read."""
    NO_DEVICE = "no_device"
    """The device that the config names is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A judge that cannot be had: what depends on it is not evaluated, and never zero."""

    reason: Absence
    """Stable code."""
    message: str
    """What was looked for, where, and what was found; never text of a document."""
    hint: str
    """What to do about it."""


def not_installed(judge: str, extra: str) -> Unavailable | None:
    """Return what a judge lacks of the packages of its extra, none of which is imported; None when all are here."""
    missing = absent(extra)
    if not missing:
        return None
    return Unavailable(
        reason=Absence.NOT_INSTALLED,
        message=f"{judge} needs {', '.join(missing)}",
        hint=f"Run `{install_line(extra)}`.",
    )
