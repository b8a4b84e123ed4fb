"""schemathesis against the OpenAPI document: every operation, with data that fits it and data that does not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from quiesce import Agent, tool
from quiesce.events import Delta
from quiesce.messages import ToolMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.server import Settings, create_app, schemas
from quiesce.server.openapi import OPERATIONS, document
from quiesce.server.openapi_examples import EXAMPLES

from .support import frames, serving, start, talker

pytestmark = pytest.mark.feature

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "use_after_free",
)


def _schemathesis(url: str, directory: Path, *options: str) -> None:
    script = Path(sys.executable).with_name("schemathesis")
    command = [str(script), "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--no-color", *options]
    command += ["--exclude-operation-id", "stream_changes"]  # it has no end; test_changes.py is about it
    done = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_operation_has_an_example_of_its_body_and_of_its_answer():
    for operation in OPERATIONS:
        names = {name for name, _ in operation.answers.values() if name} | {operation.body.rstrip("?")} - {""}
        for name in names:
            example = json.dumps(EXAMPLES[name])
            msgspec.json.decode(example, type=getattr(schemas, name))
        described = document(Settings())["paths"][operation.path][operation.method]
        for status, answer in described["responses"].items():
            assert all("example" in content for content in answer.get("content", {}).values()), (operation.id, status)
        assert "requestBody" not in described or "example" in described["requestBody"]["content"]["application/json"]


def test_no_operation_fails_or_breaks_the_document(tmp_path: Path):
    with serving(talker(), settings=Settings(max_runs_per_key=2000)) as served:
        _schemathesis(served.url, tmp_path, "--phases", "coverage", "--seed", "1")


@pytest.mark.proof
def test_no_operation_fails_or_breaks_the_document_at_length(tmp_path: Path):
    with serving(talker(), settings=Settings(max_runs_per_key=2000)) as served:
        _schemathesis(served.url, tmp_path, "--max-examples", "100")


@tool
async def look(what: str) -> str:
    """Look for a while."""
    await asyncio.sleep(1)
    return what


@tool
async def book(room: str) -> str:
    """Book a room."""
    return room


@book.undo
async def unbook(room: str) -> None:
    """Give it back."""


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay, if one may."""
    return to


