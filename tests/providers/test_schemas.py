"""Schemas in each vendor's dialect: valid by its documentation, and an answer that fits them is the type again."""

from __future__ import annotations

import enum
import itertools
import json
import uuid
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, Union

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model

from quiesce import Agent
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest, ToolSpec
from quiesce.models.scripted import ScriptedModel
from quiesce.models.wire.schemas import ANTHROPIC, GEMINI, OPENAI, WRAPPER, Dialect, for_output, for_tool
from quiesce.run.output import OutputSpec

from .recordings import ANTHROPIC as CLAUDE
from .recordings import BEDROCK, OPENAI_CHAT, OPENAI_RESPONSES, Provider
from .recordings import GEMINI as GOOGLE

pytestmark = pytest.mark.promise("P2")
SCALARS = {"string", "integer", "number", "boolean", "null"}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

# --- What each vendor documents ------------------------------------------------------------------------------------


class NotInSubset(AssertionError):
    """A schema that the vendor would refuse."""


def check(schema: Any, allowed: Callable[[dict[str, Any]], None]) -> None:
    """Call `allowed` for each schema in a schema."""
    allowed(schema)
    for each in (*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])):
        check(each, allowed)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            check(schema[name], allowed)


def need(condition: object, schema: Any) -> None:
    if not condition:
        raise NotInSubset(schema)


def keys_of(node: dict[str, Any]) -> set[str]:
    return set(node) - {"title", "description", "$defs"}


def refers(node: dict[str, Any], keys: set[str]) -> bool:
    """Whether a schema only refers to others. Raises `NotInSubset` for one that does more beside that."""
    for key in ("$ref", "anyOf"):
        if key in node:
            need(keys == {key}, node)
            return True
    return False


