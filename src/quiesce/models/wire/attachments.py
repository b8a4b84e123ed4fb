"""Attachments that a model does not take: a sentence is sent instead, and the conversation keeps them for others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from ...errors import ModelError, RequestRejected
from ...messages import Document, Image, Message, Text, ToolMessage, ToolResult, UserContent, UserMessage
from ..base import ModelRequest

_ABOUT_IMAGES: Final = re.compile(
    r"image|vision|multi-?modal|mmproj|content (must|should) be a (valid )?string", re.IGNORECASE
)
# What servers say of a model that takes no images at all, in contrast to one image that is too large.
_TAKES_NONE: Final = re.compile(
    r"not? (\w+ ){0,3}(support|enabled|multi-?modal)|n't support|unsupported|only supported by|at most 0 image"
    r"|support image input|required for image|unknown variant|must be a|should be a",
    re.IGNORECASE,
)
_M = TypeVar("_M", UserMessage, ToolResult)


def is_about_images(error: ModelError) -> bool:
    """Whether a request was refused because of an image."""
    return _ABOUT_IMAGES.search(str(error)) is not None


def takes_none(error: ModelError) -> bool:
    """Whether a server says that its model takes no images at all."""
    return is_about_images(error) and _TAKES_NONE.search(str(error)) is not None


def without_images(request: ModelRequest) -> ModelRequest:
    """The request with a sentence for each image, except those of the last prompt; itself when it has no others."""
    last = next((each for each in reversed(request.messages) if isinstance(each, UserMessage)), None)
    messages = tuple(each if each is last else _without_images(each) for each in request.messages)
    if all(one is two for one, two in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=messages)


def _without_images(message: Message) -> Message:
    match message:
        case UserMessage():
            return _with_words(message)
        case ToolMessage(results):
            changed = tuple(_with_words(result) for result in results)
            same = all(one is two for one, two in zip(changed, results, strict=True))
            return message if same else ToolMessage(changed)
        case _:
            return message


def _with_words(holder: _M) -> _M:
    if not any(isinstance(part, Image) for part in holder.content):
        return holder
    return replace(holder, content=tuple(_left_out(p) if isinstance(p, Image) else p for p in holder.content))


def sendable(result: ToolResult, convert: Callable[[UserContent], Any]) -> ToolResult:
    """The result with a sentence for each attachment that `convert` refuses, so that later requests can be sent."""
    if all(isinstance(part, Text) for part in result.content):
        return result
    return replace(
        result, content=tuple(part if _converts(part, convert) else _left_out(part) for part in result.content)
    )


def _converts(part: UserContent, convert: Callable[[UserContent], Any]) -> bool:
    try:
        convert(part)
    except RequestRejected:
        return False
    return True


def _left_out(part: UserContent) -> Text:
    what = "An image" if isinstance(part, Image) else "A file"
    kind = f" of type {part.media_type}" if isinstance(part, Image | Document) else ""
    return Text(f"({what}{kind} is left out here, because this model does not take it.)")
