"""The answer of a server that speaks Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...events import (
    AnswerEnd,
    AnswerStop,
    Delta,
    ProviderPartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from ..wire.failures import Failures
from ..wire.json_values import as_dict, as_list
from ..wire.sse import UNREADABLE, EventStreamDecoder, readable


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _CallPiece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _Piece(Struct, gc=False):
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None
    reasoning_details: Any = None
    audio: Any = None
    images: Any = None
    annotations: Any = None
    executed_tools: Any = None


class _TokenDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: Any = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Piece | None = None
    logprobs: Any = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _Timings(Struct, gc=False):
    prompt_n: int = 0
    predicted_n: int = 0
    cache_n: int = 0


class _GroqUsage(Struct, gc=False):
    usage: _Usage | None = None


class _Head(Struct, gc=False):
    id: str | None = None
    model: str | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    x_groq: _GroqUsage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode
_decode_head: Final = msgspec.json.Decoder(_Head).decode
_REASONS: Final[Mapping[str, AnswerStop]] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "refusal",
}
# Ends that are failures: of any server, of DeepSeek when it has no room, of vLLM when a request is aborted there.
_FAILED: Final[Mapping[str, str]] = {
    "error": "server_error",
    "insufficient_system_resource": "unavailable",
    "abort": "server_error",
}


class _Call:
    """A call that is being written. Its name may come after the first of its arguments."""

    __slots__ = ("held", "id", "started")

    def __init__(self) -> None:
        self.id = ""
        self.started = False
        self.held: list[str] = []


class ChatParts:
    """What an answer holds besides text, reasoning and calls, collected until its end."""

    __slots__ = ("_audio", "_custom", "_details", "_executed", "_lists", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider: Final = provider
        self._details: Final[list[dict[str, Any]]] = []
        self._executed: Final[list[dict[str, Any]]] = []
        self._custom: Final[dict[int, dict[str, Any]]] = {}
        self._audio: Final[dict[str, Any]] = {}
        self._lists: Final[dict[str, list[Any]]] = {}

    def take(self, piece: _Piece) -> None:
        """What one chunk adds."""
        _collect(self._details, piece.reasoning_details)
        _collect(self._executed, piece.executed_tools)
        _join(self._audio, as_dict(piece.audio))
        self.add("images", piece.images)
        self.add("annotations", piece.annotations)

    def add(self, kind: str, found: Any) -> None:
        """More of a list."""
        if as_list(found):
            self._lists.setdefault(kind, []).extend(as_list(found))

    def take_custom(self, index: int, piece: _CallPiece) -> bool:
        """A piece of a call of a custom tool, whose input is no JSON; False for any other call."""
        call = self._custom.get(index)
        if call is None and piece.custom is None:
            return False
        if call is None:
            called = {"name": "", "input": ""}
            call = self._custom[index] = {"id": piece.id or f"call_{index}", "type": "custom", "custom": called}
        custom = piece.custom or _Custom()
        call["custom"]["name"] += custom.name or ""
        call["custom"]["input"] += custom.input or ""
        return True

    @property
    def server_tools(self) -> bool:
        """Whether the server has run tools."""
        return bool(self._executed)

    def all(self) -> list[ProviderPartDelta]:
        """The parts, each under the name that its field has in a message."""
        parts = {
            "reasoning_details": self._details,
            "executed_tools": self._executed,
            "tool_calls": list(self._custom.values()),
            "audio": self._audio,
            **self._lists,
        }
        return [ProviderPartDelta(self._provider, kind, {kind: found}) for kind, found in parts.items() if found]


def _collect(found: list[dict[str, Any]], pieces: Any) -> None:
    """Append each streamed piece to the entry of `found` that it continues, or add it as a new entry."""
    for piece in map(as_dict, as_list(pieces)):
        same = [each for each in found if _same_detail(each, piece)]
        if same:
            _join(same[-1], piece)
        else:
            found.append(dict(piece))


def _same_detail(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether two pieces belong to one block of OpenRouter's reasoning, or one tool of Groq's: its index tells."""
    return one.get("index") is not None and all(one.get(name) == two.get(name) for name in ("index", "type"))


