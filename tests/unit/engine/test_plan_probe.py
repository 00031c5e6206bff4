"""Probing: files are hashed once, known ones not at all, and columns are seen where nothing names them."""

import hashlib
import os
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import fsspec
import pytest
from made_build import HereRunner, Notes, config, probe, services, shard, shard_list, stat, write_file

from dataaudit.base.errors import ConfigError
from dataaudit.config import AuditConfig, Reader, SourceRule
from dataaudit.engine.plan_probe import Probed, StatIndex, probe_shards, resolve_columns
from dataaudit.engine.store import PartialStore
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.readers import Part
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.files import FileStat, listed_stat, stat_file

LINE = b'{"text": "x", "source": "s"}\n'


@pytest.fixture
def files(tmp_path):
    """Three old files, one of them gone again."""
    paths = [write_file(tmp_path / "data" / f"{number}.jsonl", LINE * (number + 1)) for number in range(3)]
    Path(paths[2]).unlink()
    return paths


def look(tmp_path, shards, *, rehash=False, part_bytes=1 << 20):
    """Probe shards with the index of a state folder; return probes, failures and what was hashed."""
    runner, reader = HereRunner(), Reader.model_construct(part_bytes=part_bytes, text_document="file")
    found = probe_shards(shard_list(*shards), services(PartialStore(tmp_path), runner), reader, rehash=rehash)
    by_path = {one.path: (found.probe(place), found.failure(place)) for place, one in enumerate(shards)}
    probes = {path: probe for path, (probe, _) in by_path.items() if probe is not None}
    failures = {path: failure for path, (_, failure) in by_path.items() if failure is not None}
    return probes, failures, len(runner.ran), runner.notes


def test_files_are_hashed_and_their_faults_named(tmp_path, files):
    """Digest and parts by path; what is gone has a reason; what is skipped is not looked at."""
    shards = [shard(number, path=path) for number, path in enumerate(files)]
    shards += [shard(3, path=files[0], uri="x#copy=2"), shard(4, path="/p", skip=Reason.NOT_A_FILE)]
    probes, failures, hashed, _ = look(tmp_path, shards)
    assert {path: probe.sha256 for path, probe in probes.items()} == {
        path: hashlib.sha256(LINE * (number + 1)).hexdigest() for number, path in enumerate(files[:2])
    }
    assert probes[files[1]].parts == (Part(0, 2 * len(LINE)),)
    assert failures == {files[2]: (Reason.NOT_FOUND, "")}
    assert hashed == 3


def test_a_link_to_itself_and_a_path_below_a_file_lead_to_nothing(tmp_path, files):
    """As a link to nothing does: no disk failed, and no second try is made."""
    (tmp_path / "loop").symlink_to("loop")
    paths = [str(tmp_path / "loop"), f"{files[0]}/a.jsonl"]
    _, failures, hashed, _ = look(tmp_path, [shard(number, path=path) for number, path in enumerate(paths)])
    assert (failures, hashed) == (dict.fromkeys(paths, (Reason.NOT_FOUND, "")), 2)


def test_known_files_are_not_read_again(tmp_path, files, monkeypatch):
    """Settled files are known; --rehash, another cut and a touch each hash again, to the same answer."""
    monkeypatch.setattr("dataaudit.engine.plan_probe._SETTLED_NS", -(10**12))
    shards = [shard(number, path=path) for number, path in enumerate(files[:2])]
    first = look(tmp_path, shards)[0]
    again, _, hashed, _ = look(tmp_path, shards)
    assert hashed == 0
    assert {path: (probe.sha256, probe.parts) for path, probe in again.items()} == {
        path: (probe.sha256, probe.parts) for path, probe in first.items()
    }
    assert look(tmp_path, shards, rehash=True)[2] == 2
    assert look(tmp_path, shards, part_bytes=30)[2] == 2
    assert look(tmp_path, shards, part_bytes=30)[2] == 0
    os.utime(files[0], ns=(1, 1))
    assert look(tmp_path, shards, part_bytes=30)[2] == 1


def test_an_index_that_fails_is_done_without_and_noted(tmp_path, files):
    """A folder in its place costs hashing, and the manifest's notes say so."""
    (tmp_path / "files.sqlite").mkdir()
    probes, _, hashed, notes = look(tmp_path, [shard(path=files[0])])
    assert (len(probes), hashed) == (1, 1)
    assert "index" in notes[0]


