"""Personal data: what patterns find in every document, and what presidio finds in a sample."""

from __future__ import annotations

from collections.abc import Collection

from dataaudit.metrics.documents import of_findings
from dataaudit.metrics.family import (
    CLASSES,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    statistics,
)
from dataaudit.metrics.findings import found_of, pattern_checks, pattern_statistics
from dataaudit.metrics.pii.cells import METRIC
from dataaudit.metrics.recomputed import Number, of_shard, quotient

DETECTOR, ANALYZER = "pii", "presidio"
_HITS = "hits per million tokens"
_JUDGED = frozenset({"analyzer_documents", "analyzer_hits", "confirmed", "judge_reads", "judged_share"})


def _decided_by(stat: str) -> Collection[str]:
    return (ANALYZER,) if stat in _JUDGED else (DETECTOR,)


_SHIPPED = """
    ABA_ROUTING_NUMBER AU_MEDICARE AU_TFN BE_NATIONAL_NUMBER BR_CPF CA_SIN CH_AHV CL_RUT CN_RESIDENT_ID CREDIT_CARD
    CRYPTO DATE_OF_BIRTH DE_TAX_ID EMAIL_ADDRESS ES_NIF FI_PERSONAL_IDENTITY_CODE FR_NIR HR_OIB IBAN_CODE IE_PPS
    IN_AADHAAR IN_PAN IP_ADDRESS IT_FISCAL_CODE KR_RRN MAC_ADDRESS MEDICAL_LICENSE MX_CURP NL_BSN NO_BIRTH_NUMBER
    PASSPORT PHONE_NUMBER PL_PESEL PT_NIF SE_PERSONNUMMER SG_NRIC_FIN STREET_ADDRESS TH_TNIN TR_NATIONAL_ID UK_NHS
    UK_NINO US_BANK_NUMBER US_DRIVER_LICENSE US_ITIN US_PASSPORT US_SSN ZA_ID_NUMBER
"""
ENTITIES = frozenset(_SHIPPED.split())
"""What the shipped patterns look for; a config may add to it."""

FAMILY = Family(
    name="pii",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *pattern_statistics(METRIC, hits=_HITS, documents="ratio", draws="documents"),
                *statistics(METRIC, "analyzer_documents", "ratio", CLASSES),
                *statistics(METRIC, "analyzer_hits", _HITS, CLASSES),
                *statistics(
                    METRIC,
                    "confirmed",
                    "ratio",
                    "all, entity, split and entity, source and entity, split and source and entity,"
                    " language and entity",
                ),
                *statistics(METRIC, "judge_reads judged_share", "ratio", "all"),
                *statistics(METRIC, "judge_failed judge_partly", "documents", "all"),
            ),
            reading=3,
            evidence=ShardColumn(column="pii_documents", noun="documents with personal data", share_of="", least=5),
            documents=of_findings(DETECTOR, ("analyzer_documents", "analyzer_hits"), judge=ANALYZER),
            decided_by=_decided_by,
            searches_with=DETECTOR,
            entities=ENTITIES,
            area="privacy",
            personal=True,
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC, stat="hits", column="pii_hits", of="tokens", head="PII per 1M tokens", shown_as="few"
        ),
        ShardStatistic(metric=METRIC, stat="documents", column="pii_documents", per_document=True),
    ),
    stage="dataaudit.metrics.pii.stage:Pii",
    stage_name="pii",
    detector="pii",
    link="dataaudit.metrics.pii.link:personal_data",
    by_split=("found", "strata"),
    config="pii",
    shown="dataaudit.metrics.pii.facts:SHOWN",
    checked_with=("findings", "shards"),
    checks=(
        *pattern_checks(METRIC, DETECTOR, "tokens", "pii"),
        of_shard("pii_documents", found_of(DETECTOR, "documents")),
        of_shard("pii_hits", quotient(found_of(DETECTOR, "hits"), Number("shards", "tokens"), 1e6)),
    ),
    looked_for=True,
)