class ByPrompt(ScriptedModel):
    """Brings a run into the state that its prompt names."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        said = next(each for each in reversed(request.messages) if isinstance(each, UserMessage)).text
        if isinstance(request.messages[-1], ToolMessage):
            said = "done"
        answer = SCRIPTS.get(said, SCRIPTS["done"])
        async with ScriptedModel(answer, name="scripted").stream(request) as deltas:
            yield deltas


SCRIPTS: dict[str, list[Any]] = {
    "talking": [Say("Well. "), Stall()],
    "acting": [Say("Well. "), Call("look", {"what": "oven"})],
    "asking": [Call("book", {"room": "blue"}), Call("pay", {"to": "Ann"})],
    "done": [Say("Good morning.")],
}
# The event that tells that a run is in the state.
STANDS = {"talking": "text", "acting": "tool_started", "asking": "run_ended", "done": "run_ended"}


def run_in_state(client: httpx2.Client, state: str) -> tuple[str, str]:
    """A new run in this state, and the id of a call of its, if it has one."""
    run_id = start(client, state)
    call_id = "call_1"
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        for _, kind, event in frames(response.iter_lines()):
            call_id = event["call"]["id"] if kind == "tool_started" else call_id
            if kind == STANDS[state]:
                break
    return run_id, call_id


ON_RUNS = [
    ("/runs/{id}/cancel", "POST"),
    ("/runs/{id}/steer", "POST"),
    ("/runs/{id}/pause", "POST"),
    ("/runs/{id}/resume", "POST"),
    ("/runs/{id}/undo", "POST"),
    ("/runs/{id}/continue", "POST"),
    ("/runs/{id}/tools/{call}/cancel", "POST"),
    ("/runs/{id}", "GET"),
    ("/runs/{id}", "DELETE"),
]


ANSWERS_FIT = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def _try_on_runs(url: str, client: httpx2.Client, examples: int) -> Counter[tuple[str, str, int]]:
    """Every operation on runs in every state, each with so many generated requests; how each was answered."""
    whole = schemathesis.openapi.from_url(f"{url}/openapi.json")
    answers: Counter[tuple[str, str, int]] = Counter()
    quiet = list(HealthCheck)

    def one(path: str, method: str, state: str, data: st.DataObject) -> None:
        case = data.draw(whole[path][method].as_strategy())
        run_id, call_id = run_in_state(client, state)
        case.path_parameters = {"id": run_id, "call": call_id}
        if path.endswith("/resume") and data.draw(st.booleans()):
            asked = client.get(f"/runs/{run_id}").json()["run"]["interrupts"]
            given = data.draw(st.sampled_from([True, False, {"type": "approve"}, {"type": "deny", "reason": "no"}]))
            case.body = {"answers": [{"id": each["id"], "answer": given} for each in asked]}
        if "wait" in (case.query or {}):
            case.query["wait"] = 0.2  # waiting is not what this is about
        response = case.call()
        assert response.status_code < 500, (path, state, response.text)
        case.validate_response(response, checks=ANSWERS_FIT)
        answers[path.removeprefix("/runs/{id}"), state, response.status_code] += 1
        client.post(f"/runs/{run_id}/cancel?wait=10", json={"mode": "kill"})

    for path, method in ON_RUNS:
        for state in sorted(STANDS):
            repeat = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=quiet)
            chosen = {"path": st.just(path), "method": st.just(method), "state": st.just(state)}
            repeat(given(**chosen, data=st.data())(one))()
    return answers


def _check_on_runs(examples: int, needed: set[tuple[str, str, int]]) -> None:
    app = create_app(Agent(ByPrompt(), tools=[look, book, pay]), settings=Settings(max_runs_per_key=2000))
    with serving(app=app) as served, served.client() as client:
        answers = _try_on_runs(served.url, client, examples)
    print(sorted(answers.items()))
    assert answers.total() >= len(ON_RUNS) * len(STANDS)
    assert needed <= set(answers), needed - set(answers)


@pytest.mark.promise("P7")
def test_every_operation_on_runs_in_every_state():
    # A run is read in every state, and removed only when it has ended.
    removed = {("", "done", 204), ("", "asking", 204), ("", "talking", 409), ("", "acting", 409)}
    _check_on_runs(1, {("", state, 200) for state in STANDS} | removed)


@pytest.mark.proof
@pytest.mark.promise("P7")
def test_every_operation_on_runs_in_every_state_at_length():
    worked = {
        ("/cancel", "talking", 202),
        ("/cancel", "asking", 200),
        ("/tools/{call}/cancel", "acting", 202),
        ("/steer", "talking", 202),
        ("/steer", "acting", 202),
        ("/steer", "done", 409),
        ("/resume", "asking", 201),
        ("/resume", "done", 409),
        ("/undo", "asking", 200),
        ("/undo", "talking", 409),
        ("/continue", "done", 201),
        ("/continue", "acting", 409),
        ("", "done", 204),
        ("", "talking", 409),
    }
    _check_on_runs(60, worked)


def test_every_route_is_in_the_document_and_the_other_way_round():
    app = create_app(talker())
    routed = {
        (method.lower(), route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path not in ("/", "/docs", "/openapi.json")
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(method, path) for path, methods in document(Settings())["paths"].items() for method in methods}
    assert routed == described


def test_every_reference_of_the_document_resolves():
    whole = document(Settings())
    schemas = whole["components"]["schemas"]

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for each in value.values() for ref in references(each)]
        if isinstance(value, list):
            return [ref for each in value for ref in references(each)]
        return []

    assert len(references(whole)) > 50
    for reference in references(whole):
        assert reference.removeprefix("#/components/schemas/") in schemas
