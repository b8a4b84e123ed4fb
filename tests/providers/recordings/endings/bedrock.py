"""How an answer of Bedrock can end."""

from __future__ import annotations

from quiesce.models.providers.bedrock import Bedrock

from ...wire import aws_event
from ..bedrock import BEDROCK, BEDROCK_START, bedrock_end, bedrock_text
from ..recording import ANSWER, KEY, Recording
from ..sources import BEDROCK_API
from .ending import Ending

_NOVA = {"toolUseId": "tooluse_n1", "name": "nova_grounding", "type": "server_tool_use"}
BEDROCK_ENDINGS = [
    *(
        Ending(
            BEDROCK,
            f"`stopReason: {reason}`, without a word",
            BEDROCK_API,
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
        BEDROCK_API,
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
    Ending(
        BEDROCK,
        "a picture, and no text",
        BEDROCK_API,
        Recording(
            [
                BEDROCK_START,
                aws_event("contentBlockStart", {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}),
                aws_event(
                    "contentBlockDelta",
                    {"contentBlockIndex": 0, "delta": {"image": {"source": {"bytes": "iVBORw0KGgo="}}}},
                ),
                aws_event("contentBlockStop", {"contentBlockIndex": 0}),
                *bedrock_end("end_turn", 900),
            ],
            "application/vnd.amazon.eventstream",
            output=900,
            complete_at=-2,
        ),
        kept=("image",),
        sent_back=({"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},),
    ),
    *(
        Ending(
            BEDROCK,
            f"`stopReason: {reason}`, and nothing else",
            BEDROCK_API,
            Recording(
                [BEDROCK_START, *bedrock_end(reason, 1)],
                "application/vnd.amazon.eventstream",
                output=1,
                complete_at=-2,
            ),
            "error",
            requests=4,
        )
        for reason in ("malformed_model_output", "malformed_tool_use")
    ),
]
