"""Tools, resources and prompts from MCP servers (extra: `quiesce[mcp]`): `from quiesce.mcp import MCPServer`."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
