"""Conversions that several providers share: from a conversation to the format of a request."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...errors import RequestRejected
from ...messages import AssistantMessage, CutNote, Document, Image, Reasoning, Text, ToolCall
from ..base import ModelRequest, ToolSpec
from . import schemas
from .json_values import as_dict, as_list

# Providers refuse a message without content, and some an attachment without words.
NO_ANSWER: Final = "(No answer.)"
SEE_ATTACHMENT: Final = "(See the attachment.)"
# The output of a call that no tool of the agent runs.
NOT_RUN: Final = "Not run: this program has no such tool."

_SHORT_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")
# Claude's version, wherever in the name it is, and not the date after it.
_CLAUDE: Final = re.compile(r"claude-(?:[a-z]+-)?(\d)(?:[-.](\d{1,2})(?!\d))?")
# Lists in settings that are added to those of a request.
_ADDED: Final = frozenset({"tools", "include"})
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base64_of(data: bytes) -> str:
    """The bytes as base64 text."""
    return base64.b64encode(data).decode()


def media_type_of(part: Image | Document) -> str:
    """The registered name of an attachment's type: `image/jpg`, which many programs write, is refused."""
    return "image/jpeg" if part.media_type == "image/jpg" else part.media_type


def data_url(part: Image | Document) -> str:
    """An attachment as an address: its own, or one that holds its bytes."""
    if part.url is not None:
        return part.url
    return f"data:{media_type_of(part)};base64,{base64_of(part.data or b'')}"


def text_of_document(part: Document) -> str | None:
    """The words of a document that is plain text, with its name; None for any other."""
    if part.data is None or not is_text(part.media_type):
        return None
    words = part.data.decode("utf-8", "replace")
    return f"{part.name}:\n{words}" if part.name else words


def is_text(media_type: str) -> bool:
    """Whether a file of this type can be read as it is."""
    return media_type.startswith("text/") or media_type in ("application/json", "application/xml", "application/yaml")


def file_name(part: Document) -> str:
    """A document's name, or one that fits its type."""
    return part.name or f"document{mimetypes.guess_extension(part.media_type) or ''}"


def refused(what: str, todo: str) -> RequestRejected:
    """The error for a request that is not sent."""
    return RequestRejected(what, kept="Nothing was sent.", todo=todo)


def not_by_address(provider: str, what: str) -> RequestRejected:
    """The error for an attachment that a provider takes only as bytes."""
    return refused(f"{provider} takes no {what} by address.", "Fetch it and pass its bytes: data=...")


def not_by_id(provider: str, what: str) -> RequestRejected:
    """The error for an attachment that a provider does not take by the id of a file."""
    return refused(f"{provider} takes no {what} by the id of a file.", "Pass its bytes: data=...")


def bytes_of(part: Image | Document, provider: str, what: str) -> bytes:
    """The bytes of an attachment. Raises `RequestRejected` for one that has none."""
    if part.data is not None:
        return part.data
    raise not_by_id(provider, what) if part.file_id is not None else not_by_address(provider, what)


def refuse_media(part: Document, provider: str) -> None:
    """Raises `RequestRejected` for audio and video."""
    kind = part.media_type.partition("/")[0]
    if kind in ("audio", "video"):
        raise not_supported(provider, kind)


def not_supported(provider: str, what: str) -> RequestRejected:
    """The error for an attachment that a provider does not take at all."""
    return refused(f"{provider} does not take {what}.", "Pass text or an image.")


def tool_choice(request: ModelRequest, provider: str) -> str | None:
    """The tool choice of a request: "auto", "none", "required" or a tool's name; None when there is none to send.

    Raises `RequestRejected` for one that the request has no tools for.
    """
    choice = request.tool_choice
    if choice is None or (not request.tools and choice in ("auto", "none")):
        return None
    if choice not in ("auto", "none", "required") and choice not in {tool.name for tool in request.tools}:
        what = f"tool_choice={choice!r} names no tool of this request to {provider}."
        raise refused(what, 'Use "auto", "none", "required", or the name of one of its tools.')
    if not request.tools:
        raise refused("tool_choice='required', and the request has no tools.", "Give it tools.")
    return choice


