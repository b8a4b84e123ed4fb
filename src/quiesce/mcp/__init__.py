"""Tools, resources and prompts from MCP servers (extra: `quiesce[mcp]`): `from quiesce.mcp import MCPServer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .client import MCPPrompt, MCPResource, MCPResourceTemplate, MCPServer, PromptPart

_HOMES: Final = {".client": ("MCPPrompt", "MCPResource", "MCPResourceTemplate", "MCPServer", "PromptPart")}

__all__ = ["MCPPrompt", "MCPResource", "MCPResourceTemplate", "MCPServer", "PromptPart"]

__getattr__, __dir__ = lazy_names(__name__, globals(), _HOMES)
