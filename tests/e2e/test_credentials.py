"""Credentials planted in every setting that takes an address, a path or a pattern are shown and stored nowhere."""

import contextlib
import http.server
import json
import re

import pytest
import yaml
from canaries import Search
from click.testing import CliRunner
from corpus import rows, write_jsonl
from lanes import sample
from local_server import LocalServer
from running import run

import dataaudit
from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.judges

USER, PASSWORD, TOKEN = "user-of-the-heronry", "pw-kittiwake-58821", "tok-plover-77310"
SEARCH = Search({"user": USER, "password": PASSWORD, "token": TOKEN})
LOCAL = {"splits": {"train": {"paths": ["data/*.jsonl"], "text": "text"}}}
FORMS = (
    f"https://{USER}:{PASSWORD}@127.0.0.1:1/x.json?token={TOKEN}&X-Amz-Signature={TOKEN}",
    f"https://{USER}:{PASSWORD}/{PASSWORD}@127.0.0.1:1/x.json#access_token={TOKEN}",
    f"https:/{USER}:{PASSWORD}@127.0.0.1:1/{'long/' * 30}?{TOKEN}",
    f"s3://{USER}:{PASSWORD}@bucket/x.jsonl?token={TOKEN}",
    f"gs://bucket/none-*.jsonl?token={TOKEN}",
    f"nosuch://{USER}:{PASSWORD}@bucket/x.jsonl?sig={TOKEN}",
    f"zip://x::https://{USER}:{PASSWORD}@127.0.0.1:1/x.zip",
    f"org/name?token={TOKEN}",
    f"./none/{USER}:{PASSWORD}@x/*.jsonl?token={TOKEN}",
    f"{USER}:{PASSWORD}@127.0.0.1/x.jsonl",
    f"https%3A%2F%2F{USER}%3A{PASSWORD}%40127.0.0.1%2Fx.jsonl%3Ftoken%3D{TOKEN}",
    f"s3://{USER}:{PASSWORD}@bucket/x.jsonl;token={TOKEN}",
)


def _settings(value):
    """Return configs with a value in each place that takes an address, a path, an id or a pattern."""
    split = LOCAL["splits"]["train"]
    yield {"splits": {"train": {"paths": [value]}}}
    yield {"splits": {"train": {"paths": [value, "data/a.jsonl"]}}, "root": "."}
    yield {"splits": {"train": {"paths": ["a.jsonl"]}}, "root": value}
    yield {"splits": {"train": {"dataset": {"id": value}}}}
    yield {"splits": {"train": {"dataset": {"id": "org/x", "config": value, "split": value, "revision": value}}}}
    yield {"splits": {"train": {**split, "source": {"pattern": value + "("}}}}
    yield {"splits": {"train": split, value: split}}
    yield {"splits": {"train": {**split, "text": value}}}
    yield {**LOCAL, "protected": {"q": {"paths": [value], "question": "q"}}}
    yield {**LOCAL, "reader": {"batch_bytes": value}}
    yield {**LOCAL, value: 1}
    for section, key in (("language", "model"), ("pii", "entities"), ("secrets", "rules"), ("secrets", "allow")):
        yield {**LOCAL, section: {key: value}}
    for key in ("tokenizer", "reference"):
        yield {**LOCAL, key: value}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a small corpus, without a hub that could be asked."""
    write_jsonl(tmp_path / "data/a.jsonl", rows(["one two three", "four five six"], "s"))
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path


def _leaks(printed, folder):
    return {(name, "printed") for name in SEARCH.find(printed.encode())} | SEARCH.find_below(folder)


def _refused(folder, *args):
    """Run a build that fails; return what it printed."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, ["build", *map(str, args), "--workers", "0"])
    assert result.exit_code in {2, 3, 4}, result.output
    assert "dataaudit: " in result.stderr or result.exit_code == 4
    assert "internal error" not in result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize("value", sample(FORMS, 4), ids=lambda form: re.split(r"[:/]", form)[0])
