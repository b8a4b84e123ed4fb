"""Texts that were written by others: prose in a hundred languages, code, JSON, tables, base64 and tool schemas.

They are read from the standard library and from the packages that the tests need anyway, so nothing is copied here.
Each file belongs to one of two halves by the hash of its name: what is mended with one half is measured with the other.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_string
from functools import cache
from gettext import GNUTranslations
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, Literal

from quiesce.models.base import ToolSpec

Half = Literal["development", "held-out"]
PACKAGES = Path(sysconfig.get_path("purelib"))
LIBRARY = Path(sysconfig.get_path("stdlib"))
FILES_OF_A_KIND = 160
LONGEST_FILE = 400_000


def half_of(name: str) -> Half:
    return "held-out" if blake2b(name.encode(), digest_size=1).digest()[0] % 2 else "development"


@dataclass(frozen=True)
class Kind:
    """Files of one kind: where they are, and how their text is read."""

    name: str
    weight: int
    pattern: str
    root: Path = PACKAGES
    read: Callable[[Path], str] = lambda path: path.read_text("utf-8")

    def paths(self, half: Half) -> list[Path]:
        """Some of them, in an order that has nothing to do with their names."""
        found = (path for path in self.root.glob(self.pattern) if "quiesce" not in path.as_posix() and path.is_file())
        mine = [path for path in found if half_of(path.relative_to(self.root).as_posix()) == half]
        return sorted(mine, key=lambda path: blake2b(path.name.encode()).digest())[:FILES_OF_A_KIND]


def _readme(path: Path) -> str:
    return str(message_from_string(path.read_text("utf-8")).get_payload())


def _translations(path: Path) -> str:
    """The translated sentences of a message catalogue, without the English ones."""
    entries = re.findall(r'^msgstr(?:\[\d\])? ((?:"(?:[^"\\]|\\.)*"\n?)+)', path.read_text("utf-8"), re.MULTILINE)
    joined = ("".join(json.loads(line) for line in entry.splitlines()) for entry in entries[1:])
    return "\n".join(sentence for sentence in joined if sentence)


def _packed(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


KINDS = [
    Kind("readme", 3, "*.dist-info/METADATA", read=_readme),
    Kind("translations", 6, "django/c*/**/locale/*/LC_MESSAGES/*.po", read=_translations),
    Kind("licence", 1, "**/LICENSE*"),
    Kind("python", 2, "*.py", LIBRARY),
    Kind("test data", 1, "test/cjkencodings/*utf8.txt", LIBRARY),
    Kind("javascript", 1, "**/static/**/*.js"),
    Kind("typescript", 1, "**/*.d.ts"),
    Kind("stylesheet", 1, "**/*.css"),
    Kind("page", 1, "**/*.html"),
    Kind("header", 1, "numpy/**/*.h"),
    Kind("json", 2, "**/*.json"),
    Kind("service", 1, "botocore/data/**/*.json.gz", read=_packed),
    Kind("hashes", 1, "*.dist-info/RECORD"),
    Kind("certificates", 1, "**/*.pem"),
    Kind("table", 1, "**/*.csv"),
]


def _any_text(path: Path) -> str:
    """A file that may be compressed, or a compiled message catalogue."""
    if path.suffix == ".mo":
        with path.open("rb") as file:
            return "\n".join(value for key, value in GNUTranslations(file)._catalog.items() if key and value)
    return _packed(path) if path.suffix == ".gz" else path.read_text("utf-8")


GIVEN = os.environ.get("QUIESCE_TEXTS", "")
"""Folders, separated by colons, whose files are measured instead of those of the packages."""
if GIVEN:
    KINDS = [Kind(folder, 1, "**/*", Path(folder), _any_text) for folder in GIVEN.split(":")]


@cache
def texts(half: Half) -> dict[str, list[str]]:
    """The texts of each kind."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for path in kind.paths(half):
            try:
                text = kind.read(path)[:LONGEST_FILE].replace("\r", "")
            except (OSError, UnicodeDecodeError, ValueError, EOFError):
                continue
            if len(text) > 40:
                found.setdefault(kind.name, []).append(text)
    found["characters"] = [_characters(half)]
    return found


