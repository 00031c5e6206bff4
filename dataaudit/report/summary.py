"""The lines a build ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def build_summary(result: Any, target: Path, *, as_json: bool) -> str:
    """Return what a build prints on stdout."""
    if as_json:
        value = {
            "id": result.id,
            "manifest": str(target),
            "exit_code": int(result.exit_code),
            "parts_planned": result.planned,
            "parts_scanned": result.scanned,
            "unread": [{"shard": shard, "reason": reason} for shard, reason in result.unread],
        }
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
    return f"{result.id}\n{target}\n"
