"""How an answer of OpenAI's Responses API can end."""

from __future__ import annotations

from typing import Any

from quiesce.models.providers.openai_responses import OpenAIResponses
from quiesce.models.providers.perplexity import Perplexity

from ..openai_responses import OPENAI_RESPONSES, Responses, response, responses_text, responses_usage
from ..recording import ANSWER, KEY, Recording
from ..source import package, thread
from ..sources import RESPONSES_CUSTOM, RESPONSES_INCOMPLETE, RESPONSES_INPUT
from .ending import REFUSAL, Ending


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


def _perplexity() -> Recording:
    event = Responses()
    found = {"type": "search_results", "queries": ["sky"], "results": [{"id": 1, "url": "https://sky.example"}]}
    used = {"input_tokens": 25, "output_tokens": 12, "total_tokens": 37, "cost": {"total_cost": 0.01}}
    events = [
        event("response.created", response=response("in_progress")),
        event("response.reasoning.started", thought="I look it up."),
        event("response.reasoning.search_queries", queries=["sky"]),
        event("response.output_item.done", output_index=0, item=found),
        *responses_text(event, 1),
        event("response.completed", response=response("completed", used)),
    ]
    return Recording(events)


def _incomplete(reason: str, *, text: bool = False) -> Recording:
    event = Responses()
    ended = response("incomplete", responses_usage(3)) | {"incomplete_details": {"reason": reason}}
    return Recording(
        [
            event("response.created", response=response("in_progress")),
            *(responses_text(event, 0) if text else ()),
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
            event("response.refusal.delta", **place, delta=REFUSAL[:12]),
            event("response.refusal.delta", **place, delta=REFUSAL[12:]),
            event("response.refusal.done", **place, refusal=REFUSAL),
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
        RESPONSES_CUSTOM if item["type"] == "custom_tool_call" else RESPONSES_INPUT,
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
        RESPONSES_INCOMPLETE,
        _incomplete("content_filter"),
        "refusal",
        refusal="(The provider refused to go on with this answer: content_filter.)",
    ),
    Ending(
        OPENAI_RESPONSES,
        "`incomplete: max_messages`",
        RESPONSES_INCOMPLETE,
        _incomplete("max_messages", text=True),
        "max_tokens",
        text=ANSWER,
    ),
    Ending(
        OPENAI_RESPONSES,
        "`response.refusal.delta`",
        package(
            "openai 3.49.0: openai/types/responses/response_refusal_delta_event.py", 'Literal["response.refusal.delta"]'
        ),
        _refused_text(),
        "refusal",
        text=REFUSAL,
        refusal=REFUSAL,
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
        RESPONSES_INPUT,
        _items({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo"}),
        kept=("image_generation_call",),
        sent_back=({"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo"},),
    ),
    Ending(
        OPENAI_RESPONSES,
        "reasoning, a web search, and a text with its sources",
        package(
            "openai 3.49.0: openai/types/responses/response_function_web_search_param.py", 'Literal["web_search_call"]'
        ),
        _items(_SEARCH, text=True, reasoning=True),
        text=ANSWER,
        kept=("reasoning", "web_search_call"),
        sent_back=({"type": "web_search_call", "action": {"type": "search", "query": "sky colour"}},),
        not_sent_back=("ws_67c9", "rs_1"),
    ),
    Ending(
        OPENAI_RESPONSES,
        "a text with its phase and its sources",
        package("openai 3.49.0: openai/types/responses/response_output_message_param.py", "phase", "final_answer"),
        _with_sources(),
        text=ANSWER,
        kept=("message",),
        sent_back=({"phase": "final_answer"}, "https://sky.example"),
    ),
    Ending(
        OPENAI_RESPONSES,
        "compaction of the conversation",
        package(
            "openai 3.49.0: openai/types/responses/response_compaction_item_param_param.py",
            'Literal["compaction"]',
            "encrypted_content",
        ),
        _items({"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAcompacted"}, text=True),
        text=ANSWER,
        kept=("compaction",),
        sent_back=({"type": "compaction", "encrypted_content": "gAAAAcompacted"},),
    ),
    Ending(
        OPENAI_RESPONSES,
        "reasoning in background mode: no item goes back with an id",
        thread("openclaw/openclaw/issues/19582", "An item with an id, without the item that followed it: 400."),
        OPENAI_RESPONSES.reasoning,
        text=ANSWER,
        kept=("reasoning",),
        sent_back=({"type": "reasoning", "encrypted_content": "gAAAAencrypted"},),
        not_sent_back=("rs_67c9", "msg_67c9"),
        make=lambda url, **more: OpenAIResponses(
            "gpt-5-mini", background=True, **{"base_url": f"{url}/v1", "api_key": KEY, **more}
        ),
    ),
    Ending(
        OPENAI_RESPONSES,
        "searches, their results, and a text (Perplexity)",
        package(
            "perplexityai 0.46.1: perplexity/types/response_stream_chunk.py",
            "class ReasoningStartedEvent",
            "class SearchQueriesEvent",
            "thought",
        ),
        _perplexity(),
        text=ANSWER,
        kept=("reasoning", "search_results"),
        sent_back=({"type": "message", "role": "assistant", "content": ANSWER},),
        not_sent_back=("search_results", "encrypted_content", "include"),
        make=lambda url, **more: Perplexity("sonar", **{"base_url": f"{url}/v1", "api_key": KEY, **more}),
    ),
]
