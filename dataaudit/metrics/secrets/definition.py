"""Secrets: keys, tokens and passwords that patterns find in every document.

Small counts are shown: a key is no person, and each leaked key has to be revoked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Section, Table, Tone, bad, column, empty_section, named, table_of
from dataaudit.base.render.line import Line, Name, join, say
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.disclosure import FEW, about
from dataaudit.metrics.family import (
    TIERS,
    Family,
    KindColumn,
    ShardColumn,
    ShardStatistic,
    declare,
    found_of,
    pattern_checks,
    pattern_statistics,
)
from dataaudit.metrics.recomputed import of_shard
from dataaudit.metrics.records import Records, by_scope, number, of_findings, only, records_in
from dataaudit.metrics.shown import (
    Highlight,
    Kind,
    Oddity,
    OddShard,
    Part,
    Shown,
    above,
    cut_short,
    first_of,
    not_looked_at,
    split_and_uri,
)

METRIC = "secret_hit_rate"
DETECTOR = "secrets"

_SHIPPED = """
    ADOBE_CLIENT_SECRET AGE_SECRET_KEY AIRTABLE_TOKEN ALIBABA_ACCESS_KEY ANTHROPIC_API_KEY ARTIFACTORY_TOKEN
    ATLASSIAN_TOKEN AUTHORIZATION_HEADER AUTHRESS_KEY AWS_ACCESS_KEY_ID AWS_BEDROCK_KEY AWS_SECRET_ACCESS_KEY
    AZURE_CLIENT_SECRET AZURE_SAS_TOKEN AZURE_SERVICE_BUS_KEY AZURE_STORAGE_KEY BREVO_KEY CLICKHOUSE_KEY
    CLOJARS_TOKEN CLOUDANT_CREDENTIAL CLOUDFLARE_ORIGIN_KEY CONNECTION_STRING_PASSWORD DATABRICKS_TOKEN
    DEFINED_NETWORKING_TOKEN DIGITALOCEAN_TOKEN DISCORD_TOKEN DISCORD_WEBHOOK DOCKER_TOKEN DOPPLER_TOKEN
    DROPBOX_TOKEN DUFFEL_TOKEN DYNATRACE_TOKEN EASYPOST_KEY FACEBOOK_TOKEN FLUTTERWAVE_KEY FLY_TOKEN FRAMEIO_TOKEN
    GCP_API_KEY GCP_OAUTH_SECRET GCP_REFRESH_TOKEN GITHUB_TOKEN GITLAB_SESSION_COOKIE GITLAB_TOKEN GOCARDLESS_TOKEN
    GRAFANA_TOKEN HARNESS_TOKEN HEROKU_API_KEY HUGGINGFACE_TOKEN IBM_CLOUD_KEY IBM_COS_HMAC_KEY INFRACOST_TOKEN
    INTRA42_SECRET ISSUED_TOKEN JSON_WEB_TOKEN LINEAR_API_KEY LOB_KEY MAILCHIMP_API_KEY MAILGUN_API_KEY MAPBOX_TOKEN
    MAXMIND_KEY NETLIFY_TOKEN NEW_RELIC_KEY NOTION_TOKEN NPM_TOKEN NUGET_PASSWORD OCTOPUS_KEY ONEPASSWORD_TOKEN
    OPENAI_API_KEY OPENSHIFT_TOKEN PASSWORD_ASSIGNMENT PAYPAL_BRAINTREE_TOKEN PERPLEXITY_KEY PLAID_TOKEN
    PLANETSCALE_TOKEN POSTMAN_API_KEY PREFECT_KEY PRIVATE_KEY PULUMI_TOKEN PYPI_TOKEN README_TOKEN RUBYGEMS_TOKEN
    SCALINGO_TOKEN SECRET_ASSIGNMENT SENDGRID_API_KEY SENTRY_TOKEN SETTLEMINT_TOKEN SHIPPO_TOKEN SHOPIFY_TOKEN
    SLACK_TOKEN SLACK_WEBHOOK SOFTLAYER_CREDENTIAL SONAR_TOKEN SOURCEGRAPH_TOKEN SQUARE_TOKEN STRIPE_SECRET_KEY
    STRIPE_WEBHOOK_SECRET TEAMS_WEBHOOK TELEGRAM_BOT_TOKEN TERRAFORM_TOKEN TWILIO_KEY TWITTER_TOKEN TYPEFORM_TOKEN
    URL_PASSWORD VAULT_TOKEN WALLET_PRIVATE_KEY YANDEX_TOKEN
