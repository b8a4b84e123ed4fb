"""Requests made of texts that others wrote, in other shapes than `generated_requests` has, and what they are billed.

No constant of the estimator was chosen with the half that is called "held-out".
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from random import Random
from typing import Any

from quiesce.messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from quiesce.models.base import ModelRequest, ToolSpec

from .billed_input import VENDORS, Count, Vendor, no_image
from .generated_requests import DOCX, SIZES, picture
from .real_texts import Half, excerpt, tools

LONGEST_TEXT = 12_000
# Vocabularies that stand in for one that is not public. The estimator is told none of them.
STAND_INS = (
    "o200k_base",
    "cl100k_base",
    "llama2",
    "deepseek_v3",
    "mistral_v3",
    "qwen3",
    "kimi_k2",
    "glm4",
    "gemma3",
)


class RequestMaker:
    """Makes one request by chance."""

    def __init__(self, seed: int, half: Half, vendor: Vendor) -> None:
        self._chance = Random(f"{half} {seed}")
        self._half: Half = half
        self._images = vendor.image is not no_image
        self._documents = bool(vendor.pages)
        self._encrypted = bool(vendor.encrypted)
        self._calls = 0

    def request(self) -> ModelRequest:
        chance = self._chance
        instructions = self._text(20_000) if chance.random() < 0.8 else None
        known = self._tools()
        shape = chance.choice([self._question, self._chat, self._chat, self._agent, self._agent])
        messages = shape(known)
        schema = chance.choice(tools(self._half)).schema if chance.random() < 0.15 else None
        return ModelRequest(tuple(messages), instructions, known, output_schema=schema)

    def _text(self, longest: int = LONGEST_TEXT) -> str:
        return excerpt(self._chance, self._half, longest)

    def _tools(self) -> tuple[ToolSpec, ...]:
        count = self._chance.choice([0, 0, 1, 3, 8, 20, 50])
        return tuple(self._chance.sample(tools(self._half), count))

    def _question(self, _: tuple[ToolSpec, ...]) -> list[Message]:
        return [self._prompt()]

    def _chat(self, _: tuple[ToolSpec, ...]) -> list[Message]:
        turns = self._chance.choice([2, 4, 10, 40])
        longest = 40_000 // turns
        messages: list[Message] = [self._prompt()]
        for _turn in range(turns):
            said: list[Any] = [*self._thought(), Text(self._text(longest))]
            if self._chance.random() < 0.1:
                said.append(CutNote("(Stopped here by the user.)"))
            messages += [AssistantMessage(tuple(said)), self._prompt(longest)]
        return messages

    def _agent(self, known: tuple[ToolSpec, ...]) -> list[Message]:
        turns = self._chance.choice([1, 3, 8, 30])
        longest = 60_000 // turns
        messages: list[Message] = [self._prompt()]
        for _turn in range(turns):
            names = [tool.name for tool in known] or ["read_file"]
            calls = [self._call(self._chance.choice(names)) for _ in range(self._chance.choice([1, 1, 2, 6]))]
            before = [Text(self._text(600))] if self._chance.random() < 0.4 else []
            results = [ToolResult(call.id, call.name, self._result(longest // len(calls))) for call in calls]
            messages += [AssistantMessage((*self._thought(), *before, *calls)), ToolMessage(tuple(results))]
        return messages

    def _prompt(self, longest: int = LONGEST_TEXT) -> UserMessage:
        content: list[Any] = [Text(self._text(longest))]
        if self._images and self._chance.random() < 0.02:
            sizes = self._chance.choices(SIZES, k=self._chance.choice([1, 1, 3]))
            content += [Image("image/png", picture(*size)) for size in sizes]
        if self._documents and self._chance.random() < 0.01:
            content.append(Document(DOCX, b"PK", name="report.docx"))
        return UserMessage(tuple(content))

    def _thought(self) -> list[Reasoning]:
        if not self._encrypted or self._chance.random() < 0.5:
            return []
        hidden = base64.b64encode(self._chance.randbytes(self._chance.randint(150, 4000))).decode()
        return [Reasoning("", hidden, provider_data={"provider": "openai"})]

    def _call(self, name: str) -> ToolCall:
        self._calls += 1
        values = [self._text(200), self._chance.randrange(10**6), self._chance.random() < 0.5, [self._text(60)]]
        arguments = {f"argument_{place}": value for place, value in enumerate(values[: self._chance.randint(0, 4)])}
        return ToolCall(f"call_{self._calls:08x}", name, arguments)

    def _result(self, longest: int) -> tuple[Text, ...]:
        return (Text(self._text(max(40, longest))),)


# --- What they are billed ------------------------------------------------------------------------------------------


def harmony(count: Count, given: tuple[ToolSpec, ...]) -> int:
    """https://github.com/openai/harmony (docs/format.md): tools as TypeScript, objects inside objects too."""
    types = (f"// {tool.description}\ntype {tool.name} = (_: {_type(tool.schema)}) => any;\n\n" for tool in given)
    return count(f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{''.join(types)}}} // namespace functions")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    match schema.get("type"):
        case "object" if schema.get("properties"):
            required = schema.get("required", [])
            fields = (
                (f"// {each['description']}\n" if each.get("description") else "")
                + f"{name}{'' if name in required else '?'}: {_type(each)},\n"
                for name, each in schema["properties"].items()
            )
            return f"{{\n{''.join(fields)}}}"
        case "array":
            return f"{_type(schema.get('items', {}))}[]"
        case "integer" | "number":
            return "number"
        case str(plain):
            return plain
        case _:
            return " | ".join(map(_type, schema["anyOf"])) if schema.get("anyOf") else "any"


@cache
def held_out_vendors() -> dict[str, list[Vendor]]:
    """Each vendor, with the vocabularies in which it may count: its own, or all those that stand in for it."""
    found: dict[str, list[Vendor]] = {}
    for name, vendor in VENDORS.items():
        if vendor.model.startswith("openai"):
            found[name] = [replace(vendor, tools=harmony)]
        elif vendor.model.startswith("anthropic"):  # a name that tells no vocabulary, as if there were no `ctok`
            known = ("claude-3.0", "claude-4.8") if find_spec("ctok") else ()
            unknown = replace(vendor, model="anthropic:claude-next")
            found[name] = [replace(unknown, vocabulary=each) for each in (*STAND_INS, *known)]
        elif vendor.model.startswith(("bedrock", "xai", "azure")):
            found[name] = [replace(vendor, vocabulary=each) for each in STAND_INS]
        else:
            found[name] = [vendor]
    return found
