"""All routes together, and what is done to every request."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import regard
from regard.serve import deepl, documentation, libretranslate, looking
from regard.serve.batcher import Batcher
from regard.serve.measurements import Measurements
from regard.serve.reading import KEY_COOKIE, RefusalError, json_response, require_key
from regard.serve.service import Service, stopping, too_much
from regard.serve.settings import ServeSettings, is_this_machine

PAGE = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
# The page needs nothing from elsewhere, and a browser that is told so fetches nothing from elsewhere.
ONLY_FROM_HERE = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
WORK = ("/translate", "/v2/translate", "/inspect", "/inspect/head")  # what the queue is for
HUNG_UP = 499  # nobody waited for the answer; what others count it as, too
STOPPING_SECONDS = 3.0  # for the batch that is under way, once all requests are answered


def make_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.batcher.close, STOPPING_SECONDS)  # while last answers are sent

    app = FastAPI(
        title="regard",
        description="Translations by models trained with regard, and what happens inside them.",
        version=regard.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    for router in (libretranslate.routes(service), deepl.routes(service), looking.routes(service), _watching(service)):
        app.include_router(router)
    app.include_router(_page(service, app))
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(Listening)
    app.add_middleware(TurningAway, batcher=service.batcher)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
        )
    settings = service.settings
    if is_this_machine(settings.host) and not settings.api_keys:
        app.add_middleware(OnlyFromHere, settings=settings)
    app.add_middleware(Measured, measurements=service.measurements)
    return app


class Measured:
    """Counts every request by its route, its status and its time."""

    def __init__(self, app: ASGIApp, measurements: Measurements) -> None:
        self.app = app
        self.measurements = measurements

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), HUNG_UP

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            route = scope.get("route")
            path = scope["path"] if scope["path"] in WORK else getattr(route, "path", "other")
            self.measurements.add_request(path, status, time.monotonic() - began)


class OnlyFromHere:
    """A server for this machine alone, without keys, is still within reach of every page that its browser opens: under a
    name that such a page made to lead here, or by forms that it sends. It answers neither."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app = app
        self.names = {name.lower() for name in settings.names}
        self.origins = set(settings.cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (complaint := self._complaint(Headers(scope=scope))):
            response = await _refused(Request(scope), RefusalError(403, complaint))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _complaint(self, headers: Headers) -> str:
        host = _host(f"//{headers.get('host', '')}")
        if not (is_this_machine(host) or host in self.names):
            return "this server is asked under a name that it does not know; start it with --name, or with --api-key"
        origin = headers.get("origin")
        if origin is None or origin in self.origins or "*" in self.origins:
            return ""
        if _host(origin) == host or _host(origin) in self.names:
            return ""
        return "pages from elsewhere may not ask here; start the server with --cors, or with --api-key"


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


class TurningAway:
    """When the queue is full, nobody reads what more there is to do: to say so must cost next to nothing, or those who are
    sent away would slow down those who are not."""

    def __init__(self, app: ASGIApp, batcher: Batcher) -> None:
        self.app = app
        self.batcher = batcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_work = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in WORK
        if is_work and (retry_after := self.batcher.turned_away()):
            response = await _refused(Request(scope), too_much(retry_after))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class Listening:
    """Who hangs up before the answer is no longer worked for; only after the whole request was read is there nothing left to
    hear but that. Who is still waiting when the server has been stopping for too long is told so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in WORK:
            await self.app(scope, receive, send)
            return
        answering = asyncio.current_task()
        is_answered = has_hung_up = False
        listener: asyncio.Task[None] | None = None

        async def listen() -> None:
            nonlocal has_hung_up
            while (await receive())["type"] != "http.disconnect":
                pass
            if answering and not is_answered:
                has_hung_up = True
                answering.cancel()

        async def hearing() -> Message:
            nonlocal listener
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body") and listener is None:
                listener = asyncio.create_task(listen())
            return message

        async def telling(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self.app(scope, hearing, telling)
        except asyncio.CancelledError:
            if not (is_answered or has_hung_up):
                response = await _refused(Request(scope), stopping())
                await response(scope, receive, send)
        finally:
            if listener:
                listener.cancel()


def _watching(service: Service) -> APIRouter:
    router = APIRouter(tags=["watching"])

    @router.get("/health")
    async def health() -> Response:
        """Whether the server answers at all."""
        return json_response({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """Whether it can translate. 503: it stops, or whatever it tried lately has failed."""
        if not service.batcher.is_able:
            raise RefusalError(503, "this server cannot translate; its log has more")
        return json_response({"status": "ready"})

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """What it has done so far, for Prometheus."""
        require_key(request, service.settings.api_keys)
        text = service.measurements.text(service.batcher.waiting())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return router


def _page(service: Service, app: FastAPI) -> APIRouter:
    """The studio's files, known by their names: whatever else is asked for is not there."""
    router = APIRouter(include_in_schema=False)
    files = {str(path.relative_to(PAGE)): path for path in sorted(PAGE.rglob("*")) if path.suffix in KINDS}

    def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name].read_bytes(), headers=ONLY_FROM_HERE, media_type=KINDS[files[name].suffix])

    @router.get("/")
    def index(request: Request) -> Response:
        """Where keys are configured, `/?api_key=KEY` once, and the page may ask from then on."""
        if service.settings.api_keys and (key := request.query_params.get("api_key")):
            require_key(request, service.settings.api_keys)
            response: Response = RedirectResponse("/", 303)  # whoever shares the page's address must not share the key
            response.set_cookie(KEY_COOKIE, key, httponly=True, samesite="strict")
            return response
        return file("index.html")

    @router.get("/page/{name:path}")
    def file_of_page(name: str) -> Response:
        return file(name)

    @router.get("/docs")
    def docs() -> Response:
        return HTMLResponse(documentation.page(app.openapi()), headers=ONLY_FROM_HERE)

    return router


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return _told(request, error.status, error.sentence, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is nothing here; see /docs", 405: "this is not what can be done here; see /docs"}
    sentence = sentences.get(error.status_code, "this request cannot be answered")
    return _told(request, error.status_code, sentence, dict(error.headers or {}))


async def _failed(request: Request, _: Exception) -> Response:
    return _told(request, 500, "something went wrong here; the server's log has more", {})


def _told(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """LibreTranslate's clients look for `error`, DeepL's for `message`."""
    told: dict[str, Any] = {"message" if request.url.path.startswith("/v2/") else "error": sentence}
    return json_response(told, status, headers)
