"""JSON schemas as each vendor takes them.

Vendors that make a model keep to a schema take a part of JSON schema only, and refuse the request for anything else.
What a vendor does not take is left out of the schema and named in its description; the answer is checked here in any
case. A schema that cannot be expressed at all is asked for in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from .json_values import as_dict, as_list

# The one field of the object that an answer is put into, where a vendor takes only objects.
WRAPPER: Final = "answer"
_ALWAYS: Final = frozenset({"title", "description"})
# Keywords about the schema, which say nothing that a model could keep to.
_SILENT: Final = frozenset(
    ["examples", "deprecated", "readOnly", "writeOnly", "$id", "$schema", "$comment", "discriminator"]
)
_LITERALS: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_LOOKAROUND: Final = r"\(\?|\\[bBkpP]"


class Dialect(Struct, frozen=True):
    """The part of JSON schema that a vendor takes.

    keywords      constraints that it takes
    formats       formats of strings that it takes
    all_required  every property must be required
    maps          objects with any keys
    recursion     schemas that refer to themselves
    anything      a value of any type
    least_items   the largest `minItems` that it takes, when it does not take all
    consts        `const`, besides `enum`
    root_object   the whole must be an object
    """

    keywords: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    all_required: bool = False
    maps: bool = False
    recursion: bool = False
    anything: bool = False
    least_items: int | None = None
    consts: bool = True
    root_object: bool = True


_FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
OPENAI: Final = Dialect(
    keywords=frozenset(
        ["pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"]
    ),
    formats=_FORMATS,
    all_required=True,
    recursion=True,
)
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
# and Bedrock too: https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
ANTHROPIC: Final = Dialect(keywords=frozenset({"minItems"}), formats=_FORMATS | {"uri"}, least_items=1)
# google-genai 3.3, types.py: the description of `response_json_schema`
GEMINI: Final = Dialect(
    keywords=frozenset(["minimum", "maximum", "minItems", "maxItems"]),
    formats=frozenset({"date-time", "date", "time"}),
    maps=True,
    recursion=True,
    anything=True,
    consts=False,
    root_object=False,
)


class _NotExpressible(Exception):
    """There is no schema of this dialect that means the same."""


def for_output(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any] | None:
    """The schema of an answer in a vendor's dialect; None when it cannot be expressed."""
    defs = as_dict(schema.get("$defs"))
    root = {name: value for name, value in schema.items() if name != "$defs"}
    try:
        if not dialect.recursion and _is_recursive(defs):
            return None
        writer = _Writer(dialect, defs)
        if dialect.root_object:
            root = _object_root(root, defs)
        made = writer.node(root)
        named = {name: writer.node(as_dict(each)) for name, each in defs.items()}
    except _NotExpressible:
        return None
    return made | {"$defs": named} if named else made


def with_object_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, put into an object where it is none."""
    defs = as_dict(schema.get("$defs"))
    root = _object_root({name: value for name, value in schema.items() if name != "$defs"}, defs)
    return root | {"$defs": defs} if defs else root


def for_tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments for vendors that take any, as long as it is one object at the top."""
    branches = [each for name in ("anyOf", "oneOf", "allOf") for each in as_list(schema.get(name))]
    if schema.get("type") == "object" and not branches and not {"enum", "not"} & schema.keys():
        return dict(schema)
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf", "allOf", "enum", "not")}
    defs = as_dict(schema.get("$defs"))
    shapes = [_resolved(as_dict(each), defs) for each in branches]
    properties = as_dict(rest.get("properties"))
    for shape in shapes:
        properties = {**as_dict(shape.get("properties")), **properties}
    return rest | {"type": "object", "properties": properties}