def test_a_build_that_fails_names_the_setting_and_no_secret(desk, value, capfd):
    """Neither what commands print nor what libraries do, nor any file beside the config."""
    printed = ""
    for number, config in enumerate(_settings(value)):
        patience = {"reader": {"retries": 0, "timeout_seconds": 1}}
        (desk / "c.yaml").write_text(yaml.safe_dump(patience | config), encoding="utf-8")
        printed += _refused(desk, desk / "c.yaml", "--manifest", f"m{number}", "--state", "s")
    for more in (("--tokenizer", value), ("--reference", value)):
        printed += _refused(desk, "data", "--manifest", "m", *more)
    (desk / "c.yaml").unlink()
    captured = capfd.readouterr()
    assert _leaks(printed + captured.out + captured.err, desk) == set()


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves one file to who has the token."""

    def log_message(self, *args):
        """Say nothing."""

    def do_GET(self):
        """Serve it."""
        if f"token={TOKEN}" not in self.path and "token=other" not in self.path:
            self.send_error(403)
            return
        data = b'{"text": "one two three"}\n{"text": "four five"}\n'
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_GET


def test_a_build_that_succeeds_stores_no_secret_and_the_id_depends_on_none(desk, capfd):
    """Who reads the same bytes with other credentials gets the same id."""
    server = LocalServer(Files)
    host = server.address.removeprefix("http://")
    ids, printed = [], ""
    try:
        for user, password, token in ((USER, PASSWORD, TOKEN), ("else", "pw", "other")):
            config = {
                "dataset": {"name": "d", "version": f"https://{user}:{password}@h/v?token={token}"},
                "splits": {
                    "train": {
                        "paths": [f"http://{user}:{password}@{host}/a.jsonl?token={token}"],
                        "source": {"pattern": f"https://{user}:{password}@h/(?P<no>[a-z]+)|(?P<source>.)"},
                    },
                    "val": {"paths": ["data/a.jsonl"], "held_out": True},
                },
                "toxicity": {"judge": f"https://{user}:{password}@h/judge.ckpt?token={token}"},
            }
            (desk / "c.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
            out, err = run("build", desk / "c.yaml", "--manifest", "m", "--state", "s", "--json", cwd=desk)
            ids.append(json.loads(out)["id"])
            printed += out + err
            printed += "".join(run("show", "m", "--all", cwd=desk)) + "".join(run("show", "m", "--json", cwd=desk))
            run("report", "m", "--out", "report.html", cwd=desk)
            run("export", "openlineage", "m", "--out", "lineage.ndjson", cwd=desk)
            if token == TOKEN:
                (desk / "c.yaml").unlink()
                assert _leaks(printed, desk) == set()
    finally:
        server.close()
    (desk / "c.yaml").unlink()
    captured = capfd.readouterr()
    assert _leaks(printed + captured.out + captured.err, desk) == set()
    assert ids[0] == ids[1] == load_manifest(desk / "m").id


def test_lists_are_not_written_below_an_address_with_secrets(desk):
    run("build", "data", "--manifest", "m", cwd=desk)
    run("quarantine", "add", "q.jsonl", "--manifest", "m", "0", "--reason", "x", cwd=desk)
    apply = ("quarantine", "apply", "q.jsonl", "--manifest", "m", "--out", "lists", "--root", FORMS[0])
    out, err = run(*apply, cwd=desk, expect=2)
    assert "is not written into lists" in err
    assert _leaks(out + err, desk) == set()


@pytest.mark.parametrize("command", ["show", "verify", "build"])
def test_an_address_is_not_taken_for_a_folder(desk, command):
    """A folder of that name would hold the password, and so would every line that names it."""
    address = f"https://{USER}:{PASSWORD}@127.0.0.1:1/x?token={TOKEN}"
    before = sorted(desk.iterdir())
    with contextlib.chdir(desk):
        result = CliRunner().invoke(
            main, ["build", "data", "--manifest", address] if command == "build" else [command, address]
        )
    assert result.exit_code == 2
    assert "a path on this machine is expected" in result.stderr
    assert SEARCH.find(result.output.encode()) == set()
    assert sorted(desk.iterdir()) == before


def test_python_takes_no_address_for_a_folder():
    with pytest.raises(ConfigError, match="a path on this machine is expected") as told:
        dataaudit.load(f"https://{USER}:{PASSWORD}@127.0.0.1:1/x?token={TOKEN}")
    assert SEARCH.find(str(told.value).encode()) == set()
