"""The file: many writers at once, writers that are killed, disks that are full, files that are replaced or no list."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from quarantine_made import AUTHOR, asked, entry

from dataaudit.base.errors import QuarantineError
from dataaudit.decide.quarantine import list as quarantine_list
from dataaudit.decide.quarantine.changes import add
from dataaudit.decide.quarantine.list import fold, read, update

HERE = str(Path(__file__).parent)
WRITER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from quarantine_made import AUTHOR, asked
from dataaudit.decide.quarantine.changes import add
for number in range(int(sys.argv[4])):
    change = add(Path(sys.argv[2]), [asked(f"{sys.argv[3]} {number}"), asked("shared")], AUTHOR)
    os.write(1, "".join(entry.id + "\\n" for entry in change.added).encode())
"""
TORN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from quarantine_made import AUTHOR, asked
from dataaudit.decide.quarantine.changes import add
write = os.write
def half(descriptor, data):
    write(descriptor, data[: int(len(data) * float(sys.argv[3]))])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
add(Path(sys.argv[2]), [asked("torn")], AUTHOR)
"""


def start(script, *arguments):
    """Start a writer in a process of its own."""
    command = [sys.executable, "-c", script, HERE, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def put(path, *entries):
    """Append entries as they are."""
    return update(path, lambda _: entries, create=True)


@pytest.mark.kills
def test_many_writers_some_killed_lose_nothing_that_was_acknowledged(tmp_path):
    """Eight processes, three of them killed: each acknowledged line is there exactly once, and the shared one is."""
    path = tmp_path / "q.jsonl"
    writers = [start(WRITER, path, name, 20_000 if name < 3 else 15) for name in range(8)]
    acknowledged = []
    for victim in writers[:3]:
        acknowledged += [victim.stdout.readline().decode().strip() for _ in range(4)]
        victim.send_signal(signal.SIGKILL)
    for writer in writers:
        out, _ = writer.communicate(timeout=120)
        # a killed writer's last line may be cut where the pipe was
        acknowledged += [line for line in out.decode().splitlines() if len(line) == 71]
    assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * 3 + [0] * 5
    contents = read(path)
    times = Counter(one.id for one in contents.entries)
    assert set(times.values()) == {1}
    assert set(filter(None, acknowledged)) <= set(times)
    names = Counter(one.target.uri for one in contents.entries)
    assert names["shared"] == 1
    assert all(names[f"{name} {number}"] == 1 for name in range(3, 8) for number in range(15))
    assert len(contents.bad) <= 3
    assert {line.code for line in contents.bad} <= {"not_json", "truncated"}


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_line_that_a_killed_writer_left_is_not_glued_to_the_next(tmp_path, share):
    """What is before and behind it is whole; the rest of the line is named."""
    path = tmp_path / "q.jsonl"
    before = put(path, entry(name="before"))
    torn = start(TORN, path, share)
    torn.communicate(timeout=60)
    assert torn.returncode == -signal.SIGKILL
    assert [line.code for line in read(path).bad] == ["truncated"]
    after = put(path, entry(name="after"))
    contents = read(path)
    assert contents.entries == (*before, *after)
    assert [(line.number, line.code) for line in contents.bad] == [(2, "not_json")]


def test_a_line_that_lacks_its_end_alone_is_whole(tmp_path):
    """Its id says so; the next one begins on a line of its own."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(entry(name="first").line)
    put(path, entry(name="second"))
    contents = read(path)
    assert ([one.target.uri for one in contents.entries], contents.bad) == (["first", "second"], ())


