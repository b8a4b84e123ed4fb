"""The ASGI application: the routes, authentication, and the console."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..agent import AnyAgent
from ..errors import ConfigurationError
from ..sessions import SessionStore, resolve_store
from . import routes, streams
from .auth import Authenticator, OwnerOf
from .compression import Compression
from .deps import DepsFactory
from .drain import Drain
from .endpoint import Endpoints, json_response
from .keys import Keys
from .openapi import OPERATIONS, APIOperation, document
from .problems import HANDLERS
from .services import Services
from .settings import Settings
from .sole_server import sole_server
from .static_files import ConsoleFiles

if TYPE_CHECKING:
    from .fleet_service import FleetService

STATIC: Final = Path(__file__).parent / "static"

# Strict: the console is static files, and no text of a run may become a script or a request to another host.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Application(Starlette):
    """The ASGI application. `services` holds the runs; `drain` ends them."""

    def __init__(
        self,
        agents: Sequence[AnyAgent],
        *,
        settings: Settings,
        keys: Keys | None,
        owner_of: OwnerOf | None,
        store: SessionStore | None,
        deps: DepsFactory | None = None,
        fleet: FleetService | None = None,
    ) -> None:
        self.services: Final = Services(agents, settings, store, deps, fleet)
        self.drain: Final = Drain(self.services)
        middleware = [Middleware(_SafeHeaders), Middleware(Compression)]
        if settings.cors_origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=settings.cors_origins,
                    allow_methods=("GET", "POST", "DELETE"),
                    allow_headers=("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"),
                )
            )
        super().__init__(
            routes=_routes(self.services, Authenticator(keys, owner_of, settings.cors_origins, settings.operators)),
            middleware=middleware,
            exception_handlers=HANDLERS,
            lifespan=_lifespan,
        )

    @asynccontextmanager
    async def open_services(self) -> AsyncGenerator[None]:
        """Restore stored runs; on leaving, drain and close the store."""
        with sole_server() if self.services.fleet is None else nullcontext():
            await self.services.open()
            try:
                yield
            finally:
                await self.drain.begin()
                await self.services.close()


def create_app(
    *agents: AnyAgent,
    settings: Settings | None = None,
    keys: Keys | None = None,
    owner_of: OwnerOf | None = None,
    store: object = None,
    deps: DepsFactory | None = None,
) -> Application:
    """An ASGI application that serves agents. `serve()` also listens; `mount()` adds it to an application of yours.

    keys       the API keys; without keys, only clients on this machine have access
    owner_of   instead of keys: returns the owner of a request; None refuses the request
    store      where sessions and runs are saved: a path, a URL or a `SessionStore`
    deps       a function, sync or async, that makes the deps of each run from a `RunRequest`: its owner, its session

    Raises `ConfigurationError` for no agent, two of the same name, or one that needs deps when there are none.
    """
    kept = None if store is None else resolve_store(store)
    settings = settings or Settings()
    fleet = _fleet_service(store, kept) if settings.fleet else None
    return Application(agents, settings=settings, keys=keys, owner_of=owner_of, store=kept, deps=deps, fleet=fleet)


def _fleet_service(url: object, store: SessionStore | None) -> FleetService:
    from .fleet_service import FleetService

    if store is None:
        raise ConfigurationError("A fleet needs a store.", todo="Use store='postgresql://...'.")
    return FleetService(url, store)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncGenerator[None]:
    assert isinstance(app, Application)
    async with app.open_services():
        yield


def _routes(services: Services, authenticator: Authenticator) -> list[BaseRoute]:
    api = Endpoints(services, authenticator)

    async def health(_: Request) -> Response:
        return routes.health(services)

    async def openapi(_: Request) -> Response:
        return json_response(document(services.settings))

    def endpoint(operation: APIOperation) -> Callable[[Request], Awaitable[Response]]:
        handlers = _handlers(services, operation)
        return health if operation.open_to_all else api(getattr(handlers, operation.id))

    return [
        *(Route(each.path, endpoint(each), methods=[each.method.upper()]) for each in OPERATIONS),
        Route("/openapi.json", openapi, methods=["GET"]),
        *_console(),
    ]


def _handlers(services: Services, operation: APIOperation) -> ModuleType:
    """The module with the handler of an operation."""
    if services.fleet is None:
        return streams if operation.stream else routes
    from . import fleet_routes

    return fleet_routes


def _console() -> list[BaseRoute]:
    """The routes of the console's static files. They hold no secret: the page asks for the API key."""
    page = STATIC / "index.html"
    if not page.exists():
        return []

    files = ConsoleFiles(STATIC)

    async def console(request: Request) -> Response:
        return files.page(page.name, request.scope)

    async def docs(request: Request) -> Response:
        return files.page("docs.html", request.scope)

    return [
        Route("/", console, methods=["GET"]),
        Route("/docs", docs, methods=["GET"]),
        Mount("/static", files),
    ]


class _SafeHeaders:
    """Middleware that adds the security headers to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        await self._app(scope, receive, send_safely)
