"""``dataaudit export openlineage``: the build of a manifest as one run event of OpenLineage, with data-quality facets.

Read was the corpus, whole and by split; written was the manifest. The rules of a verdict are assertions on the corpus
and tests of the run. Classes and serialisation are openlineage-python's own. Identity and times come from the manifest,
so the same manifest gives the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataaudit import __version__
from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.base.render.result import Written
from dataaudit.decide.gate.document import read_verdict
from dataaudit.decide.gate.number_texts import numbers, with_unit
from dataaudit.decide.gate.verdict import Case, RuleResult, State, Verdict
from dataaudit.manifest.core import PROGRAM, manifest_uri
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.replace import POINTER
from dataaudit.metrics.recomputed import LOST
from dataaudit.metrics.relations import load_consistent
from dataaudit.present.export.output import utc, write_file

_QUANTILES = {"p1": "0.01", "p5": "0.05", "p25": "0.25", "p50": "0.5", "p75": "0.75", "p95": "0.95", "p99": "0.99"}
PRODUCER = f"{PROGRAM}:release:{__version__}"
_STATUS = {
    State.PASSED: "pass",
    State.WARNED: "fail",
    State.FAILED: "fail",
    State.NOT_EVALUATED: "fail",
    State.NOT_APPLICABLE: "skip",
}
"""What is not evaluated is no success, also for a reader that knows two states only."""
Check = dict[str, Any]
"""One rule as a test of the run: name, type (``metric.stat``), status (pass, fail, skip), severity (error, warn),
description, expected, actual, params. Every text is harmless to print."""
_SEVERITY = {"fail": "error", "warn": "warn"}
_NAME_LIMIT = 200


def export_openlineage(folder: Path, out: Path, verdict: Path | None, namespace: str, run_id: str | None) -> Written:
    """Write the event as one line of JSON; return what was written."""
    require("export openlineage", "export")
    manifest = load_consistent(folder)
    checks = () if verdict is None else read_checks(verdict, manifest.id)
    data = event_json(manifest, checks, namespace, run_id).encode("ascii") + b"\n"
    write_file(out, data, folder)
    rules = f"{t.plural(len(checks), 'rule')} as assertions, as gate.json says: not judged here"
    run = run_uuid(manifest, run_id)
    facts = {"manifest": manifest.id, "run": run, "rules": len(checks)}
    return Written(file=out, data=data, words=f"one event, run {run}, {rules if checks else 'no verdict'}", facts=facts)


def event_json(manifest: Manifest, checks: Sequence[Check], namespace: str, run_id: str | None = None) -> str:
    """Return the event as one line of JSON in ASCII."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job
    from openlineage.client.serde import Serde

    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="DATAAUDIT", jobType="AUDIT", producer=PRODUCER
    )
    event = RunEvent(
        eventTime=utc(manifest.run.finished, "the manifest's time"),
        producer=PRODUCER,
        eventType=RunState.COMPLETE,
        run=Run(runId=run_uuid(manifest, run_id), facets=_run_facets(manifest, checks)),
        job=Job(namespace=namespace, name=f"dataaudit.build.{_dataset(manifest)}", facets={"jobType": kind}),
        inputs=_inputs(manifest, checks, namespace),
        outputs=[_output(manifest, namespace)],
    )
    return Serde.to_json(event)


def run_uuid(manifest: Manifest, given: str | None) -> str:
    """Return the UUID of the run: as given, or version 5 of the manifest's URI."""
    if given is None:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, manifest_uri(manifest.id)))
    try:
        return str(uuid.UUID(given))
    except ValueError:
        raise ConfigError(f"--run-id: expected a UUID, found {given!r}") from None


def _run_facets(manifest: Manifest, checks: Sequence[Check]) -> dict[str, Any]:
    from openlineage.client.facet_v2 import nominal_time_run, processing_engine_run, test_run

    tool = manifest.core.tool
    facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=tool.version,
            name=tool.name,
            openlineageAdapterVersion=PRODUCER.rpartition(":")[2],
            producer=PRODUCER,
        ),
        "nominalTime": nominal_time_run.NominalTimeRunFacet(
            nominalStartTime=utc(manifest.run.started, "the manifest's time"),
            nominalEndTime=utc(manifest.run.finished, "the manifest's time"),
            producer=PRODUCER,
        ),
    }
    if checks:
        tests = [test_run.TestExecution(**check) for check in checks]
        facets["test"] = test_run.TestRunFacet(tests=tests, producer=PRODUCER)
    return facets


