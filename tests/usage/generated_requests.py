"""Requests of many kinds and sizes, made by chance: languages, code, JSON, base64, tools, schemas, images."""

from __future__ import annotations

import base64
import random
import string
import struct
import zlib
from typing import Any

from quiesce.messages import (
    AssistantMessage,
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

ENGLISH = """the run was stopped and what it had streamed stays there so that the next prompt can go on""".split()  # noqa: SIM905 - it reads better
GERMAN = """Die Übersetzung größerer Verträge läuft über das Prüfungsverfahren außer natürlich""".split()  # noqa: SIM905 - it reads better
RUSSIAN = """Остановленный запуск оставляет только правду и счёт который можно предъявить""".split()  # noqa: SIM905 - it reads better
FRENCH = """L'été dernier où qu'ils aient été les élèves n'ont pas reçu leurs résultats""".split()  # noqa: SIM905 - it reads better
CHINESE = "停止的运行只留下真实的内容工具会准确地说明它们做了什么账单也保持正确"
JAPANESE = "停止した実行は真実だけを残します。ツールは何をしたかを正確に伝え、請求書は正しいままです。"
EMOJI = "🌤🎉👩‍💻🚀✅❌"
CODE = """    for index, (name, value) in enumerate(sorted(items.items())):
        if value is None: continue
        total[name] += value * rate[index]  # see #42
"""


def prose(chance: random.Random, words: int) -> str:
    source = chance.choice([ENGLISH, ENGLISH, GERMAN, RUSSIAN, FRENCH])
    return " ".join(chance.choice(source) for _ in range(words))


def eastern(chance: random.Random, words: int) -> str:
    source = chance.choice([CHINESE, JAPANESE])
    return "".join(chance.choice(source) for _ in range(2 * words)) + chance.choice(["", EMOJI])


def encoded(chance: random.Random, words: int) -> str:
    return base64.b64encode(chance.randbytes(4 * words)).decode()


def as_json(chance: random.Random, words: int) -> str:
    rows = (
        f'{{"id": {chance.randrange(10**9)}, "name": "{prose(chance, 2)}", "ok": true}}' for _ in range(words // 6 + 1)
    )
    return "[" + ", ".join(rows) + "]"


def code(chance: random.Random, words: int) -> str:
    return CODE * (words // 14 + 1)


def log(chance: random.Random, words: int) -> str:
    line = "2026-11-18T01:02:03.456Z WARN  [{}] 0x{:08x} GET /v1/items/{}?q=%20 -> 404 in 12.5ms"
    return "\n".join(
        line.format("".join(chance.choices(string.hexdigits, k=8)), chance.getrandbits(32), chance.randrange(10**6))
        for _ in range(words // 10 + 1)
    )


STYLES = [prose, prose, prose, eastern, encoded, as_json, code, log]


def text(chance: random.Random, most: int = 400) -> str:
    return chance.choice(STYLES)(chance, 1 + int(chance.expovariate(8 / most)) % most)


def schema(chance: random.Random, fields: int) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for number in range(fields):
        kind = chance.choice(["string", "integer", "boolean", "array", "enum", "object"])
        described = {"description": prose(chance, chance.randint(2, 14))} if chance.random() < 0.6 else {}
        match kind:
            case "enum":
                properties[f"field_{number}"] = {"type": "string", "enum": ["red", "green", "blue"], **described}
            case "array":
                properties[f"field_{number}"] = {"type": "array", "items": {"type": "string"}, **described}
            case "object":
                inner = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
                properties[f"field_{number}"] = {**inner, **described}
            case _:
                properties[f"field_{number}"] = {"type": kind, **described}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def tools(chance: random.Random) -> tuple[ToolSpec, ...]:
    count = chance.choice([0, 0, 0, 1, 2, 4, 12])
    return tuple(
        ToolSpec(f"tool_{number}", prose(chance, chance.randint(3, 40)), schema(chance, chance.randint(0, 6)))
        for number in range(count)
    )


def picture(width: int, height: int) -> bytes:
    """The beginning of a PNG: as much as its size needs."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))


SIZES = [(64, 64), (640, 480), (1024, 768), (1920, 1080), (3000, 2000), (200, 4000)]
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def history(chance: random.Random, *, images: bool, documents: bool, encrypted: str | None) -> list[Message]:
    messages: list[Message] = []
    for turn in range(chance.choice([1, 1, 1, 2, 3, 6])):
        if turn:
            messages += answer(chance, turn, encrypted)
        content: list[Any] = [Text(text(chance))]
        if images and chance.random() < 0.1:
            content.append(Image("image/png", picture(*chance.choice(SIZES))))
        if documents and chance.random() < 0.05:
            content.append(Document(DOCX, b"PK", name="report.docx"))
        messages.append(UserMessage(tuple(content)))
    return messages


def answer(chance: random.Random, turn: int, encrypted: str | None) -> list[Message]:
    """What a model said in a turn: words, or calls with their results and words."""
    thought: list[Any] = []
    if encrypted and chance.random() < 0.5:
        hidden = encoded(chance, chance.randint(50, 400))
        thought.append(Reasoning("", hidden, provider_data={"provider": encrypted}))
    if chance.random() < 0.6:
        return [AssistantMessage((*thought, Text(text(chance))))]
    arguments = {"query": prose(chance, 4), "limit": chance.randrange(100)}
    calls = [ToolCall(f"call_{turn}_{number}", "tool_0", arguments) for number in range(chance.randint(1, 3))]
    results = [ToolResult(call.id, call.name, (Text(text(chance)),)) for call in calls]
    return [
        AssistantMessage((*thought, *calls)),
        ToolMessage(tuple(results)),
        AssistantMessage((Text(text(chance, 80)),)),
    ]


def requests(seed: int, *, images: bool, documents: bool, encrypted: str | None) -> ModelRequest:
    chance = random.Random(seed)
    return ModelRequest(
        tuple(history(chance, images=images, documents=documents, encrypted=encrypted)),
        prose(chance, chance.randint(3, 300)) if chance.random() < 0.7 else None,
        tools(chance),
        output_schema=schema(chance, chance.randint(1, 8)) if chance.random() < 0.2 else None,
    )
