"""Builds a manifest from Python."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dataaudit.api.arguments import Manifest, PathLike, expect, load, optional_path, path_of, texts_of
from dataaudit.base.errors import ConfigError, ExitCode, ManifestError, ManifestMismatch
from dataaudit.manifest.replace import POINTER
from dataaudit.manifest.s3 import is_stored, shown

if TYPE_CHECKING:
    from dataaudit.config import AuditConfig
    from dataaudit.engine.inputs import Prepared
    from dataaudit.engine.job import BuildOptions
    from dataaudit.engine.progress import Progress
    from dataaudit.manifest.remote import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a build published."""

    manifest: Manifest
    """The manifest, loaded."""
    exit_code: ExitCode
    """0, or 3 when something could not be read: ``unread`` and the manifest's ledger say what."""
    scanned: int
    """Parts of shards that were read in this run; the others were read before."""
    planned: int
    """Parts of shards in all."""
    unread: tuple[tuple[str, str], ...]
    """(uri, reason code) of shards that could not be read."""
    held_back: int
    """Shards that the quarantine list leaves out."""
    held_back_documents: int
    """Documents of other shards that it leaves out."""
    warnings: tuple[str, ...]
    """A line each; none is an error."""

    @property
    def id(self) -> str:
        """The manifest's."""
        return self.manifest.id

    @property
    def complete(self) -> bool:
        """Whether everything was read."""
        return self.exit_code == ExitCode.PASS

    def __repr__(self) -> str:
        """Return what was published, on one line."""
        return (
            f"<Build exit code {int(self.exit_code)}, {self.scanned:,} of {self.planned:,} parts read: {self.manifest}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the manifest."""
        return self.manifest._repr_html_()


def build(
    inputs: PathLike | Sequence[PathLike] | Mapping[str, Any] | AuditConfig,
    manifest: PathLike,
    *,
    tokenizer: PathLike | None = None,
    text: str | None = None,
    reference: PathLike | None = None,
    base: PathLike | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    open_scheduler: bool = False,
    memory_limit: str | int = "auto",
    isolate: bool = True,
    state: PathLike | None = None,
    state_key: PathLike | bytes | None = None,
    trust_state: bool = True,
    shard_timeout: float = 1800.0,
    hmac_key: PathLike | bytes | None = None,
    quarantine: PathLike | None = None,
    samples: tuple[int, PathLike] | None = None,
    fresh: bool = False,
    rehash: bool = False,
    progress: bool | Literal["warnings"] | Callable[[str], object] = False,
) -> Build:
    """Scan a corpus and publish its manifest.

    A build that was stopped goes on where it was when it is called again with the same arguments.

    Args:
        inputs: File of a config (``.yaml``, ``.yml``); or one or several paths, folders, globs or addresses of data,
            of which splits and columns are inferred; or a config as a mapping, as the file would say it.
        manifest: Folder to publish, or an address in S3; an old manifest there is replaced.
        tokenizer: ``tokenizer.json``, ``.tiktoken``, SentencePiece ``.model``, hub id or ``default``; the config's when
            None.
        text: Text column, when building from paths; inferred when None.
        reference: Folder of an older manifest to compare with.
        base: Folder that the paths of a mapping start from; the current one when None.
        workers: Local worker processes, one a core when None; 0 does all the work in this process, without Dask. A
            script that starts workers has to guard its own work by ``if __name__ == "__main__":``.
        scheduler: Address of a Dask scheduler, instead of ``workers``.
        client: A ``distributed.Client``, instead of ``workers``; it is left open. Its workers are processes with one
            thread each, of the same versions, that see the folders of the manifest and of the state.
        open_scheduler: Whether, with ``state_key`` or without ``trust_state``, the scheduler may be one that is not
            ``tls://``: whoever reaches its port can change the manifest and read the key.
        memory_limit: Memory of a local worker: bytes, ``"2GiB"``, or ``"auto"`` for an even share.
        isolate: With ``workers=0``, whether what can crash a process is read in a child; a debugger wants False.
        state: Folder of partial results; ``.dataaudit`` beside the manifest when None, for S3 in the current folder.
        state_key: Key of 16 bytes or more, or a file of it that nobody else may read: what lies in the state folder is
            believed only if it is sealed under this key, and what is written there is.
        trust_state: False for a manifest that is to be signed: without ``state_key`` everything is computed anew, and
            nothing is kept.
        shard_timeout: Seconds that a part of a shard may take before it counts as stuck.
        hmac_key: Key of 16 bytes or more, or a file of it; findings get digests under it.
        quarantine: Quarantine list: the shards and documents that it leaves out today are in no number.
        samples: How many findings of each kind get their surroundings written, masked, and the new folder for them.
        fresh: Compute everything anew.
        rehash: Hash every file, also those that look unchanged.
        progress: True for lines on stderr, ``"warnings"`` for the important ones alone, or a function that takes each
            line; False for none, as ``Build.warnings`` has the important ones.

    Returns:
        The manifest, with what became of the run. Shards that could not be read are no error: see ``exit_code``.

    Raises:
        ConfigError: An argument, the config or a path in it is wrong, the list leaves nothing of a split, or the script
            starts workers without the guard.
        QuarantineError: The quarantine list is absent, damaged or of another version.
        TokenizerError: The tokenizer cannot be found or read.
        DetectorError: A detector cannot be found or read.
        ClusterError: The workers cannot do the work.
        StoreError: A remote store does not answer.
        NothingEvaluated: No document was read, and a good manifest was left where it is.
        BuildInterrupted: Ctrl-C; what was finished is kept.
        OSError: A disk is full, a folder cannot be written.

    Example:
        >>> build("corpus.yaml", "manifests/first", workers=0).exit_code
        <ExitCode.PASS: 0>
    """
    from dataaudit.engine.inputs import end_if_restarted

    end_if_restarted(workers if scheduler is None and client is None else 0)
    from dataaudit.decide.quarantine.list import load_quarantine
    from dataaudit.engine.build import build as run
    from dataaudit.engine.cluster import ClusterChoice, check_client
    from dataaudit.engine.job import STATE_FOLDER, BuildOptions

    given = {"workers": workers, "scheduler": scheduler, "client": client}
    if len(named := [name for name, value in given.items() if value is not None]) > 1:
        raise ConfigError(f"{' and '.join(named)} exclude each other", "A scheduler has its own workers: name one.")
    flags = {"open_scheduler": open_scheduler, "isolate": isolate, "trust_state": trust_state}
    for name, value in (flags | {"fresh": fresh, "rehash": rehash}).items():
        expect(value, name, bool, "True or False")
    _check_numbers(workers, shard_timeout)
    if client is not None:
        check_client(client)
    publication = _publication(manifest)
    target = path_of(manifest, "manifest") if publication is None else publication.folder
    before, unread = _before(target)
    asked = None if samples is None else _asked(samples)
    folder = Path(STATE_FOLDER) if state is None and publication is not None else optional_path(state, "state")
    options = BuildOptions(
        target=target,
        state=folder,
        state_key=_state_key(state_key, folder or target.absolute().parent / STATE_FOLDER, target),
        trust_state=trust_state,
        fresh=fresh,
        rehash=rehash,
        unit_seconds=shard_timeout,
        cluster=ClusterChoice(
            workers=workers,
            scheduler=scheduler,
            client=client,
            open_scheduler=open_scheduler,
            memory_limit=memory_limit,
            isolate=isolate,
        ),
        hmac_key=_key(hmac_key),
        quarantine=None if quarantine is None else load_quarantine(path_of(quarantine, "quarantine"), seen_by=before),
    )
    with _as_before(), _progress(progress) as reported:
        if unread:
            reported.note(unread, important=True)
        if before is not None and quarantine is None and before.run.quarantine is not None:
            warning = "was built with a quarantine list, and no list is given now: nothing is held back"
            reported.note(f"{shown(target)} {warning}", important=True)
        prepared = _prepared(inputs, base, tokenizer=tokenizer, text=text, reference=reference, note=reported.note)
        sample = None if asked is None else _sampling(*asked, options)
        result = run(
            prepared.config, prepared.base, root_at_base=prepared.root_at_base, options=options, progress=reported
        )
        if publication is not None:
            from dataaudit.manifest.remote import publish_stored

            publish_stored(publication)
        if sample is not None:
            sample(progress=reported, paths=result.paths)
    return Build(
        manifest=_published(target, result.id),
        exit_code=result.exit_code,
        scanned=result.scanned,
        planned=result.planned,
        unread=result.unread,
        held_back=result.held_back,
        held_back_documents=result.held_back_documents,
        warnings=tuple(reported.warnings),
    )


def _check_numbers(workers: object, shard_timeout: object) -> None:
    """Refuse what is no number of workers, or no time."""
    expect(0 if workers is None else workers, "workers", int, "a whole number")
    expect(shard_timeout, "shard_timeout", (int, float), "a number")
    for name, value, least in (("workers", workers, 0), ("shard_timeout", shard_timeout, 1)):
        if isinstance(value, int | float) and not value >= least:
            raise ConfigError(f"{name}: expected {least} or more, found {value}")


def _asked(samples: tuple[int, PathLike]) -> tuple[int, Path]:
    """Return how many samples are asked for, and their folder."""
    expect(samples, "samples", tuple, "a number and a folder")
    if len(samples) != 2 or not 1 <= samples[0] <= 1000:
        raise ConfigError(f"samples: expected a number from 1 to 1000, and a folder, found {samples}")
    return samples[0], path_of(samples[1], "samples")


def _published(target: Path, identity: str) -> Manifest:
    """Return the manifest that a build has published, unless another build took its place."""
    manifest = load(target)
    if manifest.id != identity:
        raise ManifestMismatch(
            f"{shown(target)}: this build published {identity}, found {manifest.id}",
            "Another build has replaced it; give each build a folder of its own.",
        )
    return manifest


def _publication(manifest: PathLike) -> Publication | None:
    """Return what publishes into a store, which is checked before hours of work; None for a folder."""
    if not is_stored(manifest):
        return None
    from dataaudit.base.extras import require
    from dataaudit.manifest.remote import begin_publication

    require("build", "build")
    return begin_publication(os.fspath(manifest))


@contextmanager
def _as_before() -> Iterator[None]:
    """Give the caller back the environment and the levels of loggers, which workers are started with."""
    environment = dict(os.environ)
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio")]
    levels = [logger.level for logger in loggers]
    try:
        yield
    finally:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _prepared(
    inputs: PathLike | Sequence[PathLike] | Mapping[str, Any] | AuditConfig,
    base: PathLike | None,
    *,
    tokenizer: PathLike | None,
    text: str | None,
    reference: PathLike | None,
    note: Callable[[str], None],
) -> Prepared:
    """Return the config of what was given, and the folder that its paths start from."""
    from dataaudit.config import AuditConfig, parse_config
    from dataaudit.engine.inputs import Prepared, prepare, with_choices

    cwd = Path.cwd()
    chosen = {
        name: None if value is None else str(path_of(value, name) if isinstance(value, Path) else value)
        for name, value in (("tokenizer", tokenizer), ("reference", reference))
    }
    if not isinstance(inputs, Mapping | AuditConfig):
        if base is not None:
            raise ConfigError("base goes with a config that is a mapping", "Paths start from the current folder.")
        return prepare(texts_of(inputs, "inputs"), cwd, text=text, note=note, **chosen)
    if text is not None:
        raise ConfigError("text goes with paths", "With a config, name the column in `splits.NAME.text`.")
    config = inputs if isinstance(inputs, AuditConfig) else parse_config(dict(inputs), where="config")
    folder = cwd if base is None else path_of(base, "base").absolute()
    return Prepared(config=with_choices(config, cwd, **chosen), base=folder, root_at_base=True)


def _sampling(number: int, folder: Path, options: BuildOptions) -> Callable[..., None]:
    """Return what takes samples once the build is published; their folder is checked before it begins."""
    from dataaudit.engine.samples import prepare_samples, sample_manifest
    from dataaudit.manifest.publish import check_target

    check_target(options.target)
    samples = prepare_samples(number, folder, options.target, options.state)
    return partial(sample_manifest, options.target, samples)


def _key(given: PathLike | bytes | None) -> bytes | None:
    from dataaudit.engine.inputs import check_key, read_key

    if given is None:
        return None
    return check_key(given, "hmac_key") if isinstance(given, bytes) else read_key(path_of(given, "hmac_key"))


def _state_key(given: PathLike | bytes | None, *folders: Path) -> bytes | None:
    from dataaudit.engine.inputs import check_key, read_state_key

    if given is None or isinstance(given, bytes):
        return None if given is None else check_key(given, "state_key")
    return read_state_key(path_of(given, "state_key"), *folders)


def _progress(given: bool | str | Callable[[str], object]) -> Progress:
    """Return where a build reports."""
    from dataaudit.engine.progress import Progress

    if callable(given):
        return Progress(tell=given)
    if isinstance(given, str) and given != "warnings":
        raise ConfigError(f"progress: expected True, False, `warnings` or a function, found `{given}`")
    return Progress(quiet=given is not True, tell=None if given else lambda _: None)


def _before(target: Path) -> tuple[Manifest | None, str]:
    """Return the manifest that a build replaces; None where it cannot be read, and what is unknown because of that."""
    try:
        return load(target), ""
    except ManifestError as error:
        if not (target / POINTER).exists():
            return None, ""
        lost = (
            "whether the build before it had a quarantine list, and which lines of one have been lost since, is unknown"
        )
        return None, f"the manifest that is replaced cannot be read ({error.message}): {lost}"
