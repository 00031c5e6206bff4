"""Lines as they are in logs: prefixes, colours, labels, times, and blocks of whole lines."""

import datetime as dt
import gzip

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.live import log_lines
from dataaudit.live.log_lines import (
    BLOCK,
    LONGEST,
    Clock,
    behind_time,
    blocks,
    is_labelled,
    line_of,
    time_of,
    with_year,
)


def seconds(*parts):
    """Return seconds since 1970 of a time in UTC."""
    return dt.datetime(*parts, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        (b"[rank3]: text", 3, "text"),
        (b"[default1]:[rank3]: text", 3, "text"),
        (b"[default1]:text", 1, "text"),
        (b"[1,12]<stderr>:text", 12, "text"),
        (b"\x1b[31m[rank3]:\x1b[0m text", 3, "text"),
        (b"[rank]: text", None, "[rank]: text"),
        (b"5: text", None, "5: text"),
    ],
)
def test_prefixes_name_ranks(raw, rank, text):
    """Of torch, torchrun and mpirun; that of torch is the one of the whole run."""
    line = line_of(7, raw, labelled=False)
    assert (line.number, line.rank, line.text) == (7, rank, text)


def test_labels_of_srun_are_those_of_most_lines():
    """Numbers before some lines alone are no labels, nor is the same one before all."""
    assert is_labelled([b"0: a", b" 1: b", b"", b"0: c"])
    assert not is_labelled([b"0: a", b"b", b"1: c"])
    assert not is_labelled([b"4: a", b"4: b"])
    assert line_of(1, b" 12: [rank3]: x", labelled=True).rank == 3
    assert line_of(1, b" 12: x", labelled=True)[1:3] == ("x", 12)


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("2026-03-14T09:30:05.5Z x", (seconds(2026, 3, 14, 9, 30, 5, 500_000), True)),
        (" [2026-03-14 09:30:05] x", (seconds(2026, 3, 14, 9, 30, 5), False)),
        ("2026-03-14 09:30:05-0730 x", (seconds(2026, 3, 14, 17, 0, 5), True)),
        ("E0229 09:30:05.25 x", (seconds(1972, 2, 29, 9, 30, 5, 250_000), False)),
        ("Mar  4 09:30:05 host x", (seconds(1972, 3, 4, 9, 30, 5), False)),
        ("2026-13-14 09:30:05 x", None),
        ("Foo 14 09:30:05 x", None),
        ("2026-03-14 25:30:05 x", None),
        ("text 2026-03-14 09:30:05", None),
        ("", None),
    ],
)
def test_times_are_those_that_a_line_begins_with(text, clock):
    """As UTC, and whether the line says its zone."""
    assert time_of(text) == (None if clock is None else Clock(*clock))


def test_what_stands_behind_a_time():
    """All of a line without one."""
    assert behind_time("2026-03-14T09:30:05Z stderr F x") == " stderr F x"
    assert behind_time("stderr F x") == "stderr F x"


def test_years_are_those_of_the_times_around():
    """The newest that is not after them, but for a day or two."""
    near = seconds(2026, 1, 1, 0, 0, 5)
    for text, expected in (
        ("E0101 00:00:09", (2026, 1, 1, 0, 0, 9)),
        ("E1231 23:59:58", (2025, 12, 31, 23, 59, 58)),
        ("E0102 23:00:00", (2026, 1, 2, 23)),
        ("E0104 00:00:06", (2025, 1, 4, 0, 0, 6)),
    ):
        assert with_year(time_of(text), near).seconds == seconds(*expected), text
    assert with_year(Clock(near, zoned=True), 0.0) == Clock(near, zoned=True)
    assert with_year(time_of("E0229 00:00:00"), seconds(2024, 3, 1)).seconds == seconds(2024, 2, 29)


@pytest.mark.parametrize("packed", [False, True])
def test_blocks_are_whole_lines_with_their_numbers(packed, tmp_path, monkeypatch):
    """Put together they are the file."""
    monkeypatch.setattr(log_lines, "BLOCK", 64)
    lines = [b"%d " % number * (number % 7) for number in range(200)]
    path = tmp_path / "log"
    data = b"\n".join(lines) + b"\nlast"
    path.write_bytes(gzip.compress(data) if packed else data)
    read = {number + at: line for number, block in blocks(path) for at, line in enumerate(block.split(b"\n"))}
    assert [read[number] for number in sorted(read)] == [*lines, b"last"]
    assert sorted(read) == list(range(1, 202))


def test_of_a_long_line_the_ends_are_kept(tmp_path):
    """However long it is."""
    path = tmp_path / "log"
    path.write_bytes(b"begin" + b"x" * (5 * BLOCK) + b"end\nnext\n")
    lines = [line for _, block in blocks(path) for line in block.split(b"\n")]
    text = line_of(1, lines[0], labelled=False).text
    assert (text[:5], text[-3:], lines[1:]) == ("begin", "end", [b"next"])
    assert len(text) <= 2 * LONGEST


def test_what_is_no_file_is_an_error(tmp_path):
    """A folder, a name of nothing."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read"):
            list(blocks(path))
