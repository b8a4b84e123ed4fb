"""One-line texts for the errors of MCP servers and of the SDK."""

from __future__ import annotations

from typing import Any

from .stdio import NO_ANSWER


def refusal_text(error: Any) -> str:
    """What a server refused with; or what our HTTP client says when the server gave no answer."""
    return f"{error.message}." if error.data == NO_ANSWER else f"says: {error.message}"


def error_text(error: BaseException) -> str:
    """The first real error of what may be a group of errors, in one line."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED
    from pydantic import ValidationError

    first: Any = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(first, MCPError):
        if first.error.code == CONNECTION_CLOSED:
            return "it closed the connection"
        return f"it {refusal_text(first.error)}"
    if isinstance(first, ValidationError):
        fault = first.errors()[0]
        return f"it sent what the protocol does not allow ({'.'.join(map(str, fault['loc']))}: {fault['msg']})"
    text = str(first).splitlines()  # pyright: ignore[reportUnknownArgumentType]
    name = type(first).__name__  # pyright: ignore[reportUnknownArgumentType]
    return f"{name}: {text[0]}" if text else name