def test_a_store_without_validators_is_hashed_in_every_build_and_that_is_said(tmp_path, monkeypatch):
    """The numbers stay right, the time is spent, and the manifest's notes say why."""
    fsspec.filesystem("memory").pipe("/probing/a.jsonl", LINE)
    monkeypatch.setattr("dataaudit.scan.corpus.storage.remote._TIMES", ())
    path = RemotePath("memory://probing/a.jsonl", "memory://probing/a.jsonl", Access())
    for _ in range(2):
        probes, _, hashed, notes = look(tmp_path, [shard(path=path)])
        assert probes[path].sha256 == hashlib.sha256(LINE).hexdigest()
        assert hashed == 1
        assert "1 remote file(s) have no ETag" in notes[0]


def test_a_file_whose_name_is_not_unicode(tmp_path):
    """Any name that a file system allows can be probed and remembered."""
    path = tmp_path / os.fsdecode(b"\xff.jsonl")
    path.write_bytes(LINE)
    probes, _, _, notes = look(tmp_path, [shard(path=str(path))])
    assert str(path) in probes
    assert notes == []


def test_what_the_config_names_is_not_inferred(tmp_path, files):
    """Text and source that are given stay as they are; a column that no first shard has is warned of."""
    runner = HereRunner()
    settings = config()
    assert resolve_columns(settings, shard_list(*[shard(path=files[0])]), runner, Notes()) == settings
    assert runner.notes == ["split val is not marked `held_out: true`, so it counts as training data"]
    split = settings.splits["train"].model_copy(update={"text": "txt", "source": SourceRule(column="sorce")})
    slip = settings.model_copy(update={"splits": {"train": split, "val": split}})
    write_file(files[0], b'{"text": "x", "source": "y"}\n')
    shards = [shard(path=files[0]), shard(1, path=files[0], split="val")]
    assert resolve_columns(slip, shard_list(*shards), runner, Notes()) == slip
    assert "split val is not marked `held_out: true`" in "".join(runner.notes)
    for words in ("text column `txt` (did you mean `text`?)", "source column `sorce` (did you mean `source`?)"):
        assert sum(words in note for note in runner.notes) == 2


def test_the_first_shard_with_columns_decides(tmp_path, files):
    """Shards that are gone or empty are passed over, in the manifest's order whatever comes first."""
    write_file(files[2], b'{"content": "x"}\n')
    Path(files[0]).write_bytes(b"")
    shards = [shard(number, path=path) for number, path in enumerate(files)]
    settings = AuditConfig.model_validate({"splits": {"train": {"paths": ["x"]}}})
    for reverse in (False, True):
        resolved = resolve_columns(settings, shard_list(*shards), HereRunner(reverse=reverse), Notes())
        assert resolved.splits["train"].text == "text"
        assert resolved.splits["train"].source.column == "source"


def test_plain_text_does_not_name_the_column_of_other_shards(tmp_path):
    """It has no columns; where all is plain text, `text` is only a word."""
    plain, lines = write_file(tmp_path / "0.txt", b"x"), write_file(tmp_path / "1.jsonl", b'{"content": "x"}\n')
    settings = AuditConfig.model_validate({"splits": {"train": {"paths": ["x"]}}})
    plain_shards = [shard(number, path=str(plain), format_="text") for number in range(40)]
    for more, text in (([], "text"), ([shard(40, path=str(lines))], "content")):
        resolved = resolve_columns(settings, shard_list(*plain_shards, *more), HereRunner(), Notes())
        assert resolved.splits["train"].text == text


def test_nothing_to_infer_from_is_said(tmp_path, files):
    """No readable shard: the split is named, with what to do."""
    settings = AuditConfig.model_validate({"splits": {"train": {"paths": ["x"]}}})
    with pytest.raises(ConfigError, match="train"):
        resolve_columns(settings, shard_list(*[shard(path=files[2])]), HereRunner(), Notes())


