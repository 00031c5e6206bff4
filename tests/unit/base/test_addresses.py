"""What is shown of an address: no user, no password, no value of a query; and the rest as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.errors import ConfigError
from dataaudit.base.redact import has_secrets, without_secrets
from dataaudit.base.text import clean_message
from dataaudit.base.yamlfile import in_words, load_yaml

HIDDEN = {
    "https://user:pass@host/x.json": "https://***@host/x.json",
    "https://token@host/x.json": "https://***@host/x.json",
    "https:/user:pass@host/x": "https:/***@host/x",
    "https:/host/x?SECRET": "https:/host/x?***",
    "https:/host/x%3FSECRET": "https:/host/x%3F***",
    "s3://KEY:SEC/RET@bucket/k": "s3://***@bucket/k",
    "https://user:p@ss@host": "https://***@host",
    "https://user:cut-off": "https://user:***",
    "https://host/x?token=a&X-Amz-Signature=b#access_token=c": "https://host/x?token=***&X-Amz-Signature=***#access_token=***",
    "https://host/x?SECRET": "https://host/x?***",
    "abfss://container:key@account/x": "abfss://***@account/x",
    "org/name?token=abc": "org/name?token=***",
    "/data/*.jsonl%3Ftoken=abc%26x=2": "/data/*.jsonl%3Ftoken=***",
    "user:pass@host/x": "***@host/x",
    "/folder/user:pass@host/x": "/folder/***@host/x",
    "--https://user:pass@[::1]:1/x": "--https://***@[::1]:1/x",
    "https%3A%2F%2Fuser%3Apa%2Fss%40host%2Fx%3Ftoken%3Dabc": "https%3A%2F%2F***%40host%2Fx%3Ftoken%3D***",
    "https%253a%252f%252fuser%253apass%2540host%253Ft%253Dabc": "https%253a%252f%252f***%2540host%253Ft%253D***",
    "s3://bucket/x;token=abc;v=2": "s3://bucket/x;token=***;v=***",
    "jdbc:sqlserver://host:1433;user=me;password=a/b": "jdbc:sqlserver://host:1433;user=***;password=***",
    "//user:pass@host/x?SECRET": "//***@host/x?***",
}
PLAIN = (
    "abfss://container@account.dfs.core.windows.net/x", "https://host:8080/@me/part-1.jsonl",
    "tcp://10.0.0.1:8786, (http://h:3): https://[::1]:80/x.", "train/(?P<source>[^/]+)/(?P=source)",
    "https://host/(?P<source>[a-z]+)/x", "pkg:generic/web@1.0.0", "data/part-?.jsonl", "train/a.jsonl#copy=2",
    "12:30@noon", "write to a.b@example.org", "C:/x and file:///a/b", "x = 3; y = 4", "https://host/x; token=3",
    "100%40 of a, ratio%3A%2F2",
)  # fmt: skip


@pytest.mark.parametrize("given", HIDDEN)
@pytest.mark.parametrize("around", ["{}", "tokenizer {}: no such file", "found '{}', expected `x`", "({})"])
def test_secrets_are_hidden_wherever_the_address_stands(given, around):
    """In a message, in quotes, twice."""
    shown = without_secrets(around.format(given))
    assert shown == around.format(HIDDEN[given])
    assert without_secrets(shown) == shown
    assert has_secrets(given)


@pytest.mark.parametrize("text", PLAIN)
def test_what_holds_no_secret_stays(text):
    """Hosts with ports, containers, groups of regular expressions, numbers of copies."""
    assert without_secrets(text) == text


@given(
    user=st.text("abcXYZ019._~-", max_size=9),
    password=st.text("abcXYZ019._~!$*+,;=:/?#@-", min_size=1, max_size=12),
    scheme=st.sampled_from(["https", "s3", "ftp", "hf"]),
)
def test_no_password_is_shown(user, password, scheme):
    """Two users with passwords of their own see the same, whatever characters these hold unescaped."""
    shown = without_secrets(f"cannot open {scheme}://u{user}:zq{password}zq@host/x.json now")
    assert "zq" not in shown
    assert without_secrets(shown) == shown


def test_messages_pass_it_whole():
    """What is cut for a message is cut after its secrets are gone; errors and terminals cannot forget it."""
    address = f"https://user:{'long-password' * 9}@host/x"
    assert "passw" not in in_words(address)
    assert "https://***@host/x" in in_words(address)
    error = ConfigError(f"x {address}", f"y {address}")
    assert "passw" not in f"{error}{error!r}{error.args}"
    assert "passw" not in clean_message(f"a\n{address}")
    with pytest.raises(ConfigError) as caught:
        load_yaml(f"x: !!int {address}", where="c.yaml")
    assert "passw" not in str(caught.value)
