"""Kinds of secrets: what each is called, what makes one, and the lines of code, config and logs it stands in."""

from __future__ import annotations

import random
import string

from made_secrets import (
    ALNUM,
    HEX,
    LETTERS,
    LOWER_ALNUM,
    UPPER_ALNUM,
    URL64,
    Maker,
    age,
    anthropic,
    armour,
    aws_id,
    azure_client,
    b64,
    b64url,
    basic,
    discord,
    ec_key,
    ed25519_pkcs8,
    encrypted_rsa,
    form,
    github_fine_grained,
    gitlab_routable,
    grafana,
    json_web_token,
    openai_legacy,
    openai_project,
    openssh_key,
    password,
    pgp_key,
    pick,
    pkcs8,
    putty_key,
    pypi,
    rsa_numbers,
    sas,
    slack_bot,
    slack_user,
    teams,
    telegram,
    url_password,
    wallet,
    with_crc62,
)

CODE = (
    'token = "{}"',
    "curl -H 'X-Token: {}' https://api.internal.corp/v1/items",
    "2024-05-01 10:11:12 DEBUG got {} back",
    "  key: {}",
)
Kind = tuple[str, Maker, tuple[str, ...]]
KINDS: dict[str, Kind] = {
    "aws access key id": ("AWS_ACCESS_KEY_ID", aws_id, CODE),
    "aws secret key": (
        "AWS_SECRET_ACCESS_KEY",
        form("", ALNUM + "+/", 40),
        (
            "aws_secret_access_key = {}",
            'AWS_SECRET_ACCESS_KEY="{}"',
            "'aws' => ['secretKey' => '{}'],",
            'secret_key: "{}"  # amazon s3',
        ),
    ),
    "azure storage key": (
        "AZURE_STORAGE_KEY",
        lambda rng: b64(rng.randbytes(64)),
        (
            "DefaultEndpointsProtocol=https;AccountName=store1;AccountKey={};EndpointSuffix=core.windows.net",
            'storage_key = "{}"',
        ),
    ),
    "azure service bus key": (
        "AZURE_SERVICE_BUS_KEY",
        lambda rng: b64(rng.randbytes(32)),
        ("Endpoint=sb://bus1.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}",),
    ),
    "azure sas": ("AZURE_SAS_TOKEN", sas, ("https://store1.blob.core.windows.net/box/file?{}", 'sas = "{}"')),
    "azure client secret": ("AZURE_CLIENT_SECRET", azure_client, ('client_secret: "{}"', "AZURE_CLIENT_SECRET={}")),
    "google api key": ("GCP_API_KEY", form("AI" + "zaSy", URL64, 33), CODE),
    "google oauth secret": ("GCP_OAUTH_SECRET", form("GOC" + "SPX-", URL64, 28), CODE),
    "google refresh token": ("GCP_REFRESH_TOKEN", form("1//" + "0g", URL64, 80), CODE),
    "digitalocean token": ("DIGITALOCEAN_TOKEN", form("dop_" + "v1_", HEX, 64), CODE),
    "alibaba key id": ("ALIBABA_ACCESS_KEY", form("LT" + "AI5t", ALNUM, 18), CODE),
    "heroku key": ("HEROKU_API_KEY", form("HRKU-" + "AA", URL64, 58), CODE),
    "cloudflare origin key": (
        "CLOUDFLARE_ORIGIN_KEY",
        lambda rng: "v1" + f".0-{pick(rng, HEX, 24)}-{pick(rng, HEX, 146)}",
        CODE,
    ),
    "github classic": ("GITHUB_TOKEN", with_crc62("gh" + "p_", 30), CODE),
    "github server": ("GITHUB_TOKEN", with_crc62("gh" + "s_", 30), CODE),
    "github refresh": ("GITHUB_TOKEN", with_crc62("gh" + "r_", 70), CODE),
    "github fine-grained": ("GITHUB_TOKEN", github_fine_grained, CODE),
    "gitlab token": ("GITLAB_TOKEN", form("gl" + "pat-", URL64, 20), CODE),
    "gitlab routable": ("GITLAB_TOKEN", gitlab_routable, CODE),
    "gitlab runner": ("GITLAB_TOKEN", form("gl" + "rt-", URL64, 20), CODE),
    "npm token": ("NPM_TOKEN", with_crc62("np" + "m_", 30), (*CODE, "//registry.npmjs.org/:_authToken={}")),
    "pypi token": ("PYPI_TOKEN", pypi, (*CODE, "[pypi]\nusername = __token__\npassword = {}")),
    "docker token": ("DOCKER_TOKEN", form("dckr_" + "pat_", URL64, 27), CODE),
    "rubygems token": ("RUBYGEMS_TOKEN", form("ruby" + "gems_", HEX, 48), CODE),
    "atlassian token": ("ATLASSIAN_TOKEN", form("ATA" + "TT3", URL64, 177, "=7A1B2C3D"), CODE),
    "artifactory key": ("ARTIFACTORY_TOKEN", form("AK" + "Cp", ALNUM, 69), CODE),
    "openai project": ("OPENAI_API_KEY", openai_project, CODE),
    "openai legacy": ("OPENAI_API_KEY", openai_legacy, CODE),
    "anthropic key": ("ANTHROPIC_API_KEY", anthropic, CODE),
    "hugging face token": ("HUGGINGFACE_TOKEN", form("hf" + "_", LETTERS, 34), CODE),
    "slack bot": ("SLACK_TOKEN", slack_bot, CODE),
    "slack user": ("SLACK_TOKEN", slack_user, CODE),
    "slack app": (
        "SLACK_TOKEN",
        lambda rng: f"xapp-1-A{pick(rng, UPPER_ALNUM, 10)}-{pick(rng, string.digits, 13)}-{pick(rng, HEX, 64)}",
        CODE,
    ),
    "slack webhook": (
        "SLACK_WEBHOOK",
        lambda rng: f"T{pick(rng, UPPER_ALNUM, 10)}/B{pick(rng, UPPER_ALNUM, 10)}/{pick(rng, ALNUM, 24)}",
        (
            "curl -X POST https://hooks." + "slack.com/services/{}",
            'WEBHOOK = "https://hooks.' + 'slack.com/services/{}"',
        ),
    ),
    "discord token": ("DISCORD_TOKEN", discord, ("bot.run('{}')  # discord", "DISCORD_TOKEN={}")),
    "discord webhook": (
        "DISCORD_WEBHOOK",
        lambda rng: f"{pick(rng, '123456789', 19)}/{pick(rng, URL64, 68)}",
        ("https://discord" + ".com/api/webhooks/{}", "url = 'https://discordapp" + ".com/api/webhooks/{}'"),
    ),
    "teams webhook": ("TEAMS_WEBHOOK", teams, ("hook: {}", 'url = "{}"')),
    "telegram bot": ("TELEGRAM_BOT_TOKEN", telegram, (*CODE, "https://api.telegram.org/bot{}/getMe")),
    "twilio key": ("TWILIO_KEY", form("S" + "K", HEX, 32), ("twilio_key = '{}'", "TWILIO_API_KEY_SID={}")),
    "sendgrid key": (
        "SENDGRID_API_KEY",
        lambda rng: "S" + f"G.{b64url(rng.randbytes(16))}.{b64url(rng.randbytes(32))}",
        CODE,
    ),
    "mailgun key": (
        "MAILGUN_API_KEY",
        form("ke" + "y-", HEX, 32),
        ("mailgun_api_key = '{}'", "curl -s --user 'api:{}' https://api.mailgun.net/v3/"),
    ),
    "mailchimp key": ("MAILCHIMP_API_KEY", form("", HEX, 32, "-us" + "12"), CODE),
    "stripe key": ("STRIPE_SECRET_KEY", form("sk_" + "live_", ALNUM, 24), CODE),
    "stripe long key": ("STRIPE_SECRET_KEY", form("rk_" + "live_", ALNUM, 99), CODE),
    "stripe webhook": ("STRIPE_WEBHOOK_SECRET", form("whs" + "ec_", ALNUM, 32), CODE),
    "square secret": ("SQUARE_TOKEN", form("sq0" + "csp-", URL64, 43), CODE),
    "square token": ("SQUARE_TOKEN", form("EA" + "AA", URL64, 60), CODE),
    "shopify token": ("SHOPIFY_TOKEN", form("shp" + "at_", HEX, 32), CODE),
    "braintree token": (
        "PAYPAL_BRAINTREE_TOKEN",
        lambda rng: "access_token$" + f"production${pick(rng, LOWER_ALNUM, 16)}${pick(rng, HEX, 32)}",
        CODE,
    ),
    "databricks token": ("DATABRICKS_TOKEN", form("da" + "pi", HEX, 32), CODE),
    "vault token": ("VAULT_TOKEN", form("hv" + "s.", ALNUM, 24), CODE),
    "vault long token": ("VAULT_TOKEN", form("hv" + "s.CAES", URL64, 90), CODE),
    "terraform token": (
        "TERRAFORM_TOKEN",
        lambda rng: pick(rng, ALNUM, 14) + ".atlas" + "v1." + pick(rng, ALNUM, 67),
        CODE,
    ),
    "grafana token": ("GRAFANA_TOKEN", grafana, CODE),
    "new relic key": ("NEW_RELIC_KEY", form("NR" + "AK-", UPPER_ALNUM, 27), CODE),
    "pulumi token": ("PULUMI_TOKEN", form("pu" + "l-", HEX, 40), CODE),
    "postman key": ("POSTMAN_API_KEY", lambda rng: "PM" + f"AK-{pick(rng, HEX, 24)}-{pick(rng, HEX, 34)}", CODE),
    "linear key": ("LINEAR_API_KEY", form("lin_" + "api_", ALNUM, 40), CODE),
    "notion token": (
        "NOTION_TOKEN",
        lambda rng: "nt" + "n_" + pick(rng, string.digits, 11) + pick(rng, ALNUM, 35),
        CODE,
    ),
    "doppler token": ("DOPPLER_TOKEN", form("dp." + "pt.", ALNUM, 43), CODE),
    "sentry token": ("SENTRY_TOKEN", form("sntr" + "yu_", HEX, 64), CODE),
    "dynatrace token": (
        "DYNATRACE_TOKEN",
        lambda rng: "dt0" + f"c01.{pick(rng, UPPER_ALNUM, 24)}.{pick(rng, UPPER_ALNUM, 64)}",
        CODE,
    ),
    "airtable token": ("AIRTABLE_TOKEN", lambda rng: "pa" + f"t{pick(rng, ALNUM, 14)}.{pick(rng, HEX, 64)}", CODE),
    "planetscale token": ("PLANETSCALE_TOKEN", form("psca" + "le_tkn_", URL64, 43), CODE),
    "rsa key": (
        "PRIVATE_KEY",
        lambda rng: armour("RSA PRIVATE KEY", rsa_numbers(rng)),
        ("{}", "ssl_key: |\n{}", '"""\n{}\n"""'),
    ),
    "pkcs8 key": ("PRIVATE_KEY", lambda rng: armour("PRIVATE KEY", pkcs8(rng)), ("{}", "key = '''{}'''")),
    "service account": (
        "PRIVATE_KEY",
        lambda rng: armour("PRIVATE KEY", pkcs8(rng), "\\n"),
        ('{{"type": "service_account", "private_key": "{}\\n", "client_email": "a@b.iam.gserviceaccount.com"}}',),
    ),
    "ed25519 key": ("PRIVATE_KEY", lambda rng: armour("PRIVATE KEY", ed25519_pkcs8(rng)), ("{}", '  cert: "{}"')),
    "ec key": ("PRIVATE_KEY", lambda rng: armour("EC PRIVATE KEY", ec_key(rng)), ("{}",)),
    "ec key in code": (
        "PRIVATE_KEY",
        lambda rng: armour("EC PRIVATE KEY", ec_key(rng), '\\n"\n    "'),
        ('const char *key =\n    "{}\\n";',),
    ),
    "encrypted rsa key": ("PRIVATE_KEY", encrypted_rsa, ("{}",)),
    "openssh key": (
        "PRIVATE_KEY",
        lambda rng: armour("OPENSSH PRIVATE KEY", openssh_key(rng)),
        ("{}", "cat > id <<EOF\n{}\nEOF"),
    ),
    "pgp key": ("PRIVATE_KEY", pgp_key, ("{}",)),
    "putty key": ("PRIVATE_KEY", putty_key, ("{}",)),
    "age identity": ("AGE_SECRET_KEY", age, ("# created: 2024-01-01\n{}", "SOPS_AGE_KEY={}")),
    "bitcoin key": ("WALLET_PRIVATE_KEY", wallet, CODE),
    "jwt": ("JSON_WEB_TOKEN", json_web_token, (*CODE, "Authorization: Bearer {}")),
    "url with password": (
        "URL_PASSWORD",
        url_password,
        (
            "DATABASE_URL=postgres://app:{}@db.internal:5432/prod",
            "git clone https://ci-bot:{}@git.corp.net/x.git",
            '"amqp://svc:{}@mq1/"',
        ),
    ),
    "connection string": (
        "CONNECTION_STRING_PASSWORD",
        password,
        ("Server=db1;Database=app;User Id=app;Password={};Encrypt=true", '"Host=db1;Username=app;Password={}"'),
    ),
    "basic header": ("AUTHORIZATION_HEADER", basic, ("Authorization: Basic {}", '"Authorization": "Basic {}"')),
    "bearer header": (
        "AUTHORIZATION_HEADER",
        form("", ALNUM, 40),
        ("Authorization: Bearer {}", "-H 'Authorization: token {}'"),
    ),
    "password in code": (
        "PASSWORD_ASSIGNMENT",
        password,
        ('password = "{}"', "db_password: '{}'", '"password": "{}",', "$passwd = '{}';"),
    ),
    "password in environment": (
        "PASSWORD_ASSIGNMENT",
        lambda rng: pick(rng, ALNUM, 16),
        ("DB_PASSWORD={}", "export MYSQL_ROOT_PASSWORD={}"),
    ),
    "api key in code": (
        "SECRET_ASSIGNMENT",
        form("", ALNUM, 32),
        ('api_key = "{}"', "'client_secret': '{}'", 'secretKey: "{}"'),
    ),
    "hexadecimal api key in code": (
        "SECRET_ASSIGNMENT",
        form("", HEX, 32),
        ('api_key = "{}"', "'client_secret': '{}'"),
    ),
    "api key in environment": (
        "SECRET_ASSIGNMENT",
        form("", ALNUM, 40),
        ("WEATHER_API_KEY={}", "export SESSION_SECRET={}"),
    ),
}
"""Entity, maker and the lines that a secret of each kind stands in."""
FILLER = (
    "def load(path: str) -> dict:\n    return json.loads(Path(path).read_text())\n",
    "The service reads its settings from the environment when it starts, and logs what it found.\n",
    "for (int i = 0; i < count; i++) {\n    sum += values[i];\n}\n",
)


def documents(kind: str, count: int, seed: int = 7) -> list[tuple[str, int, int]]:
    """Return texts that hold one secret of a kind each, and where it begins and ends."""
    rng = random.Random(f"{kind} {seed}")
    _, maker, lines = KINDS[kind]
    made = []
    for number in range(count):
        secret = maker(rng)
        before, after = lines[number % len(lines)].replace("{{", "{").replace("}}", "}").split("{}")
        head = rng.choice(FILLER) + before
        made.append((head + secret + after + "\n" + rng.choice(FILLER), len(head), len(head) + len(secret)))
    return made
