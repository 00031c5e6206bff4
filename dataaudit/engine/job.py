"""One build: its options, result and working state, and what it prepares before any worker starts."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataaudit.base.cache import private_folder
from dataaudit.base.errors import ExitCode, ManifestError
from dataaudit.base.sealing import key_here
from dataaudit.base.text import plural
from dataaudit.config import AuditConfig
from dataaudit.decide.quarantine.list import Quarantine
from dataaudit.engine.cluster import ClusterChoice
from dataaudit.engine.plan import ExclusionFilter
from dataaudit.engine.plan_probe import Probed
from dataaudit.engine.plan_shards import ShardList
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import ScanSettings, Services
from dataaudit.engine.state_folder import own_folder
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.registry import FAMILIES
from dataaudit.scan.annotators import (
    LANGUAGES,
    TOXICITY,
    AnnotatorModel,
    Findings,
    Languages,
    Matches,
    Names,
    Tokens,
    Toxicity,
    Words,
)
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import Discovery, Shard, passed_over
from dataaudit.scan.corpus.tokens import Risks, TokenizerFile, inspect_risks, resolve_tokenizer
from dataaudit.scan.cross_shard.step import LinkContext, LinkStep, Protected
from dataaudit.scan.detectors import ContentModels, LanguageModels, resolve_content, resolve_languages
from dataaudit.scan.kernels.jit import Compiling
from dataaudit.scan.stages.base import Comparing, Stage
from dataaudit.scan.stages.partial import Reference

STATE_FOLDER = ".dataaudit"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How to run a build."""

    target: Path
    state: Path | None = None
    """Folder of partials and indexes; ``.dataaudit`` beside the manifest when None."""
    cluster: ClusterChoice = field(default_factory=ClusterChoice)
    fresh: bool = False
    rehash: bool = False
    unit_seconds: float = 1800.0
    """Time a sub-shard may take before it counts as stuck."""
    state_key: bytes | None = field(default=None, repr=False)
    """What seals files of the state folder, so that no others are believed."""
    trust_state: bool = True
    """Whether, without such a key, what lies in the state folder is believed."""
    hmac_key: bytes | None = field(default=None, repr=False)
    """The user's key for digests of findings; no number depends on it."""
    quarantine: Quarantine | None = None
    """The list whose shards and documents are left out: the one option on which numbers depend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build published."""

    id: str
    exit_code: ExitCode
    scanned: int
    """Sub-shards read in this run."""
    planned: int
    """Sub-shards in the plan."""
    unread: tuple[tuple[str, str], ...]
    """(uri, reason) of shards that could not be read."""
    held_back: int
    held_back_documents: int
    paths: Sequence[str]
    """Where each shard is, by ordinal."""


@dataclass(slots=True, kw_only=True)
class Job(Services):
    """One build: what it was asked for, what it works with, and how far it has come."""

    config: AuditConfig
    """With text and source of every split filled in."""
    base: Path
    options: BuildOptions
    stages: tuple[Stage, ...]
    links: Mapping[str, Callable[[LinkContext], LinkStep]]
    roots: Mapping[str, str]
    shards: ShardList
    probed: Probed
    tokenizer: TokenizerFile
    risks: Risks
    languages: LanguageModels | None
    parents: tuple[str, ...]
    reference: Reference | None
    older: Path | None
    scanned: int = 0
    planned_parts: int = 0
    mended: int = 0
    """Times that stored results were found absent or damaged."""
    lost: dict[str, tuple[Reason, str]] = field(default_factory=dict)
    """Reason and place, by reading key, of parts that were scanned and cannot be read again."""
    encoder_reason: str = "ok"
    force_reference: bool = False
    """Whether the reference encoder counts everything."""
    protected: Protected | None = None
    content: ContentModels = field(default_factory=ContentModels)
    """What looks at the content of documents, as far as stages need it."""
    exclusions: ExclusionFilter | None = None

    @property
    def fresh(self) -> bool:
        """Whether nothing stored is taken; once something was mended or lost, this build's own results are."""
        return self.options.fresh and not (self.mended or self.lost)

    def tokens(self) -> Tokens:
        """Return what finds tokens."""
        return Tokens(
            tokenizer=self.tokenizer,
            risks=self.risks,
            force_reference=self.force_reference,
            seed=self.config.seed,
        )

    def annotators(self) -> tuple[AnnotatorModel, ...]:
        """Return what finds annotations, as far as stages need them."""
        models: list[AnnotatorModel] = [self.tokens(), Words(), Names()]
        if self.languages is not None:
            models.append(Languages(models=self.languages, seed=self.config.seed))
        if self.protected is not None:
            models.append(Matches(index=self.protected.file))
        if self.content.screen is not None:
            models.append(Toxicity(model=self.content.screen))
        if self.content.patterns is not None:
            digests = {name: registry.digest for name, registry in self.content.registries.items()}
            models.append(Findings(patterns=self.content.patterns, digests=digests, key=self.options.hmac_key))
        return tuple(models)

    def scan_settings(self) -> ScanSettings:
        """Return what all units of a scan share."""
        return ScanSettings(state=self.store.root, stages=self.stages, annotators=self.annotators())


