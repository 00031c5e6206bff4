"""Detectors of every document's content, and the judges of a sample: resolved before a scan starts."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from dataaudit.config import AuditConfig
from dataaudit.manifest.core import DetectorRecord
from dataaudit.scan.detectors.base import DetectorModel
from dataaudit.scan.detectors.judges import Unavailable
from dataaudit.scan.detectors.patterns.registry import Registry, compile_database, join_registries
from dataaudit.scan.detectors.pii import load_pii
from dataaudit.scan.detectors.pii.analyzer_model import AnalyzerModel, AnalyzerSettings, resolve_analyzer
from dataaudit.scan.detectors.secrets.rules import load_secrets
from dataaudit.scan.detectors.toxicity import find_screen
from dataaudit.scan.detectors.toxicity.judge_model import NAMED, JudgeModel, JudgeSettings, resolve_judge


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentModels:
    """Detectors that stages need and judges that the config requests; None without a request."""

    screen: DetectorModel | None = None
    """Of toxicity."""
    patterns: Registry | None = None
    """Entities of all pattern detectors, for one pass."""
    registries: Mapping[str, Registry] = field(default_factory=dict)
    """The same by detector."""
    judge: JudgeModel | Unavailable | None = None
    """Of toxicity."""
    analyzer: AnalyzerModel | Unavailable | None = None
    """Of personal data."""

    @property
    def notes(self) -> list[str]:
        """Messages for the user: judges that were requested and are absent."""
        judges = (self.judge, self.analyzer)
        return [f"{judge.message}: {judge.hint}" for judge in judges if isinstance(judge, Unavailable)]

    def records(self) -> list[DetectorRecord]:
        """Return the manifest's record of each detector and judge."""
        records = []
        if self.screen is not None:
            records.append(_record(self.screen.name, self.screen, self.screen.languages))
        for name, registry in self.registries.items():
            version = ", ".join(f"{key} {value}" for key, value in sorted(registry.versions.items()))
            digest = registry.own_digest.removeprefix("sha256:")
            entities = tuple(sorted(entity.name for entity in registry.entities))
            records.append(DetectorRecord(name=name, version=version, sha256=digest, entities=entities))
        if isinstance(self.judge, JudgeModel):
            records.append(_record(self.judge.title, self.judge, self.judge.languages))
        if isinstance(self.analyzer, AnalyzerModel):
            records.append(_record("presidio", self.analyzer, (self.analyzer.language,)))
        return records


def _record(name: str, model: DetectorModel | JudgeModel | AnalyzerModel, languages: tuple[str, ...]) -> DetectorRecord:
    return DetectorRecord(name=name, version=model.version, sha256=model.sha256, languages=languages)


def resolve_content(config: AuditConfig, *, base_dir: Path, screen: bool, detectors: frozenset[str]) -> ContentModels:
    """Find the detectors that stages need, and the judges that the config requests."""
    registries = {}
    if "pii" in detectors:
        entities = config.pii.entities
        registries["pii"] = load_pii([] if entities is None else [base_dir / entities])
    if "secrets" in detectors:
        rules, allow = config.secrets.rules, config.secrets.allow
        registries["secrets"] = load_secrets(
            [] if rules is None else [base_dir / rules], allow=None if allow is None else base_dir / allow
        )
    patterns = join_registries(*registries.values()) if registries else None
    if patterns is not None:
        compile_database(patterns)
    analyzer = None
    if "pii" in registries and config.pii.analyzer is not None:
        settings = AnalyzerSettings(model=config.pii.model, language=config.pii.language, seed=config.seed)
        analyzer = resolve_analyzer(settings, registries["pii"], base_dir)
    return ContentModels(
        screen=find_screen() if screen else None,
        patterns=patterns,
        registries=registries,
        judge=_judge(config, base_dir) if screen else None,
        analyzer=analyzer,
    )


@lru_cache(maxsize=1)
def shipped_patterns() -> Registry:
    """Return the shipped entities of personal data and secrets, whatever a config says: for masking."""
    return join_registries(load_pii(), load_secrets())


def key_id(key: bytes | None) -> str | None:
    """Return a name of a key that reveals nothing of it; None without a key."""
    return None if key is None else hmac.new(key, b"dataaudit key id", hashlib.sha256).hexdigest()[:16]


def _judge(config: AuditConfig, base_dir: Path) -> JudgeModel | Unavailable | None:
    settings = config.toxicity
    if settings.judge is None:
        return None
    name = settings.judge if settings.judge in NAMED else str(Path(settings.judge).expanduser())
    folder = settings.config_path
    requested = JudgeSettings(
        judge=name,
        device=settings.device,
        languages=settings.languages,
        seed=config.seed,
        config_path=None if folder is None else str(Path(folder).expanduser()),
    )
    return resolve_judge(requested, base_dir)