def _inputs(manifest: Manifest, checks: Sequence[Check], namespace: str) -> list[Any]:
    """Return the corpus as a whole, every split, and the corpora that drift was measured against."""
    from openlineage.client.event_v2 import InputDataset

    core = manifest.core
    sizes = _sizes(manifest)

    def corpus(counts: Any, size: int, split: str | None = None) -> Any:
        name = "" if split is None else f"/{t.clean(split, _NAME_LIMIT)}"
        assertions = _assertions(checks) if split is None else {}
        return InputDataset(
            namespace=namespace,
            name=_dataset(manifest) + name,
            facets=_dataset_facets(manifest, split),
            inputFacets=_statistics(manifest, Scope(split=split), counts, size) | assertions,
        )

    parents = [
        InputDataset(namespace=namespace, name=manifest_uri(parent), facets=_version(parent)) for parent in core.parents
    ]
    splits = [corpus(split, sizes.get(split.name, 0), split.name) for split in core.splits]
    return [corpus(core.totals, core.ledger.bytes.read), *splits, *parents]


def _output(manifest: Manifest, namespace: str) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import documentation_dataset, output_statistics_output_dataset

    tables = manifest.core.tables
    files = [manifest.folder / POINTER, *(manifest.folder / f"{name}.parquet" for name in sorted(tables))]
    text = f"The audit of {t.clean(manifest.core.dataset.label, _NAME_LIMIT)}, as a dataaudit manifest."
    return OutputDataset(
        namespace=namespace,
        name=f"{_dataset(manifest)}/manifest",
        facets={
            **_files(manifest.id),
            "documentation": documentation_dataset.DocumentationDatasetFacet(description=text, producer=PRODUCER),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=sum(table.rows for table in tables.values()),
                size=sum(file.stat().st_size for file in files if file.exists()),
                fileCount=len(files),
                producer=PRODUCER,
            )
        },
    )


def _dataset_facets(manifest: Manifest, split: str | None) -> dict[str, Any]:
    """Return version and columns of the corpus, or of a split."""
    from openlineage.client.facet_v2 import schema_dataset

    config = manifest.core.config.get("splits", {})
    chosen = config.values() if split is None else [config.get(split, {})]
    named: dict[str, str] = {}
    for item in chosen:
        source = item.get("source") if isinstance(item, dict) else None
        if isinstance(item, dict) and item.get("text"):
            named.setdefault(item["text"], "The text that was audited.")
        if isinstance(source, dict) and source.get("column"):
            named.setdefault(source["column"], "Where a document comes from.")
    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            name=t.clean(name, _NAME_LIMIT), type="string", description=meaning, ordinal_position=index
        )
        for index, (name, meaning) in enumerate(sorted(named.items()), start=1)
    ]
    facets = _files(manifest.core.dataset.version)
    if fields:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
    return facets


def _version(version: str) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version, producer=PRODUCER)}


def _files(version: str) -> dict[str, Any]:
    """Return the facets of a dataset of files."""
    from openlineage.client.facet_v2 import dataset_type_dataset

    kind = dataset_type_dataset.DatasetTypeDatasetFacet(datasetType="FILE", producer=PRODUCER)
    return {**_version(version), "datasetType": kind}


