"""Records of one metric as facts look them up."""

from __future__ import annotations

from collections.abc import Mapping

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope

Records = Mapping[str, Metric]
"""Of one scope, by statistic."""


def by_scope(manifest: Manifest, metric: str) -> dict[Scope, dict[str, Metric]]:
    """Return all records of a metric, by scope and statistic."""
    found: dict[Scope, dict[str, Metric]] = {}
    for record in manifest.metrics(metric):
        found.setdefault(record.scope, {})[record.stat] = record
    return found


def only(scope: Scope, field: str) -> bool:
    """Return whether a scope has this field and no other."""
    return list(scope.as_dict()) == [field]


def number(records: Records, stat: str) -> int:
    """Return the value of a record as a count, 0 without one."""
    record = records.get(stat)
    return 0 if record is None else int(record.value or 0)
