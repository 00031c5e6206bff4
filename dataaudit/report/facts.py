"""The facts of a manifest as plain JSON values, beyond its overview."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.contamination.facts import set_leaks
from dataaudit.metrics.drift.facts import drifts
from dataaudit.metrics.language.facts import as_json, languages
from dataaudit.metrics.overlap.facts import held_out_leaks, leaks
from dataaudit.metrics.padding.facts import padding
from dataaudit.metrics.pii.facts import personal_data
from dataaudit.metrics.quality.facts import rules
from dataaudit.metrics.secrets.facts import secrets
from dataaudit.metrics.toxicity.facts import toxic


def composition(manifest: Manifest) -> dict[str, Any]:
    """Return what the corpus is made of beyond its sources: languages, rules, padding and drift."""
    return {
        "languages": as_json(languages(manifest)),
        "rules": [asdict(rule) for rule in rules(manifest)],
        "padding": padding(manifest),
        "drift": [asdict(one) for one in drifts(manifest)],
    }


def found_facts(manifest: Manifest) -> dict[str, Any]:
    """Return leaks, and what was found in the documents; None where it was not looked for."""
    found = {"toxicity": toxic(manifest), "personal_data": personal_data(manifest), "secrets": secrets(manifest)}
    return {
        "leaks": [asdict(one) for one in leaks(manifest)],
        **{name: None if one is None else asdict(one) for name, one in found.items()},
        "held_out_leaks": [asdict(one) for one in held_out_leaks(manifest)],
        "set_leaks": [asdict(one) for one in set_leaks(manifest)],
    }
