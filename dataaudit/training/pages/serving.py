"""``dataaudit watch --serve``: the page of a run from this machine alone, brought up to date by server-sent events.

The page is read-only but for acknowledgements, which `alerts ack` writes, too. Whoever has the token may look: the
link in the terminal carries it and a cookie keeps it; an acknowledgement asks for it again, in a header that no other
site can set. Requests under another name than this machine's own are refused, so no web site reaches the server by
a name that it points here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dataaudit.base.errors import CatchErrors, ConfigError, DataAuditError
from dataaudit.base.extras import require
from dataaudit.base.render.blocks import Page
from dataaudit.base.render.html import fragments, render
from dataaudit.base.render.line import say
from dataaudit.live.incidents import acknowledge
from dataaudit.training.pages.live_page import live_page
from dataaudit.training.pages.run_view import RunView

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOST: Final = "127.0.0.1"
PORT: Final = 8765
SPANS: Final = (0, 10_000, 1_000, 100)
"""Newest steps that a page may ask for; 0: all."""
_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_COOKIE = "dataaudit"
_BEAT_SECONDS = 15.0
_PAUSE_SECONDS = 0.2
_MOST_BODY = 16_384


class Live:
    """A view that a thread keeps up to date, and the parts of its page by the steps that are shown."""

    def __init__(self, view: RunView, interval: float) -> None:
        self.view, self.interval = view, interval
        self.failed = ""
        """What the newest reading failed by, if it did."""
        self._made: dict[int, tuple[float, dict[str, Any]]] = {}
        self._drawn: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="dataaudit-tiles", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop, when what is being read is done, for a few seconds at most."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    @property
    def ended(self) -> bool:
        """Whether it was closed."""
        return self._ended.is_set()

    def document(self) -> str:
        """Return the whole page."""
        with self._lock:
            self.view.first = 0
            return render(self._page(), live="events", drawn=self._drawn.setdefault(0, {}))

    def parts(self, newest: int) -> dict[str, Any]:
        """Return what stands first on a page of the newest steps, 0 for all, its sections, and their charts.

        Readers who ask within half an interval share what was made.
        """
        with self._lock:
            made, parts = self._made.get(newest, (-math.inf, {}))
            if time.monotonic() - made > self.interval / 2:
                self.view.first = max(0, self.view.tiles.step - newest) if newest else 0
                top, sections = fragments(self._page(), self._drawn.setdefault(newest, {}))
                parts = {"top": top, "sections": sections}
                self._made[newest] = time.monotonic(), parts
        return parts

    def _page(self) -> Page:
        """Return the page, and what the newest reading or judging failed by: else a run that is well looks dead."""
        page = live_page(self.view)
        failed = self.failed or (self.view.watch.failed if self.view.watch is not None else "")
        if not failed:
            return page
        words = say("A look failed ({}), and is tried again. {}", failed, page.subline)
        return replace(page, subline=words, tone=page.tone if page.tone == "bad" else "warn")

    def _read(self) -> None:
        while not self._ended.is_set():
            with CatchErrors() as call, self._lock:
                self.view.read(0.3)
            self.failed = "" if call.error is None else call.origin
            self._ended.wait(0.05 if self.view.more else self.interval)


def application(live: Live, token: str) -> Any:
    """Return the ASGI application of a view."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    site = _Site(live, token)
    return Starlette(
        routes=[
            Route("/", site.page, methods=["GET"]),
            Route("/events", site.events, methods=["GET"]),
            Route("/ack", site.ack, methods=["POST"]),
        ]
    )


