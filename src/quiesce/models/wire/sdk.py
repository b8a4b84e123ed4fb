"""The vendors' SDKs: imported when they are needed, and kept from starting threads."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import httpx2

from ...errors import MissingExtra
from .http import PerLoop, WireModel

# The SDKs import these with the first request, in the event loop, where it would hold up everything for a second.
_LATE: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("openai.resources.chat.completions", "openai.resources.responses"),
    "anthropic": ("anthropic.resources.messages",),
}


def vendor_sdk(package: str, what: str) -> Any:
    """Import a vendor's SDK, with the parts that are needed. Raises `MissingExtra`, which names what to install."""
    sdk = extra(package, what, package)
    for late in _LATE[package]:
        importlib.import_module(late)
    return sdk


def extra(module: str, what: str, name: str) -> Any:
    """Import a module that an extra brings. Raises `MissingExtra`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
    raise MissingExtra(what, module.partition(".")[0], name)


def _settle_platform(client: Any) -> None:
    """Tell an SDK's client which platform it is on.

    It would find out in a worker thread with its first request, and that thread would outlive the run.
    """
    base = importlib.import_module(f"{type(client).__module__.partition('.')[0]}._base_client")
    with suppress(AttributeError):
        client._platform = base.get_platform()


class SdkModel(WireModel):
    """A model that is reached through its vendor's SDK, over the model's own HTTP client."""

    package: ClassVar[str]
    client_class: ClassVar[str]

    def __init__(self, model: str, *, api_key: str | None, **options: Any) -> None:
        super().__init__(model, api_key=api_key, **options)
        self._api_key: Final = api_key
        self._sdk: Final = vendor_sdk(self.package, self._failures.label)
        self._make: Final = getattr(self._sdk, self.client_class)
        self._clients: Final[PerLoop[Any]] = PerLoop(self._new_client, self._make.close)

    async def _client(self) -> Any:
        """The SDK's client for the running loop."""
        return await self._clients.get()

    async def _post(self, path: str, body: bytes) -> httpx2.Response:
        """Send a body of JSON; returns with the head of the answer. The SDK's typed parameters are left out."""
        client = await self._client()
        options = {"timeout": self.timeout}
        return await client.post(path, cast_to=httpx2.Response, content=body, options=options, stream=True)

    def _own_headers(self) -> dict[str, Any]:
        """The headers that go with every request."""
        return dict(self.extra_headers)

    def _new_client(self) -> Any:
        client = self._make(
            api_key=self._api_key or "none",
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=0,  # Quiesce tries again itself, so that a stop need not wait for it
            default_headers=self._own_headers() or None,
            http_client=self.new_http_client(),
        )
        _settle_platform(client)
        return client
