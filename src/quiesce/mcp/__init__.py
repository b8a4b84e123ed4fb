"""Tools, resources and prompts from MCP servers (extra: `quiesce[mcp]`)."""
