"""Which addresses become links."""

from __future__ import annotations

import re

_WEB = re.compile(
    r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
    r"(?:[/?#][A-Za-z0-9._~!$&'*+,;=:@%/?#-]*)?"
)
_MOST = 1000


def web_address(text: str | None) -> str | None:
    """Return a web address that is safe in a link as it stands; None for anything else.

    A name and password in front of the host make it none, nor do brackets, quotes or blanks get in.
    """
    return text if text is not None and len(text) <= _MOST and _WEB.fullmatch(text) else None