def test_times_of_files_may_lie_anywhere(tmp_path):
    """Some file systems know the year 2600 and 1600: more nanoseconds than 64 bits hold."""
    path = write_file(tmp_path / "a.jsonl", LINE)
    made = Probed(shard_list(shard(path=path)), tmp_path)
    odd = probe()
    odd = replace(odd, stat=replace(odd.stat, mtime_ns=2**65, ctime_ns=-(2**64), inode=2**64, device=2**70))
    made.add(0, odd)
    assert made.done().probe(0) == odd


SECOND = 1_000_000_000
NOW = 100 * SECOND


@contextmanager
def stored(folder, *rows):
    """Yield an index that was opened anew after it took some rows."""
    with closing(StatIndex(folder / "files.sqlite")) as taking:
        taking.store(rows)
    with closing(StatIndex(folder / "files.sqlite")) as opened:
        yield opened


@pytest.fixture
def index(tmp_path):
    """An index with one settled file."""
    with stored(tmp_path, ("/data/a", stat(), NOW, {"sha256": "x"})) as opened:
        yield opened


def test_an_unchanged_file_is_known(index):
    """What was stored is found after the database was closed and opened again."""
    assert index.find("/data/a", stat()) == {"sha256": "x"}
    assert index.find("/data/b", stat()) is None


@pytest.mark.parametrize("name", [field.name for field in fields(FileStat)])
def test_any_change_of_the_stat_is_a_change(index, name):
    """Size, times, inode and device: when one differs, the file is hashed again."""
    assert index.find("/data/a", replace(stat(), **{name: 1234})) is None


@pytest.mark.parametrize("name", ["mtime_ns", "ctime_ns"])
def test_a_file_hashed_too_soon_after_a_change_is_not_trusted(name, tmp_path):
    """A second change could hide within the clock's granularity; after two seconds it cannot."""
    recent = replace(stat(), **{name: NOW - 2 * SECOND + 1})
    settled = replace(stat(), **{name: NOW - 2 * SECOND})
    with stored(tmp_path, ("/data/r", recent, NOW, {}), ("/data/s", settled, NOW, {"ok": 1})) as index:
        assert index.find("/data/r", recent) is None
        assert index.find("/data/s", settled) == {"ok": 1}


def remote(validator, mtime_ns=0):
    """Return the stat of a remote file."""
    return stat(mtime_ns=mtime_ns, ctime_ns=0, inode=0, device=0, validator=validator)


def test_a_remote_file_is_known_by_its_validator(tmp_path):
    """An ETag is trusted at once, a time when it was a minute old, nothing never."""
    rows = {
        "s3://b/etag": remote("etag x"),
        "s3://b/old": remote("time x", NOW - 60 * SECOND),
        "s3://b/new": remote("time x", NOW - 60 * SECOND + 1),
        "s3://b/none": remote(""),
    }
    with stored(tmp_path, *((path, found, NOW, {}) for path, found in rows.items())) as index:
        assert [index.find(path, found) for path, found in rows.items()] == [{}, {}, None, None]
        assert index.find("s3://b/etag", remote("etag y")) is None


def test_a_listing_spares_the_request_for_each_file(monkeypatch):
    """What the listing said counts, unless it said nothing that vouches for the bytes."""
    monkeypatch.setattr(
        "dataaudit.scan.corpus.storage.files.stat_remote", lambda path: RemoteStat(size=2, validator="asked")
    )
    listed = {
        validator: RemotePath("s3://b/k", "s3://b/k", Access(), RemoteStat(size=1, validator=validator))
        for validator in ("seen", "")
    }
    assert listed_stat(listed["seen"]).validator == "seen"
    assert listed_stat(listed[""]).validator == "asked"
    assert listed_stat(RemotePath("s3://b/k", "s3://b/k", Access())).size == 2


