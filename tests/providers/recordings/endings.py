"""Every way in which an answer can end, for each provider: what is on the wire, where that is documented, what follows.

Each recording is named after the one fact that it pins. `docs/providers.md` has a table that is made of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quiesce.models.base import Model
from quiesce.models.providers.bedrock import Bedrock
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.providers.openai_responses import OpenAIResponses

from ..wire import aws_event, sse
from .anthropic import ANTHROPIC, claude, claude_end, claude_start, claude_text
from .bedrock import BEDROCK, BEDROCK_START, bedrock_end, bedrock_text
from .gemini import GEMINI, gemini
from .ollama import OLLAMA, ollama, ollama_end
from .openai_chat import DONE, OPENAI_CHAT, chat, chat_call, chat_usage
from .openai_responses import OPENAI_RESPONSES, Responses, response, responses_text, responses_usage
from .recording import ANSWER, CALLS, KEY, WORDS, Provider, Recording


@dataclass
class Ending:
    """One way in which an answer ends.

    fact         what the provider does
    source       where that is documented
    kept         the parts that the answer has: the kinds of those that only this provider has, or its type
    refusal      what `result.refusal` holds
    sent_back    what the next request holds
    requests     how many requests are sent for one prompt
    """

    provider: Provider
    fact: str
    source: str
    recording: Recording
    stop_reason: str = "end_turn"
    text: str = ""
    kept: tuple[str, ...] = ()
    refusal: str = ""
    sent_back: tuple[Any, ...] = ()
    not_sent_back: tuple[str, ...] = ()
    requests: int = 1
    calls: int = 0
    make: Callable[..., Model] | None = None
    body: dict[str, Any] = field(default_factory=dict)

    def model(self, url: str) -> Model:
        return (self.make or self.provider.make)(url)

    def __str__(self) -> str:
        return f"{self.provider.name}: {self.fact}"


def _chat_at(server: str, model: str = "some-model") -> Callable[..., Model]:
    return lambda url, **more: OpenAIChat(model, server=server, **{"base_url": f"{url}/v1", "api_key": KEY, **more})


# --- OpenAI Chat Completions ---------------------------------------------------------------------------------------

_CHAT_START = chat({"role": "assistant", "content": "", "refusal": None})
_REFUSAL = "I'm sorry, I can't help with that."

CHAT_ENDINGS = [
    Ending(
        OPENAI_CHAT,
        "`finish_reason: content_filter`, without a word",
        "https://platform.openai.com/docs/api-reference/chat/object",
        Recording([_CHAT_START, chat({}, "content_filter"), chat_usage(3), DONE], output=3, complete_at=1),
        "refusal",
        refusal="(The provider refused to go on with this answer: content_filter.)",
    ),
    Ending(
        OPENAI_CHAT,
        "the field `refusal`",
        "https://platform.openai.com/docs/guides/structured-outputs#refusals",
        Recording(
            [
                chat({"role": "assistant", "content": None, "refusal": ""}),
                chat({"refusal": _REFUSAL[:12]}),
                chat({"refusal": _REFUSAL[12:]}),
                chat({}, "stop"),
                chat_usage(9),
                DONE,
            ],
            output=9,
            complete_at=3,
        ),
        "refusal",
        text=_REFUSAL,
        refusal=_REFUSAL,
    ),
    Ending(
        OPENAI_CHAT,
        "a call that the content filter cut",
        "https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter",
        Recording(
            [
                _CHAT_START,
                chat(chat_call(0, '{"city":', "call_a", "weather")),
                chat({}, "content_filter"),
                chat_usage(6),
                DONE,
            ],
            output=6,
            complete_at=2,
        ),
        "refusal",
        refusal="(The provider refused to go on with this answer: content_filter.)",
    ),
    Ending(
        OPENAI_CHAT,
        "`[DONE]` without a `finish_reason`",
        "https://github.com/truera/trulens/pull/2240 (Snowflake Cortex), https://github.com/diegosouzapw/OmniRoute/issues/7800",
        Recording([_CHAT_START, *(chat({"content": word}) for word in WORDS), chat_usage(12), DONE]),
        text=ANSWER,
        make=_chat_at("snowflake", "claude-sonnet-4-5"),
    ),
    Ending(
        OPENAI_CHAT,
        "`[DONE]` without a `finish_reason`, after calls",
        "https://github.com/BerriAI/litellm/issues/30762 (Snowflake Cortex)",
        Recording(
            [
                chat({"role": "assistant", "content": None}),
                *(
                    chat(chat_call(index, json.dumps(arguments), f"call_{index}", name))
                    for index, (name, arguments) in enumerate(CALLS)
                ),
                chat_usage(30),
                DONE,
            ],
            output=30,
        ),
        "tool_use",
        calls=2,
        make=_chat_at("snowflake", "claude-sonnet-4-5"),
        requests=2,
    ),
    Ending(
        OPENAI_CHAT,
        "`finish_reason` is an empty string until the end",
        "https://github.com/ollama/ollama/issues/4357",
        Recording(
            [
                *(chat({"role": "assistant", "content": word}, "") for word in WORDS),
                chat({"role": "assistant", "content": ""}, "stop"),
                chat_usage(12),
                DONE,
            ],
            complete_at=3,
        ),
        text=ANSWER,
        make=_chat_at("ollama-chat", "llama3.2"),
    ),
    Ending(
        OPENAI_CHAT,
        "a whole answer instead of a stream, and `[DONE]`",
        "https://github.com/decolua/9router/issues/3492",
        Recording(
            [
                json.dumps(
                    {
                        "id": "c1",
                        "object": "chat.completion",
                        "choices": [{"index": 0, "message": {"content": ANSWER}, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37},
                    }
                ).encode()
                + b"\n\n",
                DONE,
            ],
            complete_at=0,
        ),
        text=ANSWER,
    ),
    Ending(
        OPENAI_CHAT,
        "audio, and no text",
        "https://platform.openai.com/docs/guides/audio",
        Recording(
            [
                chat({"role": "assistant", "content": None, "audio": {"id": "audio_6725", "transcript": "The "}}),
                chat({"audio": {"transcript": "sky."}}),
                chat({"audio": {"data": "UklGRg"}}),
                chat({"audio": {"data": "AAAA"}}),
                chat({"audio": {"expires_at": 1730234879}}),
                chat({}, "stop"),
                chat_usage(40),
                DONE,
            ],
            output=40,
            complete_at=5,
        ),
        kept=("audio",),
        sent_back=({"audio": {"id": "audio_6725"}},),
        make=_chat_at("openai", "gpt-audio"),
    ),
    Ending(
        OPENAI_CHAT,
        "a picture, and no text (OpenRouter)",
        "https://openrouter.ai/docs/features/multimodal/image-generation",
        Recording(
            [
                _CHAT_START,
                chat({"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo"}}]}),
                chat({}, "stop"),
                chat_usage(1290),
                DONE,
            ],
            output=1290,
            complete_at=2,
        ),
        kept=("images",),
        sent_back=("data:image/png;base64,iVBORw0KGgo",),
        make=_chat_at("openrouter", "google/gemini-2.5-flash-image"),
    ),
    Ending(
        OPENAI_CHAT,
        "`reasoning_details` (OpenRouter)",
        "https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks",
        Recording(
            [
                chat(
                    {
                        "role": "assistant",
                        "content": "",
                        "reasoning": "Blue",
                        "reasoning_details": [
                            {"type": "reasoning.text", "text": "Blue", "format": "anthropic-claude-v1", "index": 0}
                        ],
                    }
                ),
                chat(
                    {
                        "content": "",
                        "reasoning": ".",
                        "reasoning_details": [{"type": "reasoning.text", "text": ".", "index": 0}],
                    }
                ),
                chat(
                    {
                        "content": "",
                        "reasoning_details": [{"type": "reasoning.text", "signature": "EqQBCgIYAhIM", "index": 0}],
                    }
                ),
                *(chat({"content": word}) for word in WORDS),
                chat({}, "stop"),
                chat_usage(20),
                DONE,
            ],
            output=20,
            complete_at=6,
        ),
        text=ANSWER,
        kept=("reasoning", "reasoning_details"),
        sent_back=(
            {
                "reasoning_details": [
                    {
                        "type": "reasoning.text",
                        "text": "Blue.",
                        "format": "anthropic-claude-v1",
                        "index": 0,
                        "signature": "EqQBCgIYAhIM",
                    }
                ]
            },
        ),
        make=_chat_at("openrouter", "anthropic/claude-sonnet-4.5"),
    ),
    Ending(
        OPENAI_CHAT,
        "reasoning that is counted apart: 2 + 340 (xAI)",
        "https://docs.x.ai/docs/key-information/consumption-and-rate-limits, https://github.com/vercel/ai/pull/12425",
        Recording(
            [
                _CHAT_START,
                *(chat({"content": word}) for word in WORDS),
                chat({}, "stop"),
                chat(
                    {},
                    choices=[],
                    usage={
                        "prompt_tokens": 25,
                        "completion_tokens": 2,
                        "total_tokens": 367,
                        "prompt_tokens_details": {"cached_tokens": 0, "text_tokens": 25},
                        "completion_tokens_details": {"reasoning_tokens": 340},
                    },
                ),
                DONE,
            ],
            output=342,
            reasoning=340,
            complete_at=4,
        ),
        text=ANSWER,
        make=_chat_at("xai", "grok-3-mini"),
    ),
    Ending(
        OPENAI_CHAT,
        "sources with every chunk (Perplexity)",
        "https://docs.perplexity.ai/api-reference/chat-completions-post",
        Recording(
            [
                *(chat({"content": word}, citations=["https://sky.example"]) for word in WORDS),
                chat({}, "stop", citations=["https://sky.example"], search_results=[{"title": "Sky"}]),
                chat_usage(12),
                DONE,
            ],
            complete_at=3,
        ),
        text=ANSWER,
        kept=("citations", "search_results"),
        not_sent_back=("sky.example",),
        make=_chat_at("perplexity", "sonar"),
    ),
    Ending(
        OPENAI_CHAT,
        "logprobs that were asked for",
        "https://platform.openai.com/docs/api-reference/chat-streaming/streaming",
        Recording(
            [
                *(
                    chat(
                        {},
                        choices=[
                            {
                                "index": 0,
                                "delta": {"content": word},
                                "logprobs": {"content": [{"token": word, "logprob": -0.1}], "refusal": None},
                                "finish_reason": None,
                            }
                        ],
                    )
                    for word in WORDS
                ),
                chat({}, "stop"),
                chat_usage(12),
                DONE,
            ],
            complete_at=3,
        ),
        text=ANSWER,
        kept=("logprobs",),
        not_sent_back=("logprob",),
    ),
    Ending(
        OPENAI_CHAT,
        "nothing at all",
        "https://platform.openai.com/docs/api-reference/chat/object",
        Recording([_CHAT_START, chat({}, "stop"), chat_usage(0), DONE], output=0, complete_at=1),
        "error",
        requests=4,
    ),
]

# --- OpenAI Responses ----------------------------------------------------------------------------------------------


def _items(*items: dict[str, Any], text: bool = False, reasoning: bool = False, output: int = 12) -> Recording:
    event = Responses()
    events = [event("response.created", response=response("in_progress"))]
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAencrypted"}
    whole = [*([thought] if reasoning else []), *items]
    for index, item in enumerate(whole):
        begun = {name: value for name, value in item.items() if name not in ("output", "result", "action", "outputs")}
        events.append(event("response.output_item.added", output_index=index, item=begun | {"status": "in_progress"}))
        events.append(event("response.output_item.done", output_index=index, item=item))
    if text:
        events += responses_text(event, len(whole))
    events.append(event("response.completed", response=response("completed", responses_usage(output))))
    return Recording(events, output=output)


def _incomplete(reason: str) -> Recording:
    event = Responses()
    ended = response("incomplete", responses_usage(3)) | {"incomplete_details": {"reason": reason}}
    return Recording(
        [
            event("response.created", response=response("in_progress")),
            event("response.incomplete", response=ended),
        ],
        output=3,
    )


def _refused_text() -> Recording:
    event = Responses()
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return Recording(
        [
            event("response.created", response=response("in_progress")),
            event("response.refusal.delta", **place, delta=_REFUSAL[:12]),
            event("response.refusal.delta", **place, delta=_REFUSAL[12:]),
            event("response.refusal.done", **place, refusal=_REFUSAL),
            event("response.completed", response=response("completed", responses_usage(9))),
        ],
        output=9,
    )


def _with_sources() -> Recording:
    event = Responses()
    return Recording(
        [
            event("response.created", response=response("in_progress")),
            *responses_text(event, 0)[:-1],
            event(
                "response.output_item.done",
                output_index=0,
                item={
                    "id": "msg_67c9",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "phase": "final_answer",
                    "content": [
                        {
                            "type": "output_text",
                            "text": ANSWER,
                            "annotations": [
                                {
                                    "type": "url_citation",
                                    "url": "https://sky.example",
                                    "title": "Sky",
                                    "start_index": 0,
                                    "end_index": 7,
                                }
                            ],
                        }
                    ],
                },
            ),
            event("response.completed", response=response("completed", responses_usage(12))),
        ]
    )


def _unanswered(item: dict[str, Any], *answers: Any) -> Ending:
    """A call that is run by no tool of the agent: it goes back, with the output that the API wants for it."""
    kept = {name: value for name, value in item.items() if name != "id"}
    with_id = item["type"] in ("local_shell_call", "mcp_approval_request")
    return Ending(
        OPENAI_RESPONSES,
        f"only `{item['type']}`",
        "https://github.com/openai/openai-python/blob/main/src/openai/types/responses/response_input_item_param.py",
        _items(item),
        kept=(item["type"],),
        sent_back=(item if with_id else kept, *answers),
    )


_SEARCH = {
    "id": "ws_67c9",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "sky colour"},
}
_NOT_RUN = "Not run: this program has no such tool."
RESPONSES_ENDINGS = [
    Ending(
        OPENAI_RESPONSES,
        "`incomplete: content_filter`, without a word",
        "https://platform.openai.com/docs/api-reference/responses/object#responses/object-incomplete_details",
        _incomplete("content_filter"),
        "refusal",
        refusal="(The provider refused to go on with this answer: content_filter.)",
    ),
    Ending(
        OPENAI_RESPONSES,
        "`response.refusal.delta`",
        "https://platform.openai.com/docs/api-reference/responses-streaming/response/refusal/delta",
        _refused_text(),
        "refusal",
        text=_REFUSAL,
        refusal=_REFUSAL,
    ),
    _unanswered(
        {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "code", "input": "print(1)"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": _NOT_RUN},
    ),
    _unanswered(
        {
            "id": "tsc_1",
            "type": "tool_search_call",
            "call_id": "call_2",
            "execution": "client",
            "arguments": {"goal": "shipping"},
            "status": "completed",
        },
        {"type": "tool_search_output", "call_id": "call_2", "execution": "client", "tools": []},
    ),
    _unanswered(
        {
            "id": "apc_1",
            "type": "apply_patch_call",
            "call_id": "call_3",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a.txt"},
        },
        {"type": "apply_patch_call_output", "call_id": "call_3", "status": "failed", "output": _NOT_RUN},
    ),
    _unanswered(
        {
            "id": "sh_1",
            "type": "shell_call",
            "call_id": "call_4",
            "status": "completed",
            "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
        },
        {"type": "shell_call_output", "call_id": "call_4"},
    ),
    _unanswered(
        {
            "id": "lsh_1",
            "type": "local_shell_call",
            "call_id": "call_5",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "call_5", "output": _NOT_RUN},
    ),
    _unanswered(
        {
            "id": "mcpr_1",
            "type": "mcp_approval_request",
            "server_label": "docs",
            "name": "ask",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
    ),
    Ending(
        OPENAI_RESPONSES,
        "a picture, and no text",
        "https://platform.openai.com/docs/guides/tools-image-generation",
        _items({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo"}),
        kept=("image_generation_call",),
        sent_back=({"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo"},),
    ),
    Ending(
        OPENAI_RESPONSES,
        "reasoning, a web search, and a text with its sources",
        "https://platform.openai.com/docs/guides/tools-web-search",
        _items(_SEARCH, text=True, reasoning=True),
        text=ANSWER,
        kept=("reasoning", "web_search_call"),
        sent_back=({"type": "web_search_call", "action": {"type": "search", "query": "sky colour"}},),
        not_sent_back=("ws_67c9", "rs_1"),
    ),
    Ending(
        OPENAI_RESPONSES,
        "a text with its phase and its sources",
        "https://github.com/openai/openai-python/blob/main/src/openai/types/responses/response_output_message_param.py",
        _with_sources(),
        text=ANSWER,
        kept=("message",),
        sent_back=({"phase": "final_answer"}, "https://sky.example"),
    ),
    Ending(
        OPENAI_RESPONSES,
        "compaction of the conversation",
        "https://github.com/openai/openai-python/blob/main/src/openai/types/responses/response_compaction_item_param_param.py",
        _items({"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAcompacted"}, text=True),
        text=ANSWER,
        kept=("compaction",),
        sent_back=({"type": "compaction", "encrypted_content": "gAAAAcompacted"},),
    ),
    Ending(
        OPENAI_RESPONSES,
        "reasoning in background mode: no item goes back with an id",
        "https://github.com/openai/openai-agents-python/issues/1611",
        OPENAI_RESPONSES.reasoning,
        text=ANSWER,
        kept=("reasoning",),
        sent_back=({"type": "reasoning", "encrypted_content": "gAAAAencrypted"},),
        not_sent_back=("rs_67c9", "msg_67c9"),
        make=lambda url, **more: OpenAIResponses(
            "gpt-5-mini", background=True, **{"base_url": f"{url}/v1", "api_key": KEY, **more}
        ),
    ),
]

# --- Anthropic -----------------------------------------------------------------------------------------------------


def _block(index: int, block: dict[str, Any], *pieces: dict[str, Any]) -> list[bytes]:
    return [
        claude("content_block_start", index=index, content_block=block),
        *(claude("content_block_delta", index=index, delta=piece) for piece in pieces),
        claude("content_block_stop", index=index),
    ]


def _claude_refusal(details: Any) -> list[bytes]:
    delta = {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    return [claude("message_delta", delta=delta, usage={"output_tokens": 1}), claude("message_stop")]


_SERVER_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://sky.example", "title": "Sky", "encrypted_content": "EqgfCioI"}
    ],
}
_CITATION = {
    "type": "web_search_result_location",
    "url": "https://sky.example",
    "title": "Sky",
    "encrypted_index": "Eo8BCioI",
    "cited_text": "The sky is blue",
}
_SEARCHED = [
    *_block(
        0,
        _SERVER_USE,
        {"type": "input_json_delta", "partial_json": '{"query":'},
        {"type": "input_json_delta", "partial_json": ' "sky"}'},
    ),
    *_block(1, _FOUND),
]
_WEB_SEARCH = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool"
ANTHROPIC_ENDINGS = [
    Ending(
        ANTHROPIC,
        "`stop_reason: refusal`, without a word",
        "https://platform.claude.com/docs/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals",
        Recording([claude_start(), *_claude_refusal(None)], output=1, complete_at=-2),
        "refusal",
        refusal="(The provider refused to go on with this answer.)",
    ),
    Ending(
        ANTHROPIC,
        "`stop_reason: refusal`, with an explanation",
        "https://platform.claude.com/docs/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals",
        Recording(
            [
                claude_start(),
                *claude_text(0),
                *_claude_refusal({"type": "refusal", "category": "cyber", "explanation": "It could enable harm."}),
            ],
            output=1,
            complete_at=-2,
        ),
        "refusal",
        text=ANSWER,
        kept=("cut_note",),
        refusal=f"{ANSWER}\n(The provider refused to go on with this answer: It could enable harm.)",
    ),
    Ending(
        ANTHROPIC,
        "a web search, its results, and a text with citations",
        _WEB_SEARCH,
        Recording(
            [
                claude_start(),
                *_SEARCHED,
                claude("content_block_start", index=2, content_block={"type": "text", "text": "", "citations": []}),
                *(claude("content_block_delta", index=2, delta={"type": "text_delta", "text": word}) for word in WORDS),
                claude("content_block_delta", index=2, delta={"type": "citations_delta", "citation": _CITATION}),
                claude("content_block_stop", index=2),
                *claude_end("end_turn", 40),
            ],
            output=40,
            complete_at=-2,
        ),
        text=ANSWER,
        kept=("server_tool_use", "web_search_tool_result", "citations"),
        sent_back=(
            {**_SERVER_USE, "input": {"query": "sky"}},
            _FOUND,
            {"type": "text", "text": ANSWER, "citations": [_CITATION]},
        ),
    ),
    Ending(
        ANTHROPIC,
        "`pause_turn` in a server tool",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools",
        Recording(
            [
                claude_start(),
                *_SEARCHED,
                *_block(2, {**_SERVER_USE, "id": "srvtoolu_2"}, {"type": "input_json_delta", "partial_json": "{}"}),
                *claude_end("pause_turn", 30),
            ],
            output=30,
            complete_at=-2,
        ),
        "pause",
        kept=("server_tool_use", "web_search_tool_result", "server_tool_use"),
        sent_back=({**_SERVER_USE, "input": {"query": "sky"}}, _FOUND),
        not_sent_back=("srvtoolu_2",),
        requests=2,
    ),
    Ending(
        ANTHROPIC,
        "a call beside a server tool whose result comes later",
        "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons (tool_use)",
        Recording(
            [
                claude_start(),
                *_block(0, _SERVER_USE, {"type": "input_json_delta", "partial_json": '{"query": "sky"}'}),
                *_block(
                    1,
                    {"type": "tool_use", "id": "toolu_9", "name": "weather", "input": {}},
                    {"type": "input_json_delta", "partial_json": '{"city": "Paris"}'},
                ),
                *claude_end("tool_use", 30),
            ],
            output=30,
            complete_at=-2,
        ),
        "tool_use",
        kept=("server_tool_use",),
        sent_back=({**_SERVER_USE, "input": {"query": "sky"}}, {"type": "tool_use", "id": "toolu_9"}),
        calls=1,
        requests=2,
    ),
    Ending(
        ANTHROPIC,
        "`usage.iterations`, of which a compaction is in no other figure",
        "https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/beta/beta_usage.py",
        Recording(
            [
                claude_start(),
                *_block(
                    0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "So far: sky."}
                ),
                *claude_text(1),
                claude(
                    "message_delta",
                    delta={"stop_reason": "end_turn", "stop_sequence": None},
                    usage={
                        "input_tokens": 10,
                        "output_tokens": 12,
                        "iterations": [
                            {
                                "type": "compaction",
                                "input_tokens": 1000,
                                "cache_read_input_tokens": 0,
                                "cache_creation_input_tokens": 0,
                                "output_tokens": 200,
                            },
                            {
                                "type": "message",
                                "input_tokens": 10,
                                "cache_read_input_tokens": 5,
                                "cache_creation_input_tokens": 10,
                                "output_tokens": 12,
                            },
                        ],
                    },
                ),
                claude("message_stop"),
            ],
            input=1025,
            output=212,
            complete_at=-2,
        ),
        text=ANSWER,
        kept=("compaction",),
        sent_back=({"type": "compaction", "content": "So far: sky."},),
    ),
    Ending(
        ANTHROPIC,
        "the whole answer in `message_start`",
        "https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/lib/streaming/_messages.py",
        Recording(
            [
                claude(
                    "message_start",
                    message={
                        "id": "msg_1",
                        "type": "message",
                        "role": "assistant",
                        "model": "claude-sonnet-5",
                        "content": [{"type": "text", "text": ANSWER}],
                        "stop_reason": "end_turn",
                        "usage": {
                            "input_tokens": 10,
                            "cache_creation_input_tokens": 10,
                            "cache_read_input_tokens": 5,
                            "output_tokens": 12,
                        },
                    },
                ),
                claude("message_stop"),
            ],
            complete_at=0,
        ),
        text=ANSWER,
    ),
]

# --- Bedrock -------------------------------------------------------------------------------------------------------

_NOVA = {"toolUseId": "tooluse_n1", "name": "nova_grounding", "type": "server_tool_use"}
BEDROCK_ENDINGS = [
    *(
        Ending(
            BEDROCK,
            f"`stopReason: {reason}`, without a word",
            "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html",
            Recording(
                [BEDROCK_START, *bedrock_end(reason, 1)],
                "application/vnd.amazon.eventstream",
                output=1,
                complete_at=-2,
            ),
            "refusal",
            refusal=f"(The provider refused to go on with this answer: {reason}.)",
        )
        for reason in ("guardrail_intervened", "content_filtered")
    ),
    Ending(
        BEDROCK,
        "a tool that Nova runs itself",
        "https://docs.aws.amazon.com/nova/latest/nova2-userguide/web-grounding.html",
        Recording(
            [
                BEDROCK_START,
                aws_event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": _NOVA}}),
                aws_event(
                    "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"query":"sky"}'}}}
                ),
                aws_event("contentBlockStop", {"contentBlockIndex": 0}),
                aws_event(
                    "contentBlockStart",
                    {
                        "contentBlockIndex": 1,
                        "start": {
                            "toolResult": {
                                "toolUseId": "tooluse_n1",
                                "type": "nova_grounding_result",
                                "status": "success",
                            }
                        },
                    },
                ),
                aws_event(
                    "contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolResult": [{"text": "Blue sky."}]}}
                ),
                aws_event("contentBlockStop", {"contentBlockIndex": 1}),
                *bedrock_text(2),
                *bedrock_end("end_turn", 12),
            ],
            "application/vnd.amazon.eventstream",
            complete_at=-2,
        ),
        text=ANSWER,
        kept=("toolUse", "toolResult"),
        sent_back=({"toolUse": {**_NOVA, "input": {"query": "sky"}}}, {"text": "Blue sky."}),
        make=lambda url, **more: Bedrock(
            "amazon.nova-2-lite-v1:0", **{"base_url": url, "api_key": KEY, "region": "us-east-1", **more}
        ),
    ),
]

# --- Gemini --------------------------------------------------------------------------------------------------------

_FINISH = "https://cloud.google.com/java/docs/reference/google-cloud-aiplatform/latest/com.google.cloud.aiplatform.v1.Candidate.FinishReason"


def _gemini_end(finish: str, **more: Any) -> bytes:
    return sse(
        {
            "candidates": [{"finishReason": finish, "index": 0, **more}],
            "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 1, "totalTokenCount": 26},
            "responseId": "r1",
        }
    )


_CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
_RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
GEMINI_ENDINGS = [
    *(
        Ending(
            GEMINI,
            f"`finishReason: {reason}`, without a word",
            _FINISH,
            Recording([_gemini_end(reason)], output=1),
            "refusal",
            refusal=f"(The provider refused to go on with this answer: {reason}.)",
        )
        for reason in ("SAFETY", "MODEL_ARMOR", "PROHIBITED_CONTENT")
    ),
    Ending(
        GEMINI,
        "a text that `SAFETY` cut, with a message",
        _FINISH,
        Recording(
            [gemini([{"text": ANSWER}], 11), _gemini_end("SAFETY", finishMessage="The answer is not safe.")], output=1
        ),
        "refusal",
        text=ANSWER,
        kept=("cut_note",),
        refusal=f"{ANSWER}\n(The provider refused to go on with this answer: The answer is not safe.)",
    ),
    Ending(
        GEMINI,
        "`promptFeedback.blockReason`",
        "https://ai.google.dev/api/generate-content#PromptFeedback",
        Recording(
            [
                sse(
                    {
                        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
                        "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 0, "totalTokenCount": 25},
                        "responseId": "r1",
                    }
                )
            ],
            output=0,
        ),
        "refusal",
        refusal="(The provider refused to go on with this answer: the prompt: PROHIBITED_CONTENT.)",
    ),
    Ending(
        GEMINI,
        "a picture, and no text",
        "https://ai.google.dev/gemini-api/docs/image-generation",
        Recording(
            [gemini([{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo"}}], 1290, "STOP")], output=1290
        ),
        kept=("inlineData",),
        sent_back=({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo"}},),
    ),
    Ending(
        GEMINI,
        "code that Gemini ran, and grounding",
        "https://ai.google.dev/gemini-api/docs/code-execution",
        Recording(
            [
                gemini([_CODE], 3),
                gemini([_RAN], 5),
                gemini([{"text": ANSWER}], 11),
                sse(
                    {
                        "candidates": [
                            {
                                "content": {"parts": [{"text": ""}], "role": "model"},
                                "finishReason": "STOP",
                                "groundingMetadata": {"webSearchQueries": ["sky"]},
                            }
                        ],
                        "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 12, "totalTokenCount": 37},
                    }
                ),
            ]
        ),
        text=ANSWER,
        kept=("executableCode", "codeExecutionResult", "groundingMetadata"),
        sent_back=(_CODE, _RAN),
        not_sent_back=("groundingMetadata",),
    ),
    Ending(
        GEMINI,
        "`partialArgs` with `willContinue` are one call",
        "https://googleapis.github.io/js-genai/release_docs/interfaces/types.FunctionCall.html",
        Recording(
            [
                gemini(
                    [
                        {
                            "functionCall": {"name": "weather", "id": "fc9", "willContinue": True},
                            "thoughtSignature": "CikB0e2Kb3",
                        }
                    ],
                    3,
                ),
                gemini(
                    [
                        {
                            "functionCall": {
                                "partialArgs": [{"jsonPath": "$.city", "stringValue": "Pa", "willContinue": True}],
                                "willContinue": True,
                            }
                        }
                    ],
                    4,
                ),
                gemini(
                    [
                        {
                            "functionCall": {
                                "partialArgs": [{"jsonPath": "$.city", "stringValue": "ris"}],
                                "willContinue": True,
                            }
                        }
                    ],
                    5,
                ),
                gemini([{"functionCall": {}}], 6),
                gemini([{"text": ""}], 30, "STOP"),
            ],
            output=30,
        ),
        "tool_use",
        calls=1,
        sent_back=(
            {"functionCall": {"name": "weather", "args": {"city": "Paris"}, "id": "fc9"}},
            {"thoughtSignature": "CikB0e2Kb3"},
            {"functionResponse": {"name": "weather", "response": {"output": "Sunny in Paris"}, "id": "fc9"}},
        ),
        requests=2,
    ),
    Ending(
        GEMINI,
        "a thought followed by a bare signature stays a thought",
        "https://ai.google.dev/gemini-api/docs/thought-signatures",
        Recording(
            [
                gemini([{"text": "Blue.", "thought": True}], 8, thoughts=8),
                gemini([{"thoughtSignature": "CikB0e2Kb4"}], 8, thoughts=8),
                gemini([{"text": ANSWER}], 20, "STOP", thoughts=8),
            ],
            output=20,
            reasoning=8,
        ),
        text=ANSWER,
        kept=("reasoning",),
        sent_back=({"text": "Blue.", "thought": True, "thoughtSignature": "CikB0e2Kb4"},),
    ),
    Ending(
        GEMINI,
        "`MALFORMED_FUNCTION_CALL`, and nothing else",
        _FINISH,
        Recording([_gemini_end("MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: look(")], output=1),
        "error",
        requests=4,
    ),
]

# --- Ollama --------------------------------------------------------------------------------------------------------

OLLAMA_ENDINGS = [
    Ending(
        OLLAMA,
        "nothing but `done_reason: load`",
        "https://github.com/ollama/ollama/blob/main/docs/api.md#load-a-model",
        Recording(
            [ollama({"content": ""}, done=True, done_reason="load")],
            "application/x-ndjson",
            output=0,
        ),
        "error",
        requests=4,
    ),
    Ending(
        OLLAMA,
        "`done_reason: length`",
        "https://github.com/ollama/ollama/blob/main/docs/api.md",
        Recording(
            [ollama({"content": ANSWER}), ollama_end(12).replace(b'"stop"', b'"length"')], "application/x-ndjson"
        ),
        "max_tokens",
        text=ANSWER,
    ),
]

ENDINGS = [
    *CHAT_ENDINGS,
    *RESPONSES_ENDINGS,
    *ANTHROPIC_ENDINGS,
    *BEDROCK_ENDINGS,
    *GEMINI_ENDINGS,
    *OLLAMA_ENDINGS,
]

# --- The table in docs/providers.md ----------------------------------------------------------------------------------

_NAMES = {
    "openai-chat": "Chat Completions",
    "openai-responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    "gemini": "Gemini",
    "ollama": "Ollama",
}
_ORDINARY = [
    ("all", "a text", "`end_turn`", "", "1"),
    ("all", "tool calls", "the tools are run, and the run goes on", "", "1 for each turn"),
    ("all", "the limit of its length", "`max_tokens`", "", "1"),
    ("all", "no end: the stream was lost before any text", "`ConnectionFailed`, asked again", "", "up to 4"),
    ("all", "no end: the stream was lost after some text", "`StreamBroken`", "the text", "1"),
]


def ending_table() -> str:
    """The ways in which an answer can end, as a table in Markdown."""
    rows = [*_ORDINARY, *map(_row, ENDINGS)]
    head = [
        "| provider | the answer ends with | the run | kept as `ProviderPart` | requests |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _row(ending: Ending) -> tuple[str, str, str, str, str]:
    ends = {
        "error": "`EmptyAnswer`, asked again",
        "tool_use": "the tools are run, and the run goes on",
        "pause": "all of it goes back, and the run goes on; after 20 in a row `pause`",
    }
    kept = [kind for kind in dict.fromkeys(ending.kept) if kind not in ("reasoning", "cut_note")]
    requests = {"error": "up to 4", "tool_use": "1 for each turn", "pause": "1 for each pause"}.get(
        ending.stop_reason, str(ending.requests)
    )
    return (
        _NAMES[ending.provider.name],
        ending.fact,
        ends.get(ending.stop_reason, f"`{ending.stop_reason}`"),
        ", ".join(f"`{kind}`" for kind in kept),
        requests,
    )
