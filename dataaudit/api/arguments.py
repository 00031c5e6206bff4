"""Arguments as people give them: paths as text or Path, days as text or date, one or several."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit.addresses import is_address
from dataaudit.errors import ConfigError
from dataaudit.manifest.stored import is_stored

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Signer

PathLike = str | os.PathLike[str]
"""A path of a file or folder."""
Day = str | dt.date
"""A day, UTC, such as ``2026-12-31``."""


def path_of(value: PathLike, name: str) -> Path:
    """Return a path on this machine.

    Raises:
        ConfigError: It is an address.
        TypeError: It is no path.
    """
    if isinstance(value, str) and is_address(value):
        raise ConfigError(f"{name}: a path on this machine is expected, {value!r} is an address")
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise TypeError(f"{name}: expected a path, found {type(value).__name__}")


def manifest_path(value: PathLike, name: str) -> Path:
    """Return the folder of a manifest; of one in a store, the folder that it is fetched into.

    Raises:
        ConfigError: It is another address, or s3fs is not installed.
        ManifestError, StoreError: It cannot be fetched.
        TypeError: It is no path.
    """
    if is_stored(value):
        from dataaudit.manifest.fetching import fetch_manifest

        return fetch_manifest(os.fspath(value))
    return path_of(value, name)


def optional_path(value: PathLike | None, name: str) -> Path | None:
    """Return a path, or None.

    Raises:
        ConfigError: It is an address.
        TypeError: It is neither a path nor None.
    """
    return None if value is None else path_of(value, name)


def day_of(value: Day | None, name: str) -> dt.date | None:
    """Return a day, or None.

    Raises:
        ConfigError: The text is no day.
        TypeError: It is neither text nor a date.
    """
    if value is None or (isinstance(value, dt.date) and not isinstance(value, dt.datetime)):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a day such as 2026-12-31, found {type(value).__name__}")
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{name}: expected a day such as 2026-12-31, found {value}") from None


def texts_of(value: object, name: str, *, numbers: bool = False) -> tuple[str, ...]:
    """Return one or several texts or paths, as texts.

    Args:
        value: What was given.
        name: Of the argument.
        numbers: Whether whole numbers are texts too.

    Raises:
        TypeError: It is none of these.
    """
    kinds: tuple[type, ...] = (str, os.PathLike, int) if numbers else (str, os.PathLike)
    items: Iterable[object]
    if isinstance(value, kinds):
        items = (value,)
    elif isinstance(value, Iterable):
        items = tuple(value)
    else:
        raise TypeError(f"{name}: expected a text or several, found {type(value).__name__}")
    for item in items:
        if not isinstance(item, kinds) or isinstance(item, bool):
            raise TypeError(f"{name}: expected texts, found {type(item).__name__}")
    return tuple(os.fspath(item) if isinstance(item, os.PathLike) else str(item) for item in items)


def signer_of(public_key: PathLike | None, identity: str | None, issuer: str | None) -> Signer | None:
    """Return who has to have signed; None when nobody is named.

    Raises:
        ConfigError: The arguments do not go together.
        TypeError: The key is no path.
    """
    if (public_key, identity, issuer) == (None, None, None):
        return None
    if (public_key is None) == (identity is None) or (identity is None) != (issuer is None):
        raise ConfigError(
            "a signature needs either public_key=FILE or identity=WHO with issuer=URL",
            "A signature says nothing without knowing whose it has to be.",
        )
    from dataaudit.manifest.trust import Signer

    return Signer(public_key=optional_path(public_key, "public_key"), identity=identity, issuer=issuer)
