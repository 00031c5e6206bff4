"""Forms of tokens by the names that gitleaks gives its rules: prefix, alphabet, length; and lines like its samples.

`NAMED` have a form of their own. `ASSIGNED` are values that only the service's name before them tells from others.
`NOT_LOOKED_FOR` are ids, numbers and values too short to tell from words, with the reason.
"""

from __future__ import annotations

import random
import string

from made_secrets import (
    ALNUM,
    BASE58,
    HEX,
    LOWER_ALNUM,
    UPPER_ALNUM,
    URL64,
    Maker,
    b64,
    b64url,
    form,
    parts,
    pick,
    some,
    uuid,
)  # fmt: skip

LOWER64 = LOWER_ALNUM + "_-"
PADDED64 = LOWER64 + "="
"""As gitleaks writes the alphabet of many services: with the sign that pads base64 anywhere."""


def sentry_org(rng: random.Random) -> str:
    place = f"https://{pick(rng, LOWER_ALNUM, 24)}"
    claims = f'{{"iat":{rng.randrange(2**31)}.5,"url":null,"region_url":"{place}","org":"a"}}'
    return "sntry" + f"s_{b64(claims.encode())}_{pick(rng, ALNUM + '+/', 43)}"


def authress(rng: random.Random) -> str:
    return "sc" + "_{}.{}.acc_{}.{}".format(*(pick(rng, LOWER_ALNUM, size) for size in (10, 4, 10, 40)))


def one_password(rng: random.Random) -> str:
    groups = [pick(rng, UPPER_ALNUM, size) for size in (6, 6, 5, 5, 5, 5)]
    return "A3" + "-" + "-".join(groups)


