"""The server of a page: who may look, who may acknowledge, and what an open page is sent."""

import asyncio
import json
import math
import socket
from urllib.parse import urlsplit

import pytest
from test_followed_run import Log, healthy, viewed

from dataaudit.base.errors import ConfigError
from dataaudit.live.incidents import FOLDER, acknowledged
from dataaudit.training.pages import serving
from dataaudit.training.pages.serving import Live, application, serve, stream

pytest.importorskip("starlette", reason="needs the extra `serve`")
TOKEN = "right-token"  # noqa: S105  (of these tests)
OWN = "http://127.0.0.1:8765"


@pytest.fixture
def live(tmp_path):
    """A run with an incident, as a server knows it."""
    Log(tmp_path / "run").steps([*healthy(100), math.nan]).flush()
    return Live(viewed(tmp_path / "run"), 0.2)


@pytest.fixture
def client(live):
    """Who opened the link with the token."""
    from starlette.testclient import TestClient

    made = TestClient(application(live, TOKEN), base_url=OWN)
    assert made.get(f"/?token={TOKEN}").status_code == 200
    return made


def stranger(live, base=OWN):
    """Return a client without the token."""
    from starlette.testclient import TestClient

    return TestClient(application(live, TOKEN), base_url=base)


def test_the_page_is_for_who_has_the_token(live, client):
    """The link leads to an address without it, and leaves a cookie that scripts cannot read."""
    answer = stranger(live).get(f"/?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    page = client.get("/")
    assert "loss not finite" in page.text
    assert TOKEN not in page.text
    assert page.headers["cache-control"] == "no-store"
    for path in ("/", "/?token=wrong", "/events", "/?token="):
        answer = stranger(live).get(path)
        assert answer.status_code == 403
        assert "dataaudit watch --serve" in answer.text


@pytest.mark.parametrize("base", ["http://evil.example", "http://evil.example:8765", "http://127.0.0.1.evil.example"])
def test_no_other_name_of_this_machine_is_served(live, base):
    """A web site that points its name here gets nothing, with the token neither."""
    assert stranger(live, base).get(f"/?token={TOKEN}", follow_redirects=False).status_code != 303
    other = stranger(live, base)
    other.cookies.set("dataaudit", TOKEN)
    assert other.get("/").status_code == 421
    assert other.post("/ack", headers={"X-Token": TOKEN}, json={}).status_code == 421


@pytest.mark.parametrize("base", ["http://localhost:1234", "http://127.0.0.1:99", "http://[::1]:5"])
def test_a_forwarded_port_is_served(live, base):
    """As `ssh -L` makes it."""
    assert stranger(live, base).get(f"/?token={TOKEN}").status_code == 200


def test_an_acknowledgement_asks_for_the_token_and_is_that_of_the_command(live, client):
    """A cookie alone does not do; the file is what `alerts ack` writes."""
    incident = live.view.incidents()[0].id
    given = {"incident": incident, "who": "ana", "note": "back to step 90"}
    folder = live.view.tiles.folder / FOLDER / incident
    for headers in ({}, {"X-Token": "wrong"}):
        answer = client.post("/ack", headers=headers, json=given)
        assert (answer.status_code, list(answer.json())) == (403, ["error"])
    assert acknowledged(folder) is None
    assert client.post("/ack", headers={"X-Token": TOKEN}, json=given).json()["who"] == "ana"
    known = acknowledged(folder)
    assert (known.who, known.note, known.severity) == ("ana", "back to step 90", 0)


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"incident": "../../x", "who": "ana", "note": ""}, 400, "has no incident"),
        ({"incident": "none", "who": "", "note": ""}, 400, "has no incident"),
        ({"who": "ana"}, 400, "Expected incident, who and note."),
        ("no object", 400, "Expected incident, who and note."),
        ({"incident": "x" * 20_000, "who": "", "note": ""}, 413, "too long"),
    ],
)
def test_a_wrong_acknowledgement_is_a_message(client, given, code, says):
    """And nothing is written."""
    answer = client.post("/ack", headers={"X-Token": TOKEN}, json=given)
    assert answer.status_code == code
    assert says in answer.json()["error"]


def test_everything_else_is_read_only(client):
    """No other method, no other path."""
    assert client.post("/").status_code == 405
    assert client.delete("/ack").status_code == 405
    assert client.get("/run.json").status_code == 404


def test_an_open_page_is_sent_what_changed(live, tmp_path):
    """First all of it, then the sections that the newest steps change."""

    async def news():
        found = []
        async for text in stream(live, 0):
            if text.startswith("event: news\ndata: "):
                found.append(json.loads(text.removeprefix("event: news\ndata: ")))
            if len(found) == 1:
                Log(tmp_path / "run", first=102).steps(healthy(5)).flush()
                live.view.read(math.inf)
            else:
                live.close()
        return found

    whole, later = asyncio.run(news())
    assert whole["order"][0] == "alerts"
    assert {name for name, *_ in whole["sections"]} == set(whole["order"])
    assert "top" in whole
    changed = {name for name, *_ in later["sections"]}
    assert "loss" in changed
    assert "quality" not in changed


def test_a_look_that_failed_is_on_the_page(live, client):
    """The page went on with old numbers, and later took the run for dead; the terminal says it, too."""
    assert "A look failed" not in client.get("/").text

    def fails(_):
        live.close()
        raise OSError

    live.view.read = fails
    live._read()
    assert "A look failed (OSError at test_serving.py" in client.get("/").text


def test_a_port_that_is_taken_is_a_message(live, capsys):
    """With what to type instead."""
    with socket.socket() as other:
        other.bind((serving.HOST, 0))
        other.listen()
        with pytest.raises(ConfigError, match="cannot be used"):
            serve(live.view, port=other.getsockname()[1], interval=1.0, show=print)


def test_the_link_is_shown_when_it_can_be_opened(live):
    """Who opens it at once is not refused."""
    pytest.importorskip("uvicorn", reason="needs the extra `serve`")

    def show(line):
        port = urlsplit(line.strip()).port
        with socket.create_connection((serving.HOST, port), timeout=5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(live.view, port=0, interval=1.0, show=show)
