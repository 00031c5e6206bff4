"""What runs on a worker, run here: parts alone and together, files that change, copies, a state folder that refuses."""

import errno
import gzip
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from made_build import STAGE_LIST, config, identities, missing, shard, write_file
from packed import packs

from dataaudit.engine import plan_probe
from dataaudit.engine import scan as bundles
from dataaudit.engine import scan as work
from dataaudit.engine.plan import plan_shard
from dataaudit.engine.plan_probe import probe_file
from dataaudit.engine.runner import READING, PeekUnit, ProbeUnit
from dataaudit.engine.scan import MOST_PARTS, Scan, hash_file
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_entries import read_pack
from dataaudit.manifest.formats import FORMATS, UNKNOWN
from dataaudit.scan.annotators import Annotators, Languages
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import Shard

LINES = "".join(json.dumps({"text": f"document {number}"}) + "\n" for number in range(20)).encode()


def scan_unit(settings, *paths, part_bytes=1 << 20):
    """Probe files of equal bytes and return the unit that scans them."""
    planned = []
    for number, path in enumerate(paths):
        unit = ProbeUnit(path=path, format="jsonl", compression="none", part_bytes=part_bytes, size=len(LINES))
        found = probe_file(unit).probe
        one = shard(number, uri=f"{number}.jsonl", path=path)
        planned.append(plan_shard(one, found, None, config(), STAGE_LIST, identities(STAGE_LIST)))
    (unit,) = missing(planned, PartialStore(settings.state))
    return unit


def test_a_scan_leaves_everything_that_a_rerun_looks_for(settings, tmp_path):
    """Partials, rows and the reading are there; the same scan twice writes the same bytes."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    assert Scan(settings)(unit).reason is None
    files = {path: path.read_bytes() for path in settings.state.rglob("*") if path.is_file()}
    store = PartialStore(settings.state)
    assert all(store.read(name, key) is not None for name, key in unit.stage_keys)
    assert store.read(READING, unit.reading_key).meta["records"] == 20
    assert Scan(settings)(pickle.loads(pickle.dumps(unit))).reason is None
    assert {path: path.read_bytes() for path in settings.state.rglob("*") if path.is_file()} == files


def test_a_file_that_changes_between_hash_and_scan_leaves_nothing(settings, tmp_path):
    """Other bytes under the same name give no partial under the old key."""
    path = write_file(tmp_path / "a.jsonl", LINES)
    unit = scan_unit(settings, path)
    write_file(path, LINES.replace(b"document 7", b"document X"))
    os.utime(path, ns=(unit.stat.mtime_ns, unit.stat.mtime_ns))
    assert Scan(settings)(unit).reason == Reason.CHANGED
    assert not [found for found in settings.state.rglob("*") if found.is_file()]


def test_a_file_that_is_only_touched_has_not_changed(settings, tmp_path):
    """New times or rights with the same bytes cost one more hash, not the shard."""
    path = write_file(tmp_path / "a.jsonl", LINES)
    unit = scan_unit(settings, path)
    os.utime(path, ns=(5, 5))
    Path(path).chmod(0o600)
    assert Scan(settings)(unit).reason is None


def test_a_twin_stands_in_for_a_file_that_is_gone_or_changed(settings, tmp_path):
    """Equal bytes at another place are read instead; only when none is left is there a loss."""
    paths = [write_file(tmp_path / f"{number}.jsonl", LINES) for number in range(3)]
    unit = scan_unit(settings, *paths)
    Path(paths[0]).unlink()
    write_file(paths[1], LINES + b"{}\n")
    assert Scan(settings)(unit).reason is None
    assert PartialStore(settings.state).read(READING, unit.reading_key).meta["records"] == 20
    Path(paths[2]).unlink()
    assert Scan(settings)(unit).reason == Reason.NOT_FOUND


def test_a_file_that_grows_while_it_is_hashed_is_said(tmp_path, monkeypatch):
    """A file that never stands still has no digest; one that is touched once has."""
    path = Path(write_file(tmp_path / "a.jsonl", LINES))
    unit = ProbeUnit(path=str(path), format="jsonl", compression="none", part_bytes=1 << 20, size=1)
    times = []

    def touching(_, *, limit=99):
        digest = hash_file(path)
        if len(times) < limit:
            times.append(1)
            path.write_bytes(path.read_bytes() + b"\n")
        return digest

    monkeypatch.setattr(plan_probe, "hash_file", touching)
    assert probe_file(unit).reason == Reason.CHANGED
    times.clear()
    monkeypatch.setattr(plan_probe, "hash_file", lambda given: touching(given, limit=1))
    assert probe_file(unit).probe.sha256 == hash_file(path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "Permission denied")]
)
def test_a_state_folder_that_refuses_is_no_shards_fault(settings, tmp_path, monkeypatch, error):
    """A full or read-only disk is told as such, with the folder and the way out; no shard is blamed."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("dataaudit.engine.store_entries.write_whole", refuse)
    outcome = Scan(settings)(unit)
    assert outcome.reason is None
    assert str(settings.state) in outcome.fault[0]
    assert error.strerror in outcome.fault[0]
    assert "--state" in outcome.fault[1]


