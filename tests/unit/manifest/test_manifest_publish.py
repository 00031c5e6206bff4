"""Publishing: whatever happens and wherever it stops, a reader sees the old manifest or the new one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lanes import sample

sys.path.insert(0, str(Path(__file__).parent))
from manifest_faults import FaultyDisk, Killed

from dataaudit.base.errors import ManifestError
from dataaudit.manifest import replace
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.publish import check_target, prepare_tables, publish
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

EXTRAS = {"quarantine.jsonl": b'{"shard": 1}\n', "notes/deep/why.txt": b"because"}
CASES = (("nothing", True), ("old", True), ("old with extras", True), ("old with extras", False))


def put_extras(folder: Path) -> None:
    """Add files that are the user's own."""
    for name, data in EXTRAS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "latest").symlink_to("quarantine.jsonl")


def extras_of(folder: Path) -> dict[str, bytes]:
    """Return what lies in a manifest besides it."""
    ours = {"manifest.json", *(f"{name}.parquet" for name in TABLES)}
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.name not in ours}


def hidden(parent: Path) -> list[Path]:
    """Return the hidden folders beside a manifest."""
    return sorted(path for path in parent.iterdir() if path.name.startswith("."))


@pytest.fixture
def two(variant):
    """Two manifests with different ids and tables."""
    other = variant({"hotspots": TABLES["hotspots"].schema.empty_table()}, seeds={"sample": 8})
    return variant(), other


