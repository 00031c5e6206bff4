"""Plan of what a build protects: held-out splits and evaluation sets, read by workers and indexed before the scan."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit import __version__
from dataaudit.base.errors import ClusterError, ConfigError
from dataaudit.base.files import DamagedFileError
from dataaudit.base.text import some_of
from dataaudit.engine.job import Job
from dataaudit.engine.plan import PlannedPart, PlannedShard, library_versions, plan_shard
from dataaudit.engine.runner import HeldOutUnit, Outcome, SetUnit, run_units
from dataaudit.engine.scan import as_outcome, hash_file
from dataaudit.engine.store import Damage, PartialStore
from dataaudit.engine.store_entries import Entry
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.locate import encode_path
from dataaudit.metrics.coverage.definition import bad_share
from dataaudit.metrics.overlap.stage import Overlap
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.protected.eval_items import index_items
from dataaudit.scan.corpus.protected.eval_sets import ItemFields, SetFileError, read_items
from dataaudit.scan.corpus.protected.index_file import IndexFile, ProtectedIndex, open_index, write_index
from dataaudit.scan.corpus.protected.ngram_index import HeldOutPart, PlainWords, index_held_out
from dataaudit.scan.corpus.readers import PartStats, read_part
from dataaudit.scan.corpus.shards import expand, remote_lister
from dataaudit.scan.corpus.storage.address import Access
from dataaudit.scan.corpus.storage.files import stat_file
from dataaudit.scan.cross_shard.step import DamagedEntryError, Protected, SetFacts
from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.words import split_words, without_marks
from dataaudit.scan.stages.base import Stage

_SHOWN_FILES = 3
_SHOWN_COLUMNS = 10
_SHOWN_NAME = 40
"""Characters of a column's name: without a header line, names are texts of the first item."""
_CLOSE = 0.5
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_WRITE = "`pandas.read_csv(FILE, sep={!r}).to_csv(FILE, index=False)`"


def file_name(paths: Sequence[str], number: int) -> str:
    """Return how a file of a set is shown: its name, and its place where two have the same."""
    names = [os.path.basename(path) for path in paths]
    place = f" (file {number + 1} of {len(paths)})" if names.count(names[number]) > 1 else ""
    return encode_path(names[number]) + place


def unreadable(name: str, paths: Sequence[str], reason: Reason, place: str, number: int | None = None) -> ConfigError:
    """Return the error for a file that cannot be read; ``number`` is None when it is not known which."""
    if number is not None:
        problem = f"{file_name(paths, number)} cannot be read"
    else:
        names = [file_name(paths, index) for index in range(len(paths))]
        problem = f"its files ({some_of(names, _SHOWN_FILES)}) cannot be read"
    return ConfigError(
        f"protected.{name}: {problem}: {reason} {place}".rstrip(),
        f"`dataaudit explain {reason}` says what to do; fix the file or leave the set out.",
    )


def wrong_file(name: str, paths: Sequence[str], wrong: Mapping[str, Any]) -> ConfigError:
    """Return the error for what :func:`dataaudit.engine.plan_protected.read_set` stored of a file."""
    if "reason" in wrong:
        return unreadable(name, paths, Reason(wrong["reason"]), wrong["place"], wrong["file"])
    return _unknown(name, paths, wrong)


def no_items(name: str, lost: Mapping[str, int]) -> ConfigError:
    """Return the error for a set without an item."""
    counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(lost.items())) or "they hold no record"
    return ConfigError(
        f"protected.{name}: its files give no item: {counts}",
        "`dataaudit explain losses` says what the codes mean; fix the files or leave the set out.",
    )


def _unknown(name: str, paths: Sequence[str], wrong: Mapping[str, Any]) -> ConfigError:
    column, known, columns = wrong["unknown"], wrong["known"], wrong["columns"]
    path = paths[wrong["file"]].lower()
    is_csv = ".csv" in path or ".tsv" in path
    message = f"protected.{name}: no item of {file_name(paths, wrong['file'])} has a column {column!r}"
    listed = ", ".join(_clipped(item) for item in known[:_SHOWN_COLUMNS])
    hint = f"Its columns are: {listed}{f' and {columns - _SHOWN_COLUMNS:,} more' if columns > _SHOWN_COLUMNS else ''}."
    own = "\t" if ".tsv" in path else ","
    separator = next((item for item in _SEPARATORS if item != own and item in known[0]), "") if is_csv else ""
    if separator:
        suffix = {",": ".csv", "\t": ".tsv"}.get(separator)
        remedy = f"Rename it to {suffix}." if suffix else f"Write it with commas: {_WRITE.format(separator)}."
        hint += f" Are they separated by {_SEPARATORS[separator]}? A .csv file has commas, a .tsv file tabs. {remedy}"
        return ConfigError(message, hint)
    close = difflib.get_close_matches(column, known, n=1, cutoff=_CLOSE)
    if close:
        message += f" (did you mean `{_clipped(close[0])}`?)"
    elif is_csv and any(" " in item or len(item) > _SHOWN_NAME for item in known):
        hint += " Is there a header line? The first line of a .csv or .tsv file names the columns."
    return ConfigError(message, hint)