def test_a_tokenizer_that_a_worker_cannot_load_is_no_shards_fault(settings, tmp_path):
    """A vocabulary that is gone from the state folder ends the build instead of every shard."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    tokens, *others = settings.annotators
    gone = replace(tokens, tokenizer=replace(tokens.tokenizer, path=tmp_path / "gone.json", sha256="0" * 64))
    outcome = Scan(replace(settings, annotators=(gone, *others)))(unit)
    assert outcome.reason is None
    assert tokens.tokenizer.name in outcome.fault[0]


@pytest.mark.parametrize("role", ["chosen", "second"])
def test_a_detector_that_a_worker_cannot_load_is_no_shards_fault(settings, tmp_path, role):
    """A model that is gone from the state folder, or another one than was planned with, ends the build."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    models = next(one.models for one in settings.annotators if isinstance(one, Languages))
    wrong = replace(models, **{role: replace(getattr(models, role), sha256="0" * 64)})
    others = [one for one in settings.annotators if not isinstance(one, Languages)]
    outcome = Scan(replace(settings, annotators=(*others, Languages(models=wrong, seed=0))))(unit)
    assert outcome.reason is None
    assert "language detector" in outcome.fault[0]


def test_input_errors_that_may_pass_are_raised(settings, tmp_path, monkeypatch):
    """The runner repeats them; they are neither a loss yet nor the state folder's fault."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    monkeypatch.setattr(work, "read_part", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        Scan(settings)(unit)


def test_a_fault_of_ours_costs_one_shard_and_shows_no_text(settings, tmp_path, monkeypatch):
    """It is named by kind and place; its message, which may hold text, is not."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    monkeypatch.setattr(work, "read_part", lambda *_: (_ for _ in ()).throw(ValueError("document 7")))
    outcome = Scan(settings)(unit)
    assert outcome.reason == Reason.INTERNAL
    assert outcome.place.startswith("ValueError at ")
    assert "document" not in outcome.place


@pytest.mark.parametrize("kind", [*FORMATS, UNKNOWN])
def test_what_native_code_parses_is_isolated(kind):
    """Parquet, Arrow and streamed datasets, which are files of such formats; lines and text are not."""
    shard = Shard(ordinal=0, split="s", uri="a", path="/a", format=kind, compression="none", skip=None, size=1)
    probe = ProbeUnit(path="/a", format=kind, compression="none", part_bytes=1, size=1)
    assert {PeekUnit(shard=shard).isolated, probe.isolated} == {kind in {"parquet", "arrow", "datasets"}}


BATCH_BYTES = 1 << 16
SENTENCE = "Call Anna Berger at +49 30 901820 or write to anna.berger@firma-berger.de about the meeting on the hill. "


def lines(*records):
    """Return records as JSON lines; a string is written as it is."""
    return "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records).encode()


