"""The HTTP client of the commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ..errors import ServerProblem

DEFAULT_URL: Final = "http://127.0.0.1:8765"
URL_VARIABLE: Final = "QUIESCE_URL"
KEY_VARIABLE: Final = "QUIESCE_API_KEY"
STORE_VARIABLE: Final = "QUIESCE_STORE"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options `--url` and `--key`."""
    parser.add_argument("--url", help=f"address of the server (default: {URL_VARIABLE}, or {DEFAULT_URL})")
    parser.add_argument("--key", help=f"the API key; {KEY_VARIABLE} instead keeps it out of the process list")


def add_store_option(parser: argparse.ArgumentParser, *, only: bool = False) -> None:
    """The option `--store`. `only` says that there is no server to ask instead."""
    instead = "" if only else ", instead of a server"
    parser.add_argument("--store", metavar="URL", help=f"the Postgres of a fleet{instead} (default: {STORE_VARIABLE})")


def store_of(options: argparse.Namespace) -> str | None:
    """The store that the options or the environment name; a server that the options name comes first."""
    if options.store is None and getattr(options, "url", None) is not None:
        return None
    return options.store or os.environ.get(STORE_VARIABLE)


class Remote:
    """Requests to one server. Raises `ServerProblem` for every failure."""

    def __init__(self, client: Any, url: str) -> None:
        self._client: Final = client
        self._url: Final = url

    def get(self, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
        """GET; returns the JSON of the response."""
        return self._json("GET", path, params=dict(query), timeout=10.0)

    def post(self, path: str, query: Mapping[str, Any], body: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        """POST; returns the JSON of the response."""
        return self._json("POST", path, params=dict(query), json=body, timeout=timeout)

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        import httpx2

        try:
            response = self._client.request(method, path, **options)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ServerProblem(
                f"No answer from {self._url}: {error or type(error).__name__}.",
                todo=f"Check that `quiesce serve` runs there; --url or {URL_VARIABLE} names another address.",
            ) from error
        try:
            answer: Any = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer  # pyright: ignore[reportUnknownVariableType]
        raise _refusal(response.status_code, answer, self._url)


def _refusal(status: int, answer: Any, url: str) -> ServerProblem:
    try:
        error = answer["error"]
        return ServerProblem(str(error["message"]), todo=str(error["todo"]))
    except (KeyError, TypeError):
        return ServerProblem(f"{url} answered HTTP {status}, but not like a Quiesce server.")


@contextmanager
def connected(options: argparse.Namespace) -> Generator[Remote]:
    """The server that the options and the environment name."""
    import httpx2

    url = options.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    key = options.key or os.environ.get(KEY_VARIABLE)
    headers = {} if not key else {"Authorization": f"Bearer {key}"}
    try:
        client = httpx2.Client(base_url=url, headers=headers)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ServerProblem(f"{url!r} is not the address of a server: {error}.") from error
    with client:
        yield Remote(client, url)