def _clipped(name: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in name[:_SHOWN_NAME])
    return f"{shown}..." if len(name) > _SHOWN_NAME else shown


HELD_OUT, HELD_OUT_RECORDS, ITEMS = "held-out-words", "held-out-records", "protected-items"
"""Kinds of entries in the store; where the words of a part are, its records are."""
MAX_COLUMN_NAME = 80
_MAX_KNOWN = 1_000


@as_outcome
def read_held_out(unit: HeldOutUnit) -> Outcome:
    """Store the words of the documents of a part."""
    stats, losses = PartStats(), LossLog()
    rows, lengths, hashes = ([np.zeros(0, dtype=kind)] for kind in (np.int64, np.int64, np.uint64))
    plain_lengths, plain_hashes, places = ([np.zeros(0, dtype=kind)] for kind in (np.int64, np.uint64, np.uint32))
    for read in read_part(unit.request, losses, stats):
        batch = read.without(unit.request.without)
        text = batch.byte_values(), batch.byte_offsets()
        words = split_words(*text)
        plain = PlainWords.of(without_marks(normal_words(words, *text), words, *text), words)
        rows.append(batch.rows)
        lengths.append(words.num_words())
        hashes.append(words.hashes.copy())
        plain_lengths.append(np.diff(plain.offsets))
        plain_hashes.append(plain.words.copy())
        places.append(plain.places)
    if stat_file(unit.request.path) != unit.stat and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    tables = {
        "documents": pa.table(
            {"row": np.concatenate(rows), "words": np.concatenate(lengths), "plain": np.concatenate(plain_lengths)}
        ),
        "words": pa.table({"hash": np.concatenate(hashes)}),
        "plain": pa.table({"hash": np.concatenate(plain_hashes), "place": np.concatenate(places)}),
    }
    store = PartialStore(unit.state)
    meta = {"records": stats.records, "bad": sum(losses.records.values())}
    meta |= {"text_bytes": stats.text_bytes, "bad_bytes": sum(losses.num_bytes.values())}
    store.write(HELD_OUT_RECORDS, unit.key, meta, {})
    store.write(HELD_OUT, unit.key, meta, tables)
    return Outcome()


@as_outcome
def read_set(unit: SetUnit) -> Outcome:
    """Store the items of an evaluation set, or what is wrong with which file of it."""
    store = PartialStore(unit.state)
    try:
        loaded = read_items(unit.paths, unit.fields)
    except SetFileError as error:
        wrong: dict[str, Any] = {"file": error.number}
        if isinstance(error.cause, ShardUnreadable):
            wrong |= {"reason": str(error.cause.reason), "place": error.cause.place}
        else:
            known = [name[:MAX_COLUMN_NAME] for name in error.cause.known[:_MAX_KNOWN]]
            wrong |= {"unknown": error.cause.column, "known": known, "columns": len(error.cause.known)}
        store.write(ITEMS, unit.key, {"wrong": wrong}, {})
        return Outcome()
    columns = {name: [getattr(item, name) for item in loaded.items] for name in ("id", "question", "answers")}
    text = pa.large_string()
    schema = pa.schema([("id", text), ("question", text), ("answers", pa.large_list(text))])
    meta = {
        "sha256": loaded.sha256,
        "lost": {str(reason): count for reason, count in sorted(loaded.losses.records.items())},
        "first": loaded.first_lost,
    }
    store.write(ITEMS, unit.key, meta, {"items": pa.table(columns, schema=schema)})
    return Outcome()


_VERSION = "9"
"""Changes whenever the same documents and items may give another index, or the kernels read another one."""
_Pairs = list[tuple[str, list[str]]]


