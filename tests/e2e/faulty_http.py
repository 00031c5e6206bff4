"""An HTTP proxy that fails on demand: between the product and a store, for tests of what a network does."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from local_server import LocalServer

STALL_SECONDS = 600
FAULTS = ("error 500", "error 503", "stall", "truncate", "reset")


@dataclass
class Rule:
    """A fault, and the requests that meet it."""

    fault: str
    """One of :data:`FAULTS`, ``short`` (a body whose length is well, but less than asked for), or ``error N``."""
    key: str = ""
    """The end of the path of the object; empty for listings."""
    first: int = 1
    """Of the matching requests, counted from 1, the first that fails."""
    times: int = 1_000_000
    """How many fail from there on."""
    method: str = "GET"
    seen: int = 0

    def hits(self, method, path, query):
        """Count a request; tell whether it fails."""
        wanted = path.endswith(self.key) if self.key else "list-type" in query
        if method != self.method or not wanted:
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.times


@dataclass
class Proxy:
    """A running proxy."""

    upstream: tuple[str, int]
    rules: list[Rule] = field(default_factory=list)
    log: list[tuple[str, str, str, int]] = field(default_factory=list)
    """(method, path with query, range, bytes of the body)."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self):
        """Serve on a free port; return its address."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = LocalServer(Handler)
        return self._server.address

    def close(self):
        """End it, and what is stalled."""
        self.stop.set()
        self._server.close()

    def clear(self):
        """Forget rules and log."""
        with self.lock:
            self.rules.clear()
            self.log.clear()

    def reads(self):
        """Return the number of body bytes by key, of GETs of objects."""
        total = Counter()
        for method, path, _, size in self.log:
            if method == "GET" and "list-type" not in path:
                total[urlsplit(path).path.rpartition("/")[2]] += size
        return total


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def log_message(self, *args):
        """Say nothing."""

    def _serve(self):
        parts = urlsplit(self.path)
        with self.owner.lock:
            query = parse_qs(parts.query)
            hit = [rule.fault for rule in self.owner.rules if rule.hits(self.command, parts.path, query)]
        fault = hit[0] if hit else ""
        self.close_connection = True
        if fault == "reset":
            self._reset()
            return
        if fault.startswith("error"):
            status = int(fault.split()[1])
            self._answer(status, {}, f"<Error><Code>{_CODES[status]}</Code></Error>".encode())
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPConnection(*self.owner.upstream, timeout=30)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            found = upstream.getresponse()
            data = found.read()
            headers = {name: value for name, value in found.getheaders() if name.lower() not in _OURS}
            length = int(found.getheader("Content-Length") or len(data))
        finally:
            upstream.close()
        with self.owner.lock:
            self.owner.log.append((self.command, self.path, self.headers.get("Range", ""), len(data)))
        if fault == "short":
            data = data[: len(data) // 2]
            length = len(data)
        cut = len(data) // 2 if fault in ("truncate", "stall") else len(data)
        self._answer(found.status, headers, data[:cut], length=length)
        if fault == "stall":
            self.owner.stop.wait(STALL_SECONDS)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, status, headers, data, *, length=None):
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'x')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(data) if length is None else length}", "Connection: close", "", ""]
        self.wfile.write("\r\n".join(lines).encode("latin-1"))
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    def _reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


_CODES = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}
_OURS = frozenset({"content-length", "connection", "transfer-encoding", "keep-alive"})
