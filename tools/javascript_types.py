"""Writes `client.d.ts`, the types of the JavaScript client, from the OpenAPI document. Run it when that changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from quiesce.server import Settings
from quiesce.server.openapi import OPERATIONS, APIOperation, document

FILE: Final = Path(__file__).parents[1] / "src/quiesce/server/static/client.d.ts"

_HEAD: Final = """\
// The types of client.js. Made from the server's OpenAPI document by tools/javascript_types.py.

/** Why a request failed: the server refused it, or could not be reached (`status` 0). */
export class ServerProblem extends Error {
  status: number;
  code: string;
  todo: string;
  /** The message and what to do, as one text. */
  get text(): string;
  /** Whether a retry may succeed. */
  get isPassing(): boolean;
}

export interface ClientOptions {
  /** An API key, or a function that returns one. */
  key?: string | (() => string);
  /** Called when the server refuses the key. When its promise resolves, the request is sent again. */
  keyNeeded?: (problem: string) => Promise<void>;
  /** Replaces the global `fetch`. */
  fetch?: (url: URL, init: RequestInit) => Promise<Response>;
}

export interface RequestOptions {
  signal?: AbortSignal;
}

/** When a stream is read: `open` waits until it may be, and `watch` closes a connection, which is then opened again. */
export interface StreamGate {
  open(signal?: AbortSignal): Promise<void> | undefined;
  watch(leave: () => void): () => void;
}

export interface StreamOptions<Place> extends RequestOptions {
  /** Begin after this event. */
  after?: Place;
  /** For how many milliseconds a lost connection is tried again: 30,000 by default. */
  patience?: number;
  /** Called with a problem when the connection is lost, and with null when it is there. */
  onConnection?: (problem: Error | null) => void;
  gate?: StreamGate;
}

/** The events from `first` to `last` are no longer kept by the server. */
export interface EventGap {
  type: "gap";
  first: number;
  last: number;
}

/** An event of a run, its number, and when it happened, in seconds since 1970, or null when that is not known. */
export interface StreamedEvent {
  number: number;
  event: Event | EventGap;
  at: number | null;
}

/** Retry an action until it succeeds, with a longer delay each time. Errors that no retry can fix are thrown. */
export function insist<T>(
  action: () => Promise<T>,
  options?: RequestOptions & { onRetry?: (problem: ServerProblem) => void },
): Promise<T>;
"""


def types() -> str:
    """The whole file."""
    whole = document(Settings())
    schemas: dict[str, Any] = whole["components"]["schemas"]
    sent = _sent(schemas)
    described = (_described(name, schema, is_sent=name in sent) for name, schema in sorted(schemas.items()))
    return "\n".join((_HEAD, _client(), *described))


def _sent(schemas: dict[str, Any]) -> set[str]:
    """The schemas of the bodies that clients send, and all that they contain."""
    found: set[str] = set()
    wanted = [each.body.rstrip("?") for each in OPERATIONS if each.body]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas[name]))
    return found


def _client() -> str:
    methods = "\n".join(_method(each) for each in OPERATIONS)
    return (
        "/** One server. Each operation of its OpenAPI document is a method. */\nexport class Client {\n"
        f"  constructor(url: string | URL, options?: ClientOptions);\n{methods}\n}}\n"
    )


def _method(operation: APIOperation) -> str:
    """One operation: the parts of its path, its body, and its options."""
    given = [f"{name}: string" for name in re.findall(r"{(\w+)}", operation.path)]
    if operation.body:
        given.append(f"body{'?' if operation.body.endswith('?') else ''}: {operation.body.rstrip('?')}")
    name = camel_case(operation.id)
    if operation.stream:
        place, yields = ("string", "RunsChange") if operation.stream == "RunsChange" else ("number", "StreamedEvent")
        given.append(f"options?: StreamOptions<{place}>")
        return (
            f"  /** {operation.summary}. */\n  {name}({', '.join(given)}): AsyncGenerator<{yields}, void, undefined>;"
        )
    given.append(f"options?: {_options(operation)}")
    answers = sorted({schema for status, (schema, _) in operation.answers.items() if status < 300})
    returned = " | ".join(answers) if answers != [""] else "void"
    return f"  /** {operation.summary}. */\n  {name}({', '.join(given)}): Promise<{returned}>;"


def _options(operation: APIOperation) -> str:
    named = [f"{each['name']}?: {_type(each['schema'])}" for each in operation.parameters if each["in"] == "query"]
    named += ["wait?: number"] if operation.waits else []
    named += ["idempotencyKey?: string"] if any(each["in"] == "header" for each in operation.parameters) else []
    return f"RequestOptions & {{ {'; '.join(named)} }}" if named else "RequestOptions"


def camel_case(name: str) -> str:
    """The name of an operation in JavaScript: `show_run` is `showRun`."""
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def _described(name: str, schema: dict[str, Any], *, is_sent: bool) -> str:
    """A schema. What the server sends has every field; a client may leave out what has a default."""
    about = _comment(schema.get("description", ""), "")
    if "properties" not in schema:
        return f"{about}export type {name} = {_type(schema)};\n"
    needed = set(schema.get("required", ()))
    fields = (
        _comment(each.get("description", ""), "  ")
        + f"  {field}{'?' if is_sent and field not in needed else ''}: {_type(each)};"
        for field, each in schema["properties"].items()
    )
    return f"{about}export interface {name} {{\n" + "\n".join(fields) + "\n}\n"


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


_PLAIN: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(_type(each) for each in schema[union]))
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PLAIN[each] for each in kind)
    if kind == "array":
        inner = _type(schema.get("items") or {})
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return _PLAIN.get(kind or "", "unknown")


if __name__ == "__main__":
    FILE.write_text(types(), "utf-8")