def prepare_protected(job: Job, stages: Sequence[Stage]) -> Protected | None:
    """Read what is protected and index it; None when nothing is, or no stage looks for it."""
    stage = next((stage for stage in stages if isinstance(stage, Overlap)), None)
    held_out = job.shards.of_splits([name for name, split in job.config.splits.items() if split.held_out])
    if stage is None and job.config.protected:
        job.runner.notes.append("evaluation sets are not searched for: stages.overlap is false")
        job.progress.note(job.runner.notes[-1])
    if stage is None or not (held_out or job.config.protected):
        return None
    planned = [plan_shard(shard, *job.probed.of(shard.ordinal), job.config, (), {}) for shard in held_out]
    if job.exclusions is not None:
        planned = [job.exclusions.applied(planned_shard, (), {}) for planned_shard in planned]
    sets, pairs = _read_sets(job)
    _store_words(job, planned)
    file, index = _index(job, planned, sets, pairs, stage.max_grams)
    taken = "" if not index.held_out.sample_bits else f" (one in {1 << index.held_out.sample_bits:,}, by hash)"
    job.progress.note(
        f"protected: {len(index.held_out.rows):,} held-out documents{taken},"
        f" {len(index.items.sets):,} items of {len(sets)} evaluation sets"
    )
    return Protected(file=file, index=index, sets=tuple(sets), shards=tuple(held_out))


def _read_sets(job: Job) -> tuple[list[SetFacts], list[_Pairs]]:
    reader = job.config.reader
    remote = remote_lister(Access(timeout_seconds=reader.timeout_seconds, retries=reader.retries))
    names, units = sorted(job.config.protected), []
    for name in names:
        own = job.config.protected[name]
        fields = ItemFields(question=own.question, answer=own.answer, id=own.id)
        listed: dict[str, None] = {}
        for pattern in own.paths:
            files, left_out = expand(pattern, job.base, where=f"protected.{name}.paths", remote=remote)
            listed.update(dict.fromkeys(files))
            if left_out:
                job.runner.notes.append(f"protected.{name}: names passed over: {len(left_out):,}")
        paths = list(listed)
        key = digest_json([[os.fsencode(path).hex() for path in paths], own.question, own.answer, own.id])
        units.append(SetUnit(paths=tuple(paths), fields=fields, state=job.store.root, key=key.removeprefix("sha256:")))
    failed, _ = run_units("protect", read_set, units, job)
    facts, pairs = [], []
    for number, (name, unit) in enumerate(zip(names, units, strict=True)):
        if number in failed:
            raise unreadable(name, unit.paths, *failed[number])
        entry = job.store.read(ITEMS, unit.key)
        if entry is None:
            raise ClusterError(f"the items of {name} are not in {job.store.root}", "Run the same command again.")
        if "wrong" in entry.meta:
            raise wrong_file(name, unit.paths, entry.meta["wrong"])
        table = entry.tables["items"]
        if table.num_rows == 0:
            raise no_items(name, entry.meta["lost"])
        facts.append(
            SetFacts(name=name, ids=table["id"].to_pylist(), lost=entry.meta["lost"], sha256=entry.meta["sha256"])
        )
        pairs.append(list(zip(table["question"].to_pylist(), table["answers"].to_pylist(), strict=True)))
        if entry.meta["lost"]:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(entry.meta["lost"].items()))
            file, record = entry.meta["first"]
            first = f"record {record} of {file_name(unit.paths, file)}"
            job.runner.notes.append(f"protected.{name}: {counts}; first at {first}")
            job.progress.note(job.runner.notes[-1])
    return facts, pairs


def _store_words(job: Job, planned: Sequence[PlannedShard]) -> None:
    """Store the words of all held-out documents that are not stored yet; what cannot be read is left out."""
    units: dict[str, HeldOutUnit] = {}
    for shard in planned:
        if shard.probe is None:
            continue
        for part in shard.parts:
            key = _words_key(part)
            if job.fresh or not job.store.has(HELD_OUT, key):
                units[key] = HeldOutUnit(
                    request=part.request,
                    sha256=shard.probe.sha256,
                    stat=shard.probe.stat,
                    state=job.store.root,
                    key=key,
                    size=shard.probe.stat.size // max(1, len(shard.parts)),
                )
    failed, _ = run_units("protect", read_held_out, list(units.values()), job)
    if failed:
        note = f"{len(failed):,} part(s) of held-out shards could not be read, so their shards are not searched for"
        job.runner.notes.append(f"{note}: {next(iter(failed.values()))[0]}")


