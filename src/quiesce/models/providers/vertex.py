"""Gemini on Vertex AI."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Unpack

import anyio
import httpx2

from ...errors import AuthenticationFailed, ConfigurationError
from ..base import ModelRequest
from ..wire.extra import extra
from ..wire.http import WireOptions
from .gemini import Gemini

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
# Locations that span several regions have hosts of their own.
_SPANNING: Final = frozenset({"us", "eu"})
# What the counter takes of a request.
_COUNTED: Final = frozenset({"contents", "systemInstruction", "tools", "generationConfig"})


class Vertex(Gemini):
    """A Gemini model on Vertex AI.

    project       else GOOGLE_CLOUD_PROJECT
    location      else GOOGLE_CLOUD_LOCATION, or "global"
    access_token  a function that returns an OAuth token; it may be async. Else Google's default credentials are used,
                  which the package `google-auth` finds and renews

    The rest as for `WireModel`. Raises `ConfigurationError` where the project is not known, and `MissingExtra` without
    the package `google-auth`.
    """

    provider = "vertex"
    label: ClassVar[str] = "Vertex AI"

    def __init__(
        self,
        model: str,
        *,
        project: str | None = None,
        location: str | None = None,
        access_token: Callable[[], str | Awaitable[str]] | None = None,
        base_url: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        project = project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        location = location or os.environ.get("GOOGLE_CLOUD_LOCATION") or "global"
        if not project:
            raise ConfigurationError(
                "Which Google Cloud project is Vertex AI in?", todo="Set GOOGLE_CLOUD_PROJECT or pass project=."
            )
        if access_token is None:
            access_token = _DefaultCredentials().token
        host = base_url or os.environ.get("GOOGLE_VERTEX_BASE_URL") or _host(location)
        path = f"v1beta1/projects/{project}/locations/{location}/publishers/google"
        super().__init__(model, access_token=access_token, base_url=f"{host.rstrip('/')}/{path}", **options)

    def _counted(self, request: ModelRequest) -> dict[str, Any]:
        return {name: value for name, value in self.body(request, encoded=True).items() if name in _COUNTED}


def _host(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in _SPANNING:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


class _DefaultCredentials:
    """Google's default credentials. Finding or renewing them asks the network, synchronously: a stop does not wait."""

    def __init__(self) -> None:
        self._auth: Final = extra("google.auth", "Vertex AI", "vertex")
        self._found: Any = None

    async def token(self) -> str:
        """A token that is valid now. Raises `AuthenticationFailed`."""
        found = self._found
        if found is None or not found.valid:
            found = await anyio.to_thread.run_sync(self._renewed, abandon_on_cancel=True)
        return str(found.token)

    def _renewed(self) -> Any:
        errors = extra("google.auth.exceptions", "Vertex AI", "vertex")
        try:
            if self._found is None:
                self._found, _ = self._auth.default(scopes=[_SCOPE])
            self._found.refresh(_request)
            return self._found
        except errors.GoogleAuthError as error:
            raise AuthenticationFailed(
                f"There are no Google credentials that work: {error}.",
                kept="Nothing was sent.",
                todo="Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS.",
            ) from None


class _Response:
    """An answer as google-auth reads it."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.status: Final = answer.status_code
        self.headers: Final = answer.headers
        self.data: Final = answer.content


def _request(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout: float | None = 60,
    **_: Any,
) -> _Response:
    """How google-auth sends a request: by the client that is here anyway."""
    errors = extra("google.auth.exceptions", "Vertex AI", "vertex")
    try:
        return _Response(httpx2.request(method, url, content=body, headers=headers, timeout=timeout))
    except httpx2.HTTPError as error:
        raise errors.TransportError(error) from error
