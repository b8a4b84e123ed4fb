"""How an answer of a server that speaks Chat Completions can end."""

from __future__ import annotations

import json

from ..openai_chat import DONE, OPENAI_CHAT, chat, chat_call, chat_usage
from ..recording import ANSWER, CALLS, WORDS, Recording
from ..source import assumed, code, package, page, thread
from ..sources import CHAT_CHUNK
from .chat_servers import chat_at as _chat_at
from .ending import REFUSAL, Ending

_CHAT_START = chat({"role": "assistant", "content": "", "refusal": None})

CHAT_ENDINGS = [
    Ending(
        OPENAI_CHAT,
        "`finish_reason: content_filter`, without a word",
        CHAT_CHUNK,
        Recording([_CHAT_START, chat({}, "content_filter"), chat_usage(3), DONE], output=3, complete_at=1),
        "refusal",
        refusal="(The provider refused to go on with this answer: content_filter.)",
    ),
    Ending(
        OPENAI_CHAT,
        "the field `refusal`",
        CHAT_CHUNK,
        Recording(
            [
                chat({"role": "assistant", "content": None, "refusal": ""}),
                chat({"refusal": REFUSAL[:12]}),
                chat({"refusal": REFUSAL[12:]}),
                chat({}, "stop"),
                chat_usage(9),
                DONE,
            ],
            output=9,
            complete_at=3,
        ),
        "refusal",
        text=REFUSAL,
        refusal=REFUSAL,
    ),
    Ending(
        OPENAI_CHAT,
        "a call that the content filter cut",
        assumed("That `content_filter` ends an answer is documented; that it can end one in a call is not."),
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
        thread("diegosouzapw/OmniRoute/issues/7800", "Of Snowflake: https://github.com/truera/trulens/pull/2240"),
        Recording([_CHAT_START, *(chat({"content": word}) for word in WORDS), chat_usage(12), DONE]),
        text=ANSWER,
        make=_chat_at("snowflake", "claude-sonnet-4-5"),
    ),
    Ending(
        OPENAI_CHAT,
        "`[DONE]` without a `finish_reason`, after calls",
        thread("diegosouzapw/OmniRoute/pull/7804", "Upstreams leave it out after calls too. Not said of Snowflake."),
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
        thread("ollama/ollama/issues/4357"),
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
        thread("decolua/9router/issues/3492"),
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
        CHAT_CHUNK,
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
        page("https://www.openrouter.ai/docs/features/multimodal/image-generation"),
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
        package(
            "openrouter 1.3.84: openrouter/components/reasoningdetailtext.py",
            "reasoning.text",
            "signature",
            "index: Optional[int]",
        ),
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
        thread("vercel/ai/pull/12425", "It quotes xAI: reasoning is counted apart, and in the total."),
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
        "sources with every chunk (Perplexity's Sonar, behind gateways)",
        package("perplexityai 0.46.1: perplexity/types/stream_chunk.py", "citations", "search_results"),
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
        make=_chat_at("litellm", "perplexity/sonar"),
    ),
    Ending(
        OPENAI_CHAT,
        "logprobs that were asked for",
        CHAT_CHUNK,
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
        "only a call of a custom tool",
        thread("openai/openai-openapi/issues/576"),
        Recording(
            [
                chat(
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"index": 0, "id": "call_c", "type": "custom", "custom": {"name": "sql", "input": ""}}
                        ],
                    }
                ),
                chat({"tool_calls": [{"index": 0, "custom": {"input": "select "}}]}),
                chat({"tool_calls": [{"index": 0, "custom": {"input": "1"}}]}),
                chat({}, "tool_calls"),
                chat_usage(9),
                DONE,
            ],
            output=9,
            complete_at=3,
        ),
        kept=("tool_calls",),
        sent_back=(
            {"id": "call_c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
            {"role": "tool", "tool_call_id": "call_c"},
        ),
    ),
    Ending(
        OPENAI_CHAT,
        "tools that Groq ran itself",
        package("groq 1.7.0: groq/types/chat/chat_completion_chunk.py", "executed_tools", "x_groq: Optional[XGroq]"),
        Recording(
            [
                _CHAT_START,
                chat({"executed_tools": [{"index": 0, "type": "search", "arguments": '{"query": "sky"}'}]}),
                chat({"executed_tools": [{"index": 0, "type": "search", "output": "It is blue."}]}),
                *(chat({"content": word}) for word in WORDS),
                chat({}, "stop", x_groq={"usage": {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}}),
                DONE,
            ],
            complete_at=6,
        ),
        text=ANSWER,
        kept=("executed_tools",),
        not_sent_back=("executed_tools",),
        make=_chat_at("groq", "groq/compound"),
    ),
    Ending(
        OPENAI_CHAT,
        "content in parts, with references to sources (Mistral)",
        package("mistralai 3.7.0: mistralai/client/models/referencechunk.py", "reference_ids: List[ReferenceID]"),
        Recording(
            [
                chat({"role": "assistant", "content": [{"type": "text", "text": WORDS[0]}]}),
                chat({"content": [{"type": "reference", "reference_ids": [0]}]}),
                chat({"content": [{"type": "text", "text": WORDS[1]}, {"type": "text", "text": WORDS[2]}]}),
                chat({}, "stop", usage={"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}),
                DONE,
            ],
            complete_at=3,
        ),
        text=ANSWER,
        kept=("reference",),
        not_sent_back=("reference",),
        make=_chat_at("mistral", "mistral-medium-latest"),
    ),
    Ending(
        OPENAI_CHAT,
        "`finish_reason: insufficient_system_resource`, before any text (DeepSeek)",
        page(
            "https://docs.rs/crate/ds-api/latest/source/src/raw/response/non_streaming/finish_reason.rs",
            "A client of others. The vendor's own page was not among the stored ones.",
        ),
        Recording([_CHAT_START, chat({}, "insufficient_system_resource"), DONE], output=0, complete_at=1),
        "error",
        error="Overloaded",
        requests=4,
        make=_chat_at("deepseek", "deepseek-chat"),
    ),
    Ending(
        OPENAI_CHAT,
        "`finish_reason: abort`, before any text (vLLM)",
        code("vllm-project/vllm: vllm/v1/engine/__init__.py"),
        Recording([_CHAT_START, chat({}, "abort"), DONE], output=0, complete_at=1),
        "error",
        error="ServerError",
        requests=4,
        make=_chat_at("vllm", "qwen3"),
    ),
    Ending(
        OPENAI_CHAT,
        "nothing at all",
        assumed("An answer of the documented form that has nothing in it."),
        Recording([_CHAT_START, chat({}, "stop"), chat_usage(0), DONE], output=0, complete_at=1),
        "error",
        requests=4,
    ),
]
