"""Lines that give a name a value, as config files, requests, commands and programs do; values made at random.

A name is a tuple of words, which each syntax spells its own way. ``{}`` in a line is the value.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from made_secrets import ALNUM, HEX, LOWER_ALNUM, URL64, pick

NAMES = (
    ("token",), ("secret",), ("api", "key"), ("auth", "token"), ("access", "token"), ("client", "secret"),
    ("refresh", "token"), ("secret", "key"), ("github", "token"), ("deploy", "token"), ("webhook", "secret"),
    ("acme", "api", "key"), ("signing", "key"), ("credential",), ("db", "password"),
)  # fmt: skip
SHORT_NAMES = (
    ("pass",), ("pw",), ("db", "pw"), ("pat",), ("github", "pat"), ("jwt",), ("session",), ("sas",), ("auth",),
)  # fmt: skip
"""Names that are parts of other words: `path`, `compass`, `authority`."""
FOREIGN_NAMES = tuple(
    (word,)
    for word in (
        *("contraseña", "clave", "passwort", "kennwort", "schlüssel", "mot_de_passe", "jeton", "senha", "chave"),
        *("пароль", "токен", "ключ", "密码", "密碼", "密钥", "令牌", "パスワード", "トークン", "비밀번호"),
    )
)
"""Names in Spanish, German, French, Portuguese, Russian, Chinese, Japanese and Korean."""
ALPHABETS = {"hexadecimal": HEX, "base62": ALNUM, "base36": LOWER_ALNUM, "base64": ALNUM + "+/", "base64url": URL64}
LENGTH = 40


def snake(words: tuple[str, ...]) -> str:
    return "_".join(words)


def upper(words: tuple[str, ...]) -> str:
    return snake(words).upper()


def kebab(words: tuple[str, ...]) -> str:
    return "-".join(words)


def pascal(words: tuple[str, ...]) -> str:
    return "".join(map(str.capitalize, words))


def camel(words: tuple[str, ...]) -> str:
    return words[0] + pascal(words[1:])


def header(words: tuple[str, ...]) -> str:
    return "-".join(map(str.capitalize, words))


Made = tuple[str, int, int]
"""A text, where the value begins, and where it ends."""
Spell = Callable[[tuple[str, ...]], str]
SYNTAXES: dict[str, tuple[tuple[Spell, str], ...]] = {
    "YAML": (
        (snake, "NAME: {}"), (camel, 'auth:\n  NAME: "{}"'), (kebab, "  - NAME: '{}'"),
        (camel, "  NAME:   {}  # rotate"), (upper, "env:\n  - name: NAME\n    value: {}"),
        (upper, 'env:\n  - name: NAME\n    value: "{}"'), (snake, "NAME: |\n  {}"), (snake, "NAME: >-\n    {}"),
    ),
    "JSON": (
        (snake, '{"NAME": "{}"}'), (camel, '{"user":"ann","NAME":"{}","port":8080}'),
        (camel, '"payload": "{\\"NAME\\": \\"{}\\"}"'), (upper, '{"name": "NAME", "value": "{}"}'),
        (snake, '{"key": "NAME", "value": "{}"}'), (upper, '"env": ["NAME={}"]'),
    ),
    "TOML, INI": (
        (snake, 'NAME = "{}"'), (snake, "[auth]\nNAME = '{}'"), (kebab, 'NAME="{}"'), (snake, "NAME={}"),
        (camel, "NAME = {}"), (".".join, "app.NAME={}"), (snake, 'NAME = """{}"""'),
    ),
    "environment": (
        (upper, "NAME={}"), (upper, "export NAME={}"), (upper, 'export NAME="{}"'), (upper, "export X_NAME={}"),
        (upper, "NAME='{}' ./run.sh"), (upper, "set NAME={}"), (upper, "ENV NAME {}"), (upper, "ENV NAME={}"),
        (upper, '$env:NAME = "{}"'), (upper, "setenv NAME {}"), (upper, "docker run -e NAME={} app"),
        (upper, 'NAME="${NAME:-{}}"'),
    ),
    "XML": (
        (camel, "<NAME>{}</NAME>"), (pascal, "<NAME>\n    {}\n  </NAME>"), (camel, '<NAME type="text">{}</NAME>'),
        (pascal, '<add key="NAME" value="{}" />'), (camel, '<property name="NAME" value="{}"/>'),
        (camel, '<entry name="NAME">{}</entry>'), (camel, '<server NAME="{}"/>'),
        (camel, "<NAME><![CDATA[{}]]></NAME>"), (camel, "<key>NAME</key>\n<string>{}</string>"),
    ),
    "HTTP headers": (
        (header, "X-NAME: {}"), (header, "NAME: {}"), (header, "curl -H 'X-NAME: {}' https://api.internal.corp/v1"),
        (header, 'curl -H "NAME: {}" https://api.internal.corp/v1'),
        (header, "> GET /v1/items\n> X-NAME: {}\n> Accept: */*"), (kebab, "x-NAME:{}"), (header, '"X-NAME": "{}"'),
        (header, "X-NAME: Bearer {}"), (snake, "Cookie: theme=dark; NAME={}; lang=en"),
    ),
    "flags": (
        (kebab, "deploy --NAME {} --wait"), (kebab, "deploy --NAME={}"), (kebab, 'deploy --NAME "{}"'),
        (kebab, "deploy --NAME='{}' prod"), (snake, "tool -NAME {}"), (camel, "java -DNAME={} -jar app.jar"),
        (camel, "helm install app --set auth.NAME={}"), (kebab, '["deploy", "--NAME", "{}"]'),
        (pascal, 'Connect-App -NAME "{}"'), (kebab, "deploy \\\n  --NAME {} \\\n  --wait"),
    ),
    "URLs": (
        (snake, "https://api.internal.corp/v1/items?NAME={}"), (snake, "GET /v1/items?page=2&NAME={}&sort=asc"),
        (camel, "https://app.internal.corp/#NAME={}"), (snake, '<a href="/list?a=1&amp;NAME={}">'),
        (kebab, "wss://push.internal.corp/?NAME={}"), (snake, "next=https%3A%2F%2Fapi.internal.corp%2F%3FNAME%3D{}"),
    ),
    "Python": (
        (snake, 'NAME = "{}"'), (upper, "NAME = '{}'"), (upper, 'NAME: str = "{}"'), (upper, 'NAME: Final[str] = "{}"'),
        (snake, "self.NAME = '{}'"), (upper, 'os.environ["NAME"] = "{}"'), (upper, 'os.environ.get("NAME", "{}")'),
        (snake, 'client = Client(NAME="{}")'), (snake, "settings = {'NAME': '{}'}"), (snake, 'NAME = b"{}"'),
        (upper, 'NAME = (\n    "{}"\n)'), (header, 'headers["X-NAME"] = "{}"'), (snake, "set_NAME('{}')"),
    ),
    "JavaScript": (
        (camel, "const NAME = '{}';"), (camel, "const NAME =\n  '{}';"), (camel, 'export const NAME: string = "{}";'),
        (camel, "  NAME: '{}',"), (camel, "let NAME = `{}`;"), (upper, "process.env.NAME || '{}'"),
        (upper, 'process.env.NAME ?? "{}"'), (header, "headers.set('X-NAME', '{}');"), (pascal, 'client.setNAME("{}")'),
    ),
    "Go": (
        (camel, 'NAME := "{}"'), (pascal, 'const NAME = "{}"'), (camel, 'var NAME string = "{}"'),
        (pascal, '\tNAME: "{}",'), (header, 'req.Header.Set("X-NAME", "{}")'), (camel, "NAME := `{}`"),
        (upper, 'os.Setenv("NAME", "{}")'),
    ),
    "C#, Java, C and others": (
        (camel, 'string NAME = "{}";'), (camel, 'var NAME = @"{}";'), (pascal, 'public const string NAME = "{}";'),
        (pascal, 'options.NAME = "{}";'), (upper, 'private static final String NAME = "{}";'),
        (camel, 'System.setProperty("NAME", "{}");'), (snake, 'static const char *NAME = "{}";'),
        (snake, 'const char NAME[] = "{}";'), (upper, '#define NAME "{}"'), (upper, 'const NAME: &str = "{}";'),
        (upper, 'const NAME: &\'static str = "{}";'), (camel, 'val NAME: String = "{}"'), (snake, "'NAME' => '{}',"),
        (snake, "$NAME = '{}';"), (upper, "define('NAME', '{}');"), (snake, ":NAME => '{}',"),
        (upper, "ENV['NAME'] ||= '{}'"), (snake, 'NAME ?= "{}"'), (snake, "NAME := {}"),
    ),
    "R": ((snake, 'NAME <- "{}"'), (snake, "NAME <<- '{}'")),
    ".npmrc": (
        (camel, "//registry.corp.net/:_authToken={}"), (camel, "//registry.corp.net/:_authToken = {}"),
        (camel, '//registry.corp.net/:_authToken="{}"'), (camel, "_auth={}"), (camel, 'npmAuthToken: "{}"'),
        (camel, "npm config set //registry.corp.net/:_authToken {}"),
    ),
}  # fmt: skip


def value(rng: random.Random, alphabet: str, length: int = LENGTH) -> str:
    return pick(rng, ALPHABETS[alphabet], length)


def assignments(
    syntax: str,
    alphabet: str,
    count: int,
    *,
    length: int = LENGTH,
    seed: int = 5,
    names: tuple[tuple[str, ...], ...] = NAMES,
) -> list[Made]:
    """Texts of one syntax with one value each, and the bytes where it begins and ends; all lines and names in turn."""
    rng = random.Random(f"{syntax} {alphabet} {length} {seed}")
    lines = SYNTAXES[syntax]
    made = []
    for number in range(count):
        spell, line = lines[number % len(lines)]
        name = spell(names[rng.randrange(len(names))])
        before, after = line.replace("NAME", name).split("{}")
        head = f"# settings of the service\n{before}"
        text = f"{head}{value(rng, alphabet, length)}{after}\nother lines follow\n"
        start = len(head.encode())
        made.append((text, start, start + length))
    return made
