"""What is in the documents, as plain JSON values: toxicity, personal data, secrets."""

from __future__ import annotations

from typing import Any

from dataaudit.manifest.load import Manifest
from dataaudit.report.pii import pii_facts
from dataaudit.report.secrets import secret_facts
from dataaudit.report.toxicity import toxic_facts


def content_facts(manifest: Manifest) -> dict[str, Any]:
    """Return what was found in the documents of a manifest; None where it was not looked for."""
    return {**toxic_facts(manifest), **pii_facts(manifest), **secret_facts(manifest)}
