"""Manifests with findings of documents that a test describes, through the stages' own numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from made_manifest import make, shard

from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.metrics.pii.stage import Pii
from dataaudit.metrics.secrets.stage import Secrets
from dataaudit.metrics.toxicity.stage import Toxicity
from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.stages.base import Context
from dataaudit.scan.stages.findings import SHAPES

TIERS = tuple(tier.name.lower() for tier in Tier)
TOKENS = 1000
"""Of each document."""


@dataclass
class Doc:
    """A document: its shard and source, and its findings as (detector, entity, tier, reserved)."""

    shard: int = 0
    source: str = "web"
    found: list = field(default_factory=list)


def docs(number, *found, shard=0, source="web"):
    """Return so many documents, each with these findings: `EMAIL_ADDRESS.validated`, `secrets:JWT.pattern`."""
    parts = []
    for one in found:
        name, _, tier = one.rpartition(".")
        detector, _, entity = name.rpartition(":")
        parts.append((detector or "pii", entity, tier.removesuffix("!"), tier.endswith("!")))
    return [Doc(shard=shard, source=source, found=parts) for _ in range(number)]


def partial(documents, detector):
    """Return what a pattern stage counts in documents."""
    found, totals = {}, {}
    for doc in documents:
        own = totals.setdefault(doc.source, Counter())
        own.update(documents=1, bytes=4 * TOKENS, tokens=TOKENS, truncated=0)
        seen = set()
        for _, entity, tier, reserved in (one for one in doc.found if one[0] == detector):
            for key in ((entity, tier), (entity, ""), ("", tier), ("", "")):
                cell = found.setdefault((doc.source, *key), Counter(hits=0, documents=0, reserved=0))
                cell["reserved" if reserved else "hits"] += 1
                cell["documents"] += not reserved and key not in seen
                seen |= set() if reserved else {key}
    rows = [{"source": key[0], "entity": key[1], "tier": key[2], **cell} for key, cell in found.items()]
    sums = [{"source": source, **cell} for source, cell in totals.items()]
    named = {"found": rows, "totals": sums}
    return {name: _table(name, given) for name, given in named.items()}


def records(documents, splits=("train",)):
    """Return what the stages of personal data and secrets say; every document is of one split, by its shard's."""
    made = []
    for stage in (Pii(), Secrets()):
        for split in (None, *splits):
            context = Context(scope=Scope(split=split), mixture={})
            made += stage.finalize(partial(documents, stage.detector), context)
    return made


def make_found(folder, documents, *, metrics=(), more=(), shards=None, uris=None):
    """Publish a manifest of one split with the findings of documents."""
    rows = []
    for ordinal in range(shards or 1 + max((doc.shard for doc in documents), default=0)):
        own = [doc for doc in documents if doc.shard == ordinal]
        columns = {}
        for stage in (Pii(), Secrets()):
            columns |= stage.shard_columns(partial(own, stage.detector))
        size = len(own) * TOKENS
        uri = f"{ordinal:03}.jsonl" if uris is None else uris[ordinal]
        rows.append(shard(uri, documents=len(own), tokens=size, **columns))
        rows[-1]["sources"] = [
            {"source": source, "documents": number, "bytes": 4 * TOKENS * number, "tokens": TOKENS * number}
            for source, number in sorted(Counter(doc.source for doc in own).items())
        ]
    return make(folder, rows, metrics=[*records(documents), *metrics], odd=True, **dict(more))


def share(metric, stat, value, low, high, n, **scope):
    """Return an estimate from a sample."""
    unit = "hits per million tokens" if stat.endswith("hits") else "ratio"
    return Metric(
        metric=metric,
        stat=stat,
        scope=Scope(**scope),
        unit=unit,
        value=value,
        low=low,
        high=high,
        confidence=0.95,
        n=n,
        denominator=10 * n,
        method="sampled",
    )


def judge(metric, judged, *, reads=9, of=10, partly=0, failed=0):
    """Return the records that say what a judge's rates rest on."""
    return [
        ratio(metric, "judge_reads", reads, of, scope=Scope(), unit="ratio", version="1"),
        ratio(metric, "judged_share", judged, 10 * judged, scope=Scope(), unit="ratio", version="1"),
        *(
            count(metric, stat, value, scope=Scope(), unit="documents", n=judged, version="1")
            for stat, value in (("judge_failed", failed), ("judge_partly", partly))
        ),
    ]


def screened(sources):
    """Return what the stage of toxicity says of {source: (documents, screened, mean probability)}."""
    import pyarrow as pa

    rows = []
    for source, (documents, known, mean) in sources.items():
        total = round(known * mean * 1e6)
        rows.append({"source": source, "level": 4 if mean < 0.5 else 11, "documents": known, "probability": total})
        rows.append({"source": source, "level": -1, "documents": documents - known, "probability": 0})
    shape = Toxicity().shapes()["scores"]
    table = pa.Table.from_pylist(rows, schema=shape.schema())
    made = []
    for split in (None, "train"):
        made += Toxicity().finalize({"scores": table}, Context(scope=Scope(split=split), mixture={}))
    return made


def _table(name, rows):
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=SHAPES[name].schema())