class World:
    """A folder with a layout, and its checks."""

    def __init__(self, tmp_path: Path, layout: str, two: tuple) -> None:
        self.parent = tmp_path / "out"
        self.target = self.parent / "manifest"
        self.layout = layout
        self.new = two[1]
        self._template = tmp_path / "template"
        self.old_id = publish(self._template, *two[0])
        if layout == "old with extras":
            put_extras(self._template)
        self.expected_extras = EXTRAS if layout == "old with extras" else {}
        self.new_id = publish(tmp_path / "elsewhere", *self.new)
        self._verified: set[tuple] = set()

    def reset(self) -> None:
        """Put the folder back to how it was before the publish."""
        shutil.rmtree(self.parent, ignore_errors=True)
        self.parent.mkdir()
        if self.layout != "nothing":
            shutil.copytree(self._template, self.target, symlinks=True)

    def publish(self) -> None:
        """Publish the new manifest."""
        publish(self.target, *self.new)

    def check_whole(self, folder: Path) -> str:
        """Check that a folder holds one whole manifest with the extras; return its id."""
        files = tuple((path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file())
        manifest = load_manifest(folder)
        if files not in self._verified:
            assert verify(manifest) == []
            self._verified.add(files)
        if self.layout != "nothing":
            assert extras_of(folder) == self.expected_extras
            assert (folder / "latest").is_symlink() == bool(self.expected_extras)
        return manifest.id

    def check(self, *, exchange: bool) -> tuple:
        """Check what a reader sees; return a short description of the state."""
        if self.target.exists():
            seen = self.check_whole(self.target)
            assert seen == self.new_id or (seen == self.old_id and self.layout != "nothing")
        else:
            seen = "no folder"
            assert self.layout == "nothing" or not exchange
            with pytest.raises(ManifestError) as caught:
                load_manifest(self.target)
            if self.layout != "nothing":
                [moved] = [path for path in hidden(self.parent) if ".replaced-" in path.name]
                assert self.check_whole(moved) == self.old_id
                assert str(moved) in str(caught.value)
        kinds = [(path.name.rpartition("-")[0], (path / "manifest.json").is_file()) for path in hidden(self.parent)]
        return seen, tuple(sorted(kinds))


@pytest.mark.kills
@pytest.mark.parametrize(
    ("layout", "exchange"),
    sample([pytest.param(*one, id=f"{one[0]}, {'one step' if one[1] else 'two'}") for one in CASES], 3),
)
class TestFaults:
    def test_a_kill_at_any_step_leaves_the_old_or_the_new(self, tmp_path, monkeypatch, two, layout, exchange):
        """Killed before any change of the disk, a reader sees one whole manifest, and the next publish mends all.

        After it the new manifest is there, the user's files are, and nothing is left behind.
        """
        world = World(tmp_path, layout, two)
        disk = FaultyDisk(monkeypatch, exchange=exchange)
        states = set()
        for last in range(1, 500):
            world.reset()
            raised = disk.run(world.publish, last=last, kill=True)
            assert raised is None or isinstance(raised, Killed)
            state = world.check(exchange=exchange)
            if state not in states:  # what comes next depends on the state alone
                states.add(state)
                world.publish()
                assert world.check_whole(world.target) == world.new_id
                assert hidden(world.parent) == []
            if raised is None:
                break
        assert raised is None
        assert last > len(TABLES) * 3  # every table is opened, written and synced
        assert {state[0] for state in states} >= {world.new_id, "no folder" if layout == "nothing" else world.old_id}
        if not exchange and layout != "nothing":
            assert "no folder" in {state[0] for state in states}

    @pytest.mark.kills
    def test_a_full_disk_at_any_step_keeps_the_old(self, tmp_path, monkeypatch, two, layout, exchange):
        """When a call fails, one error says so, and the old manifest is in place with no leftovers.

        Once the folders are swapped it is the new one.
        """
        world = World(tmp_path, layout, two)
        disk = FaultyDisk(monkeypatch, exchange=exchange)
        for last in range(1, 500):
            world.reset()
            raised = disk.run(world.publish, last=last, kill=False)
            if raised is None:
                assert world.check_whole(world.target) == world.new_id
                if disk.steps < last:
                    break
                continue
            assert isinstance(raised, ManifestError)
            assert "cannot be written: No space left on device" in raised.message
            if "it is in place" in raised.message:
                assert world.check_whole(world.target) == world.new_id
            elif layout == "nothing":
                assert "nothing was published" in raised.message
                assert not world.target.exists()
            else:
                assert "was there before is untouched" in raised.message
                assert world.check_whole(world.target) == world.old_id
                assert hidden(world.parent) == []
        assert disk.steps < last


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from make_golden import golden
from dataaudit.manifest.core import Core
from dataaudit.manifest.publish import publish
core, run, tables = golden()
other = Core.model_validate(core.model_dump(by_alias=True) | {"seeds": {"sample": 8}})
print("ready", flush=True)
while True:
    for one in (core, other):
        publish(Path(sys.argv[1]), one, run, tables)
"""


@pytest.mark.kills
class TestKills:
    @pytest.mark.parametrize("seconds", [0.15, 0.4])
    def test_sigkill_leaves_a_whole_manifest(self, tmp_path, golden_parts, seconds):
        target = tmp_path / "manifest"
        golden = Path(__file__).parents[2] / "golden"
        publish(target, *golden_parts)
        put_extras(target)
        command = [sys.executable, "-c", SCRIPT, str(target), str(golden)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        publish(target, *golden_parts)
        assert verify(load_manifest(target)) == []
        assert extras_of(target) == EXTRAS
        assert hidden(tmp_path) == []


class TestTwoPublishers:
    @pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
    def test_they_do_not_disturb_each_other(self, tmp_path, monkeypatch, two, locks):
        """Two publish to one folder again and again; a reader only ever sees whole manifests of either."""
        if not locks:
            monkeypatch.setattr(fcntl, "flock", refuse)
        target = tmp_path / "manifest"
        ids = {publish(target, *parts) for parts in two}
        failures: list[BaseException] = []

        def work(parts: tuple) -> None:
            try:
                for _ in range(8):
                    publish(target, *parts)
            except BaseException as error:  # noqa: BLE001 - judged below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(parts,)) for parts in two]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            manifest = load_manifest(target)
            assert manifest.id in ids
            problems = verify(manifest)
            assert [one for one in problems if "was replaced while it was read" not in one.text] == []
        for thread in threads:
            thread.join()
        assert failures == []
        assert verify(load_manifest(target)) == []
        assert hidden(tmp_path) == []

    def test_the_second_waits_for_the_first(self, tmp_path):
        order = []
        with replace.publish_lock(tmp_path) as alone:
            assert alone
            thread = threading.Thread(target=lambda: enter(tmp_path, order))
            thread.start()
            thread.join(0.1)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]


def enter(folder: Path, order: list[str]) -> None:
    """Enter the lock and say so."""
    with replace.publish_lock(folder):
        order.append("second")


def refuse(*_: object) -> None:
    """A file system without locks."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


class TestReaderAcrossAPublish:
    def test_tables_of_a_replaced_manifest_are_refused(self, tmp_path, two):
        target = tmp_path / "manifest"
        publish(target, *two[0])
        loaded = load_manifest(target)
        publish(target, *two[1])
        assert loaded.core.tables["hotspots"] != load_manifest(target).core.tables["hotspots"]
        for read in (loaded.table, loaded.reader.read_unchecked):
            with pytest.raises(ManifestError, match="was replaced while it was read"):
                read("hotspots")

    def test_a_table_read_between_two_changes_is_read_again(self, tmp_path, monkeypatch, two):
        """When another manifest comes and the first returns during a read, the first one's table is given."""
        target = tmp_path / "manifest"
        publish(target, *two[0])
        loaded = load_manifest(target)
        opened = pq.ParquetFile
        turns = iter([1])

        def disturbed(path: Path, **options: object) -> pq.ParquetFile:
            if next(turns, None) is None:
                return opened(path, **options)
            publish(target, *two[1])
            file = opened(path, **options)
            publish(target, *two[0])
            return file

        monkeypatch.setattr(pq, "ParquetFile", disturbed)
        assert loaded.table("hotspots").num_rows == loaded.core.tables["hotspots"].rows == 1


def a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("x")
    return tmp_path / "file"


def a_link(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    return tmp_path / "link"


def a_broken_link(tmp_path: Path) -> Path:
    (tmp_path / "broken").symlink_to("nowhere")
    return tmp_path / "broken"


def a_full_folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious.parquet").write_text("x")
    return tmp_path / "data"


def below_a_file(tmp_path: Path) -> Path:
    return a_file(tmp_path) / "deep" / "manifest"


class TestOthersMeanwhile:
    def test_what_others_write_while_a_manifest_is_published_stays(self, tmp_path, two, monkeypatch):
        """An entry added to a list in the folder, by a writer that had it open; a list that is begun just then."""
        target = tmp_path / "manifest"
        publish(target, *two[0])
        (target / "quarantine.jsonl").write_bytes(b"one\n")
        replace_folder = replace.replace_folder

        def late(*given):
            with (target / "quarantine.jsonl").open("ab") as file:
                (target / "other.jsonl").write_bytes(b"begun\n")
                file.write(b"two\n")
                file.flush()
                replace_folder(*given)
                file.write(b"three\n")

        monkeypatch.setattr("dataaudit.manifest.publish.replace_folder", late)
        assert publish(target, *two[1]) == load_manifest(target).id
        assert extras_of(target) == {"other.jsonl": b"begun\n", "quarantine.jsonl": b"one\ntwo\nthree\n"}
        assert hidden(tmp_path) == []


class TestTarget:
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (a_file, "found a file or a link"),
            (a_link, "found a file or a link"),
            (a_broken_link, "found a file or a link"),
            (a_full_folder, "holds no manifest.json"),
            (below_a_file, "found a file"),
        ],
    )
    def test_what_is_no_manifest_is_never_replaced(self, tmp_path, golden_parts, make: Callable, words):
        target = make(tmp_path)
        before = sorted((str(path), path.is_symlink()) for path in tmp_path.rglob("*"))
        for action in (check_target, lambda folder: publish(folder, *golden_parts)):
            with pytest.raises(ManifestError, match=words) as caught:
                action(target)
            assert caught.value.hint
        assert sorted((str(path), path.is_symlink()) for path in tmp_path.rglob("*")) == before

    def test_a_folder_that_may_not_be_written_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(ManifestError, match="a folder that may not be written"):
            check_target(tmp_path / "manifest")

    @pytest.mark.parametrize("name", ["new", "a/b/c", "empty", "x/../y", "ünï [*?] ' \n"])
    def test_new_and_empty_folders_are_taken(self, tmp_path, monkeypatch, golden_parts, name):
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path)
        identity = publish(Path(name), *golden_parts)
        assert load_manifest(Path(os.path.abspath(name))).id == identity
        assert hidden(tmp_path) == []

    def test_the_mode_of_the_old_folder_stays(self, tmp_path, golden_parts):
        target = tmp_path / "manifest"
        publish(target, *golden_parts)
        target.chmod(0o2775)
        publish(target, *golden_parts)
        assert target.stat().st_mode & 0o7777 == 0o2775

    def test_same_manifest_twice_is_the_same(self, tmp_path, golden_parts):
        target = tmp_path / "manifest"
        first = publish(target, *golden_parts)
        before = {path.name: path.read_bytes() for path in target.iterdir()}
        assert publish(target, *golden_parts) == first
        assert {path.name: path.read_bytes() for path in target.iterdir()} == before

    def test_unknown_tables_are_our_own_fault(self):
        with pytest.raises(ValueError, match="unknown tables"):
            prepare_tables({"strange": TABLES["pairs"].schema.empty_table()})
