from __future__ import annotations

from hashlib import sha256
from http.server import BaseHTTPRequestHandler

import pytest
from local_server import LocalServer

from dataaudit.base.errors import TokenizerError
from dataaudit.scan.corpus.tokens import resolve_tokenizer, spec

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does: one public model, a gated one, one without the file."""

    files: dict[str, bytes]
    asked: list[str]

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def log_message(self, *args):
        """Keep the test's output clean."""

    def _answer(self, *, with_body):
        self.asked.append(f"{self.command} {self.path}")
        refusals = {"gated": ("GatedRepo", 403), "nofile": ("EntryNotFound", 404), "norev": ("RevisionNotFound", 404)}
        body = self.files.get(self.path)
        if self.path == "/":
            status, headers, body = 200, {}, b"hub"
        elif body is not None:
            etag = f'"{sha256(body).hexdigest()}"'
            status, headers = 200, {"ETag": etag, "X-Repo-Commit": COMMIT}
        else:
            kind = next((word for word in refusals if word in self.path), None)
            code, status = refusals[kind] if kind else ("RepoNotFound", 401)
            headers, body = {"X-Error-Code": code, "X-Error-Message": code}, b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def local_hub(bpe_trainer, tmp_path, monkeypatch):
    """A hub on 127.0.0.1 with the model org/tiny, and an empty client cache."""
    content = bpe_trainer().to_str().encode()
    Hub.files = {f"/org/tiny/resolve/{revision}/tokenizer.json": content for revision in ("main", "v1.0", COMMIT)}
    Hub.asked = []
    server = LocalServer(Hub)
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield server
    server.close()


@pytest.mark.parametrize("name", ["org/tiny", "org/tiny@v1.0", f"org/tiny@{COMMIT}"])
def test_hub_id_is_fetched_and_named_by_its_id(local_hub, tmp_path, name):
    """An id, with or without a revision, gives the hub's tokenizer.json, and asks for no other file of it."""
    file = resolve_tokenizer(name, base_dir=tmp_path, cache_dir=tmp_path / "copies")
    (content,) = set(Hub.files.values())
    assert (file.name, file.format, file.sha256) == (name, "tokenizer.json", sha256(content).hexdigest())
    assert file.path.read_bytes() == content
    fetched = [request for request in Hub.asked if "/org/tiny/" in request]
    assert fetched
    assert all(request.endswith("/tokenizer.json") for request in fetched)


def test_fetched_model_serves_without_the_hub(local_hub, tmp_path, monkeypatch):
    """What was fetched once is found again when the hub is gone."""
    first = resolve_tokenizer("org/tiny", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    monkeypatch.setattr(spec, "_answers", lambda endpoint: False)
    assert resolve_tokenizer("org/tiny", base_dir=tmp_path, cache_dir=tmp_path / "copies") == first


@pytest.mark.parametrize(
    ("name", "found", "hint"),
    [
        ("org/unknown", "no such model", "HF_TOKEN"),
        ("org/gated-model", "asked for", "HF_TOKEN"),
        ("org/nofile", "has no tokenizer.json", ".model"),
        ("org/tiny@norev", "no revision", "after @"),
    ],
)
def test_refusal_of_the_hub_is_a_clear_error(local_hub, tmp_path, name, found, hint):
    """Unknown, gated, incomplete and wrong revision are told apart."""
    with pytest.raises(TokenizerError, match=found) as caught:
        resolve_tokenizer(name, base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert name in caught.value.message
    assert hint in caught.value.hint


def test_unreachable_hub_is_a_clear_error_within_seconds(tmp_path, monkeypatch):
    """A refused connection is reported at once, with a way out."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    with pytest.raises(TokenizerError, match="cannot be reached") as caught:
        resolve_tokenizer("org/tiny", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert "org/tiny" in caught.value.message
    assert "file" in caught.value.hint


def test_local_path_wins_over_a_hub_id(local_hub, bpe_trainer, tmp_path):
    """A folder of that name is used, and the hub is not asked."""
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    bpe_trainer(specials=("<local>",)).save(str(tmp_path / "org" / "tiny" / "tokenizer.json"))
    file = resolve_tokenizer("org/tiny", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert "<local>" in file.path.read_text()
    assert Hub.asked == []