def test_a_file_replaced_by_one_of_equal_size_and_mtime_is_seen(tmp_path):
    """Copying old times onto other bytes does not hide them: ctime and inode tell."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = stat_file(str(path))
    path.write_bytes(b"two")
    os.utime(path, ns=(before.mtime_ns, before.mtime_ns))
    after = stat_file(str(path))
    assert (after.size, after.mtime_ns, after.inode) == (before.size, before.mtime_ns, before.inode)
    assert after != before


def test_names_that_are_not_unicode_and_huge_inodes(tmp_path):
    """A name of any bytes and numbers beyond 63 bits are stored and found."""
    name = os.fsdecode(b"/data/\xff\xfe.jsonl")
    huge = stat(inode=2**64 - 1, device=2**64 - 2)
    with stored(tmp_path, (name, huge, NOW, {"n": 1})) as index:
        assert index.fault == ""
        assert index.find(name, huge) == {"n": 1}


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 4000, b"\0" * 8192])
def test_a_damaged_database_is_made_anew(tmp_path, content):
    """It costs one pass of hashing."""
    (tmp_path / "files.sqlite").write_bytes(content)
    with closing(StatIndex(tmp_path / "files.sqlite")) as index:
        assert index.fault == ""
        assert index.find("/data/a", stat()) is None
    (tmp_path / "files.sqlite").write_bytes(content)
    with stored(tmp_path, ("/data/a", stat(), NOW, {"n": 1})) as index:
        assert index.find("/data/a", stat()) == {"n": 1}


def test_a_flipped_bit_anywhere_gives_the_right_answer_or_none(tmp_path):
    """Never another one: where a part ends is in a row, and SQLite checks no byte of it."""
    path, probe = tmp_path / "files.sqlite", {"sha256": "x" * 64, "parts": [[0, 4000]]}
    with stored(tmp_path, *((f"/data/{name}", stat(), NOW, probe | {"name": name}) for name in "abc")):
        whole = path.read_bytes()
    places = [*range(0, len(whole), 61), *range(whole.index(b'{"stat"') - 64, len(whole), 3)]
    lost = 0
    for place in places:
        for suffix in ("", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with closing(StatIndex(path)) as index:
            for name in "abc":
                found = index.find(f"/data/{name}", stat())
                assert found in (None, probe | {"name": name}), place
                lost += found is None
            notes = list(index.notes())
        assert not index.damaged or any("1 damaged row" in note for note in notes)
    assert lost > 50


def test_rows_that_have_changed_places_are_damage(tmp_path):
    """A row is of one path: under another it is not trusted, and the note says so."""
    with stored(tmp_path, *((f"/data/{name}", stat(), NOW, {"name": name}) for name in "ab")) as index:
        with closing(sqlite3.connect(tmp_path / "files.sqlite")) as database, database:
            rows = dict(database.execute("select path, row from files").fetchall())
            swapped = zip(rows, reversed(list(rows.values())), strict=True)
            database.executemany("insert or replace into files values (?, ?)", swapped)
        assert [index.find(f"/data/{name}", stat()) for name in "ab"] == [None, None]
        assert list(index.notes()) == ["files.sqlite: 2 damaged rows, so as many files are hashed again"]


def test_damage_that_shows_later_ends_the_use_of_the_index_only(tmp_path, index):
    """A page that turns out to be damaged in the middle of a build raises nothing."""
    index.close()
    path = tmp_path / "files.sqlite"
    data = bytearray(path.read_bytes())
    for position in range(4096 + 8, len(data)):
        data[position] = 0xFF
    path.write_bytes(bytes(data))
    damaged = StatIndex(path)
    damaged.find("/data/a", stat())
    damaged.store([(f"/data/{number}", stat(), NOW, {}) for number in range(300)])
    damaged.close()
    assert any("made anew" in note for note in damaged.notes())
    index = StatIndex(path)
    assert index.find("/data/7", stat()) == {}
    index.close()


def test_a_database_that_another_build_holds_is_left_alone(tmp_path):
    """A lock is waited for, then the build goes on without the index; the other's rows stay."""
    path = tmp_path / "files.sqlite"
    with stored(tmp_path, ("/data/a", stat(), NOW, {"n": 1})):
        pass
    with closing(sqlite3.connect(path)) as other:
        other.execute("begin exclusive")
        with closing(StatIndex(path, seconds=0.05)) as waiting:
            assert "locked" in waiting.fault
            assert waiting.find("/data/a", stat()) is None
            waiting.store([("/data/b", stat(), NOW, {})])
        other.rollback()
    with closing(StatIndex(path)) as index:
        assert index.find("/data/a", stat()) == {"n": 1}


def test_a_place_that_cannot_hold_a_database_is_no_error(tmp_path):
    """A folder in its place: done without, and said."""
    (tmp_path / "files.sqlite").mkdir()
    index = StatIndex(tmp_path / "files.sqlite")
    assert index.fault
    index.store([("/data/a", stat(), NOW, {})])
    index.close()
