"""Records of one metric as facts look them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows

Records = Mapping[str, Metric]
"""Of one scope, by statistic."""


def by_scope(rows: Iterable[Metric]) -> dict[Scope, dict[str, Metric]]:
    """Return records of one metric by scope and statistic."""
    found: dict[Scope, dict[str, Metric]] = {}
    for record in rows:
        found.setdefault(record.scope, {})[record.stat] = record
    return found


def records_in(manifest: Manifest, metric: str, *shapes: tuple[str, ...]) -> MetricRows:
    """Return the records of a metric whose scopes have exactly the fields of one of some shapes."""
    rows = manifest.metric_rows().where(metric=metric)
    return MetricRows.joined([rows.shaped(*fields) for fields in shapes])


def only(scope: Scope, field: str) -> bool:
    """Return whether a scope has this field and no other."""
    return list(scope.as_dict()) == [field]


def number(records: Records, stat: str) -> int:
    """Return the value of a record as a count, 0 without one."""
    record = records.get(stat)
    return 0 if record is None else int(record.value or 0)
