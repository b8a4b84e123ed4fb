"""The vendors' SDKs: imported when they are needed, and kept from starting threads."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from ..errors import MissingExtra


def vendor_sdk(package: str, what: str) -> Any:
    """Import a vendor's SDK. Raises `MissingExtra`, which names the extra to install."""
    return extra(package, what, package)


def extra(module: str, what: str, name: str) -> Any:
    """Import a module that an extra brings. Raises `MissingExtra`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
    raise MissingExtra(what, module.partition(".")[0], name)


def settle_platform(client: Any) -> None:
    """Tell an SDK's client which platform it is on.

    It would find out in a worker thread with its first request, and that thread would outlive the run.
    """
    base = importlib.import_module(f"{type(client).__module__.partition('.')[0]}._base_client")
    with suppress(AttributeError):
        client._platform = base.get_platform()
