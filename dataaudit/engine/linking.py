"""Families: what joins documents of different shards, each a generator that asks for documents to be read again.

All families advance together, so that one ordered second read of the shards serves every one of them: each yields
the requests that it wants, and is sent what they found, until it returns what it found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from dataaudit.config import AuditConfig
from dataaudit.detectors import ContentModels
from dataaudit.engine.gather import GatheredShard, GatheredShards
from dataaudit.engine.job import Job
from dataaudit.engine.joins import run_join
from dataaudit.engine.second_pass import run_second_pass
from dataaudit.engine.store import PartialStore
from dataaudit.engine.tables import Setting
from dataaudit.link.joins import Join, JoinedParts, KeyedFiles
from dataaudit.link.second_pass import SecondPassRequest
from dataaudit.link.step import LinkResult, LinkStep, Protected
from dataaudit.link.survey import Survey
from dataaudit.manifest.canonical import digest_json
from dataaudit.stages.base import Stage
from dataaudit.stages.partial import Partial


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkContext:
    """What a link step works with: a build that has scanned."""

    job: Job
    stage: Stage
    shards: GatheredShards
    survey: Survey
    fresh: bool

    @property
    def config(self) -> AuditConfig:
        """Return the config of the build."""
        return self.job.config

    @property
    def store(self) -> PartialStore:
        """Return where keyed rows are."""
        return self.job.store

    @property
    def content(self) -> ContentModels:
        """Return what judges documents."""
        return self.job.content

    @property
    def protected(self) -> Protected | None:
        """Return what is protected, when a stage looks for it."""
        return self.job.protected

    @property
    def older(self) -> Path | None:
        """Return the folder of the reference manifest."""
        return self.job.older

    def read(self) -> Iterator[GatheredShard]:
        """Yield the shards that the stage has looked at."""
        return (shard for shard in self.shards if self.stage.name in shard.partials)

    def tokenizer(self) -> str:
        """Return the digest of what decides tokens, which keeps what tasks count with different ones apart."""
        return digest_json(self.job.tokens().decisive())

    def files(self, *names: str) -> KeyedFiles:
        """Return the keyed rows of names that the stage emitted, for every part of every shard that was read."""
        return KeyedFiles.of_parts(self.stage.name, names, self.shards.parts_of(self.stage.name))

    def join(self, join: Join) -> JoinedParts:
        """Run a join; see :func:`dataaudit.engine.joins.run_join`."""
        return run_join(join, self.job.store, self.job.runner, self.job.progress, fresh=self.fresh)


@dataclass(slots=True, kw_only=True)
class Gathered:
    """All that is known once the scan and the link step are done."""

    shards: GatheredShards
    found: dict[str, LinkResult]
    """What was found by joining documents, by stage."""
    table: pa.Table
    """Of shards."""
    merged: Mapping[str, Mapping[str, Partial]]
    """Partials by split and stage."""
    setting: Setting
    """What stages were told."""


def run_link_steps(families: Mapping[str, LinkStep], linkings: Mapping[str, LinkContext]) -> dict[str, LinkResult]:
    """Advance all families until each has returned, with one second read for all in every round.

    Args:
        families: Generators by stage.
        linkings: What they work with, by stage.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    found: dict[str, LinkResult] = {}
    asked: dict[str, Sequence[SecondPassRequest]] = {}
    for name, family in families.items():
        _advance(name, partial(next, family), asked, found)
    while asked:
        linking = linkings[next(iter(asked))]
        requests = [request for wanted in asked.values() for request in wanted]
        job = linking.job
        answers = iter(
            run_second_pass(
                requests, linking.shards, job.scan_settings(), job.store, job.runner, job.progress, fresh=linking.fresh
            )
        )
        waiting, asked = asked, {}
        for name, wanted in waiting.items():
            own = [next(answers) for _ in wanted]
            _advance(name, partial(families[name].send, own), asked, found)
    return {name: found[name] for name in families}


def _advance(
    name: str,
    step: Callable[[], Sequence[SecondPassRequest]],
    asked: dict[str, Sequence[SecondPassRequest]],
    found: dict[str, LinkResult],
) -> None:
    try:
        asked[name] = step()
    except StopIteration as stop:
        found[name] = stop.value


def result_tables(found: Mapping[str, LinkResult]) -> dict[str, pa.Table]:
    """Return the tables of all families; those of one name are joined."""
    pieces: dict[str, list[pa.Table]] = {}
    for one in found.values():
        for name, table in one.tables.items():
            pieces.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables) for name, tables in pieces.items()}


def result_folders(found: Mapping[str, LinkResult]) -> dict[str, Callable[[Path], None]]:
    """Return what fills the folders of the manifest, by name."""
    return {name: fill for one in found.values() for name, fill in one.folders.items()}
