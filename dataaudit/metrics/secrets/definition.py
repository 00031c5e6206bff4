"""Secrets: keys, tokens and passwords that patterns find in every document.

Secrets as people read them: the confirmed ones first, by kind, and where most of them lie.

Small counts are shown: a key is no person, and one that leaked has to be revoked however few there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Prose, Row, Section, Table, Tone, bad, names, numbers, rows_of
from dataaudit.base.render.line import Line, Name, join, say
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.disclosure import FEW, about
from dataaudit.metrics.family import (
    TIERS,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    found_of,
    pattern_checks,
    pattern_statistics,
)
from dataaudit.metrics.recomputed import of_shard
from dataaudit.metrics.records import Records, by_scope, number, of_findings, only, records_in
from dataaudit.metrics.shown import Kind, Oddity, OddShard, Part, Shown, Standout, Where, above, first_of, not_looked_at

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
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=pattern_statistics(METRIC, hits="hits", documents="documents"),
            reading=2,
            evidence=ShardColumn(column="secrets_validated", noun="validated secrets", share_of=""),
            documents=of_findings(DETECTOR),
            decided_by=lambda _: (DETECTOR,),
            searches_with=DETECTOR,
            entities=ENTITIES,
            area="secrets",
        ),
    ),
    shard_statistics=(
        ShardStatistic(metric=METRIC, stat="hits", column="secret_hits", head="secrets", shown_as="count"),
        ShardStatistic(metric=METRIC, stat="validated_hits", column="secrets_validated"),
    ),
    stage="dataaudit.metrics.secrets.stage:Secrets",
    stage_name="secrets",
    detector="secrets",
    link="dataaudit.metrics.secrets.stage:secret_findings",
    by_split=("found",),
    shown="dataaudit.metrics.secrets.definition:SHOWN",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One kind of secret."""

    entity: str
    """Empty for all of them together."""
    validated: int
    """Hits whose checksum or structure confirms them."""
    contextual: int
    pattern: int
    documents: int
    """Documents that hold one, of whatever tier."""
    validated_documents: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlace:
    """A shard that holds secrets."""

    shard: int
    split: str
    uri: str
    validated: int
    hits: int
    """Of every tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """A source that holds secrets."""

    source: str
    validated: int
    hits: int
    documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Secrets of a manifest."""

    total: Secret
    entities: tuple[Secret, ...]
    """The most validated hits first, then the most hits."""
    sources: tuple[SecretSource, ...]
    """Those that hold some; the most validated hits first."""
    places: tuple[SecretPlace, ...]
    """The shards with the most validated hits, then with the most hits."""
    shards: int
    """Shards that hold some."""
    truncated: int
    """Documents with more candidates than are looked at."""


@once
def secrets(manifest: Manifest) -> Secrets | None:
    """Return the secrets; None when they were not looked for."""
    of_sources = records_in(manifest, METRIC, ("source",))
    holding = of_sources.of_sources(of_sources.where(stat="hits").positive().names("scope.source"))
    records = by_scope(MetricRows.joined([records_in(manifest, METRIC, (), ("entity",)), holding]))
    whole = records.get(Scope())
    if whole is None:
        return None
    entities = [_secret(scope.entity or "", held) for scope, held in records.items() if only(scope, "entity")]
    sources = [
        SecretSource(
            source=scope.source,
            validated=number(held, "validated_hits"),
            hits=number(held, "hits"),
            documents=number(held, "documents"),
        )
        for scope, held in records.items()
        if only(scope, "source") and scope.source and number(held, "hits")
    ]
    names = ["shard", "split", "uri", "secrets_validated", "secret_hits"]
    places = [
        SecretPlace(
            shard=row["shard"],
            split=row["split"],
            uri=row["uri"],
            validated=row["secrets_validated"] or 0,
            hits=row["secret_hits"],
        )
        for row in manifest.table("shards", names).to_pylist()
        if row["secret_hits"]
    ]
    places.sort(key=lambda secret_place: (-secret_place.validated, -secret_place.hits, secret_place.shard))
    return Secrets(
        total=_secret("", whole),
        entities=tuple(sorted(entities, key=lambda entity: (-entity.validated, -_hits(entity), entity.entity))),
        sources=tuple(sorted(sources, key=lambda source: (-source.validated, -source.hits, source.source))),
        places=tuple(places[:_PLACES]),
        shards=len(places),
        truncated=number(whole, "truncated"),
    )


def warning(found: Secrets | None) -> Line:
    """Return what stands above everything else when secrets are confirmed; empty otherwise."""
    if found is None or not found.total.validated:
        return ""
    confirmed = [say("{} {}", Name(secret.entity), secret.validated) for secret in found.entities if secret.validated]
    more = f", {len(confirmed) - _NAMED} more kinds" if len(confirmed) > _NAMED else ""
    least = "at least " if found.truncated else ""
    what = "secret, confirmed by its structure" if found.total.validated == 1 else "secrets, confirmed by structure"
    documents, kinds = t.plural(found.total.validated_documents, "document"), join(", ", confirmed[:_NAMED])
    return say("{}{} {}, in {} ({}{})", least, found.total.validated, what, documents, kinds, more)


