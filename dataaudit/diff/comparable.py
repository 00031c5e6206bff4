"""When two records of one name do not mean the same: another unit, version, tokenizer, detector, set or reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataaudit.manifest.core import Core
from dataaudit.manifest.load import Manifest

OTHER_UNIT = "other_unit"
OTHER_VERSION = "other_version"
OTHER_TOKENIZER = "other_tokenizer"
OTHER_DETECTOR = "other_detector"
OTHER_SET = "other_protected_set"
OTHER_REFERENCE = "other_reference"
OTHER_PARAMETERS = "other_parameters"

_TOKENS = frozenset({"tokens", "bytes/token", "nats", "hits per million tokens"})
"""Units that tokens are in."""
_OVER_TOKENS = frozenset({"source_mix_share", "language_share", "pad_fraction"})
"""Ratios of tokens."""
_TOKEN_STATS = frozenset({("doc_repeat_hotspots", "token_share")})
_RUNS = "repeated_ngrams"
"""The rule set that looks at tokens; a record without a rule is of any rule, this one too."""
_SCREEN = "dataaudit-screen"
_LANGUAGES = frozenset({"pycld2", "fasttext"})
_LOOKS = frozenset({"screen", "screen_positive", "screened_share"})
_JUDGED_PII = frozenset({"analyzer_documents", "analyzer_hits", "confirmed", "judge_reads", "judged_share"})
_BY_REFERENCE = frozenset({("near_dup_rate", "in_reference")})
_STAGES = {
    "documents": "volume",
    "bytes": "volume",
    "tokens": "volume",
    "source_mix_share": "volume",
    "bytes_per_token": "lengths",
    "seq_len_p50_p95": "lengths",
    "exact_dup_rate": "exact_dup",
    "near_dup_rate": "near_dup",
    "near_dup_component_rate": "near_dup",
    "train_val_overlap": "overlap",
    "benchmark_contamination": "overlap",
    "doc_repeat_hotspots": "repeats",
    "language_share": "language",
    "filter_reject_rate": "filters",
    "data_toxicity_rate": "toxicity",
    "pii_hit_rate": "pii",
    "secret_hit_rate": "secrets",
    "token_kl_drift": "histogram",
    "pad_fraction": "padding",
}
_HARMLESS = frozenset(
    {
        ("lengths", "max_distinct"),
        ("near_dup", "signatures"),
        ("near_dup", "checked_pairs"),
        ("near_dup", "probe_one_in"),
        ("overlap", "max_rows"),
        ("overlap", "max_grams"),
        ("repeats", "index"),
        ("repeats", "max_memory_bytes"),
        ("histogram", "max_sources"),
        ("padding", "contexts"),
    }
)
"""Parameters that change no number, or only how much of it is kept or how it is estimated."""
_CONFIG = {"toxicity": "data_toxicity_rate", "pii": "pii_hit_rate"}
"""Parts of the config, and the metrics whose meaning they decide."""
_HARMLESS_CONFIG = frozenset({"half_width", "most_judged"})


class Meaning:
    """Why records of two manifests cannot be compared.

    Args:
        old: The older manifest.
        new: The newer one.
    """

    def __init__(self, old: Manifest, new: Manifest) -> None:
        one, other = old.core, new.core
        self.same_tokenizer = _tokenizer(one) == _tokenizer(other)
        self._same_reference = one.parents == other.parents
        detectors = [{item.name: (item.version, item.sha256) for item in core.detectors} for core in (one, other)]
        self._detectors = {
            name for name in detectors[0].keys() & detectors[1].keys() if detectors[0][name] != detectors[1][name]
        }
        self._same_judge = _judges(detectors[0]) == _judges(detectors[1])
        self._languages = [_language(core) for core in (one, other)]
        self._sets = _other_sets(one, other)
        self._stages = _other_stages(one, other)
        self._settings = {
            metric for name, metric in _CONFIG.items() if _meant(one.config, name) != _meant(other.config, name)
        }

    def why_not(self, metric: str, stat: str, scope: Mapping[str, Any]) -> str:
        """Return the code of why the records of one name cannot be compared, or nothing when they can.

        Units and versions of definitions are for the caller to compare: they stand in the records.
        """
        if not self.same_tokenizer and (metric in _OVER_TOKENS or _counts_tokens(metric, stat, scope)):
            return OTHER_TOKENIZER
        if not self._same_reference and (metric == "token_kl_drift" or (metric, stat) in _BY_REFERENCE):
            return OTHER_REFERENCE
        if self._other_detector(metric, stat, scope):
            return OTHER_DETECTOR
        if metric == "benchmark_contamination" and (scope.get("set") or "") in self._sets:
            return OTHER_SET
        if _STAGES.get(metric) in self._stages or metric in self._settings:
            return OTHER_PARAMETERS
        return ""

    def other_unit(self, unit: str) -> str:
        """Return a reason when a unit counts tokens of two tokenizers, or nothing."""
        return OTHER_TOKENIZER if unit in _TOKENS and not self.same_tokenizer else ""

    def same_languages(self) -> bool:
        """Return whether both manifests tell languages apart in the same way."""
        return self._languages[0] == self._languages[1]

    def same_stage(self, name: str) -> bool:
        """Return whether a stage counts the same in both."""
        return name not in self._stages

    def _other_detector(self, metric: str, stat: str, scope: Mapping[str, Any]) -> bool:
        if (metric == "language_share" or scope.get("language") is not None) and not self.same_languages():
            return True
        if metric == "secret_hit_rate":
            return "secrets" in self._detectors
        if metric == "pii_hit_rate":
            return ("presidio" if stat in _JUDGED_PII else "pii") in self._detectors
        if metric == "data_toxicity_rate":
            if stat in _LOOKS:  # the screen looks at documents of the languages that it knows
                return _SCREEN in self._detectors or not self.same_languages()
            return not self._same_judge
        return stat == "detector_agreement" and bool(_LANGUAGES & self._detectors)


def _counts_tokens(metric: str, stat: str, scope: Mapping[str, Any]) -> bool:
    if metric == "filter_reject_rate":
        rule = scope.get("rule")
        return rule is None or str(rule).startswith(_RUNS)
    return (metric, stat) in _TOKEN_STATS


def _tokenizer(core: Core) -> tuple[str, str, int]:
    return core.tokenizer.sha256, core.tokenizer.format, core.tokenizer.vocab_size


def _judges(detectors: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the models that judge toxicity: their names are the user's choice."""
    others = {_SCREEN, "pii", "secrets", "presidio", *_LANGUAGES}
    return {name: held for name, held in detectors.items() if name not in others}


def _language(core: Core) -> tuple[object, ...]:
    """Return what decides a document's language."""
    settings = core.config.get("language") or {}
    found = [(item.version, item.sha256) for item in core.detectors if item.name == settings.get("detector")]
    return (sorted(settings.items()), *found)


def _meant(config: Mapping[str, Any], name: str) -> object:
    held = config.get(name)
    return {key: held[key] for key in held if key not in _HARMLESS_CONFIG} if isinstance(held, dict) else held


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
    return {name: value for name, value in parameters.items() if (stage, name) not in _HARMLESS}