def documents(first, number):
    """Return some documents of two sources."""
    texts = {n: f"{SENTENCE * (n % 5)} number {n} {chr(0x4E00 + n) * n}" for n in range(first, first + number)}
    return [{"text": text, "source": f"odd {n % 3}" if n % 2 else "even"} for n, text in texts.items()]


SHARDS = {
    "one": lines(*documents(0, 1)),
    "several": lines(*documents(1, 7)),
    "alike": lines(*documents(1, 3)),
    "bad records": lines({"text": None}, *documents(20, 2), "{broken\n", *documents(22, 1)),
    "sources": lines({"text": "a", "source": "1\0x"}, {"text": "b", "source": ""}, {"text": "c", "source": "0"}),
    "empty text": lines({"text": "", "source": "even"}),
    "nothing": b"",
    "large": lines(*documents(30, 60), {"text": "word " * BATCH_BYTES, "source": "even"}, *documents(100, 2)),
    "last": lines(*documents(40, 2)),
}


def units_of(folder, state, shards=SHARDS):
    """Write shards, compressed where the content is; return their units by name."""
    folder.mkdir(exist_ok=True)
    rules = {"train": {"paths": ["x"], "text": "text", "source": {"column": "source"}}}
    made = config().model_validate({"splits": rules, "reader": {"batch_bytes": BATCH_BYTES}})
    planned = []
    for number, (name, content) in enumerate(shards.items()):
        compression = "gzip" if content[:2] == b"\x1f\x8b" else "none"
        path = write_file(folder / f"{name}.jsonl", content)
        unit = ProbeUnit(path=path, format="jsonl", compression=compression, part_bytes=1 << 30, size=len(content))
        one = replace(shard(number, uri=f"{number}.jsonl", path=path), compression=compression)
        planned.append(plan_shard(one, probe_file(unit).probe, None, made, STAGE_LIST, identities(STAGE_LIST)))
    units = missing(planned, PartialStore(state))
    return dict(zip(shards, units, strict=True))


def stored(state, unit):
    """Return all that is stored of a unit: entries as values, rows as bytes."""
    store, found = PartialStore(state), {}
    for kind, key in (*unit.stage_keys, (READING, unit.reading_key)):
        entry = store.read(kind, key)
        found[kind] = None if entry is None else (entry.meta, entry.tables)
        for side in (one for path in packs(state) for one in read_pack(path)):
            if side.name.startswith(f"{kind}/{key}."):
                found[f"{kind}.{side.name.partition('.')[2]}"] = side.read().to_pybytes()
    return found


@pytest.mark.stores
def test_what_parts_give_together_is_what_each_gives_alone(settings, tmp_path):
    """Partials, keyed rows, digests of rows, losses; of sources with marks in their names, of parts without any."""
    units = units_of(tmp_path / "in", settings.state)
    alone = replace(settings, state=tmp_path / "alone")
    together = Scan(settings).together(list(units.values()))
    assert {one.reason for one in (*together, *(Scan(alone)(unit) for unit in units.values()))} == {None}
    for name, unit in units.items():
        assert stored(settings.state, unit) == stored(alone.state, unit), name
    assert any(stored(settings.state, units["several"])["pii.findings"])


@pytest.mark.stores
def test_small_parts_share_batches(settings, tmp_path, monkeypatch):
    """Annotators are called once for a batch of text, or for as many parts as one bundle takes, not once a part."""
    sizes = []
    plain = Annotators.annotate

    def counted(self, batch):
        sizes.append(len(batch))
        return plain(self, batch)

    monkeypatch.setattr(Annotators, "annotate", counted)
    number = MOST_PARTS + 40
    shards = {f"{n}": lines({"text": f"document {n}", "source": "s"}) for n in range(number)}
    few = replace(settings, stages=tuple(stage for stage in settings.stages if stage.name in ("volume", "exact_dup")))
    units = [
        replace(unit, stage_keys=tuple(one for one in unit.stage_keys if one[0] in ("volume", "exact_dup")))
        for unit in units_of(tmp_path / "in", settings.state, shards).values()
    ]
    outcomes = Scan(few).together(units)
    assert [one.reason for one in outcomes] == [None] * number
    assert len({one.pack for one in outcomes}) == 2
    assert sizes == [MOST_PARTS, 40]
    sizes.clear()
    large = {f"{n}": lines({"text": f"{n} {'word ' * 1500}", "source": "s"}) for n in range(40)}
    outcomes = Scan(few).together(list(units_of(tmp_path / "large", settings.state, large).values()))
    assert {one.reason for one in outcomes} == {None}
    assert sum(sizes) == 40
    assert len(sizes) == 5


