"""The ASGI application: all routes, and middleware for every request."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import regard
from regard.pages.template import DRAWER
from regard.serve import deepl, documentation, inspect_api, libretranslate
from regard.serve.batcher import Batcher, ClosedError, FaultError, FullError
from regard.serve.measurements import Measurements
from regard.serve.request_parsing import KEY_COOKIE, RefusalError, json_response, require_key
from regard.serve.service import Service
from regard.serve.settings import ServeSettings, is_this_machine

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Headers of the page, with which a browser loads nothing from other servers.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
WORK = ("/translate", "/v2/translate", "/inspect", "/inspect/head")  # routes that use the batcher's queue
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that disconnected before the answer
log = logging.getLogger("regard.serve")
STOPPING_SECONDS = 3.0  # for the running batch, after all requests have been answered


def make_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.batcher.close, STOPPING_SECONDS)  # does not block the last answers

    about = "Translations by models trained with regard, and what happens inside them."
    app = FastAPI(
        title="regard", description=about, version=regard.__version__, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    for routes in (libretranslate.routes, deepl.routes, inspect_api.routes, _monitoring):
        app.include_router(routes(service))
    app.include_router(_page(service, app))
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(CancelOnDisconnect)
    app.add_middleware(LoadShedding, batcher=service.batcher)
    settings = service.settings
    if settings.cors:
        headers = ["Authorization", "Content-Type", "X-API-Key"]
        origins = list(settings.cors)
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=headers)
    if is_this_machine(settings.host) and not settings.api_keys:
        app.add_middleware(LocalOnly, settings=settings)
    app.add_middleware(RequestMetrics, measurements=service.measurements)
    return app


@dataclass(frozen=True)
class RequestMetrics:
    """Middleware that counts every request by route, status and time, and answers 500 if a route raises an exception."""

    app: ASGIApp
    measurements: Measurements

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), CLIENT_CLOSED_REQUEST

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            log.exception("a request to %s could not be answered", _label(scope))
            self.measurements.add_fault()
            if status != CLIENT_CLOSED_REQUEST:  # the answer has been started; the connection can only be closed
                raise
            await _refuse(FaultError(), scope, receive, send_and_note)
        finally:
            self.measurements.add_request(_label(scope), status, time.monotonic() - began)


def _label(scope: Scope) -> str:
    """Return the route of a request, and never a path of which a client makes up parts."""
    path: str = scope["path"]
    return path if path in WORK else getattr(scope.get("route"), "path", "other")


class LocalOnly:
    """Middleware for a server on localhost without API keys, which any page in the user's browser could reach: by DNS
    rebinding, or by sending forms. Refuse unknown host names, and requests of pages from other origins."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app = app
        self.names = {name.lower() for name in settings.names}
        self.origins = set(settings.cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (complaint := self._complaint(Headers(scope=scope))):
            await _refuse(RefusalError(403, complaint), scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _complaint(self, headers: Headers) -> str:
        host = _host(f"//{headers.get('host', '')}")
        if not (is_this_machine(host) or host in self.names):
            return "this server does not know the host name of this request; start it with --name, or with --api-key"
        origin = headers.get("origin")
        if origin is None or {origin, "*"} & self.origins or _host(origin) in {host, *self.names}:
            return ""
        return "pages of other origins may not send requests to this server; start it with --cors, or with --api-key"


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


@dataclass(frozen=True)
class LoadShedding:
    """Middleware that refuses work while the queue is full, before it reads the request's body."""

    app: ASGIApp
    batcher: Batcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_work = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in WORK
        if is_work and (retry_after := self.batcher.turned_away()):
            await _refuse(FullError(retry_after), scope, receive, send)
        else:
            await self.app(scope, receive, send)


@dataclass(frozen=True)
class CancelOnDisconnect:
    """Middleware that cancels the work for a client that disconnects, and answers 503 if the server cancels a request
    because it is stopping. It listens for the disconnect after the whole body has been read."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in WORK:
            await self.app(scope, receive, send)
            return
        request = asyncio.current_task()
        is_answered = is_disconnected = False
        listener: asyncio.Task[None] | None = None

        async def listen() -> None:
            nonlocal is_disconnected
            while (await receive())["type"] != "http.disconnect":
                pass
            if request and not is_answered:
                is_disconnected = True
                request.cancel()

        async def receive_then_listen() -> Message:
            nonlocal listener
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body") and listener is None:
                listener = asyncio.create_task(listen())
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self.app(scope, receive_then_listen, send_and_note)
        except asyncio.CancelledError:
            if not (is_answered or is_disconnected):
                await _refuse(ClosedError(), scope, receive, send)
        finally:
            if listener:
                listener.cancel()


def _monitoring(service: Service) -> APIRouter:
    router = APIRouter(tags=["monitoring"])

    @router.get("/health")
    async def health() -> Response:
        """Answer, to show that the server runs."""
        return json_response({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """Return whether the server can translate: 503 if it is stopping, or if even a known text cannot be translated."""
        if not service.batcher.is_able:
            raise RefusalError(503, "this server cannot translate; its log has more")
        return json_response({"status": "ready"})

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Return counters and gauges for Prometheus."""
        require_key(request, service.settings.api_keys)
        text = service.measurements.text(service.batcher.waiting())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return router


def _page(service: Service, app: FastAPI) -> APIRouter:
    """Return the routes of the studio and of /docs. Only files that exist at the start are served."""
    router = APIRouter(include_in_schema=False)
    files = {str(path.relative_to(PAGE)): path for path in sorted(PAGE.rglob("*")) if path.suffix in KINDS}
    files[DRAWER.name] = DRAWER

    @router.get("/page/{name:path}")
    def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name].read_bytes(), headers=PAGE_HEADERS, media_type=KINDS[files[name].suffix])

    @router.get("/")
    def index(request: Request) -> Response:
        """Return the page. If keys are configured, `/?api_key=KEY` sets a cookie with which the page may use the API."""
        if service.settings.api_keys and (key := request.query_params.get("api_key")):
            require_key(request, service.settings.api_keys)
            response: Response = RedirectResponse("/", 303)  # keep the key out of the page's address
            response.set_cookie(KEY_COOKIE, key, httponly=True, samesite="strict")
            return response
        return file("index.html")

    @router.get("/docs")
    def docs() -> Response:
        return HTMLResponse(documentation.page(app.openapi()), headers=PAGE_HEADERS)

    return router


async def _refuse(error: RefusalError, scope: Scope, receive: Receive, send: Send) -> None:
    response = await _refused(Request(scope), error)
    await response(scope, receive, send)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return _error_response(request, error.status, error.sentence, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is nothing here; see /docs", 405: "this method is not allowed here; see /docs"}
    sentence = sentences.get(error.status_code, "this request cannot be answered")
    return _error_response(request, error.status_code, sentence, dict(error.headers or {}))


def _error_response(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """Return an error in the field that clients read: DeepL's `message`, LibreTranslate's `error`."""
    return json_response({"message" if request.url.path.startswith("/v2/") else "error": sentence}, status, headers)