def section(found: Secrets | None) -> Section:
    """Return secrets by kind and source, and where most of them lie."""
    if found is None:
        return Section(id="secrets", title="Secrets", lead="Secrets were not searched for in this build.", tone="quiet")
    total, hits = found.total, _hits(found.total)
    lead: Line = "No secret was found." if not found.truncated else "No secret was found in what was looked at."
    if total.validated:
        place = say("; most in {}", Name(_place(found.places[0]))) if found.places else ""
        lead = say("{}{}. Revoke them; the table findings has their places.", warning(found), place)
    elif hits:
        lead = (
            f"{t.plural(hits, 'secret')} in {t.plural(total.documents, 'document')}, none confirmed by its structure."
        )
    blocks: list[Block] = [_kinds(found)] if found.entities else []
    blocks += [_sources(found)] if len(found.sources) > 1 else []
    blocks += [_places(found)] if found.places else []
    if found.truncated:
        many = t.plural(found.truncated, "document")
        blocks.append(
            Prose(
                text=f"{many} with too many candidates: not searched to the end. Every number is at least what it says."
            )
        )
    tone: Tone = "bad" if total.validated else "warn" if hits or found.truncated else "good"
    return Section(id="secrets", title="Secrets", lead=lead, tone=tone, blocks=tuple(blocks))


def _kinds(found: Secrets) -> Table:
    def row(secret: Secret) -> Row:
        kind = Name(secret.entity) if secret.entity else "(all)"
        return kind, bad(secret.validated), secret.contextual, secret.pattern, secret.documents, secret.reserved

    return Table(
        title="Secrets by kind",
        columns=(*names("kind"), *numbers(*TIERS, "documents", "reserved")),
        **rows_of(found.entities, row),
        foot=(row(found.total),),
        noun="kind",
        note="validated: a checksum or the structure confirms it; contextual: words beside it say what it is; pattern:"
        " the form alone; documents: those that hold one; reserved: placeholders, documented examples and allowed ones,"
        " in no other number.",
    )


def _sources(found: Secrets) -> Table:
    return Table(
        title="Secrets by source",
        columns=(*names("source"), *numbers("validated", "hits", "documents")),
        **rows_of(
            found.sources,
            lambda secret_source: (
                Name(secret_source.source),
                secret_source.validated,
                secret_source.hits,
                secret_source.documents,
            ),
        ),
        noun="source",
    )


def _places(found: Secrets) -> Table:
    return Table(
        title="Shards with most of them",
        columns=(*numbers("shard"), *names("split/uri"), *numbers("validated", "hits")),
        rows=tuple(
            (secret_place.shard, Name(_place(secret_place)), secret_place.validated, secret_place.hits)
            for secret_place in found.places
        ),
        number=found.shards,
        noun="shard",
        rest="with some",
    )


def _place(place: SecretPlace) -> str:
    return f"{place.split}/{place.uri}"


def _secret(name: str, records: Records) -> Secret:
    return Secret(
        entity=name,
        **{tier: number(records, f"{tier}_hits") for tier in TIERS},
        documents=number(records, "documents"),
        validated_documents=number(records, "validated_documents"),
        reserved=number(records, "reserved"),
    )


def _hits(secret: Secret) -> int:
    return secret.validated + secret.contextual + secret.pattern


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    found = secrets(manifest)
    if found is None:
        return
    total, hits = found.total, _hits(found.total)
    where = Where(link=first_of(found.shards, "most"))
    if found.places:
        where |= {"place": _place(found.places[0]), "shard": found.places[0].shard}
    if total.validated:
        documents = t.plural(total.validated_documents, "document")
        text = f"{t.plural(total.validated, 'secret')} confirmed, in {documents}"
        yield Standout(kind=Kind.SECRETS, part="secrets", size=total.validated, text=text, **where)
    elif hits:
        text = f"{t.plural(hits, 'possible secret')} in {t.plural(total.documents, 'document')}, none confirmed"
        yield Standout(kind=Kind.UNCONFIRMED, part="secrets", size=hits, text=text, **where)
    if found.truncated:
        yield not_looked_at("secrets", found.truncated)


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    name = "secrets_validated"
    for shard, found in above(manifest.table("shards", [name])[name], 0):
        text = f"{t.plural(int(found), 'secret')} confirmed by structure"
        shared = "secrets confirmed by structure"
        yield OddShard(shard=shard, kind=Oddity.SECRET, size=found, text=text, shared=shared)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    """Yield roughly how many there are: an exact number says how many are still to be found."""
    found = secrets(manifest)
    if found is None:
        yield "Secrets (keys, tokens, passwords) were not searched for."
    elif not found.total.documents:
        yield "Patterns for secrets (keys, tokens, passwords) found none."
    else:
        few, validated = found.total.documents < FEW, found.total.validated
        number = f"fewer than {FEW}" if few else f"about {t.count(about(found.total.documents))}"
        sure = "some are confirmed by their structure" if validated else "none is confirmed by its structure"
        yield f"Secrets (keys, tokens, passwords) are in {number} documents; {sure}."


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="secrets", area="secrets", blocks=lambda manifest: [section(secrets(manifest))]),),
    standouts=_standouts,
    odd_shards=_odd_shards,
    facts={"secrets": secrets},
)