def no_tool_choice(provider: str, choice: str | None) -> RequestRejected:
    """The error for a tool choice that a provider does not have."""
    todo = "Leave it out, or give this run only the tools that it is to use."
    return refused(f"{provider} has no tool_choice={choice!r}.", todo)


def text_of(message: AssistantMessage) -> str:
    """What an assistant message says, with the note about a cut on a line of its own."""
    said = "".join(part.text for part in message.content if isinstance(part, Text))
    notes = [part.text for part in message.content if isinstance(part, CutNote)]
    return "\n".join(part for part in (said, *notes) if part)


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as JSON text."""
    return msgspec.json.encode(call.arguments).decode()


def is_from(provider: str, part: Reasoning) -> bool:
    """Whether this is reasoning that this very provider signed, and so takes back."""
    data = part.provider_data
    return part.signature is not None and not part.cut and data is not None and data.get("provider") == provider


def is_redacted(part: Reasoning) -> bool:
    """Whether this is reasoning that the provider does not show: all there is of it is the signature."""
    return part.provider_data is not None and bool(part.provider_data.get("redacted"))


def takes_prefill(model: str) -> bool:
    """Whether a Claude model continues a last message of its own: up to 4.5; later ones refuse it."""
    version = claude_version(model)
    return version is not None and version < (4, 6)


def claude_version(model: str) -> tuple[int, int] | None:
    """The version in a Claude model's name; None when there is none."""
    found = _CLAUDE.search(model.lower())
    return None if found is None else (int(found[1]), int(found[2] or 0))


def short_id(call_id: str) -> str:
    """A call id of nine letters and digits, always the same for the same id."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    letters: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[digit])
    return "".join(letters)


def answer_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The format of an answer that must fit a schema, for OpenAI: strict, where the schema allows it."""
    strict = schemas.for_output(schema, schemas.OPENAI)
    return {"name": "answer", "schema": strict or schemas.with_object_root(schema), "strict": strict is not None}


def function_tools(request: ModelRequest) -> list[dict[str, Any]]:
    """The tools of a request in the format of Chat Completions."""
    return [{"type": "function", "function": function_spec(tool)} for tool in request.tools]


def function_spec(tool: ToolSpec) -> dict[str, Any]:
    """A tool as OpenAI describes it."""
    return {"name": tool.name, "description": tool.description, "parameters": schemas.for_tool(tool.schema)}


def settings_of(request: ModelRequest) -> tuple[dict[str, Any], int | None]:
    """The settings of a request, and apart from them the limit on its answer, whose name differs by provider."""
    settings = dict(request.settings or {})
    limit = settings.pop("max_tokens", None)
    return settings, request.max_tokens or limit


def no_setting(provider: str, name: str, instead: str) -> RequestRejected:
    """The error for a setting that a provider does not have."""
    return refused(f"{provider} has no setting {name!r}.", f"Leave it out, or {instead}.")


def one_answer(count: Any, provider: str) -> None:
    """Raises `RequestRejected` for a request for several answers: a conversation goes on from one."""
    if isinstance(count, int) and count > 1:
        what = f"A request to {provider} asks for {count} answers, and a run takes one."
        raise refused(what, "Leave the setting out, and start several runs.")


def renamed(settings: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Take the settings with these names out, under the names that the provider has for them."""
    return {theirs: settings.pop(ours) for ours, theirs in names.items() if ours in settings}


def merged(*parts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Several mappings as one; later ones win, mappings inside are merged, and a vendor's tools are added to ours."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in (part or {}).items():
            before = result.get(key)
            if key in _ADDED and isinstance(before, list) and isinstance(value, list):
                result[key] = [*before, *(each for each in as_list(value) if each not in before)]
                continue
            both = isinstance(before, dict) and isinstance(value, dict)
            result[key] = merged(as_dict(before), as_dict(value)) if both else value
    return result
