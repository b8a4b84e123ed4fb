"""What vendors bill for a request, as far as it is documented or can be read in a public chat template.

Written from those sources, and not from the estimator: it counts in the vendor's vocabulary where there is an offline
one, and else in another vocabulary that stands in for it, which the estimator is not told.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import msgspec
import splintr

from quiesce.messages import CutNote, Document, Image, Message, Reasoning, Text, ToolCall, ToolMessage
from quiesce.models.base import ModelRequest, ToolSpec

Count = Callable[[str], int]


@cache
def counter(vocabulary: str) -> Count:
    """Counts in a vocabulary. The last texts are remembered: several vendors bill the same ones."""
    if vocabulary.startswith("claude-"):
        token_count, version = importlib.import_module("ctok").token_count, vocabulary.removeprefix("claude-")
        frame = token_count("a", version) - 1
        return lru_cache(2000)(lambda text: token_count(text, version) - frame if text else 0)
    encode = splintr.Tokenizer.from_pretrained(vocabulary).encode_ordinary
    return lru_cache(2000)(lambda text: len(encode(text)))


@dataclass(frozen=True)
class Vendor:
    """How a vendor counts.

    model       the model's name, from which the estimator takes what it knows
    vocabulary  what the vendor counts in
    frame       tokens around each message
    call        tokens around each call of a tool
    start       tokens before the first message
    tools       what the declarations of tools cost
    schema      what the schema of the answer costs
    image       what an image costs, by its width and height
    pages       what a page of a document costs
    source      where the frame is documented
    """

    model: str
    vocabulary: str
    frame: int
    call: int
    start: int
    tools: Callable[[Count, tuple[ToolSpec, ...]], int]
    schema: Callable[[Count, dict[str, Any]], int]
    image: Callable[[int, int], int]
    source: str
    pages: int = 0
    tokenizer: str | None = None
    encrypted: float = 0.0

    def bills(self, request: ModelRequest) -> int:
        """The input tokens of a request."""
        count = counter(self.vocabulary)
        tokens = self.start + sum(self._message(count, message) for message in request.messages)
        if request.instructions:
            tokens += self.frame + count(request.instructions)
        if request.tools:
            tokens += self.tools(count, request.tools)
        if request.output_schema is not None:
            tokens += self.schema(count, request.output_schema)
        return tokens

    def _message(self, count: Count, message: Message) -> int:
        if isinstance(message, ToolMessage):
            return sum(self.frame + sum(self._part(count, part) for part in each.content) for each in message.results)
        return self.frame + sum(self._part(count, part) for part in message.content)

    def _part(self, count: Count, part: Any) -> int:
        match part:
            case Text(text) | CutNote(text):
                return count(text)
            case ToolCall():
                return self.call + count(part.name) + count(msgspec.json.encode(part.arguments).decode())
            case Reasoning():
                return round(len(part.signature or "") * self.encrypted)
            case Image():
                return self.image(*struct.unpack(">II", (part.data or b"")[16:24]))
            case Document():
                return self.pages
            case _:
                return 0


def as_json(count: Count, value: Any, *, indent: int | None = None) -> int:
    return count(json.dumps(value, indent=indent, ensure_ascii=False))


def spec(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}


def typescript(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """OpenAI's: https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken, with its numbers for GPT-4o."""
    total = 12
    for tool in tools:
        total += 7 + count(f"{tool.name}:{tool.description.rstrip('.')}")
        properties = tool.schema.get("properties", {})
        total += 3 if properties else 0
        for name, each in properties.items():
            total += 3 + count(f"{name}:{each.get('type', 'any')}:{each.get('description', '').rstrip('.')}")
            if "enum" in each:
                total += -3 + sum(3 + count(str(value)) for value in each["enum"])
    return total


def openai_image(width: int, height: int) -> int:
    """https://platform.openai.com/docs/guides/images-vision#calculating-costs, for GPT-4o."""
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return 85 + 170 * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def claude_image(width: int, height: int) -> int:
    """https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size"""
    scale = min(1.0, 1568 / max(width, height))
    return round(width * scale * height * scale / 750)


def gemini_image(width: int, height: int) -> int:
    """https://ai.google.dev/gemini-api/docs/tokens#multimodal-tokens: 258 for each tile of 768 pixels."""
    if max(width, height) <= 384:
        return 258
    return 258 * math.ceil(width / 768) * math.ceil(height / 768)


def claude_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing: 346 tokens of a system prompt."""
    return 346 + sum(24 + as_json(count, spec(tool)) for tool in tools)


def some_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """Gemini's, which are not all billed: here only names and descriptions, for every other tool."""
    return sum(count(f"{tool.name} {tool.description}") for tool in tools[::2])


