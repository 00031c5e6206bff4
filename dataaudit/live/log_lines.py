"""Lines of logs as they are: compressed, coloured, with progress bars, prefixes of ranks and times of many formats.

Files are read in blocks, so that memory does not depend on their size; of a line longer than :data:`LONGEST` the two
ends are kept.
"""

from __future__ import annotations

import datetime as dt
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import open_safely

BLOCK = 1 << 16
"""Bytes that are read at once."""
LONGEST = 1 << 14
"""Bytes of a line that are kept."""
_GZIP = b"\x1f\x8b"
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PREFIX = re.compile(r"\[(?P<kind>rank|default|trainer|worker|1,)(?P<rank>\d{1,6})\](?:<std\w+>)?:\s?")
"""Of torch, torchrun's --tee, and mpirun."""
_BEHIND_STAMP = re.compile(
    r" ?(?:(?:stdout|stderr) [FP] )?"
    r"(?=\[(?:rank|default)\d+\]|Traceback \(most recent call last\)| *File \"| {2,}\S"
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b)"
)
"""Between the time that kubectl, docker or ts put before each line, and a traceback or the line of a rank."""
_SRUN = re.compile(r"\s*(?P<rank>\d{1,6}): (?=\S| )")
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?P<part>[.,]\d{1,9})?"
_TIMES = (
    re.compile(rf"\[?(?P<day>\d{{4}}-\d\d-\d\d)[T _]{_CLOCK}\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"),
    re.compile(rf"\[?[EWIF](?P<month>\d\d)(?P<dom>\d\d) {_CLOCK}"),
    re.compile(rf"\[?(?P<month>\d\d)/(?P<dom>\d\d)/(?P<year>\d{{4}})[ -]{_CLOCK}"),
    re.compile(
        rf"\[?(?:[A-Z][a-z]{{2}} )?(?P<name>[A-Z][a-z]{{2}}) +(?P<dom>\d{{1,2}}) {_CLOCK}(?: (?P<year>\d{{4}}))?"
    ),
)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_YEARLESS = 1972
"""Year of times without one; it has a 29 February."""


class Clock(NamedTuple):
    """A time that a line begins with."""

    seconds: float
    """Since 1970, as if the line's zone were UTC."""
    zoned: bool
    """Whether the line names its zone, which is then accounted for."""


class Line(NamedTuple):
    """A line without colours and without the prefix of its rank."""

    number: int
    text: str
    rank: int | None
    """By its prefix."""
    time: Clock | None


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines) of a log; a gzip file is decompressed as it is read.

    What a cut gzip file still holds is yielded.

    Raises:
        ConfigError: The file cannot be opened or read.
    """
    try:
        with open(path, "rb", opener=open_safely) as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            yield from _whole_lines(gzip.GzipFile(fileobj=file) if packed else file)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"the log {path} cannot be read: {why}", "Name files that a run has written.") from None


def _whole_lines(file: BinaryIO | gzip.GzipFile) -> Iterator[tuple[int, bytes]]:
    number, rest, data = 1, b"", b" "
    while data:
        try:
            data = file.read(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            data = b""
        whole, end, last = (rest + data).rpartition(b"\n")
        rest = _shortened(last)
        if end:
            yield number, whole
            number += whole.count(b"\n") + 1
    if rest:
        yield number, rest


def _shortened(line: bytes) -> bytes:
    half = LONGEST // 2
    return line if len(line) <= 2 * LONGEST else line[:half] + b" ... " + line[-half:]


def line_of(number: int, raw: bytes, *, labelled: bool) -> Line:
    """Return a line; ``labelled`` says that srun put ``rank:`` before each."""
    text = _shortened(raw).decode("utf-8", "replace")
    text, rank, time = _COLOUR.sub("", text) if "\x1b" in text else text, None, None
    if (stamp := _time(text)) and (behind := _BEHIND_STAMP.match(text, stamp.end())):
        time, text = _clock(stamp.groupdict()), text[behind.end() :]
    if labelled and (label := _SRUN.match(text)):
        rank, text = int(label["rank"]), text[label.end() :]
    while text.startswith("[") and (prefix := _PREFIX.match(text)):
        rank = int(prefix["rank"]) if rank is None or prefix["kind"] == "rank" else rank
        text = text[prefix.end() :]
    return Line(number, text, rank, time_of(text) or time)


def is_labelled(lines: list[bytes]) -> bool:
    """Tell whether most lines of a log's first block have the label of ``srun --label``, and some differ."""
    lines = [line for line in lines[:200] if line.strip()]
    labels = [label[1] for line in lines if (label := re.match(rb"\s*(\d{1,6}): ", line))]
    return len(set(labels)) > 1 and len(labels) > 0.75 * len(lines)


def time_of(text: str) -> Clock | None:
    """Return the time that a line begins with; without a year it is of 1972, until :func:`with_year`."""
    match = _time(text)
    return None if match is None else _clock(match.groupdict())


def behind_time(text: str) -> str:
    """Return a line without the time that it begins with."""
    match = _time(text)
    return text if match is None else text[match.end() :]


def _time(text: str) -> re.Match[str] | None:
    start = len(text) - len(text.lstrip(" "))
    if not text[start : start + 1].isalnum() and text[start : start + 1] != "[":
        return None
    return next((match for form in _TIMES if (match := form.match(text, start))), None)


def _clock(parts: dict[str, str | None]) -> Clock | None:
    try:
        if day := parts.get("day"):
            date = dt.date.fromisoformat(day)
        else:
            month = int(parts.get("month") or 1 + _MONTHS.index(parts.get("name") or ""))
            date = dt.date(int(parts.get("year") or _YEARLESS), month, int(parts["dom"] or 0))
        if not dt.MINYEAR < date.year < dt.MAXYEAR:  # a zone may lead out of what a time can be
            return None
        moment = dt.datetime.combine(date, dt.time.fromisoformat(parts["clock"] or ""), dt.UTC)
    except ValueError:
        return None
    seconds = moment.timestamp() + float("0." + (parts["part"] or ".0")[1:])
    zone = parts.get("zone")
    if zone and zone[0] in "+-":
        seconds -= (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return Clock(seconds, bool(zone))


def with_year(clock: Clock, near: float) -> Clock:
    """Return a time without a year in the year that brings it nearest to another time, and not after it."""
    moment, year = dt.datetime.fromtimestamp(clock.seconds, dt.UTC), dt.datetime.fromtimestamp(near, dt.UTC).year
    options = []
    for candidate in (year - 1, year, year + 1) if moment.year <= _YEARLESS else ():
        with suppress(ValueError):  # 29 February
            options.append(moment.replace(year=candidate).timestamp())
    return Clock(max((own for own in options if own < near + 2 * 86400), default=clock.seconds), clock.zoned)
