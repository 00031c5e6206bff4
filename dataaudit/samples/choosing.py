"""``--samples``: a few findings of every kind with the words around them, masked, for the user's eyes alone.

The driver reads the few shards again, each in a child process that masks the text before it answers through a pipe. So
text of a document is never in a task of Dask, in the state folder or in what a worker may spill or log, and a worker on
another machine needs no way to the folder of samples. Nothing here changes a number or an id: a sample is taken of a
manifest that is published already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.config import SourceRule
from dataaudit.corpus.fields import field_rule
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.readers import END, Part, ReadRequest
from dataaudit.corpus.storage.files import file_of
from dataaudit.engine.alone import end_child, run_alone
from dataaudit.engine.job import STATE_FOLDER
from dataaudit.engine.progress import Progress
from dataaudit.errors import ConfigError
from dataaudit.extras import require
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.place import find_place
from dataaudit.metrics.pii.link import JUDGE
from dataaudit.samples.folder import Sample, check_folder, write_samples
from dataaudit.samples.masking import SampleUnit, Span, Wanted, sample_shard
from dataaudit.text import plural

JUDGED = "judged"
"""Tier of what a judge said."""
_BATCH_BYTES = 1 << 20
_SHARD_SECONDS = 1800.0
_BYTES_PER_SECOND = 500_000
_GROUP = ("detector", "class", "tier", "reserved")
_WEYL, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Of splitmix64 (Steele, Lea, Flood 2014, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was asked for."""

    number: int
    """Findings of each detector, class and tier."""
    folder: Path
    """Where to: empty, and for its owner alone."""


def prepare_samples(number: int, folder: Path, manifest: Path, state: Path | None = None) -> Samples:
    """Make the folder of samples.

    Args:
        number: Findings of each detector, class and tier.
        folder: As the user named it.
        manifest: Folder of the manifest.
        state: State folder; the one beside the manifest when None.

    Raises:
        MissingExtra: The extra `build` is not installed.
        ConfigError: It is not empty, not the user's, or not apart from manifest and state folder.
    """
    require("--samples", "build")
    beside = manifest.absolute().parent / STATE_FOLDER
    forbidden = {"the manifest": manifest, "the state folder": state or beside}
    return Samples(number=number, folder=check_folder(folder, forbidden))


def sample_manifest(
    folder: Path,
    samples: Samples,
    progress: Progress,
    *,
    place: str | None = None,
    paths: Mapping[int, str] | None = None,
) -> None:
    """Choose findings of a manifest, read their documents again and write the masked samples.

    Args:
        folder: Of the manifest.
        samples: How many and where to.
        progress: Where to report.
        place: ``SHARD[:ROW]``: of one shard, or of one document of it; None: of all.
        paths: Where each shard is, by ordinal; found by the manifest's roots when None.

    Raises:
        ManifestError: There is no manifest, or it is damaged.
        ConfigError: No shard, or several, are meant.
        OSError: The folder cannot be written.
    """
    manifest = load_manifest(folder)
    findings = manifest.table("findings")
    if place is not None:
        found = find_place(place, manifest.table("shards", ["shard", "split", "uri"]))
        here = pc.equal(pc.field("shard"), found.shard)
        if found.row is not None:
            here &= pc.equal(pc.field("row"), found.row)
        findings = findings.filter(here)
    chosen = choose(findings, samples.number, seed=manifest.core.seeds.get("sample", 0))
    numbers = sorted(set(chosen["shard"].to_pylist()))
    shards = {row["shard"]: row for row in manifest.table("shards").take(pa.array(numbers, pa.int64())).to_pylist()}
    progress.begin("samples", len(shards), sum(shard["size"] for shard in shards.values()))
    written: list[tuple[tuple[Any, ...], Sample]] = []
    lost: dict[str, int] = {}
    try:
        for number, shard in shards.items():
            own = chosen.filter(pc.equal(chosen["shard"], number))
            known = findings.filter(pc.equal(findings["shard"], number))
            path = _path(manifest, shard) if paths is None else paths[number]
            windows, reason = _read(manifest, shard, path, own, known)
            for row, window in zip(own.to_pylist(), windows, strict=True):
                if window is None:
                    why = reason or "the document is not there any more"
                    lost[why] = lost.get(why, 0) + 1
                    continue
                order = tuple(row[name] for name in (*_GROUP, "shard", "row", "start"))
                written.append((order, _sample(shard, row, window)))
            progress.advance(shard["size"], failed=bool(reason))
    finally:
        end_child()
    files = write_samples(samples.folder, [sample for _, sample in sorted(written, key=lambda pair: pair[0])])
    progress.end()
    told = f"samples: {plural(len(written), 'finding')} in {plural(files, 'file')} in {samples.folder}"
    progress.note(f"{told}: parts of documents, masked; delete them when they are no longer needed", important=True)
    for reason, count in sorted(lost.items()):
        progress.note(f"samples: {count:,} not written: {reason}", important=True)