"""
ENTITIES = frozenset(_SHIPPED.split())
"""What the shipped patterns look for; a config may add to it."""

FAMILY = Family(
    name="secrets",
    metrics=(
        declare(
            METRIC,
            pattern_statistics(hits="hits", documents="documents"),
            in_words=True,
            reading=2,
            evidence=ShardColumn(
                column="secrets_validated",
                noun="validated secrets",
                share_of="",
                kinds=KindColumn("secrets", "hits", "{} secrets", tier=TIERS[0]),
            ),
            documents=of_findings(DETECTOR),
            decided_by=lambda _: (DETECTOR,),
            searches_with=DETECTOR,
            entities=ENTITIES,
            area="secrets",
            columns=(
                ShardStatistic("hits", "secret_hits", head="secrets", shown_as="count"),
                ShardStatistic("validated_hits", "secrets_validated"),
            ),
        ),
    ),
    stage="dataaudit.metrics.secrets.stage:Secrets",
    stage_name="secrets",
    detector="secrets",
    link="dataaudit.metrics.secrets.stage:secret_findings",
    by_split=("found",),
    checked_with=("findings", "shards"),
    checks=(
        *pattern_checks(METRIC, DETECTOR, "documents", "secrets"),
        of_shard("secret_hits", found_of(DETECTOR, "hits")),
        of_shard("secrets_validated", found_of(DETECTOR, "hits", TIERS[0])),
    ),
    looked_for=True,
)

_NAMED = 3
_PLACES = 5


@once
def secrets(manifest: Manifest) -> dict[str, Any] | None:
    """Return the secrets; None when they were not looked for.

    Kinds, sources and shards that hold some are listed, those with the most validated hits first; of shards five.
    """
    of_sources = records_in(manifest, METRIC, ("source",))
    holding = of_sources.of_sources(of_sources.where(stat="hits").positive().names("scope.source"))
    records = by_scope(MetricRows.joined([records_in(manifest, METRIC, (), ("entity",)), holding]))
    whole = records.get(Scope())
    if whole is None:
        return None
    kinds = [_kind(scope.entity or "", own) for scope, own in records.items() if only(scope, "entity")]
    sources = [
        {
            "source": scope.source,
            "validated": number(own, "validated_hits"),
            "hits": number(own, "hits"),
            "documents": number(own, "documents"),
        }
        for scope, own in records.items()
        if only(scope, "source") and scope.source and number(own, "hits")
    ]
    shards = manifest.table("shards", ["shard", "split", "uri", "secrets_validated", "secret_hits"])
    shards = shards.rename_columns(["shard", "split", "uri", "validated", "hits"])
    places = [row | {"validated": row["validated"] or 0} for row in shards.to_pylist() if row["hits"]]
    places.sort(key=lambda row: (-row["validated"], -row["hits"], row["shard"]))
    return {
        "total": _kind("", whole),
        "entities": sorted(kinds, key=lambda kind: (-kind["validated"], -_hits(kind), kind["entity"])),
        "sources": sorted(sources, key=lambda row: (-row["validated"], -row["hits"], row["source"])),
        "places": places[:_PLACES],
        "shards": len(places),
        "truncated": number(whole, "truncated"),
    }


def warning(result: dict[str, Any] | None) -> Line:
    """Return what stands above everything else when secrets are confirmed; empty otherwise."""
    if result is None or not (validated := result["total"]["validated"]):
        return ""
    kinds = [say("{} {}", Name(kind["entity"]), kind["validated"]) for kind in result["entities"] if kind["validated"]]
    more = f", {len(kinds) - _NAMED} more kinds" if len(kinds) > _NAMED else ""
    least = "at least " if result["truncated"] else ""
    what = "secret, confirmed by its structure" if validated == 1 else "secrets, confirmed by structure"
    documents = t.plural(result["total"]["validated_documents"], "document")
    return say("{}{} {}, in {} ({}{})", least, validated, what, documents, join(", ", kinds[:_NAMED]), more)


def section(result: dict[str, Any] | None) -> Section:
    """Return secrets by kind and source, and where most of them lie."""
    if result is None:
        return empty_section("secrets", "Secrets", "Secrets were not searched for in this build.")
    total, hits, truncated = result["total"], _hits(result["total"]), result["truncated"]
    lead: Line = "No secret was found in what was looked at." if truncated else "No secret was found."
    if total["validated"]:
        place = say("; most in {}", Name(split_and_uri(result["places"][0]))) if result["places"] else ""
        lead = say("{}{}. Revoke them; the table findings has their places.", warning(result), place)
    elif hits:
        documents = t.plural(total["documents"], "document")
        lead = f"{t.plural(hits, 'secret')} in {documents}, none confirmed by its structure."
    blocks: list[Block] = [_kinds(result)] if result["entities"] else []
    if len(result["sources"]) > 1:
        counts = map(column, ("validated", "hits", "documents"))
        blocks.append(
            table_of("Secrets by source", result["sources"], column("source", shown=Name), *counts, noun="source")
        )
    if result["places"]:
        blocks.append(
            table_of(
                "Shards with most of them",
                result["places"],
                column("shard"),
                column("split/uri", split_and_uri, Name),
                column("validated"),
                column("hits"),
                number=result["shards"],
                noun="shard",
                rest="with some",
            )
        )
    tone: Tone = "bad" if total["validated"] else "warn" if hits or truncated else "good"
    return Section(id="secrets", title="Secrets", lead=lead, tone=tone, blocks=(*blocks, *cut_short(truncated)))


def _kinds(result: dict[str, Any]) -> Table:
    return table_of(
        "Secrets by kind",
        result["entities"],
        column("kind", "entity", named),
        column("validated", shown=bad),
        *map(column, ("contextual", "pattern", "documents", "reserved")),
        foot=[result["total"]],
        noun="kind",
        note="validated: a checksum or the structure confirms it; contextual: words beside it say what it is; pattern:"
        " the form alone; documents: those that hold one; reserved: placeholders, documented examples and allowed ones,"
        " in no other number.",
    )


def _kind(name: str, records: Records) -> dict[str, Any]:
    """Return the hits of a kind by tier, and the documents that hold some; the empty name stands for all kinds."""
    return {
        "entity": name,
        **{tier: number(records, f"{tier}_hits") for tier in TIERS},
        **{stat: number(records, stat) for stat in ("documents", "validated_documents", "reserved")},
    }


def _hits(kind: dict[str, Any]) -> int:
    return sum(kind[tier] for tier in TIERS)


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    result = secrets(manifest)
    if result is None:
        return
    total, hits = result["total"], _hits(result["total"])
    where: dict[str, Any] = {"part": "secrets", "link": first_of(result["shards"], "most")}
    if result["places"]:
        where |= {"place": split_and_uri(result["places"][0]), "shard": result["places"][0]["shard"]}
    if validated := total["validated"]:
        text = f"{t.plural(validated, 'secret')} confirmed, in {t.plural(total['validated_documents'], 'document')}"
        yield Highlight(kind=Kind.SECRETS, size=validated, text=text, **where)
    elif hits:
        text = f"{t.plural(hits, 'possible secret')} in {t.plural(total['documents'], 'document')}, none confirmed"
        yield Highlight(kind=Kind.UNCONFIRMED, size=hits, text=text, **where)
    if result["truncated"]:
        yield not_looked_at("secrets", result["truncated"])


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    name = "secrets_validated"
    for shard, hits in above(manifest.table("shards", [name])[name], 0):
        text = f"{t.plural(int(hits), 'secret')} confirmed by structure"
        shared = "secrets confirmed by structure"
        yield OddShard(shard=shard, kind=Oddity.SECRET, size=hits, text=text, shared=shared)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    """Yield roughly how many there are: an exact number says how many are still to be found."""
    result = secrets(manifest)
    if result is None:
        yield "Secrets (keys, tokens, passwords) were not searched for."
    elif not (documents := result["total"]["documents"]):
        yield "Patterns for secrets (keys, tokens, passwords) found none."
    else:
        many = f"fewer than {FEW}" if documents < FEW else f"about {t.count(about(documents))}"
        validated = result["total"]["validated"]
        sure = "some are confirmed by their structure" if validated else "none is confirmed by its structure"
        yield f"Secrets (keys, tokens, passwords) are in {many} documents; {sure}."


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="secrets", area="secrets", blocks=lambda manifest: [section(secrets(manifest))]),),
    highlights=_highlights,
    odd_shards=_odd_shards,
    facts={"secrets": secrets},
)
