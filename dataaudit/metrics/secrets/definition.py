"""Secrets: keys, tokens and passwords that patterns find in every document."""

from __future__ import annotations

from dataaudit.metrics.documents import of_findings
from dataaudit.metrics.family import Family, MetricDefinition, ShardColumn, ShardStatistic
from dataaudit.metrics.findings import TIERS, found_of, pattern_checks, pattern_statistics
from dataaudit.metrics.recomputed import of_shard

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
    link="dataaudit.metrics.secrets.link:secret_findings",
    by_split=("found",),
    shown="dataaudit.metrics.secrets.facts:SHOWN",
    checked_with=("findings", "shards"),
    checks=(
        *pattern_checks(METRIC, DETECTOR, "documents", "secrets"),
        of_shard("secret_hits", found_of(DETECTOR, "hits")),
        of_shard("secrets_validated", found_of(DETECTOR, "hits", TIERS[0])),
    ),
    looked_for=True,
)