def test_a_damaged_file_in_the_middle_is_named_and_costs_no_other(settings, tmp_path):
    """A file that is cut short, one that is gone and one that has changed are losses of their own."""
    packed = gzip.compress(lines(*documents(0, 9)))
    shards = {"first": SHARDS["one"], "cut": packed[:-9], "whole": packed, "gone": SHARDS["several"]}
    shards |= {"changed": SHARDS["alike"], "last": SHARDS["last"]}
    units = units_of(tmp_path / "in", settings.state, shards)
    Path(units["gone"].request.path).unlink()
    write_file(units["changed"].request.path, lines(*documents(70, 3)))
    outcomes = dict(zip(units, Scan(settings).together(list(units.values())), strict=True))
    reasons = {name: outcome.reason for name, outcome in outcomes.items() if outcome.reason}
    assert reasons == {"cut": Reason.TRUNCATED, "gone": Reason.NOT_FOUND, "changed": Reason.CHANGED}
    for name in ("first", "whole", "last"):
        assert stored(settings.state, units[name])["volume"] is not None, name
    for name in ("gone", "changed"):
        assert not any(stored(settings.state, units[name]).values()), name


def test_a_damaged_file_is_read_once_and_said_to_be_what_it_is_alone(settings, tmp_path, monkeypatch):
    """Losses before the damage included; with a twin, or if it may have changed, it is looked at alone as well."""
    packed = gzip.compress(lines(*documents(0, 5), "{broken\n", *documents(5, 9), "x" * 100_000))
    shards = {"first": SHARDS["one"], "cut": packed[:-9], "last": SHARDS["last"]}
    units = units_of(tmp_path / "in", settings.state, shards)
    alone, read, plain = replace(settings, state=tmp_path / "alone"), [], bundles.read_part
    expected = Scan(alone)(units["cut"])

    def counted(request, *rest):
        read.append(Path(request.path).stem)
        return plain(request, *rest)

    for module in (bundles, work):
        monkeypatch.setattr(module, "read_part", counted)
    outcome = Scan(settings).together(list(units.values()))[1]
    assert (outcome.reason, outcome.place) == (expected.reason, expected.place) == (Reason.TRUNCATED, outcome.place)
    assert stored(settings.state, units["cut"]) == stored(alone.state, units["cut"])
    assert read == ["first", "cut", "last"]
    os.utime(units["cut"].request.path)
    read.clear()
    assert Scan(settings).together(list(units.values()))[1].reason == Reason.TRUNCATED
    assert read == ["first", "cut", "last", "cut"]


def test_a_document_that_breaks_a_kernel_costs_its_shard_alone(settings, tmp_path, monkeypatch):
    """A fault in common is nobody's yet: the parts are scanned one by one, and one of them shows it."""
    plain = Annotators.annotate

    def breaks(self, batch):
        if any("number 41 " in text for text in batch.texts.to_pylist()):
            raise ValueError("a fault of ours")
        return plain(self, batch)

    monkeypatch.setattr(Annotators, "annotate", breaks)
    units = units_of(tmp_path / "in", settings.state)
    outcomes = dict(zip(units, Scan(settings).together(list(units.values())), strict=True))
    broken = {name: outcome.reason for name, outcome in outcomes.items() if outcome.reason}
    assert broken == {"large": Reason.INTERNAL, "last": Reason.INTERNAL}
    assert stored(settings.state, units["one"])["volume"] is not None