def in_words(instructions: str | None, schema: Mapping[str, Any]) -> str:
    """Instructions that ask for an answer that fits a schema."""
    wanted = msgspec.json.encode(schema).decode()
    return f"{instructions or ''}\n\nAnswer with JSON that fits this schema, and nothing else: {wanted}".strip()


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether what fits a schema is an object. All else is put into one, for vendors that take only objects."""
    return _resolved(schema, as_dict(schema.get("$defs"))).get("type") == "object"


def _object_root(root: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if _resolved(root, defs).get("type") != "object":
        return {"type": "object", "properties": {WRAPPER: root}, "required": [WRAPPER]}
    return _resolved(root, defs)


def _resolved(schema: Mapping[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    seen: set[str] = set()
    found = dict(schema)
    while "$ref" in found and found["$ref"] not in seen:
        seen.add(found["$ref"])
        found = as_dict(defs.get(str(found["$ref"]).rpartition("/")[2]))
    return found


def _is_recursive(defs: dict[str, Any]) -> bool:
    uses = {name: set(_refs(each)) for name, each in defs.items()}
    while leaves := [name for name, used in uses.items() if uses.keys().isdisjoint(used)]:
        for name in leaves:
            del uses[name]
    return bool(uses)


def _refs(node: Any) -> Iterable[str]:
    for name, value in as_dict(node).items():
        if name == "$ref":
            yield str(value).rpartition("/")[2]
        yield from _refs(value)
    for each in as_list(node):
        yield from _refs(each)


class _Writer:
    """Writes schemas in one dialect. Raises `_NotExpressible`."""

    def __init__(self, dialect: Dialect, defs: dict[str, Any]) -> None:
        self._dialect: Final = dialect
        self._defs: Final = defs

    def node(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """One schema."""
        if "$ref" in schema:
            return {"$ref": schema["$ref"]}
        every = as_list(schema.get("allOf"))
        if len(every) == 1:
            return self.node({**_resolved(as_dict(every[0]), self._defs), **_without(schema, "allOf")})
        if every or {"not", "if", "patternProperties"} & schema.keys():
            raise _NotExpressible
        branches = as_list(schema.get("anyOf")) or as_list(schema.get("oneOf"))
        literals = as_list(schema["enum"]) if "enum" in schema else [schema["const"]] if "const" in schema else None
        made = {name: schema[name] for name in ("title", "description") if name in schema}
        if branches:
            return made | {"anyOf": [self.node(as_dict(each)) for each in branches]}
        if literals is not None:
            return made | self._literals(literals, is_const="const" in schema)
        if isinstance(schema.get("type"), list):
            return made | {"anyOf": [self.node({**schema, "type": each}) for each in schema["type"]]}
        return self._typed(schema, made)

    def _literals(self, values: list[Any], *, is_const: bool) -> dict[str, Any]:
        kinds: dict[str, list[Any]] = {}
        for value in values:
            kind = "null" if value is None else _LITERALS.get(value.__class__)
            if kind is None:
                raise _NotExpressible
            kinds.setdefault(kind, []).append(value)
        named = [self._one_kind(kind, each, is_const=is_const) for kind, each in kinds.items()]
        return named[0] if len(named) == 1 else {"anyOf": named}

    def _one_kind(self, kind: str, values: list[Any], *, is_const: bool) -> dict[str, Any]:
        if kind == "null" or (kind == "boolean" and not self._dialect.consts):
            return {"type": kind}
        if is_const and self._dialect.consts:
            return {"type": kind, "const": values[0]}
        return {"type": kind, "enum": values}

    def _typed(self, schema: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        kind = schema.get("type")
        if kind is None:
            if not self._dialect.anything:
                raise _NotExpressible
            return made
        made["type"] = kind
        left = {"type", *_ALWAYS, *_SILENT}
        if kind == "object":
            made |= self._object(schema)
            left |= {"properties", "required", "additionalProperties"}
        elif kind == "array":
            made |= self._array(schema)
            left |= {"items", "prefixItems"}
        unsupported: dict[str, Any] = {}
        for name, value in schema.items():
            if name in left or name in made or (name == "default" and value is None):
                continue
            (made if self._takes(name, value) else unsupported)[name] = value
        if unsupported:
            left_out = ", ".join(f"{name} {msgspec.json.encode(value).decode()}" for name, value in unsupported.items())
            made["description"] = f"{made.get('description', '')} ({left_out})".strip()
        return made

    def _takes(self, name: str, value: Any) -> bool:
        dialect = self._dialect
        if name == "format":
            return value in dialect.formats
        if name == "minItems" and dialect.least_items is not None:
            return value <= dialect.least_items
        if name == "pattern" and re.search(_LOOKAROUND, str(value)):
            return False
        return name in dialect.keywords

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        properties = as_dict(schema.get("properties"))
        others = schema.get("additionalProperties", "properties" not in schema)
        if not properties and others is not False:
            if not self._dialect.maps:
                raise _NotExpressible
            return {"additionalProperties": self.node(as_dict(others)) if isinstance(others, dict) else True}
        required = list(properties) if self._dialect.all_required else as_list(schema.get("required"))
        made: dict[str, Any] = {"properties": {name: self.node(as_dict(each)) for name, each in properties.items()}}
        return made | {"required": required, "additionalProperties": False}

    def _array(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The items. Those of a tuple are any of its types: their order is checked here."""
        places = as_list(schema.get("prefixItems"))
        if not places:
            items = as_dict(schema.get("items"))
            if not items and schema.get("maxItems") == 0:
                items = {"type": "null"}
            return {"items": self.node(items)}
        kinds: list[dict[str, Any]] = []
        for place in places:
            made = self.node(as_dict(place))
            kinds += [] if made in kinds else [made]
        return {"items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}


def _without(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}