NAMED: dict[str, tuple[str, Maker]] = {
    "1password-secret-key": ("ONEPASSWORD_TOKEN", one_password),
    "1password-service-account-token": ("ONEPASSWORD_TOKEN", form("op" + "s_eyJ", ALNUM, 300)),
    "adobe-client-secret": ("ADOBE_CLIENT_SECRET", form("p8" + "e-", LOWER_ALNUM, 32)),
    "authress-service-client-access-key": ("AUTHRESS_KEY", authress),
    "aws-amazon-bedrock-api-key-long-lived": ("AWS_BEDROCK_KEY", form("AB" + "SKQmVkcm9ja0FQSUtleS1", ALNUM, 108, "=")),
    "aws-amazon-bedrock-api-key-short-lived": ("AWS_BEDROCK_KEY", form("bedrock-" + "api-key-YmVkcm9ja", ALNUM, 200)),
    "clickhouse-cloud-api-secret-key": ("CLICKHOUSE_KEY", form("4b" + "1d", ALNUM, 38)),
    "clojars-api-token": ("CLOJARS_TOKEN", form("CLO" + "JARS_", LOWER_ALNUM, 60)),
    "defined-networking-api-token": (
        "DEFINED_NETWORKING_TOKEN",
        parts("dn" + "key-", some(URL64, 26), "-", some(URL64, 52)),
    ),
    "dropbox-long-lived-api-token": ("DROPBOX_TOKEN", parts(some(LOWER_ALNUM, 11), "A" * 10, some(LOWER_ALNUM, 43))),
    "dropbox-short-lived-api-token": ("DROPBOX_TOKEN", form("s" + "l.", PADDED64, 135)),
    "duffel-api-token": ("DUFFEL_TOKEN", form("duf" + "fel_test_", PADDED64, 43)),
    "easypost-api-token": ("EASYPOST_KEY", form("EZ" + "AK", ALNUM, 54)),
    "easypost-test-api-token": ("EASYPOST_KEY", form("EZ" + "TK", ALNUM, 54)),
    "facebook-access-token": ("FACEBOOK_TOKEN", parts(some("123456789", 15), "|", some(URL64, 27))),
    "facebook-page-access-token": ("FACEBOOK_TOKEN", form("EA" + "AM", ALNUM, 150)),
    "flutterwave-encryption-key": ("FLUTTERWAVE_KEY", form("FLW" + "SECK_TEST-", "abcdefgh" + string.digits, 12)),
    "flutterwave-secret-key": ("FLUTTERWAVE_KEY", form("FLW" + "SECK_TEST-", "abcdefgh" + string.digits, 32, "-X")),
    "flyio-access-token": ("FLY_TOKEN", form("fo" + "1_", URL64, 43)),
    "flyio-access-token, macaroon": ("FLY_TOKEN", form("fm" + "2_", ALNUM + "+/", 200)),
    "frameio-api-token": ("FRAMEIO_TOKEN", form("fio" + "-u-", PADDED64, 64)),
    "gitlab-cicd-job-token": ("GITLAB_TOKEN", parts("gl" + "cbt-", some(HEX, 2), "_", some(URL64, 20))),
    "gitlab-deploy-token": ("GITLAB_TOKEN", form("gl" + "dt-", URL64, 20)),
    "gitlab-feature-flag-client-token": ("GITLAB_TOKEN", form("gl" + "ffct-", URL64, 20)),
    "gitlab-feed-token": ("GITLAB_TOKEN", form("gl" + "ft-", URL64, 20)),
    "gitlab-incoming-mail-token": ("GITLAB_TOKEN", form("gl" + "imt-", URL64, 25)),
    "gitlab-kubernetes-agent-token": ("GITLAB_TOKEN", form("gl" + "agent-", URL64, 50)),
    "gitlab-oauth-app-secret": ("GITLAB_TOKEN", form("gl" + "oas-", URL64, 64)),
    "gitlab-ptt": ("GITLAB_TOKEN", form("gl" + "ptt-", HEX, 40)),
    "gitlab-rrt": ("GITLAB_TOKEN", form("GR" + "1348941", URL64, 20)),
    "gitlab-scim-token": ("GITLAB_TOKEN", form("gl" + "soat-", URL64, 20)),
    "gitlab-session-cookie": ("GITLAB_SESSION_COOKIE", form("", LOWER_ALNUM, 32)),
    "gocardless-api-token": ("GOCARDLESS_TOKEN", form("li" + "ve_", PADDED64, 40)),
    "harness-api-key": (
        "HARNESS_TOKEN",
        parts("pa" + "t.", some(ALNUM, 22), ".", some(ALNUM, 24), ".", some(ALNUM, 20)),
    ),
    "infracost-api-token": ("INFRACOST_TOKEN", form("ic" + "o-", ALNUM, 32)),
    "intra42-client-secret": ("INTRA42_SECRET", form("s-s4" + "t2ud-", HEX, 64)),
    "lob-api-key": ("LOB_KEY", form("te" + "st_", HEX, 35)),
    "mapbox-api-token": ("MAPBOX_TOKEN", parts("s" + "k.", some(LOWER_ALNUM, 60), ".", some(LOWER_ALNUM, 22))),
    "maxmind-license-key": ("MAXMIND_KEY", parts(some(ALNUM, 6), "_", some(ALNUM, 29), "_mmk")),
    "netlify-access-token": ("NETLIFY_TOKEN", form("nf" + "p_", ALNUM, 36)),
    "nuget-config-password": ("NUGET_PASSWORD", some(ALNUM, 20)),
    "octopus-deploy-api-key": ("OCTOPUS_KEY", form("AP" + "I-", UPPER_ALNUM, 26)),
    "openshift-user-token": ("OPENSHIFT_TOKEN", form("sha" + "256~", URL64, 43)),
    "perplexity-api-key": ("PERPLEXITY_KEY", form("pp" + "lx-", ALNUM, 48)),
    "plaid-api-token": ("PLAID_TOKEN", parts("access-" + "sandbox-", uuid)),
    "prefect-api-token": ("PREFECT_KEY", form("pn" + "u_", ALNUM, 36)),
    "readme-api-token": ("README_TOKEN", form("rd" + "me_", LOWER_ALNUM, 70)),
    "scalingo-api-token": ("SCALINGO_TOKEN", form("tk-" + "us-", URL64, 48)),
    "sendinblue-api-token": ("BREVO_KEY", parts("xkey" + "sib-", some(HEX, 64), "-", some(ALNUM, 16))),
    "sentry-org-token": ("SENTRY_TOKEN", sentry_org),
    "settlemint-application-access-token": ("SETTLEMINT_TOKEN", form("sm_" + "aat_", ALNUM, 16)),
    "settlemint-personal-access-token": ("SETTLEMINT_TOKEN", form("sm_" + "pat_", ALNUM, 16)),
    "settlemint-service-access-token": ("SETTLEMINT_TOKEN", form("sm_" + "sat_", ALNUM, 16)),
    "shippo-api-token": ("SHIPPO_TOKEN", form("ship" + "po_live_", HEX, 40)),
    "sonar-api-token": ("SONAR_TOKEN", form("sq" + "u_", HEX, 40)),
    "sourcegraph-access-token": ("SOURCEGRAPH_TOKEN", parts("sg" + "p_", some(HEX, 16), "_", some(HEX, 40))),
    "twitter-bearer-token": ("TWITTER_TOKEN", form("A" * 22, ALNUM, 90)),
    "typeform-api-token": ("TYPEFORM_TOKEN", form("tf" + "p_", PADDED64 + ".", 59)),
    "yandex-access-token": ("YANDEX_TOKEN", lambda rng: "t" + f"1.{b64url(rng.randbytes(40))}.{pick(rng, URL64, 86)}"),
    "yandex-api-key": ("YANDEX_TOKEN", form("AQ" + "VN", URL64, 36)),
}
"""Entity and maker."""
ASSIGNED: dict[str, tuple[str, Maker]] = {
    "adafruit-api-key": ("adafruit", some(LOWER64, 32)),
    "airtable-api-key": ("airtable", some(LOWER_ALNUM, 17)),
    "algolia-api-key": ("algolia", some(LOWER_ALNUM, 32)),
    "alibaba-secret-key": ("alibaba", some(LOWER_ALNUM, 30)),
    "asana-client-secret": ("asana", some(LOWER_ALNUM, 32)),
    "atlassian-api-token": ("jira", parts(some(LOWER_ALNUM, 20), some(HEX, 4))),
    "beamer-api-token": ("beamer", form("b_", PADDED64, 44)),
    "bitbucket-client-secret": ("bitbucket", some(PADDED64, 64)),
    "bittrex-secret-key": ("bittrex", some(LOWER_ALNUM, 32)),
    "cisco-meraki-api-key": ("meraki", some(HEX, 40)),
    "cloudflare-api-key": ("cloudflare", some(LOWER64, 40)),
    "cloudflare-global-api-key": ("cloudflare", some(HEX, 37)),
    "codecov-access-token": ("codecov", some(LOWER_ALNUM, 32)),
    "cohere-api-token": ("cohere", some(ALNUM, 40)),
    "coinbase-access-token": ("coinbase", some(LOWER64, 64)),
    "confluent-secret-key": ("confluent", some(LOWER_ALNUM, 64)),
    "contentful-delivery-api-token": ("contentful", some(PADDED64, 43)),
    "datadog-access-token": ("datadog", some(LOWER_ALNUM, 40)),
    "discord-api-token": ("discord", some(HEX, 64)),
    "discord-client-secret": ("discord", some(PADDED64, 32)),
    "droneci-access-token": ("droneci", some(LOWER_ALNUM, 32)),
    "etsy-access-token": ("etsy", some(LOWER_ALNUM, 24)),
    "facebook-secret": ("facebook", some(HEX, 32)),
    "fastly-api-token": ("fastly", some(PADDED64, 32)),
    "finicity-api-token": ("finicity", some(HEX, 32)),
    "flickr-access-token": ("flickr", some(LOWER_ALNUM, 32)),
    "freshbooks-access-token": ("freshbooks", some(LOWER_ALNUM, 64)),
    "gitter-access-token": ("gitter", some(LOWER64, 40)),
    "intercom-api-key": ("intercom", some(PADDED64, 60)),
    "jfrog-identity-token": ("jfrog", some(LOWER_ALNUM, 64)),
    "kraken-access-token": ("kraken", some(PADDED64 + "+/", 86)),
    "launchdarkly-access-token": ("launchdarkly", some(PADDED64, 40)),
    "looker-client-secret": ("looker", some(LOWER_ALNUM, 24)),
    "mattermost-access-token": ("mattermost", some(LOWER_ALNUM, 26)),
    "messagebird-api-token": ("messagebird", some(LOWER_ALNUM, 25)),
    "nytimes-access-token": ("nytimes", some(PADDED64, 32)),
    "plaid-secret-key": ("plaid", some(LOWER_ALNUM, 30)),
    "privateai-api-token": ("privateai", some(LOWER_ALNUM, 32)),
    "rapidapi-access-token": ("rapidapi", some(LOWER64, 50)),
    "sendbird-access-token": ("sendbird", some(HEX, 40)),
    "sentry-access-token": ("sentry", some(HEX, 64)),
    "sumologic-access-token": ("sumo", some(LOWER_ALNUM, 64)),
    "trello-access-token": ("trello", some(ALNUM, 32)),
    "twitch-api-token": ("twitch", some(LOWER_ALNUM, 30)),
    "twitter-access-secret": ("twitter", some(LOWER_ALNUM, 45)),
    "twitter-api-key": ("twitter", some(LOWER_ALNUM, 25)),
    "twitter-api-secret": ("twitter", some(LOWER_ALNUM, 50)),
    "okta-access-token": ("okta", form("00", URL64 + "=", 40)),
    "yandex-aws-access-token": ("yandex", form("YC", URL64, 38)),
    "confluent-access-token": ("confluent", some(LOWER_ALNUM, 16)),
    "finicity-client-secret": ("finicity", some(LOWER_ALNUM, 20)),
    "finnhub-access-token": ("finnhub", some(LOWER_ALNUM, 20)),
    "heroku-api-key": ("heroku", uuid),
    "hubspot-api-key": ("hubspot", lambda rng: uuid(rng).upper()),
    "kucoin-secret-key": ("kucoin", uuid),
    "linkedin-client-secret": ("linkedin", some(LOWER_ALNUM, 16)),
    "snyk-api-token": ("snyk", uuid),
    "squarespace-access-token": ("squarespace", uuid),
    "travisci-access-token": ("travis", some(LOWER_ALNUM, 22)),
    "zendesk-secret-key": ("zendesk", some(LOWER_ALNUM, 40)),
}
"""Name of the service, as it stands before the value, and maker."""
NOT_LOOKED_FOR = {
    "adobe-client-id": "an id",
    "asana-client-id": "an id",
    "bitbucket-client-id": "an id",
    "bittrex-access-key": "an id",
    "discord-client-id": "an id",
    "dropbox-api-token": "15 letters",
    "flutterwave-public-key": "public",
    "kucoin-access-token": "24 hexadecimal digits",
    "linkedin-client-id": "an id",
    "lob-pub-api-key": "public",
    "looker-client-id": "an id",
    "mailgun-pub-key": "public",
    "messagebird-client-id": "an id",
    "plaid-client-id": "an id",
    "sendbird-access-id": "an id",
    "sidekiq-secret": "two words of 8 hexadecimal digits",
    "stripe-access-token, test": "of a test mode",
    "sumologic-access-id": "an id",
}
HEX32 = some(HEX, 32)
PREFIXED: dict[str, Maker] = {
    "Adafruit IO": form("ai" + "o_", ALNUM, 28),
    "Apify": form("api" + "fy_api_", ALNUM, 36),
    "AppSync": form("da" + "2-", LOWER_ALNUM, 26),
    "Bannerbear": form("bb" + "_pr_", HEX, 30),
    "Buildkite, API": form("bk" + "ua_", HEX, 40),
    "Buildkite, agent": form("bk" + "aa_", ALNUM, 60),
    "CircleCI": parts("CCI" + "PAT_", some(BASE58, 22), "_", some(HEX, 40)),
    "ClickUp": parts("p" + "k_", some(string.digits, 8), "_", some(UPPER_ALNUM, 32)),
    "Cloudflare, user": form("cf" + "ut_", ALNUM, 48),
    "Cloudflare, global": form("cf" + "k_", ALNUM, 48),
    "Contentful": form("CF" + "PAT-", URL64, 43),
    "Courier": form("p" + "k_prod_", UPPER_ALNUM, 28),
    "Deno": form("dd" + "p_", ALNUM, 36),
    "ElevenLabs": form("s" + "k_", HEX, 48),
    "Figma": form("fig" + "d_", URL64, 40),
    "Google, access": form("ya" + "29.", URL64, 120),
    "Groq": form("gs" + "k_", ALNUM, 52),
    "HubSpot": parts("pa" + "t-na1-", uuid),
    "Klaviyo": form("p" + "k_", HEX, 34),
    "LangSmith": parts("lsv2" + "_pt_", HEX32, "_", some(HEX, 10)),
    "Langfuse": parts("s" + "k-lf-", uuid),
    "LaunchDarkly": parts("sd" + "k-", uuid),
    "New Relic, browser": form("NR" + "JS-", HEX, 19),
    "New Relic, license": form("eu" + "01xx", HEX, 26, "FFFFNRAL"),
    "Nightfall": form("N" + "F-", ALNUM, 32),
    "Notion, older": form("sec" + "ret_", ALNUM, 43),
    "NVIDIA": form("nv" + "api-", URL64, 64),
    "OpenRouter": form("s" + "k-or-v1-", HEX, 64),
    "Pagar.me": form("ak" + "_live_", ALNUM, 30),
    "Pinecone": parts("pc" + "sk_", some(ALNUM, 5), "_", some(ALNUM, 63)),
    "PostHog": form("ph" + "x_", ALNUM, 43),
    "Replicate": form("r" + "8_", ALNUM, 37),
    "Rootly": form("roo" + "tly_", HEX, 64),
    "Salesforce": parts("00" + "D", some(ALNUM, 12), "!", some(ALNUM + "._", 96)),
    "Supabase": form("sb" + "p_", HEX, 40),
    "Tailscale": parts("ts" + "key-auth-", some(ALNUM, 11), "CNTRL-", some(ALNUM, 32)),
    "Teamwork": form("tk" + "n.v1_", ALNUM, 71),
    "Ubidots": form("BB" + "FF-", ALNUM, 30),
    "Voiceflow": parts("V" + "F.DM.", some(HEX, 24), ".", some(ALNUM, 16)),
    "xAI": form("xa" + "i-", ALNUM, 80),
    "Zoho": parts("1" + "000.", HEX32, ".", HEX32),
}
"""Issuers that `ISSUED_TOKEN` knows by their prefixes, and makers."""
SAMPLES = (
    'ITEMToken="{}"', 'ITEMToken = "{}"', "ITEMToken={}", "ITEMToken = {}", '{\n    "ITEM_token": "{}"\n}',
    '{"config.ini": "ITEM_TOKEN={}\\nBACKUP_ENABLED=true"}', "<ITEMToken>\n    {}\n</ITEMToken>", "ITEM_token: {}",
    "ITEM_token: '{}'", 'string ITEMToken = "{}";', 'var ITEMToken string = "{}"', "ITEMToken := `{}`",
    '$ITEMToken .= "{}"', 'System.setProperty("ITEM_TOKEN", "{}")', '  "ITEMToken" => "{}"', 'ITEM_TOKEN :::= "{}"',
    'ITEM_TOKEN ?= "{}"',
)  # fmt: skip
"""Lines of the kinds that its samples are made of."""
OWN_LINES = {
    "gitlab-session-cookie": ("Cookie: theme=1; _gitlab_session={}; lang=en",),
    "nuget-config-password": ('<add key="ClearTextPassword" value="{}" />',),
}


def samples(rule: str, item: str, maker: Maker, rounds: int) -> list[tuple[str, int, int]]:
    """Texts with a value each, in all kinds of lines in turn, and where it begins and ends."""
    rng = random.Random(rule)
    made = []
    for line in OWN_LINES.get(rule, SAMPLES) * rounds:
        before, after = line.replace("ITEM", item).split("{}")
        secret = maker(rng)
        made.append((before + secret + after + "\n", len(before), len(before) + len(secret)))
    return made