def _words_key(part: PlannedPart) -> str:
    without = [sorted(part.request.without)] if part.request.without else []
    return digest_json([part.reading_key, _VERSION, *without]).removeprefix("sha256:")


def _index(
    job: Job, planned: Sequence[PlannedShard], sets: Sequence[SetFacts], pairs: Sequence[_Pairs], max_grams: int
) -> tuple[IndexFile, ProtectedIndex]:
    """Return the index of exactly this, built unless it is there."""
    whole = {
        number: [_words_key(part) for part in shard.parts]
        for number, shard in enumerate(planned)
        if shard.parts
        and job.lost.keys().isdisjoint(part.reading_key for part in shard.parts)
        and all(job.store.has(HELD_OUT, _words_key(part)) for part in shard.parts)
    }
    bad = {number for number, keys in whole.items() if _too_many_bad(job, keys)}
    if bad:
        job.runner.notes.append(f"{len(bad):,} held-out shard(s) with too many bad records are not searched for")
    whole = {number: keys for number, keys in whole.items() if number not in bad}
    recipe = {
        "version": _VERSION,
        "tool": __version__,
        "libraries": library_versions(),
        "held_out": [[number, keys] for number, keys in whole.items()],
        "sets": [facts.sha256 for facts in sets],
        "max_grams": max_grams,
        "seed": job.config.seed,
    }
    path = job.store.root / "protected" / f"{digest_json(recipe).removeprefix('sha256:')}.index"
    if not job.fresh:
        try:
            known, sha256 = open_index(path, check=True)
        except DamagedFileError:
            if path.exists():
                job.runner.notes.append(f"{path.relative_to(job.store.root)} was damaged and is built again")
                job.progress.note(job.runner.notes[-1], important=True)
        else:
            return IndexFile(path=path, sha256=sha256), known
    words = index_held_out(_parts(job, planned, whole), max_grams)
    built = ProtectedIndex(held_out=words, items=index_items(pairs))
    with job.store.writing():
        file = write_index(path, built)
    return file, open_index(path)[0]


def _too_many_bad(job: Job, keys: Sequence[str]) -> bool:
    """Tell whether the scan will quarantine a held-out shard, so that nothing may be found of it."""
    metas = [_stored(job, HELD_OUT_RECORDS, key).meta for key in keys]
    sums = (sum(meta[name] for meta in metas) for name in ("bad", "records", "bad_bytes", "text_bytes"))
    return bad_share(*sums) > job.config.reader.max_bad_records


def _stored(job: Job, kind: str, key: str) -> Entry:
    """Return what is stored of a held-out part."""
    damage = Damage(job.store)
    entry = damage.read(kind, key)
    if entry is None:
        job.store.remove(HELD_OUT, key)
        raise DamagedEntryError(damage.names)
    return entry


def _parts(job: Job, planned: Sequence[PlannedShard], whole: Mapping[int, Sequence[str]]) -> Iterator[HeldOutPart]:
    """Yield the held-out documents with their words."""
    for number, keys in whole.items():
        probe, first_row = planned[number].probe, 0
        assert probe is not None
        for key in keys:
            entry = _stored(job, HELD_OUT, key)
            documents = entry.tables["documents"]
            rows = documents["row"].to_numpy() + first_row
            first_row += entry.meta["records"]
            offsets, plain_offsets = np.zeros((2, len(rows) + 1), dtype=np.int64)
            np.cumsum(documents["words"].to_numpy(), out=offsets[1:])
            np.cumsum(documents["plain"].to_numpy(), out=plain_offsets[1:])
            yield HeldOutPart(
                shard=number,
                rows=rows,
                keys=_sample_keys(probe.sha256, rows, job.config.seed),
                words=entry.tables["words"]["hash"].to_numpy(),
                offsets=offsets,
                plain=PlainWords(
                    words=entry.tables["plain"]["hash"].to_numpy(),
                    offsets=plain_offsets,
                    places=entry.tables["plain"]["place"].to_numpy(),
                ),
            )


def _sample_keys(sha256: str, rows: np.ndarray, seed: int) -> np.ndarray:
    """Return uint64[n]: a hash of the document's file, its record and the seed (the finaliser of SplitMix64)."""
    start = int(digest_json([sha256, seed]).removeprefix("sha256:")[:16], 16)
    with np.errstate(over="ignore"):
        value = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: np.ndarray = value ^ (value >> np.uint64(31))
    return keys
