"""The answer of Gemini."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...errors import ModelProtocolError
from ...events import AnswerEnd, AnswerStop, Delta, ProviderPartDelta, ReasoningDelta, TextDelta, UsageDelta
from ..wire.failures import Failures
from ..wire.json_values import as_dict
from ..wire.sse import UNREADABLE, EventStreamDecoder, readable
from .whole_calls import WholeCalls


class _FunctionCall(Struct, gc=False, rename="camel"):
    """A call, or a piece of one: `partial_args` are values and their places, and more come if it `will_continue`."""

    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class _Part(Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None
    logprobs_result: dict[str, Any] | None = None


class _Usage(Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(Struct, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Chunk(Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode
_TAG: Final = {"provider": "gemini"}
_LIMITS: Final = ("MAX_TOKENS", "CONTINUATION")
_REFUSALS: Final = frozenset(
    [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
    ]
)
_METADATA: Final = ("groundingMetadata", "citationMetadata", "urlContextMetadata", "logprobsResult")


class GeminiDecoder(EventStreamDecoder):
    """Decodes the chunks of one answer. Calls arrive whole and mostly without ids."""

    def __init__(self, failures: Failures, *, first_call: int = 1) -> None:
        super().__init__(failures)
        self._calls: Final = WholeCalls(first_call)
        self._partial: _PartialCall | None = None

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One chunk."""
        try:
            chunk = _decode(data)
        except UNREADABLE as error:
            return self.take(name, readable("Gemini", data, error), into)
        if chunk.error is not None:
            raise self._failures.of_error_object(chunk.error)
        self._start(chunk.response_id, chunk.model_version, into)
        end = None
        if chunk.candidates and not self.ended:
            candidate = chunk.candidates[0]
            for index, part in enumerate((candidate.content.parts if candidate.content is not None else None) or ()):
                if part.text is None and part.function_call is None:
                    self._take_raw(_raw_candidate(data)["content"]["parts"][index], into)
                else:
                    self._take_part(part, into)
            end = self._end(candidate, data, into)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason and not self.ended:
            feedback = chunk.prompt_feedback
            end = AnswerEnd("refusal", feedback.block_reason_message or f"the prompt: {feedback.block_reason}")
        if chunk.usage_metadata is not None:
            into.append(_usage_delta(chunk.usage_metadata, final=self.ended or end is not None))
        if end is not None:
            self.ended = True
            into.append(end)
        return None

    def take_whole(self, whole: dict[str, Any], into: list[Delta]) -> None:
        """A chunk, or the one that is all."""
        self.take(b"", msgspec.json.encode(whole), into)

    def _end(self, candidate: _Candidate, data: bytes, into: list[Delta]) -> AnswerEnd | None:
        if candidate.grounding_metadata or candidate.citation_metadata or candidate.url_context_metadata:
            found = _raw_candidate(data)
            into += [ProviderPartDelta("gemini", kind, found[kind]) for kind in _METADATA if found.get(kind)]
        elif candidate.logprobs_result:
            into.append(ProviderPartDelta("gemini", "logprobsResult", candidate.logprobs_result))
        if candidate.finish_reason is None:
            return None
        why = self._reason(candidate.finish_reason)
        detail = candidate.finish_message or candidate.finish_reason
        return AnswerEnd(why, "" if candidate.finish_reason in ("STOP", *_LIMITS) else detail)

    def _take_raw(self, part: dict[str, Any], into: list[Delta]) -> None:
        """A part that is neither text nor a call: an image, code that was run, or nothing but a signature."""
        kind = next((name for name in part if name not in ("thoughtSignature", "thought")), None)
        if kind is not None:
            into.append(ProviderPartDelta("gemini", kind, part))
        elif part.get("thoughtSignature"):
            into.append(ReasoningDelta("", str(part["thoughtSignature"]), _TAG))

    def _take_call(self, call: _FunctionCall, signature: str | None, into: list[Delta]) -> None:
        if call.will_continue or self._partial is not None:
            self._partial = self._partial or _PartialCall()
            self._partial.add(call, signature)
            if call.will_continue:
                return
            call, signature, self._partial = self._partial.call, self._partial.signature, None
        data = None if signature is None else {**_TAG, "signature": signature}
        self._calls.take(call.id, call.name, call.args, into, provider_data=data)

    def _take_part(self, part: _Part, into: list[Delta]) -> None:
        if part.function_call is not None:
            self._take_call(part.function_call, part.thought_signature, into)
            return
        if part.text:
            into.append(ReasoningDelta(part.text) if part.thought else TextDelta(part.text))
        if part.thought_signature is not None:
            # It belongs to the words before it. Sent back with no words of its own, as it mostly came.
            into.append(ReasoningDelta("", part.thought_signature, _TAG))

    def _reason(self, reason: str) -> AnswerStop:
        if reason in _LIMITS:
            return "max_tokens"
        if reason in _REFUSALS:
            return "refusal"
        return "tool_use" if self._calls.any else "end_turn"


class _PartialCall:
    """A call whose arguments come in pieces, each with its place: `$.city`, `$.days[0].name`."""

    def __init__(self) -> None:
        self.call: Final = _FunctionCall(args={})
        self.signature: str | None = None

    def add(self, piece: _FunctionCall, signature: str | None) -> None:
        """More of the call."""
        self.call.name = self.call.name or piece.name
        self.call.id = self.call.id or piece.id
        self.signature = self.signature or signature
        self.call.args = {**(self.call.args or {}), **(piece.args or {})}
        for each in piece.partial_args or ():
            value = next((each[name] for name in _VALUES if name in each), None)
            _put(self.call.args, _STEP.findall(str(each.get("jsonPath", ""))), value)


_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_LONGEST_LIST: Final = 100_000
_STEP: Final = re.compile(r"\.([^.\[]+)|\['([^']*)'\]|\[(\d+)\]")


def _put(root: dict[str, Any], steps: list[tuple[str, str, str]], value: Any) -> None:
    """Put a value at its place. A string that goes on is joined to its beginning."""
    at: Any = root
    for place, (name, quoted, number) in enumerate(steps):
        key: Any = int(number) if number else name or quoted
        before = _get(at, key)
        if place == len(steps) - 1:
            at[key] = before + value if isinstance(before, str) and isinstance(value, str) else value
        elif before is None:
            at[key] = at = [] if steps[place + 1][2] else {}
        else:
            at = before


def _get(container: Any, key: Any) -> Any:
    """What is at a place; None when it is empty. A list is made long enough."""
    if isinstance(container, dict):
        return as_dict(container).get(key)
    if key > _LONGEST_LIST:
        raise ModelProtocolError(f"Gemini sent an argument for place {key} of a list.")
    while len(container) <= key:
        container.append(None)
    return container[key]


def _raw_candidate(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data)["candidates"][0]


def _usage_delta(usage: _Usage, *, final: bool) -> UsageDelta:
    sent, said, thought = usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count
    known = said is not None or thought is not None
    return UsageDelta(
        input=None if sent is None else sent + (usage.tool_use_prompt_token_count or 0),
        output=(said or 0) + (thought or 0) if known else None,
        cache_read=usage.cached_content_token_count,
        reasoning=thought,
        final=final and known,
        server_tools=bool(usage.tool_use_prompt_token_count),
    )
