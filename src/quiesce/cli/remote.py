"""The server, or the fleet, that a command is for."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..cancellation import Mode
from ..errors import ConfigurationError, ServerProblem

if TYPE_CHECKING:
    from ..client import Client
    from ..fleet.client import Fleet
    from ..fleet.records import FleetRun
    from ..server.schemas import RunView

_T = TypeVar("_T")
AnyRun = TypeVar("AnyRun", "RunView", "FleetRun")
DEFAULT_URL: Final = "http://127.0.0.1:8765"
URL_VARIABLE: Final = "QUIESCE_URL"
KEY_VARIABLE: Final = "QUIESCE_API_KEY"
STORE_VARIABLE: Final = "QUIESCE_STORE"
_ACTIVE: Final = ("queued", "running", "stopping")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options `--url` and `--key`."""
    parser.add_argument("--url", help=f"address of the server (default: {URL_VARIABLE}, or {DEFAULT_URL})")
    parser.add_argument("--key", help=f"the API key; {KEY_VARIABLE} instead keeps it out of the process list")


def add_store_option(parser: argparse.ArgumentParser, *, only: bool = False) -> None:
    """The option `--store`. `only` says that there is no server to ask instead."""
    instead = "" if only else ", instead of a server"
    parser.add_argument("--store", metavar="URL", help=f"the Postgres of a fleet{instead} (default: {STORE_VARIABLE})")


def add_mode_option(parser: argparse.ArgumentParser, what: str) -> None:
    """The option `--mode`. `what` says what is done so urgently."""
    modes = [mode.value for mode in Mode]
    parser.add_argument(
        "--mode", choices=modes, default=Mode.NOW.value, help=f"how urgently to {what} (default: %(default)s)"
    )


def store_of(options: argparse.Namespace) -> str | None:
    """The store that the options or the environment name; a server that the options name comes first."""
    if options.store is None and getattr(options, "url", None) is not None:
        return None
    return options.store or os.environ.get(STORE_VARIABLE)


def at_server(options: argparse.Namespace, command: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
    """Run a command with the server that the options and the environment name. Raises `ServerProblem`."""
    from ..client import Client

    async def main() -> _T:
        url = options.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        async with Client(url, options.key or os.environ.get(KEY_VARIABLE)) as client:
            return await command(client)

    return asyncio.run(main())


def in_fleet(options: argparse.Namespace, command: Callable[[Fleet], Coroutine[Any, Any, _T]]) -> _T:
    """Run a command with the fleet that the options and the environment name. Raises `ConfigurationError`."""
    from ..fleet.client import opened

    url = store_of(options)
    if url is None:
        raise ConfigurationError("No store is named.", todo=f"Use --store postgresql://..., or {STORE_VARIABLE}.")

    async def main() -> _T:
        async with opened(url) as fleet:
            return await command(fleet)

    return asyncio.run(main())


async def all_runs(client: Client, **query: Any) -> list[RunView]:
    """All runs that the query names, page by page, the newest first."""
    found: list[RunView] = []
    while True:
        page = await client.page_runs(limit=1000, **query)
        found += page.runs
        if page.next is None:
            return found
        query["before"] = page.next


async def active_runs(client: Client, **query: Any) -> list[RunView]:
    """The runs that have not ended, the newest first. None is missed while it goes from one state to the next."""
    found: dict[str, RunView] = {}
    for state in _ACTIVE:
        found |= {run.id: run for run in await all_runs(client, state=state, **query)}
    return sorted(found.values(), key=lambda run: run.created_at, reverse=True)


async def run_at_server(client: Client, wanted: str) -> RunView:
    """The run whose id is this, or begins with it. Raises `ServerProblem` when there is none, or more than one."""
    return only_run(await all_runs(client, search=wanted), wanted)


def only_run(known: Iterable[AnyRun], wanted: str) -> AnyRun:
    """The one of these runs whose id is this, or begins with it. Raises `ServerProblem` for none, and for several."""
    found = [run for run in known if run.id.startswith(wanted)]
    match [run for run in found if run.id == wanted] or found:
        case [only]:
            return only
        case []:
            raise ServerProblem(f"There is no run {wanted!r}.", todo="`quiesce ps --all` lists them.")
        case several:
            names = ", ".join(run.id for run in several[:3]) + (" ..." if len(several) > 3 else "")
            raise ServerProblem(f"{wanted!r} is ambiguous: {names}.", todo="Write more of the id.")