def qwen_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """The chat template of Qwen3: a paragraph, and each tool as JSON on a line."""
    return 110 + sum(1 + as_json(count, {"type": "function", "function": spec(tool)}) for tool in tools)


def llama_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """The chat template of Llama 3.1: a paragraph, and each tool as JSON that is indented by four."""
    return 70 + sum(2 + as_json(count, {"type": "function", "function": spec(tool)}, indent=4) for tool in tools)


def mistral_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """The template of Mistral: one list between two marks."""
    return 2 + as_json(count, [{"type": "function", "function": spec(tool)} for tool in tools])


def deepseek_tools(count: Count, tools: tuple[ToolSpec, ...]) -> int:
    """The chat template of DeepSeek V3.1: each tool under a heading, and how to call them."""
    form = "### {}\nDescription: {}\n\nParameters: {}"
    each = (form.format(tool.name, tool.description, json.dumps(tool.schema)) for tool in tools)
    return 170 + sum(count(text) for text in each)


def no_schema(_: Count, __: dict[str, Any]) -> int:
    return 0


def whole_schema(count: Count, schema: dict[str, Any]) -> int:
    """A heading and the schema, as OpenAI's harmony format has it."""
    return 14 + as_json(count, schema)


def in_words(count: Count, schema: dict[str, Any]) -> int:
    """DeepSeek takes no schema: it is in the instructions that it is sent."""
    return 16 + as_json(count, schema)


def no_image(_: int, __: int) -> int:
    return 0


VENDORS = {
    "OpenAI Chat (gpt-4o)": Vendor(
        "openai-chat:gpt-4o",
        "o200k_base",
        4,
        9,
        3,
        typescript,
        whole_schema,
        openai_image,
        "https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken",
    ),
    "OpenAI Responses (gpt-5)": Vendor(
        "openai:gpt-5",
        "o200k_base",
        4,
        12,
        7,
        typescript,
        whole_schema,
        openai_image,
        "https://cookbook.openai.com/articles/openai-harmony",
        encrypted=0.15,
    ),
    "Anthropic (no vocabulary here)": Vendor(
        "anthropic:claude-sonnet-5",
        "llama3",
        4,
        26,
        3,
        claude_tools,
        whole_schema,
        claude_image,
        "https://platform.claude.com/docs/en/build-with-claude/token-counting",
        pages=2200,
    ),
    "Gemini (gemini-2.5-flash)": Vendor(
        "gemini:gemini-2.5-flash",
        "gemma3",
        0,
        4,
        0,
        some_tools,
        no_schema,
        gemini_image,
        "https://ai.google.dev/gemini-api/docs/tokens",
        pages=258,
        tokenizer="gemma",
    ),
    "Bedrock (Nova)": Vendor(
        "bedrock:amazon.nova-pro-v1:0",
        "mistral_v3",
        3,
        20,
        8,
        claude_tools,
        whole_schema,
        claude_image,
        "https://docs.aws.amazon.com/nova/latest/userguide/modalities-image.html",
        pages=1500,
    ),
    "DeepSeek": Vendor(
        "deepseek:deepseek-chat",
        "deepseek_v3",
        2,
        12,
        1,
        deepseek_tools,
        in_words,
        no_image,
        "https://huggingface.co/deepseek-ai/DeepSeek-V3.1 (tokenizer_config.json)",
    ),
    "Mistral": Vendor(
        "mistral:mistral-large-latest",
        "mistral_v3",
        2,
        14,
        1,
        mistral_tools,
        no_schema,
        no_image,
        "https://docs.mistral.ai/guides/tokenization",
    ),
    "vLLM (Llama 3.1)": Vendor(
        "vllm:meta-llama/Llama-3.1-8B-Instruct",
        "llama3",
        5,
        6,
        30,
        llama_tools,
        no_schema,
        no_image,
        "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct (tokenizer_config.json)",
    ),
    "Together (Qwen3)": Vendor(
        "together:Qwen/Qwen3-32B",
        "qwen3",
        5,
        8,
        3,
        qwen_tools,
        no_schema,
        no_image,
        "https://huggingface.co/Qwen/Qwen3-32B (tokenizer_config.json)",
    ),
    "xAI (grok, no vocabulary here)": Vendor(
        "xai:grok-4",
        "kimi_k2",
        6,
        20,
        190,
        qwen_tools,
        whole_schema,
        claude_image,
        "the issue that asked for this: about 190 hidden tokens",
    ),
    "Azure (grok, no vocabulary here)": Vendor(
        "azure:my-deployment",
        "glm4",
        6,
        20,
        190,
        qwen_tools,
        whole_schema,
        claude_image,
        "the same model behind a deployment whose name says nothing",
    ),
}
