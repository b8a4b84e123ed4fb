"""The answer of Gemini."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from ...errors import RequestRejected
from ...events import AnswerEnd, AnswerStop, Delta, ReasoningDelta, TextDelta, UsageDelta
from ..wire.failures import Failures
from ..wire.sse import EventStreamDecoder, decoded
from .whole_calls import WholeCalls


class _FunctionCall(Struct, gc=False):
    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None


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


class _Usage(Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Chunk(Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode
_TAG: Final = {"provider": "gemini"}
_REFUSALS: Final = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"}
)


class GeminiDecoder(EventStreamDecoder):
    """Decodes the chunks of one answer. Calls arrive whole and mostly without ids."""

    def __init__(self, failures: Failures, *, first_call: int = 1) -> None:
        super().__init__(failures)
        self._calls: Final = WholeCalls(first_call)

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One chunk."""
        del name
        chunk = decoded(_decode, "Gemini", data)
        if chunk.error is not None:
            raise self._failures.of_error_object(chunk.error)
        self._start(chunk.response_id, chunk.model_version, into)
        reason = None
        if chunk.candidates and not self.ended:
            candidate = chunk.candidates[0]
            reason = candidate.finish_reason
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                self._take_part(part, into)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            raise RequestRejected(
                f"Gemini refused the prompt: {chunk.prompt_feedback.block_reason}.", request_id=chunk.response_id
            )
        if chunk.usage_metadata is not None:
            into.append(_usage_delta(chunk.usage_metadata, final=self.ended or reason is not None))
        if reason is not None:
            self.ended = True
            into.append(AnswerEnd(self._reason(reason)))

    def _take_part(self, part: _Part, into: list[Delta]) -> None:
        call = part.function_call
        if call is not None:
            signature = part.thought_signature
            data = None if signature is None else {**_TAG, "signature": signature}
            self._calls.take(call.id, call.name, call.args, into, provider_data=data)
            return
        if part.text:
            into.append(ReasoningDelta(part.text) if part.thought else TextDelta(part.text))
        if part.thought_signature is not None:
            # It belongs to the words before it. Sent back with no words of its own, as it mostly came.
            into.append(ReasoningDelta("", part.thought_signature, _TAG))

    def _reason(self, reason: str) -> AnswerStop:
        if reason == "MAX_TOKENS":
            return "max_tokens"
        if reason in _REFUSALS:
            return "refusal"
        return "tool_use" if self._calls.any else "end_turn"


def _usage_delta(usage: _Usage, *, final: bool) -> UsageDelta:
    sent, said, thought = usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count
    known = said is not None or thought is not None
    return UsageDelta(
        input=None if sent is None else sent + (usage.tool_use_prompt_token_count or 0),
        output=(said or 0) + (thought or 0) if known else None,
        cache_read=usage.cached_content_token_count,
        reasoning=thought,
        final=final and known,
    )