def _statistics(manifest: Manifest, scope: Scope, counts: Any, size: int) -> dict[str, Any]:
    """Return the totals, and lengths in tokens, sources and languages as metrics of columns of these names."""
    from openlineage.client.facet_v2 import data_quality_metrics_input_dataset as facet
    from openlineage.client.facet_v2 import input_statistics_input_dataset as totals

    lengths = {
        metric.stat: metric.value
        for metric in manifest.metrics("seq_len_p50_p95", None, scope)
        if metric.value is not None
    }
    tokens = [metric.value for metric in manifest.metrics("tokens", "count", scope)]
    columns = {
        "tokens": facet.ColumnMetrics(
            count=float(counts.documents),
            sum=tokens[0] if tokens else None,
            max=lengths.get("max"),
            quantiles={shown: lengths[stat] for stat, shown in _QUANTILES.items() if stat in lengths},
        )
    }
    for table, column in (("sources", "source"), ("languages", "language")):
        rows = manifest.table(table, ["split", column]).to_pylist()
        if values := {row[column] for row in rows if scope.split in {None, row["split"]}}:
            columns[column] = facet.ColumnMetrics(distinctCount=len(values), count=float(counts.documents))
    return {
        "inputStatistics": totals.InputStatisticsInputDatasetFacet(
            rowCount=counts.documents, size=size, fileCount=counts.shards, producer=PRODUCER
        ),
        "dataQualityMetrics": facet.DataQualityMetricsInputDatasetFacet(
            columnMetrics=columns,
            rowCount=counts.documents,
            bytes=counts.bytes,
            fileCount=counts.shards,
            producer=PRODUCER,
        ),
    }


def _assertions(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the rules that apply; a rule that could not be judged is no success."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as facet

    made = [
        facet.Assertion(
            assertion=check["type"],
            success=check["status"] == "pass",
            **{name: value for name, value in check.items() if name not in {"type", "status"}},
        )
        for check in checks
        if check["status"] != "skip"
    ]
    if not made:
        return {}
    return {"dataQualityAssertions": facet.DataQualityAssertionsDatasetFacet(assertions=made, producer=PRODUCER)}


def _sizes(manifest: Manifest) -> dict[str, int]:
    """Return stored bytes of the shards that were read, by split."""
    sums: dict[str, int] = {}
    for row in manifest.table("shards", ["split", "size", "status"]).to_pylist():
        if row["status"] not in LOST:
            sums[row["split"]] = sums.get(row["split"], 0) + row["size"]
    return sums


def _dataset(manifest: Manifest) -> str:
    return t.clean(manifest.core.dataset.name, _NAME_LIMIT)


def read_checks(path: Path, identity: str) -> tuple[Check, ...]:
    """Return the rules of a ``gate.json``, marked as not checked: they are what the file says."""
    verdict = read_verdict(path)
    if verdict.subject.id != identity:
        raise ConfigError(f"{path} is the verdict of {verdict.subject.id}, the manifest is {identity}")
    return tuple({**check, "params": {**check["params"], "checked": False}} for check in checks_of(verdict))


def checks_of(verdict: Verdict) -> tuple[Check, ...]:
    """Return the rules of a verdict."""
    return tuple(map(_check, verdict.rules))


def _check(result: RuleResult) -> Check:
    rule = result.rule
    worst = result.cases[0] if result.cases else None
    shown = numbers(rule, worst)
    actual = with_unit(shown.judged or shown.value, rule.unit)
    stops_nothing = result.state == State.WARNED or (result.state == State.NOT_EVALUATED and not result.is_required)
    return {
        "name": rule.name,
        "type": t.clean(f"{rule.metric}.{rule.stat}", _NAME_LIMIT),
        "status": _STATUS[result.state],
        "severity": "warn" if stops_nothing else _SEVERITY[rule.severity.value],
        "description": None if rule.reason is None else t.clean(rule.reason, _NAME_LIMIT),
        "expected": t.clean(f"{shown.limit} {rule.unit}" if rule.limit_kind == "budget" else shown.limit, _NAME_LIMIT),
        "actual": actual or (t.clean(worst.reason, _NAME_LIMIT) if worst is not None and worst.reason else None),
        "params": {"state": result.state.value, "waived": result.waived, **_place(worst)},
    }


def _place(case: Case | None) -> dict[str, Any]:
    if case is None:
        return {}
    scope = {name: t.clean(str(value), _NAME_LIMIT) for name, value in case.scope.as_dict().items()}
    return scope | ({"shard_uri": t.clean(case.shard_uri, _NAME_LIMIT)} if case.shard_uri else {})
