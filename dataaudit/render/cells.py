"""How wide a text is in a terminal, and how it is broken, folded and shortened."""

from __future__ import annotations

from dataaudit.text import clean

_BREAKS = " /-_="
_CUT = "..."
_MOST = 160


def cells(text: str) -> int:
    """Return how many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int) -> list[str]:
    """Break a text at blanks only: a digest, path or command stays whole, so that it can be copied."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def fold(text: str, width: int) -> list[str]:
    """Cut a text into pieces of at most ``width`` cells, after a blank where there is one, else a slash or dash."""
    pieces = []
    rest = text
    while cells(rest) > width:
        stop = len(rest)
        while cells(rest[:stop]) > width:
            stop -= max(1, (cells(rest[:stop]) - width) // 2)
        stop = max(stop, 1)
        while stop < len(rest) and cells(rest[: stop + 1]) <= width:
            stop += 1
        if rest[stop] != " ":
            blank = rest.rfind(" ", 0, stop) + 1
            nice = max(rest.rfind(mark, 0, stop) for mark in _BREAKS) + 1
            stop = next((one for one in (blank, nice) if one > width // 3), stop)
        pieces.append(rest[:stop].rstrip())
        rest = rest[stop:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def shortened(text: str, width: int, *, head: bool = True) -> str:
    """Return a name in at most ``width`` cells, made harmless; of a longer one the end, and a third for the beginning.

    Of a path the last folder and the file's name are kept, as far as they fit: `.../source=web/part-00017-3f...`.

    Args:
        text: Any string.
        width: Cells, 8 or more.
        head: Whether to keep the beginning.
    """
    shown = clean(text if len(text) <= 2 * _MOST else text[:_MOST] + text[-_MOST:])
    if cells(shown) <= width:
        return shown
    if "/" in shown and shown.isascii():
        return _short_path(shown, width)
    begin = shown[: width // 3] if head else ""
    while cells(begin) > width // 3:
        begin = begin[:-1]
    end = shown[-(width - cells(begin) - len(_CUT)) :]
    while cells(begin) + len(_CUT) + cells(end) > width:
        end = end[1:]
    return begin + _CUT + end


def _short_path(path: str, width: int) -> str:
    """Return a path's last folders and its file, without endings that others share, else cut in the middle."""
    *folders, file = path.rstrip("/").split("/")
    stem = file[:1] + file[1:].partition(".")[0]
    for first in range(1, len(folders)):
        for last in (file, f"{stem}{_CUT}"):
            shown = "/".join([_CUT, *folders[first:], last])
            if len(shown) <= width:
                return shown
    room = width - len(_CUT) - 2
    folder = folders[-1] if folders else ""
    kept = min(len(folder), max(room // 2, room - len(stem)))
    return f"{_CUT}/{_middle(folder, kept)}/{_middle(stem, room - kept)}"


def _middle(text: str, width: int) -> str:
    """Return a text in ``width`` characters, without its middle where it is longer."""
    if len(text) <= width:
        return text
    begin = max(0, width - len(_CUT) + 1) // 2
    return text[:begin] + _CUT[: width - begin] + text[len(text) - max(0, width - begin - len(_CUT)) :]
