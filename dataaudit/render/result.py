"""Results that show themselves: what makes a line and blocks of them is named by path, since it knows the result."""

from __future__ import annotations

from pkgutil import resolve_name


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