class _Site:
    """Answers requests."""

    def __init__(self, live: Live, token: str) -> None:
        self._live, self._token = live, token.encode()

    async def page(self, request: Request) -> Response:
        """Return the page; a link with the token leaves a cookie, and leads to the page without it."""
        from starlette.responses import HTMLResponse, RedirectResponse

        given = request.query_params.get("token", "")
        if given and self._same(given) and _own_name(request):
            response = RedirectResponse("/", 303)
            response.set_cookie(_COOKIE, given, httponly=True, samesite="strict")
            return response
        if (no := self._refused(request)) is not None:
            return no
        return HTMLResponse(await asyncio.to_thread(self._live.document), headers=_HEADERS)

    async def events(self, request: Request) -> Response:
        """Return what changes, as server-sent events."""
        from starlette.responses import StreamingResponse

        if (no := self._refused(request)) is not None:
            return no
        asked = request.query_params.get("newest", "0")
        newest = int(asked) if asked in map(str, SPANS) else 0
        return StreamingResponse(stream(self._live, newest), media_type="text/event-stream", headers=_HEADERS)

    async def ack(self, request: Request) -> Response:
        """Acknowledge an incident for who has the token, in a header."""
        from starlette.responses import JSONResponse

        if (no := self._refused(request)) is not None:
            return no
        if not self._same(request.headers.get("x-token", "")):
            return JSONResponse({"error": "That is not the token that the terminal shows."}, 403)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BODY:
                return JSONResponse({"error": "That is too long."}, 413)
        try:
            given = json.loads(body)
            incident, who, note = (str(given[name])[:1_000] for name in ("incident", "who", "note"))
            made = await asyncio.to_thread(acknowledge, self._live.view.tiles.folder, incident, who, note)
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"error": "Expected incident, who and note."}, 400)
        except DataAuditError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"who": made.who, "time": made.time})

    def _refused(self, request: Request) -> Response | None:
        """Return why a request is not served; None where it is."""
        from starlette.responses import PlainTextResponse

        if not _own_name(request):
            return PlainTextResponse("This page is served to this machine alone.\n", 421)
        if not self._same(request.cookies.get(_COOKIE, "")):
            return PlainTextResponse("Open the link that `dataaudit watch --serve` printed: it has the token.\n", 403)
        return None

    def _same(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)


def _own_name(request: Request) -> bool:
    """Return whether a request names this machine as its own users do."""
    host = request.headers.get("host", "")
    return host.removesuffix(f":{host.rpartition(':')[2]}") in _NAMES if not host.endswith("]") else host in _NAMES


_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


async def stream(live: Live, newest: int) -> AsyncIterator[str]:
    """Yield what changed of a page, as server-sent events, until the server ends."""
    known: dict[str, str] = {}
    beat = time.monotonic()
    while not live.ended:
        made = await asyncio.to_thread(live.parts, newest)
        news: dict[str, Any] = {"order": [name for name, *_ in made["sections"]], "sections": []}
        if _changed(known, "", made["top"]):
            news["top"] = made["top"]
        news["sections"] = [part for part in made["sections"] if _changed(known, part[0], part[1:])]
        if news["sections"] or "top" in news:
            yield f"event: news\ndata: {json.dumps(news, separators=(',', ':'))}\n\n"
            beat = time.monotonic()
        elif time.monotonic() - beat > _BEAT_SECONDS:
            yield ": still here\n\n"
            beat = time.monotonic()
        for _ in range(max(1, int(live.interval / _PAUSE_SECONDS))):
            await asyncio.sleep(0.0 if live.ended else _PAUSE_SECONDS)


def _changed(known: dict[str, str], name: str, value: Any) -> bool:
    digest = hashlib.sha256(json.dumps(value).encode()).hexdigest()
    if known.get(name) == digest:
        return False
    known[name] = digest
    return True


def serve(view: RunView, *, port: int, interval: float, show: Callable[[str], None]) -> None:
    """Serve the page of a view until Ctrl-C; ``show`` takes the line with the link."""
    require("watch --serve", "report", "serve")
    import uvicorn

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # before the link is shown: who opens it at once waits, and is not refused
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--serve: port {port} of {HOST} cannot be used: {(error.strerror or str(error)).lower()}",
            "Name another one, --serve PORT; 0 takes any that is free.",
        ) from None
    token = secrets.token_urlsafe(16)
    live = Live(view, interval)
    config = uvicorn.Config(
        application(live, token), log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    bound = listening.getsockname()[1]
    try:
        show(f"http://{HOST}:{bound}/?token={token}\n")
        show(f"The token, which an acknowledgement asks for: {token}\n")
        show(f"From another machine: ssh -L {bound}:{HOST}:{bound} THIS-MACHINE, then the same link. Ctrl-C ends it.\n")
        live.start()
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        live.close()
        listening.close()
