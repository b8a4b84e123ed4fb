"""Tools that a provider runs itself: asked for in `tools=`, next to the agent's own."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class WebSearch(Struct, frozen=True):
    """Searches of the web, which the provider makes while the model answers.

    allowed_domains   only results from these, such as ("docs.python.org",)
    blocked_domains   no results from these
    max_uses          the most searches for one request
    """

    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None


class CodeExecution(Struct, frozen=True):
    """Code that the model writes and the provider runs, in a sandbox of the provider's."""


class FileSearch(Struct, frozen=True):
    """Searches in files that are kept at the provider. `stores` are the provider's names of its vector stores."""

    stores: tuple[str, ...]


ServerTool: TypeAlias = WebSearch | CodeExecution | FileSearch
SERVER_TOOLS = (WebSearch, CodeExecution, FileSearch)