def choose(findings: pa.Table, number: int, *, seed: int) -> pa.Table:
    """Return the rows of at most ``number`` findings of each kind, chosen by a hash of their places.

    Args:
        findings: Rows of the manifest's findings.
        number: Of each detector, class, tier, and of reserved ones.
        seed: Of the choice.
    """
    place = np.full(findings.num_rows, seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in ("shard", "row", "start", "end"):
            place = (place ^ findings[name].to_numpy().astype(np.uint64)) * _WEYL
            place = (place ^ (place >> np.uint64(29))) * _MIX
            place ^= place >> np.uint64(32)
    groups = np.zeros(findings.num_rows, dtype=np.int64)
    for name in _GROUP:
        codes = pc.dictionary_encode(findings[name].combine_chunks()).indices.to_numpy()
        groups = groups * (int(codes.max(initial=0)) + 1) + codes
    order = np.lexsort((np.arange(len(place)), place, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    return findings.take(pa.array(np.sort(order[rank < number])))


def _read(
    manifest: Manifest, shard: dict[str, Any], path: str | None, own: pa.Table, known: pa.Table
) -> tuple[list[str | None], str]:
    """Return the windows of a shard's chosen findings, and why there is none where there is none."""
    none: list[str | None] = [None] * own.num_rows
    if path is None:
        return none, "the rows of a streamed dataset cannot be found by a manifest alone; a build takes samples of it"
    split, reader = manifest.core.config["splits"][shard["split"]], manifest.core.config["reader"]
    fields = field_rule(
        split["text"],
        SourceRule(constant="-"),
        shard["uri"],
        max_record_bytes=reader["max_line_bytes"],
        text_document=reader["text_document"] if shard["format"] == "text" else "",
    )
    request = ReadRequest(
        path=path,
        format=shard["format"],
        compression=shard["compression"],
        part=Part(0, END),
        fields=fields,
        batch_bytes=_BATCH_BYTES,
    )
    here = known.filter(pc.is_in(known["row"], own["row"].combine_chunks()))
    unit = SampleUnit(
        request=request,
        sha256=shard["sha256"],
        wanted=tuple(Wanted(row=row["row"], span=_span(row), whole=_is_whole(row)) for row in own.to_pylist()),
        known=tuple((row["row"], _span(row)) for row in here.to_pylist() if not _is_whole(row)),
    )
    outcome = run_alone(sample_shard, unit, memory_limit=0, seconds=_SHARD_SECONDS + shard["size"] / _BYTES_PER_SECOND)
    if outcome.fault is not None:
        return none, outcome.fault[0]
    if outcome.reason is not None:
        told = "a shard has changed since the build" if outcome.reason is Reason.CHANGED else str(outcome.reason)
        return none, f"{told} {outcome.place}".rstrip()
    return list(outcome.windows), ""


def _sample(shard: dict[str, Any], row: dict[str, Any], window: str) -> Sample:
    group = (row["detector"], row["class"], row["tier"], *(["reserved"] if row["reserved"] else []))
    place = (
        f"shard {shard['shard']} ({shard['split']}/{shard['uri']}), row {row['row']},"
        f" bytes {row['start']} to {row['end']}: {', '.join(group[1:])}, score {row['score']:.2f}"
    )
    return Sample(group=group, place=place, text=window)


def _span(row: dict[str, Any]) -> Span:
    return Span(row["start"], row["end"], row["class"])


def _is_whole(row: dict[str, Any]) -> bool:
    """Tell whether a finding is a verdict of a whole document."""
    return bool(row["tier"] == JUDGED and row["detector"] != JUDGE)


def _path(manifest: Manifest, shard: dict[str, Any]) -> str | None:
    """Return where a shard of a manifest is; None when its rows are streamed.

    Raises:
        ConfigError: The manifest does not say where it was.
    """
    if shard["format"] == "datasets":
        return None
    path = file_of(manifest.run.roots.get(shard["split"], ""), shard["uri"])
    if path is None:
        raise ConfigError(f"shard {shard['shard']} lies outside of its root", "Build the manifest again.")
    return path
