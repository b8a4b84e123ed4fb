"""How an answer of Anthropic can end."""

from __future__ import annotations

from typing import Any

from ..anthropic import ANTHROPIC, claude, claude_end, claude_start, claude_text
from ..recording import ANSWER, WORDS, Recording
from ..source import package, page
from ..sources import CLAUDE_REFUSAL, CLAUDE_SERVER_TOOLS
from .ending import Ending


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
_WEB_SEARCH = package(
    "anthropic 2.8.0: anthropic/types/web_search_tool_result_block.py",
    'Literal["web_search_tool_result"]',
    "tool_use_id",
)
ANTHROPIC_ENDINGS = [
    Ending(
        ANTHROPIC,
        "`stop_reason: refusal`, without a word",
        CLAUDE_REFUSAL,
        Recording([claude_start(), *_claude_refusal(None)], output=1, complete_at=-2),
        "refusal",
        refusal="(The provider refused to go on with this answer.)",
    ),
    Ending(
        ANTHROPIC,
        "`stop_reason: refusal`, with an explanation",
        CLAUDE_REFUSAL,
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
        CLAUDE_SERVER_TOOLS,
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
        page("https://platform.claude.com/docs/zh-CN/api/handling-stop-reasons", "In the row of `tool_use`."),
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
        package(
            "anthropic 2.8.0: anthropic/types/beta/beta_usage.py",
            "entry's tokens are not included in the top-level `usage` fields",
        ),
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
        package(
            "anthropic 2.8.0: anthropic/lib/streaming/_messages.py",
            "event.message.to_dict()",
            note="The client takes the content of `message_start`. That servers fill it is from recordings of others.",
        ),
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
