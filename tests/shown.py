"""Blocks as a terminal shows them, for tests."""

from dataaudit.base.render.terminal import parts_of


def shown(block, width=100):
    """Return the lines of a block or section; none of a section that only says that nothing was looked for."""
    if getattr(block, "tone", "") == "quiet" and not block.blocks:
        return []
    return [line for part in parts_of(block, width, None) for line in part]


def told(block, width=100):
    """Return the same as one line, with single blanks."""
    return " ".join(" ".join(shown(block, width)).split())