def state_folder(options: BuildOptions) -> Path:
    """Return the state folder, made if need be."""
    return own_folder((options.state or options.target.absolute().parent / STATE_FOLDER).absolute())


def prepare_tokenizer(
    spec: str | None, base: Path, state: Path, progress: Progress, copies: Path | None = None
) -> tuple[TokenizerFile, Risks]:
    """Find the tokenizer, and what its fast encoder is not to be trusted with.

    The check takes some seconds for a vocabulary; its answer is kept for the user, not for one state folder. Under a
    state key it is kept in the state folder alone: the user's cache is under none.
    """
    facts = (None if key_here() else user_cache()) or state / "tokenizers"
    tokenizer = resolve_tokenizer(spec, base_dir=base, cache_dir=(copies or state) / "tokenizers", facts_dir=facts)
    text = f"tokenizer: comparing the encoders of {tokenizer.name}, once for this vocabulary; some seconds"
    patience = threading.Timer(0.5, progress.note, [text])
    patience.start()
    try:
        risks = inspect_risks(tokenizer, cache_dir=facts)
    finally:
        patience.cancel()
    return tokenizer, risks


def prepare_reference(
    given: str | None, base: Path, stages: Sequence[Stage], tokenizer: TokenizerFile, progress: Progress
) -> tuple[tuple[str, ...], Reference | None]:
    """Load the reference manifest, if there is one, before anything is scanned, and check what is used of it."""
    if given is None:
        return (), None
    reference, problem = None, "nothing is compared, because the stage `histogram` is off"
    try:
        manifest = load_manifest(base / given)
        for stage in stages:
            if isinstance(stage, Comparing):
                reference, problem = stage.read_reference(manifest, tokenizer)
    except ManifestError as error:
        hint = f"{error.hint}\n  It is the reference of this build, of its config or of the call (--reference)."
        raise ManifestError(f"reference {given}: {error.message}", hint.strip()) from None
    if problem:
        progress.note(f"reference: {problem}", important=True)
    return (manifest.id,), reference


def prepare_languages(config: AuditConfig, base: Path, state: Path, stages: Sequence[Stage]) -> LanguageModels | None:
    """Find the language detectors, when a stage needs them."""
    if not any(LANGUAGES in stage.needs for stage in stages):
        return None
    return resolve_languages(config.language, base_dir=base, cache_dir=state / "detectors")


def prepare_content(config: AuditConfig, base: Path, stages: Sequence[Stage], progress: Progress) -> ContentModels:
    """Find the screen, the patterns and the judges, as far as stages need them; a judge may be absent."""
    detectors = frozenset(stage.detector for stage in stages if stage.detector)
    content = resolve_content(
        config, base_dir=base, screen=any(TOXICITY in stage.needs for stage in stages), detectors=detectors
    )
    for note in content.notes:
        progress.note(f"warning: {note}", important=True)
    return content


def unused_kernels(config: AuditConfig, stages: Sequence[Stage]) -> frozenset[str]:
    """Return the modules of kernels that no stage of this build calls."""
    used = {stage.name for stage in stages}
    if not config.protected and not any(split.held_out for split in config.splits.values()):
        used.discard("overlap")
    return frozenset(module for family in FAMILIES if family.stage_name not in used for module in family.kernels)


def finish_kernels(work: Compiling, progress: Progress) -> None:
    """Take part in compiling what this machine has not compiled before; workers then load it."""
    if number := work.left():
        progress.note(f"kernels: compiling, once for this processor and version; {number} to go")
    with contextlib.suppress(OSError):  # a full disk: workers compile for themselves
        for _ in progress.over("kernels", work.rest(), number):
            pass


def user_cache() -> Path | None:
    """Return the user's cache folder for dataaudit, or None when it cannot be written, or others may write it."""
    return private_folder(os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "dataaudit"))


def tell_discovery(discovery: Discovery, progress: Progress) -> None:
    """Say what was found, and what was left out."""
    by_split: dict[str, list[Shard]] = {}
    for shard in discovery.shards:
        by_split.setdefault(shard.split, []).append(shard)
    parts = [
        f"{name} {plural(len(shards), 'shard')}, {sum(shard.size for shard in shards) / 1e6:,.1f} MB"
        for name, shards in by_split.items()
    ]
    progress.note(f"found: {'; '.join(parts)} (below {', '.join(dict.fromkeys(discovery.roots.values()))})")
    copies = sum("#copy=" in shard.uri for shard in discovery.shards)
    if copies:
        progress.note(f"found: {copies} listings of a file that is listed before; each counts as a shard")
    for note in passed_over(discovery.left_out):
        progress.note(f"found: {note}")