def _characters(half: Half) -> str:
    """Every assigned character of a half of the blocks, with its name: also the rarest scripts, and emoji."""
    lines: list[str] = []
    for block in range(0, 0x20000, 256):
        if half_of(f"block {block}") == half:
            signs = (chr(place) for place in range(block, block + 256))
            lines += [f"{sign}\t{unicodedata.name(sign)}" for sign in signs if unicodedata.name(sign, "")]
    return "\n".join(lines)


_WEIGHTS = {kind.name: kind.weight for kind in KINDS} | {"characters": 1}


def excerpt(chance: Random, half: Half, longest: int) -> str:
    """Some lines of a file. Short ones are the most frequent."""
    found = texts(half)
    names = sorted(found)
    name = chance.choices(names, [_WEIGHTS[name] for name in names])[0]
    text = chance.choice(found[name])
    size = max(1, min(longest, round(chance.lognormvariate(6.0, 1.4))))
    start = chance.randrange(max(1, len(text) - size))
    start = text.rfind("\n", 0, start) + 1 if chance.random() < 0.8 else start
    return text[start : start + size] or text[:size]


# --- Tools ---------------------------------------------------------------------------------------------------------


@cache
def tools(half: Half) -> tuple[ToolSpec, ...]:
    """Tools for the operations of Amazon's services, as they describe them, and for the types of OpenAI and MCP."""
    return (*_operations(half), *_models(half))


def _operations(half: Half) -> Iterator[ToolSpec]:
    paths = sorted(PACKAGES.glob("botocore/data/*/*/service-2.json.gz"))
    chosen = [path for path in paths if half_of(path.relative_to(PACKAGES).as_posix()) == half]
    for path in sorted(chosen, key=lambda path: blake2b(path.parent.parent.name.encode()).digest())[:40]:
        service = json.loads(_packed(path))
        shapes = service["shapes"]
        for name in sorted(service["operations"])[:12]:
            operation = service["operations"][name]
            shape = operation.get("input", {}).get("shape")
            schema = _schema(shapes, shape, 3) if shape else {"type": "object", "properties": {}}
            yield ToolSpec(f"{path.parent.parent.name}_{name}"[:64], _plain(operation.get("documentation", "")), schema)


def _schema(shapes: dict[str, Any], name: str, depth: int) -> dict[str, Any]:
    shape = shapes[name]
    match shape["type"]:
        case "structure" if depth:
            members = {
                key: _schema(shapes, each["shape"], depth - 1) | _described(each)
                for key, each in shape["members"].items()
            }
            return {"type": "object", "properties": members, "required": shape.get("required", [])}
        case "list" if depth:
            return {"type": "array", "items": _schema(shapes, shape["member"]["shape"], depth - 1)}
        case "string":
            return {"type": "string"} | ({"enum": shape["enum"]} if "enum" in shape else {})
        case "boolean" | "integer" as plain:
            return {"type": plain}
        case "long" | "double" | "float":
            return {"type": "number"}
        case _:
            return {"type": "object"}


def _described(member: dict[str, Any]) -> dict[str, str]:
    words = _plain(member.get("documentation", ""))
    return {"description": words} if words else {}


def _plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)).strip()


def _models(half: Half) -> Iterator[ToolSpec]:
    import mcp.types
    import openai.types.responses
    from pydantic import BaseModel, PydanticInvalidForJsonSchema

    for module in (openai.types.responses, mcp.types):
        for name, kind in sorted(vars(module).items()):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and half_of(name) == half:
                try:
                    schema = kind.model_json_schema()
                except PydanticInvalidForJsonSchema:
                    continue
                if len(json.dumps(schema)) < 20_000:
                    yield ToolSpec(name, schema.pop("description", "") or name, schema)
