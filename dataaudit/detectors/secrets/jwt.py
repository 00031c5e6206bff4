"""JSON Web Tokens (RFC 7519): what decodes to a header that names an algorithm, and to claims."""

from __future__ import annotations

import json

from dataaudit.detectors.secrets.encodings import decode_base64


def is_json_web_token(token: str) -> bool:
    """Tell whether a token is a signed one with claims (RFC 7515), or an encrypted one (RFC 7516)."""
    parts = token.split(".")
    header = _read(parts[0])
    if header is None or not isinstance(header.get("alg"), str):
        return False
    if len(parts) == 5:
        return isinstance(header.get("enc"), str) and all(decode_base64(part) is not None for part in parts[1:])
    if len(parts) != 3 or _read(parts[1]) is None:
        return False
    return header["alg"] == "none" if not parts[2] else decode_base64(parts[2]) is not None


def _read(part: str) -> dict[str, object] | None:
    raw = decode_base64(part)
    if raw is None:
        return None
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
