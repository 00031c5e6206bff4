"""Secrets: keys, tokens and passwords that patterns find in every document."""

from __future__ import annotations

from dataaudit.metrics import recomputed
from dataaudit.metrics.documents import of_findings
from dataaudit.metrics.family import Family, MetricDefinition, Relation, ShardColumn, ShardStatistic
from dataaudit.metrics.findings import pattern_statistics

METRIC = "secret_hit_rate"
DETECTOR = "secrets"

_SHIPPED = """
    AGE_SECRET_KEY AIRTABLE_TOKEN ALIBABA_ACCESS_KEY ANTHROPIC_API_KEY ARTIFACTORY_TOKEN ATLASSIAN_TOKEN
    AUTHORIZATION_HEADER AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AZURE_CLIENT_SECRET AZURE_SAS_TOKEN
    AZURE_SERVICE_BUS_KEY AZURE_STORAGE_KEY CLOUDANT_CREDENTIAL CLOUDFLARE_ORIGIN_KEY CONNECTION_STRING_PASSWORD
    DATABRICKS_TOKEN DIGITALOCEAN_TOKEN DISCORD_TOKEN DISCORD_WEBHOOK DOCKER_TOKEN DOPPLER_TOKEN DYNATRACE_TOKEN
    GCP_API_KEY GCP_OAUTH_SECRET GCP_REFRESH_TOKEN GITHUB_TOKEN GITLAB_TOKEN GRAFANA_TOKEN HEROKU_API_KEY
    HUGGINGFACE_TOKEN IBM_CLOUD_KEY IBM_COS_HMAC_KEY JSON_WEB_TOKEN LINEAR_API_KEY MAILCHIMP_API_KEY MAILGUN_API_KEY
    NEW_RELIC_KEY NOTION_TOKEN NPM_TOKEN OPENAI_API_KEY PASSWORD_ASSIGNMENT PAYPAL_BRAINTREE_TOKEN PLANETSCALE_TOKEN
    POSTMAN_API_KEY PRIVATE_KEY PULUMI_TOKEN PYPI_TOKEN RUBYGEMS_TOKEN SECRET_ASSIGNMENT SENDGRID_API_KEY SENTRY_TOKEN
    SHOPIFY_TOKEN SLACK_TOKEN SLACK_WEBHOOK SOFTLAYER_CREDENTIAL SQUARE_TOKEN STRIPE_SECRET_KEY STRIPE_WEBHOOK_SECRET
    TEAMS_WEBHOOK TELEGRAM_BOT_TOKEN TERRAFORM_TOKEN TWILIO_KEY URL_PASSWORD VAULT_TOKEN WALLET_PRIVATE_KEY
"""
ENTITIES = frozenset(_SHIPPED.split())
"""What the shipped patterns look for; a config may add to it."""

FAMILY = Family(
    name="secrets",
    metrics=(
        MetricDefinition(
            name=METRIC,
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
    link="dataaudit.metrics.secrets.link:secret_findings",
    by_split=("found",),
    shown="dataaudit.metrics.secrets.facts:SHOWN",
    relations=(
        Relation(
            tables=("findings", "shards"),
            metrics=(METRIC,),
            recompute=recomputed.secrets,
        ),
    ),
    looked_for=True,
)
