"""When two records of a name do not mean the same: another unit, version, tokenizer, detector, set or reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dataaudit.manifest.core import Core, tokenizer_of
from dataaudit.metrics.family import JUDGE, LANGUAGE_DETECTION, MetricDefinition
from dataaudit.metrics.registry import FAMILIES, FAMILY_OF, METRICS, TOKEN_UNITS, is_of_tokens, statistic

OTHER_UNIT = "other_unit"
OTHER_VERSION = "other_version"
OTHER_TOKENIZER = "other_tokenizer"
OTHER_DETECTOR = "other_detector"
OTHER_SET = "other_protected_set"
OTHER_REFERENCE = "other_reference"
OTHER_PARAMETERS = "other_parameters"
SHARD = "shard_ordinal"
"""Shards have other numbers in another manifest, so records of single shards are not compared."""

_HARMLESS_CONFIG = frozenset({"half_width", "most_judged"})


class Meant(NamedTuple):
    """Unit and version of a record: what its number means."""

    unit: str
    version: str
    """Of the definition."""


class Meaning:
    """Why records of an older and a newer manifest cannot be compared: what diff and the gate go by."""

    def __init__(self, old: Core, new: Core) -> None:
        self.same_tokenizer = tokenizer_of(old) == tokenizer_of(new)
        self._same_reference = old.parents == new.parents
        detectors = [{item.name: (item.version, item.sha256) for item in core.detectors} for core in (old, new)]
        self._detectors = {
            name for name in detectors[0].keys() & detectors[1].keys() if detectors[0][name] != detectors[1][name]
        }
        self._same_judge = _judges(detectors[0]) == _judges(detectors[1])
        self._languages = [_language(core) for core in (old, new)]
        self._sets = _other_sets(old, new)
        self._stages = _other_stages(old, new)
        self._settings = {
            family.name
            for family in FAMILIES
            if family.config and _meant(old.config, family.config) != _meant(new.config, family.config)
        }

    def between(self, was: Meant, now: Meant, metric: str, stat: str, scope: Mapping[str, Any]) -> str:
        """Return the code of why two records of a name cannot be compared; nothing when they can."""
        if was.unit != now.unit:
            return OTHER_UNIT
        if was.version != now.version:
            return OTHER_VERSION
        if scope.get("shard") is not None:
            return SHARD
        return self.why_not(metric, stat, now.unit, scope)

    def why_not(self, metric: str, stat: str, unit: str, scope: Mapping[str, Any]) -> str:
        """Return the same for records of one name, unit and version."""
        in_tokens = OTHER_TOKENIZER if unit in TOKEN_UNITS and not self.same_tokenizer else ""
        known, family = METRICS.get(metric), FAMILY_OF.get(metric)
        if known is None or family is None:
            return in_tokens
        kind = statistic(metric, stat)
        other = {
            OTHER_TOKENIZER: not self.same_tokenizer and is_of_tokens(metric, stat, "", scope.get("rule")),
            OTHER_REFERENCE: not self._same_reference and kind is not None and kind.against_reference,
            OTHER_DETECTOR: self._other_detector(known, stat, scope),
            OTHER_SET: known.sets == "evaluation" and (scope.get("set") or "") in self._sets,
            OTHER_PARAMETERS: (known.by_stage and family.stage_name in self._stages) or family.name in self._settings,
        }
        return next((code for code, holds in other.items() if holds), in_tokens)

    def same_languages(self) -> bool:
        """Return whether both manifests tell languages apart in the same way."""
        return self._languages[0] == self._languages[1]

    def same_stage(self, name: str) -> bool:
        """Return whether a stage counts the same in both."""
        return name not in self._stages

    def _other_detector(self, metric: MetricDefinition, stat: str, scope: Mapping[str, Any]) -> bool:
        deciding = set() if metric.decided_by is None else set(metric.decided_by(stat))
        if scope.get("language") is not None:
            deciding.add(LANGUAGE_DETECTION)
        return bool(
            (LANGUAGE_DETECTION in deciding and not self.same_languages())
            or (JUDGE in deciding and not self._same_judge)
            or deciding & self._detectors
        )


def _judges(detectors: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the models that judge toxicity: their names are the user's choice, so they are those of nobody else."""
    named = {
        name
        for metric in METRICS.values()
        if metric.decided_by is not None
        for kind in metric.statistics
        for name in metric.decided_by(kind.stat)
    }
    return {name: version for name, version in detectors.items() if name not in named}


def _language(core: Core) -> tuple[object, ...]:
    """Return what decides a document's language."""
    settings = core.config.get("language") or {}
    detectors = [(item.version, item.sha256) for item in core.detectors if item.name == settings.get("detector")]
    return (sorted(settings.items()), *detectors)


def _meant(config: Mapping[str, Any], name: str) -> object:
    settings = config.get(name)
    if not isinstance(settings, dict):
        return settings
    return {key: value for key, value in settings.items() if key not in _HARMLESS_CONFIG}


def _other_sets(old: Core, new: Core) -> set[str]:
    """Return the evaluation sets that are not the same items, and the empty name when any is not."""
    known = [{item.name: item.sha256 for item in core.protected} for core in (old, new)]
    other = {name for name in known[0].keys() | known[1].keys() if known[0].get(name) != known[1].get(name)}
    return other | {""} if other else other


def _other_stages(old: Core, new: Core) -> set[str]:
    """Return the stages that both ran with parameters that change what they count."""
    parameters = [{stage.name: stage.parameters for stage in core.stages} for core in (old, new)]
    return {
        name
        for name in parameters[0].keys() & parameters[1].keys()
        if _deciding(name, parameters[0][name]) != _deciding(name, parameters[1][name])
    }


def _deciding(stage: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    harmless = {name for family in FAMILIES if family.stage_name == stage for name in family.harmless}
    return {name: value for name, value in parameters.items() if name not in harmless}