def _join(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        grows = name in ("text", "summary", "data", "transcript") and isinstance(value, str)
        whole[name] = f"{whole.get(name) or ''}{value}" if grows else value if value is not None else whole.get(name)


class ChatDecoder(EventStreamDecoder):
    """Decodes the chunks of one answer. `provider` is the server's name, for what is sent back only to it."""

    __slots__ = ("_calls", "_parts", "_refused")

    def __init__(self, failures: Failures, *, provider: str = "openai-chat") -> None:
        super().__init__(failures)
        self._calls: Final[dict[int, _Call]] = {}
        self._parts: Final = ChatParts(provider)
        self._refused = False

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One chunk. What every chunk passes through is in this one function."""
        try:
            chunk = _decode(data)
        except UNREADABLE as error:
            return self._take_no_chunk(name, data, error, into)
        if chunk.error is not None or name == b"error":
            raise self._failures.of_error_object(chunk.error, request_id=_head(data).id)
        if not self._started:
            head = _head(data)
            if head.id or chunk.choices:  # the first chunk of Azure is about the prompt, and names no model
                self._start(head.id, head.model or None, into)
        if chunk.choices:
            choice = chunk.choices[0]
            piece = choice.delta
            if piece is not None and not self.ended:
                content = piece.content
                if content.__class__ is str:  # nearly always
                    if content:
                        into.append(TextDelta(content))  # pyright: ignore[reportArgumentType]
                elif content:
                    self._take_parts(content, into)  # pyright: ignore[reportArgumentType]
                if (
                    piece.tool_calls or piece.reasoning_content or piece.reasoning or piece.refusal
                    or piece.reasoning_details or piece.audio or piece.images or piece.annotations
                    or piece.executed_tools
                ):  # fmt: skip
                    self._take_rest(piece, into)
            if choice.finish_reason or choice.usage is not None or choice.logprobs is not None:
                self._take_end_of_choice(choice, data, into)
        if chunk.usage is not None or chunk.timings is not None or chunk.x_groq is not None:
            self._take_usage(chunk, into)
        return None

    def _take_no_chunk(self, name: bytes, data: bytes, error: Exception, into: list[Delta]) -> None:
        if data != b"[DONE]":
            return self.take(name, readable(self._failures.label, data, error), into)
        if self._started and not self.ended:  # some servers give no reason
            self._end("stop", into)
        self.done = True
        return None

    def take_whole(self, whole: dict[str, Any], into: list[Delta]) -> None:
        """A `chat.completion`: its message is as a delta that says all at once."""
        for choice in as_list(whole.get("choices")):
            choice["delta"] = choice.pop("message", None)
        self.take(b"", msgspec.json.encode(whole), into)
        if not self.ended:
            self._end("stop", into)

    def _take_end_of_choice(self, choice: _Choice, data: bytes, into: list[Delta]) -> None:
        self._parts.add("logprobs", as_dict(choice.logprobs).get("content"))
        if choice.finish_reason and not self.ended:
            found = as_dict(msgspec.json.decode(data))
            for kind in ("citations", "search_results"):  # Perplexity repeats them with every chunk
                self._parts.add(kind, found.get(kind))
            self._end(choice.finish_reason, into)
        if choice.usage is not None:  # one provider puts it there
            into.append(self._usage_delta(choice.usage))

    def _take_rest(self, piece: _Piece, into: list[Delta]) -> None:
        thought = piece.reasoning_content or piece.reasoning
        if thought:
            into.append(ReasoningDelta(thought))
        if piece.refusal:
            self._refused = True
            into.append(TextDelta(piece.refusal))
        for call in piece.tool_calls or ():
            self._take_call(call, into)
        self._parts.take(piece)

    def _take_call(self, piece: _CallPiece, into: list[Delta]) -> None:
        index = piece.index
        if index is None:  # some servers number nothing and send each call whole
            index = len(self._calls) if piece.id or not self._calls else len(self._calls) - 1
        if self._parts.take_custom(index, piece):
            return
        call = self._calls.setdefault(index, _Call())
        function = piece.function
        call.id = call.id or piece.id or ""
        if function is not None and function.arguments:
            written = function.arguments
            call.held.append(written if isinstance(written, str) else msgspec.json.encode(written).decode())
        if not call.started and function is not None and function.name:
            call.started = True
            call.id = call.id or f"call_{index}"
            into.append(ToolCallStart(call.id, function.name))
        if call.started and call.held:
            into.extend(ToolCallArguments(call.id, written) for written in call.held)
            call.held.clear()

    def _take_parts(self, parts: list[dict[str, Any]], into: list[Delta]) -> None:
        """Content in parts: Mistral's reasoning models send text and thinking this way, and references to sources."""
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    into.extend([TextDelta(text)] if text else [])
                case {"type": "thinking", "thinking": thoughts}:
                    text = "".join(str(as_dict(each).get("text") or "") for each in as_list(thoughts))
                    into.extend([ReasoningDelta(text)] if text else [])
                case {"type": str(kind)}:
                    self._parts.add(kind, [part])
                case _:
                    pass

    def _usage_delta(self, usage: _Usage) -> UsageDelta:
        return _usage_delta(usage, final=self.ended, server_tools=self._parts.server_tools)

    def _end(self, reason: str, into: list[Delta]) -> None:
        if reason in _FAILED:
            raise self._failures.reported(_FAILED[reason], f"The answer ended with {reason!r}")
        self.ended = True
        calls = [call for call in self._calls.values() if call.started]
        why = _REASONS.get(reason, "end_turn")
        if why in ("end_turn", "tool_use"):
            why = "refusal" if self._refused else "tool_use" if calls else "end_turn"
        if why not in ("max_tokens", "refusal"):
            into.extend(ToolCallEnd(call.id) for call in calls)
        into.extend(self._parts.all())
        into.append(AnswerEnd(why, reason if why == "refusal" and not self._refused else ""))

    def _take_usage(self, chunk: _Chunk, into: list[Delta]) -> None:
        usage = chunk.usage
        if usage is None and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if usage is not None and usage.prompt_tokens is not None:
            into.append(self._usage_delta(usage))
        elif chunk.timings is not None:
            read = chunk.timings.prompt_n + chunk.timings.cache_n
            into.append(UsageDelta(read or None, chunk.timings.predicted_n, final=self.ended))


def _head(data: bytes) -> _Head:
    """Which answer a chunk belongs to: the same for all chunks, so that only the first is asked."""
    try:
        return _decode_head(data)
    except msgspec.ValidationError:
        return _Head()


def _usage_delta(usage: _Usage, *, final: bool, server_tools: bool) -> UsageDelta:
    sent, said = usage.prompt_tokens, usage.completion_tokens
    read = usage.prompt_cache_hit_tokens
    written = reasoning = None
    if usage.prompt_tokens_details is not None:
        read = usage.prompt_tokens_details.cached_tokens if read is None else read
        written = usage.prompt_tokens_details.cache_write_tokens
    if usage.completion_tokens_details is not None:
        reasoning = usage.completion_tokens_details.reasoning_tokens
    if reasoning and said is not None and usage.total_tokens == (sent or 0) + said + reasoning:
        said += reasoning  # xAI counts reasoning apart
    return UsageDelta(sent, said, read, written, reasoning, final, server_tools)


# --- OpenRouter's record of a request, also of one that was cut ------------------------------------------------------


class _Generation(Struct):
    """The figures of OpenRouter, in the tokens of the model itself, which is what is billed."""

    native_tokens_prompt: int | None = None
    native_tokens_completion: int | None = None
    native_tokens_reasoning: int | None = None
    native_tokens_cached: int | None = None


class _GenerationReply(Struct):
    data: _Generation


def usage_of_generation(reply: Any) -> UsageDelta | None:
    """The usage that a reply of `GET /generation` holds; None when it has none yet."""
    try:
        record = msgspec.convert(reply, _GenerationReply).data
    except msgspec.ValidationError:
        return None
    if record.native_tokens_prompt is None or record.native_tokens_completion is None:
        return None
    return UsageDelta(
        input=record.native_tokens_prompt,
        output=record.native_tokens_completion,
        cache_read=record.native_tokens_cached,
        reasoning=record.native_tokens_reasoning,
        final=True,
    )
