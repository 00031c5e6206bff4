"""Results that show themselves: what makes a line and blocks of them is named by path, since it knows the result."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from dataaudit import text as t


class Result:
    """A result with a line for a prompt, and blocks for a notebook."""

    __slots__ = ()
    line_by = ""
    """Path of what returns the line: ``package.module:function``."""
    blocks_by = ""
    """Path of what returns the section."""

    def __repr__(self) -> str:
        """Return what it comes to, on one line."""
        return f"<{type(self).__name__} {resolve_name(self.line_by)(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from dataaudit.render.html.notebook import to_html

        return to_html(resolve_name(self.blocks_by)(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a command wrote: a line for people, one JSON object for programs."""

    file: Path | str | None
    """Where; None when it is printed instead."""
    data: bytes = field(repr=False)
    """All of it, UTF-8 where it is printed."""
    words: str = ""
    """What it is."""
    facts: dict[str, Any]
    """The same for programs, by name."""

    def shown(self, *, as_json: bool) -> str:
        """Return what the command prints."""
        if not as_json:
            return self.data.decode() if self.file is None else f"{t.clean(str(self.file))}: {self.words}\n"
        place = {"text": self.data.decode()} if self.file is None else {"file": str(self.file)}
        digest = hashlib.sha256(self.data).hexdigest()
        return t.as_json({**place, "bytes": len(self.data), "sha256": digest, **self.facts})
