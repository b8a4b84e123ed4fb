"""The vendors' SDKs: imported when they are needed, and kept from starting threads."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...errors import MissingExtra

if TYPE_CHECKING:
    from .http import WireModel

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


def sdk_client(make: Any, model: WireModel, api_key: str | None, headers: Mapping[str, Any]) -> Any:
    """A vendor's client for a model, over the model's own HTTP client."""
    client = make(
        api_key=api_key,
        base_url=model.base_url,
        timeout=model.timeout,
        max_retries=0,  # Quiesce tries again itself, so that a stop need not wait for it
        default_headers=dict(headers) or None,
        http_client=model.new_http_client(),
    )
    _settle_platform(client)
    return client


async def close_sdk_client(client: Any) -> None:
    """Close it, and its connections."""
    await client.close()


def _settle_platform(client: Any) -> None:
    """Tell an SDK's client which platform it is on.

    It would find out in a worker thread with its first request, and that thread would outlive the run.
    """
    base = importlib.import_module(f"{type(client).__module__.partition('.')[0]}._base_client")
    with suppress(AttributeError):
        client._platform = base.get_platform()