def openai_node(node: dict[str, Any]) -> None:
    """https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"""
    keys = keys_of(node)
    if refers(node, keys):
        return
    if node.get("type") == "object":
        need(keys == {"type", "properties", "required", "additionalProperties"}, node)
        need(node["additionalProperties"] is False and node["required"] == list(node["properties"]), node)
    elif node.get("type") == "array":
        need("items" in keys and keys <= {"type", "items", "minItems", "maxItems"}, node)
    elif node.get("type") == "string":
        need(keys <= {"type", "enum", "const", "pattern", "format"} and node.get("format", "date") in FORMATS, node)
    else:
        bounds = {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
        need(node.get("type") in SCALARS and keys <= {"type", "enum", "const"} | bounds, node)


def anthropic_node(node: dict[str, Any]) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations"""
    keys = keys_of(node)
    if refers(node, keys):
        return
    if node.get("type") == "object":
        need(keys == {"type", "properties", "required", "additionalProperties"}, node)
        need(node["additionalProperties"] is False, node)
    elif node.get("type") == "array":
        need("items" in keys and keys <= {"type", "items", "minItems"} and node.get("minItems", 0) in (0, 1), node)
    else:
        need(node.get("type") in SCALARS and keys <= {"type", "enum", "const", "format"}, node)
        need(node.get("format", "date") in FORMATS | {"uri"}, node)


def gemini_node(node: dict[str, Any]) -> None:
    """google-genai 3.3, types.py: the description of `response_json_schema`."""
    documented = (
        "$ref $defs type format title description enum items minItems maxItems minimum maximum anyOf properties"
    )
    need(set(node) <= {*documented.split(), "additionalProperties", "required"}, node)
    need("$ref" not in node or set(node) == {"$ref"}, node)
    need(all(isinstance(each, str | int | float) for each in node.get("enum", ())), node)


VENDORS: list[tuple[Dialect, Callable[[dict[str, Any]], None]]] = [
    (OPENAI, openai_node),
    (ANTHROPIC, anthropic_node),
    (GEMINI, gemini_node),
]
each_vendor = pytest.mark.parametrize(("dialect", "allowed"), VENDORS, ids=["openai", "anthropic", "gemini"])

# --- Types and their values ----------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


NAMES = st.sampled_from(["name", "size", "items", "kind", "value", "answer"])
TEXT = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=6)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (int, st.integers(-(2**40), 2**40)),
    (float, st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (bool, st.booleans()),
    (type(None), st.none()),
    (Colour, st.sampled_from(Colour)),
    (date, st.dates()),
    (uuid.UUID, st.uuids()),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal["only"], st.just("only")),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),  # noqa: PYI061 - another schema than a union
    (Annotated[int, Field(ge=1, lt=10)], st.integers(1, 9)),
    (Annotated[float, Field(gt=0, multiple_of=0.5)], st.sampled_from([0.5, 2.0])),
    (Annotated[str, Field(min_length=1, max_length=3)], st.sampled_from(["a", "abc"])),
    (Annotated[str, Field(pattern="^[a-z]+$")], st.sampled_from(["a", "abc"])),
    (Annotated[str, Field(description="What it is.")], TEXT),
    (dict[str, int], st.dictionaries(TEXT, st.integers(0, 9), max_size=2)),
    (Any, st.sampled_from([1, "a", [1], {"b": None}])),
    (set[int], st.sets(st.integers(0, 9), max_size=3)),
]
Made = tuple[Any, st.SearchStrategy[Any]]


@st.composite
def models(draw: st.DrawFn, inner: st.SearchStrategy[Made]) -> Made:
    fields = draw(st.dictionaries(NAMES, st.tuples(inner, st.booleans()), max_size=3))
    number = draw(st.integers(0, 10**9))
    definitions: dict[str, Any] = {}
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name, ((kind, value), optional) in fields.items():
        definitions[name] = (kind | None, None) if optional and kind is not Any else (kind, ...)
        values[name] = value
    made = create_model(f"M{number}", **definitions)
    return made, st.builds(made, **values)


def larger(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda each: (list[each[0]], st.lists(each[1], max_size=2))),
        inner.map(lambda each: (each[0] | None if each[0] is not Any else Any, each[1])),
        pairs.map(lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))),
        pairs.map(lambda two: (Union[two[0][0], two[1][0]], two[0][1])),  # noqa: UP007 - of types that have no "|"
        models(inner),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), larger, max_leaves=6)


def is_wrapped(schema: dict[str, Any]) -> bool:
    return list(schema.get("properties", {})) == [WRAPPER]


@each_vendor
@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_type_in_a_dialect_and_back(
    dialect: Dialect, allowed: Callable[[dict[str, Any]], None], data: st.DataObject
) -> None:
    kind, values = data.draw(TYPES)
    spec = OutputSpec(kind)
    made = for_output(spec.schema, dialect)
    if made is None:  # it holds a map or a value of any type, and is asked for in words
        assert dialect is not GEMINI
        assert needs_words(spec.schema), spec.schema
        return
    check(made, allowed)
    assert made.get("type") == "object" or not dialect.root_object
    value = data.draw(values)
    written = TypeAdapter(kind).dump_python(value, mode="json")
    answers = [written]
    if dialect.root_object and TypeAdapter(kind).json_schema().get("type") != "object" and is_wrapped(made):
        answers.append({WRAPPER: written})
    # What the type allows, the vendor's schema allows: the model is never kept from a right answer.
    jsonschema.validate(answers[-1], made)
    direct = TypeAdapter(kind).validate_json(json.dumps(written))
    for answer in answers:
        assert spec.parse(json.dumps(answer)) == direct


def needs_words(schema: Any) -> bool:
    """Whether a schema holds a map, a list of anything, or a value of any type."""
    if isinstance(schema, list):
        return any(needs_words(each) for each in schema)
    if not isinstance(schema, dict):
        return False
    typed = {"type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"} & schema.keys()
    is_map = schema.get("type") == "object" and not schema.get("properties")
    children = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    children += [schema[name] for name in ("items", "anyOf", "oneOf", "prefixItems") if name in schema]
    return not typed or is_map or any(needs_words(each) for each in children)


# --- Single facts --------------------------------------------------------------------------------------------------


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tags: set[str] = set()


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    place: tuple[float, float]


class Node(BaseModel):
    name: str
    children: list[Node] = []


@pytest.mark.parametrize("kind", [int, list[str], Cat | Dog, Owner, Literal["a"], tuple[int, str]], ids=str)
@each_vendor
def test_a_schema_that_vendors_used_to_refuse(
    kind: Any, dialect: Dialect, allowed: Callable[[dict[str, Any]], None]
) -> None:
    made = for_output(OutputSpec(kind).schema, dialect)
    assert made is not None
    check(made, allowed)


def test_a_type_that_holds_itself() -> None:
    schema = OutputSpec(Node).schema
    assert for_output(schema, ANTHROPIC) is None  # "Recursive schemas: not supported"
    made = for_output(schema, OPENAI)
    assert made is not None
    assert made["type"] == "object"
    check(made, openai_node)


@pytest.mark.parametrize("provider", [CLAUDE, BEDROCK], ids=str)
def test_a_schema_that_cannot_be_expressed_is_asked_for_in_words(provider: Provider) -> None:
    model: Any = provider.make("http://127.0.0.1:9")
    request = ModelRequest((UserMessage((Text("Hm?"),)),), "Be brief.", output_schema=OutputSpec(dict[str, int]).schema)
    body = model.body(request)
    assert not {"output_config", "outputConfig"} & body.keys()
    said = body["system"][0]["text"]
    assert said.startswith("Be brief.")
    assert '"additionalProperties":{"type":"integer"}' in said


def test_openai_is_not_strict_about_a_map() -> None:
    request = ModelRequest((UserMessage((Text("Hm?"),)),), output_schema=OutputSpec(list[dict[str, int]]).schema)
    chat: Any = OPENAI_CHAT.make("http://127.0.0.1:9")
    wanted = chat.body(request)["response_format"]["json_schema"]
    assert wanted["strict"] is False
    assert wanted["schema"]["type"] == "object"
    responses: Any = OPENAI_RESPONSES.make("http://127.0.0.1:9")
    assert responses.body(request)["text"]["format"]["schema"] == wanted["schema"]


def test_what_the_vendors_own_libraries_make_of_the_same_type() -> None:
    from anthropic.lib._parse._transform import transform_schema
    from openai.lib._pydantic import to_strict_json_schema

    class Plain(BaseModel):
        name: str = Field(description="Its name.")
        size: int
        parts: list[Cat]
        owner: Dog | None

    ours = for_output(OutputSpec(Plain).schema, OPENAI)
    assert bare(ours) == bare(to_strict_json_schema(Plain))
    ours = for_output(OutputSpec(Plain).schema, ANTHROPIC)
    assert bare(ours) == bare(transform_schema(Plain))


def bare(schema: Any) -> Any:
    """A schema without words, and without what is known of a literal besides its value."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left = {"title", "description", "default", "uniqueItems"} | (
        {"type"} if {"const", "enum"} & schema.keys() else set()
    )
    kept = {name: bare(each) for name, each in schema.items() if name not in left}
    return {**kept, "required": sorted(kept["required"])} if isinstance(kept.get("required"), list) else kept


