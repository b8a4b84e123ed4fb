"""The content of MCP messages as content of a conversation."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from ..errors import ToolError
from ..messages import Document, Image, ResultContent, Text
from ..tools.output import as_json


def result_content(result: Any) -> tuple[ResultContent, ...]:
    """The content of a tool's result. Structured content is used where there is no other."""
    content = tuple(part for block in result.content for part in block_content(block))
    if content or result.structured_content is None:
        return content
    return (Text(as_json(result.structured_content)),)


def block_content(block: Any) -> Iterable[ResultContent]:
    """One block of content as parts of a conversation."""
    match block.type:
        case "text":
            yield Text(block.text)
        case "image":
            yield Image(block.mime_type, _bytes(block.data))
        case "resource":
            yield resource_content(block.resource)
        case "resource_link":
            yield Text(f"{block.name}: {block.uri}")
        case _:
            yield Document(getattr(block, "mime_type", "application/octet-stream"), _bytes(block.data))


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise ToolError("The MCP server sent data that is not base64.") from None


def resource_content(resource: Any) -> ResultContent:
    """A resource that the server sent, text or bytes."""
    text = getattr(resource, "text", None)
    if text is not None:
        return Text(text)
    data = _bytes(resource.blob)
    kind = resource.mime_type or "application/octet-stream"
    name = str(resource.uri)
    return Image(kind, data) if kind.startswith("image/") else Document(kind, data, name=name)
