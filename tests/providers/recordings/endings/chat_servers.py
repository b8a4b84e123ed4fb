"""What single servers that speak Chat Completions do differently."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from quiesce.models.base import Model
from quiesce.models.providers.openai_chat import OpenAIChat

from ...wire import sse
from ..openai_chat import DONE, OPENAI_CHAT, chat, chat_call, chat_usage
from ..recording import ANSWER, CALLS, KEY, WORDS, Recording
from ..source import assumed, code, package, thread
from ..sources import OPENROUTER_STREAM
from .ending import Ending


def chat_at(server: str, model: str = "some-model") -> Callable[..., Model]:
    return lambda url, **more: OpenAIChat(model, server=server, **{"base_url": f"{url}/v1", "api_key": KEY, **more})


_USED = {"prompt_tokens": 25, "completion_tokens": 12, "total_tokens": 37}
_SAFE = {"hate": {"filtered": False, "severity": "safe"}}


def _said(**more: Any) -> list[bytes]:
    return [chat({"content": word}, **more) for word in WORDS]


def _filtered(choice: dict[str, Any]) -> bytes:
    return chat({}, choices=[{"index": 0, "finish_reason": None, "content_filter_results": _SAFE, **choice}])


CHAT_SERVER_ENDINGS = [
    *(
        Ending(
            OPENAI_CHAT,
            f"what the content filter found, in chunks of its own ({label})",
            source,
            Recording(
                [
                    sse(
                        {
                            "id": "",
                            "model": "",
                            "object": "",
                            "created": 0,
                            "choices": [],
                            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _SAFE}],
                        }
                    ),
                    *(_filtered({"delta": {"content": word}}) for word in WORDS),
                    _filtered({"content_filter_offsets": {"check_offset": 44, "start_offset": 44, "end_offset": 198}}),
                    chat({}, "stop"),
                    chat_usage(12),
                    DONE,
                ],
                complete_at=5,
            ),
            text=ANSWER,
            make=chat_at(server),
        )
        for server, label, source in (
            ("azure", "Azure", thread("microsoft/autogen/issues/6465")),
            ("github", "GitHub Models", assumed("GitHub serves these models from Azure, whose chunks are documented.")),
        )
    ),
    Ending(
        OPENAI_CHAT,
        "`finish_reason: eos`, and logprobs that are a number (Together)",
        package("together 3.1.1: together/types/chat/chat_completion_chunk.py", '"eos"', "logprobs: Optional[float]"),
        Recording(
            [
                *(
                    chat({}, choices=[{"index": 0, "delta": {"role": "assistant", "content": word}, "logprobs": -0.2}])
                    for word in WORDS
                ),
                chat({"role": "assistant", "content": ""}, "eos", usage=_USED),
                DONE,
            ],
            complete_at=3,
        ),
        text=ANSWER,
        make=chat_at("together", "openai/gpt-oss-120b"),
    ),
    Ending(
        OPENAI_CHAT,
        "reasoning in `reasoning_content`, the usage in the last chunk (Fireworks)",
        package(
            "fireworks-ai 1.2.30: fireworks/types/chat/chat_completion_chunk.py",
            "reasoning_content: Optional[str]",
            "perf_metrics",
        ),
        Recording(
            [
                chat({"role": "assistant", "reasoning_content": "Blue."}),
                *_said(),
                chat({}, "stop", usage=_USED, perf_metrics={"server-time": 0.2}),
                DONE,
            ],
            complete_at=4,
        ),
        text=ANSWER,
        kept=("reasoning",),
        make=chat_at("fireworks", "accounts/fireworks/models/kimi-k2"),
    ),
    Ending(
        OPENAI_CHAT,
        "reasoning in `reasoning`, and how long it took (Cerebras)",
        package(
            "cerebras-cloud-sdk 1.91.0: cerebras/cloud/sdk/types/chat/chat_completion.py",
            "class ChatChunkResponseChoiceDelta(",
            "reasoning: Optional[str]",
            "class ChatChunkResponseTimeInfo",
        ),
        Recording(
            [
                chat({"role": "assistant", "reasoning": "Blue."}),
                *_said(),
                chat({}, "stop", usage=_USED, time_info={"queue_time": 0.1, "total_time": 0.3}),
                DONE,
            ],
            complete_at=4,
        ),
        text=ANSWER,
        kept=("reasoning",),
        make=chat_at("cerebras", "gpt-oss-120b"),
    ),
    Ending(
        OPENAI_CHAT,
        "calls with the role in every piece (Hugging Face)",
        package(
            "huggingface_hub 2.4.0: huggingface_hub/inference/_generated/types/chat_completion.py",
            "class ChatCompletionStreamOutputDelta(BaseInferenceType):\n    role: str",
        ),
        Recording(
            [
                *(
                    chat({"role": "assistant", **chat_call(index, json.dumps(arguments), f"call_{index}", name)})
                    for index, (name, arguments) in enumerate(CALLS)
                ),
                chat({"role": "assistant", "content": ""}, "stop"),
                chat_usage(30),
                DONE,
            ],
            output=30,
            complete_at=2,
        ),
        "tool_use",
        calls=2,
        make=chat_at("huggingface", "Qwen/Qwen3-32B"),
        requests=2,
    ),
    Ending(
        OPENAI_CHAT,
        "comments between the chunks (OpenRouter)",
        OPENROUTER_STREAM,
        Recording(
            [
                b": OPENROUTER PROCESSING\n\n",
                chat({"role": "assistant", "content": WORDS[0]}),
                b": OPENROUTER PROCESSING\n\n",
                *(chat({"content": word}) for word in WORDS[1:]),
                chat({}, "stop", usage={**_USED, "cost": 0.0001}),
                DONE,
            ],
            complete_at=5,
        ),
        text=ANSWER,
        make=chat_at("openrouter"),
    ),
    Ending(
        OPENAI_CHAT,
        "status 200 and an error, before any text (LM Studio)",
        thread("lmstudio-ai/lmstudio-bug-tracker/issues/2322"),
        Recording(
            [
                b"event: error\ndata: "
                + json.dumps({"error": {"message": "The number of tokens exceeds the context length."}}).encode()
                + b"\n\n"
            ],
            output=0,
        ),
        "error",
        error="ContextTooLong",
        make=chat_at("lmstudio", "qwen3"),
    ),
    Ending(
        OPENAI_CHAT,
        "the usage so far in every chunk (vLLM)",
        code("vllm-project/vllm: vllm/entrypoints/openai/protocol.py", "`continuous_usage_stats` of `StreamOptions`."),
        Recording(
            [
                chat({"role": "assistant", "content": ""}, usage={**_USED, "completion_tokens": 0}),
                *(
                    chat({"content": word}, usage={**_USED, "completion_tokens": 4 * place})
                    for place, word in enumerate(WORDS, 1)
                ),
                chat({}, "stop", usage=_USED),
                chat({}, choices=[], usage=_USED),
                DONE,
            ],
            complete_at=4,
        ),
        text=ANSWER,
        make=chat_at("vllm", "qwen3"),
    ),
]