def test_a_tool_whose_arguments_are_a_union() -> None:
    """https://github.com/anthropics/claude-code/issues/4886: no `anyOf` at the top of an input schema."""
    schema = {
        "anyOf": [{"$ref": "#/$defs/A"}, {"type": "object", "properties": {"b": {}}}],
        "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    made = for_tool(schema)
    assert made["type"] == "object"
    assert set(made["properties"]) == {"a", "b"}
    assert not {"anyOf", "oneOf", "allOf"} & made.keys()
    assert for_tool({"type": "object", "properties": {}}) == {"type": "object", "properties": {}}


def test_gemini_gets_tools_in_its_own_dialect() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0, "default": 3}}}
    google: Any = GOOGLE.make("http://127.0.0.1:9")
    body = google.body(ModelRequest((UserMessage((Text("Hm?"),)),), tools=(ToolSpec("t", "T.", schema),)))
    sent = body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
    check(sent, gemini_node)
    assert "exclusiveMinimum 0" in sent["properties"]["n"]["description"]


@pytest.mark.parametrize("text", ['{"answer": [1, 2]}', "[1, 2]", '```json\n{"answer": [1, 2]}\n```'])
def test_an_answer_that_was_put_into_an_object(text: str) -> None:
    result = Agent(ScriptedModel(text), output_type=list[int])("Count.")
    assert result.output == [1, 2]
    assert len(result.usage.entries) == 1


def test_an_answer_in_an_object_while_it_is_written() -> None:
    spec = OutputSpec(list[int])
    assert spec.parse_partial('{"answer": [1, 2') == [1, 2]
    assert spec.parse_partial('{"answer": [1, 2]') == [1, 2]
    assert spec.parse_partial('{"answer": [1, 2]}') == [1, 2]


def test_many_schemas_that_refer_to_each_other_take_no_time() -> None:
    levels = [[f"{letter}{number}" for letter in "abcd"] for number in range(40)]
    defs: dict[str, Any] = {name: {"type": "object", "properties": {}} for name in levels[-1]}
    for level, below in itertools.pairwise(levels):
        refs = {name: {"$ref": f"#/$defs/{name}"} for name in below}
        defs |= {name: {"type": "object", "properties": refs} for name in level}
    schema = {"$ref": "#/$defs/a0", "$defs": defs}
    assert for_output(schema, ANTHROPIC) is not None
    defs["d39"] = {"type": "object", "properties": {"again": {"$ref": "#/$defs/b0"}}}
    assert for_output(schema, ANTHROPIC) is None