def test_a_first_line_that_is_not_whole_does_not_lock_the_list_up(tmp_path):
    """A list whose very first writer was killed can be added to; a file of another kind cannot."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(entry().line[:7])
    assert put(path, entry())
    assert len(read(path).entries) == 1


@pytest.mark.parametrize("other", [b'{"text": "a document"}\n', b"col\n1\n", b"PAR1....", b'{"id": 1'])
def test_a_file_of_another_kind_is_never_added_to(tmp_path, other):
    """A shard of the corpus, named by mistake, stays as it is."""
    path = tmp_path / "part-0.jsonl"
    path.write_bytes(other)
    with pytest.raises(QuarantineError, match="is no quarantine list"):
        put(path, entry())
    assert path.read_bytes() == other


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_list_of_another_version_is_not_added_to(tmp_path, version):
    """What its lines mean is not known."""
    path = tmp_path / "q.jsonl"
    path.write_bytes(entry().line.replace(b'"version":3', b'"version":%d' % version) + b"\n")
    with pytest.raises(QuarantineError, match=f"schema version {version}"):
        put(path, entry())


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    """Half a line was written when the disk was full: it is taken back, and the error says that nothing was added."""
    path = tmp_path / "q.jsonl"
    put(path, entry(name="before"))
    before = path.read_bytes()
    write = os.write

    def full(descriptor, data):
        write(descriptor, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(QuarantineError, match="No space left on device; nothing was added"):
        put(path, entry(name="after"))
    monkeypatch.undo()
    assert path.read_bytes() == before


def test_without_locks_a_line_is_still_written_whole(tmp_path, monkeypatch):
    """A file system that knows no flock gets whole lines, read back."""

    def none(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    path = tmp_path / "q.jsonl"
    put(path, entry(name="a"))
    put(path, entry(name="b"))
    assert [one.target.uri for one in read(path).entries] == ["a", "b"]


def test_a_lock_that_is_never_given_up_ends_in_an_error(tmp_path, monkeypatch):
    """Not in a wait without end."""
    monkeypatch.setattr(quarantine_list, "_PATIENCE_SECONDS", 0.1)
    path = tmp_path / "q.jsonl"
    put(path, entry())
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(QuarantineError, match="has had the lock"):
            read(path)


def test_a_file_that_was_replaced_meanwhile_is_opened_again(tmp_path):
    """`git checkout` renames a new file into its place while the lock of the old one is waited for."""
    path, new = tmp_path / "q.jsonl", tmp_path / "new"
    put(path, entry(name="old"))
    put(new, entry(name="new"))
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=put, args=(path, entry(name="added")))
        writer.start()
        new.replace(path)
        fcntl.flock(held, fcntl.LOCK_UN)
        writer.join(30)
    assert [one.target.uri for one in read(path).entries] == ["new", "added"]


def test_an_absent_list_is_an_error_and_an_empty_one_holds_nothing(tmp_path):
    """A path with a typing error must not mean that nothing is held back; nor is a file made by looking."""
    path = tmp_path / "q.jsonl"
    with pytest.raises(QuarantineError, match="no quarantine list at"):
        read(path)
    with pytest.raises(QuarantineError, match="no quarantine list at"):
        update(path, lambda _: (), create=False)
    with pytest.raises(QuarantineError, match="there is no such folder"):
        add(tmp_path / "none/q.jsonl", [asked("a")], AUTHOR)
    assert not path.exists()
    path.touch()
    assert fold(read(path).entries, AUTHOR.today).records == ()


def test_a_folder_is_no_list(tmp_path):
    """The message says so; there is no traceback."""
    with pytest.raises(QuarantineError, match=r"is not a file|Is a directory"):
        read(tmp_path)
    with pytest.raises(QuarantineError, match=r"is not a file|Is a directory"):
        put(tmp_path, entry())


def test_a_list_that_may_not_be_written_says_so(tmp_path, monkeypatch):
    """Another user's file."""

    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(QuarantineError, match="cannot be written: Permission denied"):
        put(tmp_path / "q.jsonl", entry())


def test_a_list_that_nothing_was_added_to_is_not_left_behind(tmp_path):
    """An empty file would be taken for a list that holds nothing."""
    path = tmp_path / "typo.jsonl"
    with pytest.raises(QuarantineError):
        add(path, [asked("a", reason="no code!")], AUTHOR)
    assert not path.exists()


def test_an_empty_list_that_was_there_stays(tmp_path):
    """Somebody made it."""
    path = tmp_path / "q.jsonl"
    path.touch()
    with pytest.raises(QuarantineError):
        add(path, [asked("a", reason="no code!")], AUTHOR)
    assert path.exists()
