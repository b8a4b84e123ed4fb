"""How an answer of Gemini can end."""

from __future__ import annotations

from typing import Any

from ...wire import sse
from ..gemini import GEMINI, gemini
from ..recording import ANSWER, Recording
from ..source import page
from ..sources import GEMINI_FINISH, GEMINI_TYPES
from .ending import Ending


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
            GEMINI_FINISH,
            Recording([_gemini_end(reason)], output=1),
            "refusal",
            refusal=f"(The provider refused to go on with this answer: {reason}.)",
        )
        for reason in ("SAFETY", "MODEL_ARMOR", "PROHIBITED_CONTENT", "ESCALATION", "PUP_LIMITED_DISABLED")
    ),
    Ending(
        GEMINI,
        "a text that `SAFETY` cut, with a message",
        GEMINI_FINISH,
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
        "`finishReason: CONTINUATION`, a limit of the request",
        GEMINI_FINISH,
        Recording([gemini([{"text": ANSWER}], 12, "CONTINUATION")]),
        "max_tokens",
        text=ANSWER,
    ),
    Ending(
        GEMINI,
        "`promptFeedback.blockReason`",
        GEMINI_TYPES,
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
        GEMINI_TYPES,
        Recording(
            [gemini([{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo"}}], 1290, "STOP")], output=1290
        ),
        kept=("inlineData",),
        sent_back=({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo"}},),
    ),
    Ending(
        GEMINI,
        "code that Gemini ran, and grounding",
        GEMINI_TYPES,
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
        GEMINI_TYPES,
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
        page(
            "https://docs.rs/gproxy-protocol/latest/src/gproxy_protocol/transform/generate/claude_gemini/thinking.rs.html",
            "A gateway of others: the text of a thought, then a part with nothing but its signature.",
        ),
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
        GEMINI_FINISH,
        Recording([_gemini_end("MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: look(")], output=1),
        "error",
        requests=4,
    ),
]
