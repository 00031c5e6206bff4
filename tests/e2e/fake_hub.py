"""A model hub with one dataset, over HTTP: the few answers that streaming it asks for."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from local_server import LocalServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/corpus"


class FakeHub:
    """Serves the files of a folder as the dataset ``org/corpus`` at one commit.

    Args:
        folder: Whose files the dataset has.
    """

    def __init__(self, folder):
        self.folder = folder
        self.log = []
        self.broken = ""
        """End of a path whose bodies are cut short."""
        hub = self

        class Handler(_Handler):
            owner = hub

        self._server = LocalServer(Handler)
        self.address, self.close = self._server.address, self._server.close

    def files(self):
        """Return the entries of the dataset's tree."""
        entries = []
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_dir():
                entries.append({"type": "directory", "oid": COMMIT, "size": 0, "path": name})
            else:
                oid = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
                entries.append({"type": "file", "oid": oid, "size": path.stat().st_size, "path": name})
        return entries


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FakeHub

    def log_message(self, *args):
        """Say nothing."""

    def _serve(self):
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.owner.log.append((self.command, self.path, self.headers.get("Authorization", "")))
        api, resolve = f"/api/datasets/{REPO}", f"/datasets/{REPO}/resolve/"
        if path == api or path.startswith(f"{api}/revision/"):
            if path.rpartition("/")[2] in ("corpus", "main", COMMIT):
                self._json({"id": REPO, "sha": COMMIT, "siblings": [], "private": False, "tags": []})
            else:
                self._missing("RevisionNotFound")
        elif path.startswith(f"{api}/tree/"):
            below = path.removeprefix(f"{api}/tree/").partition("/")[2]
            found = [
                entry for entry in self.owner.files() if _is_below(entry["path"], below, "recursive=True" in self.path)
            ]
            self._json(found) if found or not below else self._missing("EntryNotFound")
        elif path.startswith(f"{api}/paths-info/"):
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else _form(body)
            self._json([entry for entry in self.owner.files() if entry["path"] in wanted])
        elif path.startswith(resolve):
            self._file(path.removeprefix(resolve).partition("/")[2])
        else:
            self._missing("RepoNotFound")

    do_GET = do_HEAD = do_POST = _serve

    def _file(self, name):
        path = self.owner.folder / name
        if not path.is_file():
            self._missing("EntryNotFound")
            return
        data, status, headers = path.read_bytes(), 200, {}
        whole = len(data)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            stop = min(int(last) + 1 if last else whole, whole)
            data, status = data[int(first) : stop], 206
            headers["Content-Range"] = f"bytes {first}-{stop - 1}/{whole}"
        headers |= {"ETag": f'"{hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()}"'}
        headers |= {"X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        cut = len(data) // 2 if self.owner.broken and name.endswith(self.owner.broken) else len(data)
        self._answer(status, headers, data[:cut], len(data))

    def _json(self, value):
        data = json.dumps(value).encode()
        self._answer(200, {"Content-Type": "application/json"}, data, len(data))

    def _missing(self, code):
        self._answer(404, {"X-Error-Code": code, "X-Error-Message": code}, b"", 0)

    def _answer(self, status, headers, data, length):
        self.close_connection = True
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(length), "Connection": "close"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _is_below(path, folder, recursive):
    if folder and not path.startswith(folder + "/"):
        return False
    return recursive or "/" not in path.removeprefix(folder).strip("/")


def _form(body):
    from urllib.parse import parse_qs

    return parse_qs(body.decode()).get("paths", [])
