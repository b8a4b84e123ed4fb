"""The provider that other frameworks are measured against: what it refuses, what it takes, and what it notes."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest
from bench.field import prompts
from bench.field.__main__ import ADAPTERS
from bench.field.environments import REQUIREMENTS, ROOT
from bench.field.server import provider
from bench.field.strict import openai_faults, strict_faults
from bench.field.table import SCENARIOS, table

from quiesce import Agent
from quiesce.models.providers.openai_chat import OpenAIChat

pytestmark = pytest.mark.house

USER = {"role": "user", "content": "Go."}
SAID = {"role": "assistant", "content": "Well."}


def asks(*ids: str, arguments: str = "{}") -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": arguments}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call: str, content: str | None = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


VALID = [
    [USER],
    [{"role": "system", "content": "Be kind."}, USER],
    [USER, SAID, USER],
    [USER, asks("a", "b"), result("a"), result("b")],
    [USER, asks("a", "b"), result("b"), result("a"), SAID, USER],
    [{"role": "user", "content": [{"type": "text", "text": "Go."}]}],
]
REFUSED_BY_ALL = {
    "nothing at all": [],
    "a call without a result": [USER, asks("a"), USER],
    "one of two calls without a result": [USER, asks("a", "b"), result("a"), SAID, USER],
    "a call without a result at the end": [USER, asks("a")],
    "a call that is answered twice": [USER, asks("a"), result("a"), result("a"), SAID, USER],
    "a result out of place": [USER, asks("a"), USER, result("a")],
    "a result without a call": [USER, result("a"), SAID, USER],
    "a result for another call": [USER, asks("a"), result("b"), SAID, USER],
    "a result without content": [USER, asks("a"), result("a", None)],
    "an answer without content": [USER, {"role": "assistant", "content": None}, USER],
    "the same id twice": [USER, asks("a", "a"), result("a"), result("a")],
    "a role that does not exist": [{"role": "robot", "content": "Go."}],
}
REFUSED_BY_SOME = {
    "two prompts in a row": [USER, USER],
    "two answers in a row": [USER, SAID, SAID, USER],
    "an answer at the end": [USER, SAID],
    "an answer at the beginning": [SAID, USER],
    "a prompt after a result": [USER, asks("a"), result("a"), USER],
    "a blank answer": [USER, {"role": "assistant", "content": " "}, USER],
    "a blank result": [USER, asks("a"), result("a", "")],
    "arguments that are cut": [USER, asks("a", arguments='{"x": '), result("a")],
    "arguments that are no object": [USER, asks("a", arguments="[]"), result("a")],
    "an id of an earlier turn": [USER, asks("a"), result("a"), asks("a"), result("a")],
}


@pytest.mark.parametrize("messages", VALID)
def test_what_is_valid_is_taken(messages: list[dict[str, Any]]) -> None:
    assert strict_faults(messages) == []


@pytest.mark.parametrize("messages", REFUSED_BY_ALL.values(), ids=REFUSED_BY_ALL)
def test_what_openai_refuses_is_refused(messages: list[dict[str, Any]]) -> None:
    assert openai_faults(messages)
    assert strict_faults(messages)


@pytest.mark.parametrize("messages", REFUSED_BY_SOME.values(), ids=REFUSED_BY_SOME)
def test_what_only_the_strict_refuse_is_told_apart(messages: list[dict[str, Any]]) -> None:
    assert openai_faults(messages) == []
    assert strict_faults(messages)


async def test_the_server_refuses_notes_and_knows_when_a_client_hung_up() -> None:
    with provider() as address:
        async with httpx2.AsyncClient(trust_env=False, base_url=f"{address}/x/v1") as client:
            refused = await client.post("/chat/completions", json={"messages": [USER, USER], "stream": True})
            assert (refused.status_code, "user after user" in refused.text) == (400, True)

            story = {"messages": [{"role": "user", "content": prompts.STALLED}], "stream": True}
            before = time.monotonic()
            async with client.stream("POST", "/chat/completions", json=story) as answer:
                read = b""
                async for data in answer.aiter_raw():
                    read += data
                    if prompts.WORDS[-1].encode() in read:
                        break
            after = time.monotonic()
            first, second = (await client.get(f"{address}/x/report?wait=5")).json()
        assert (first["status"], first["closed"], first["openai_faults"]) == (400, None, [])
        assert (second["status"], second["whole"], second["strict_faults"]) == (200, False, [])
        assert before < second["closed"] < after + 5
        assert sum(size for _, size in second["sent"]) >= len(read)


@pytest.mark.promise("P2")
async def test_an_agent_that_is_stopped_goes_on_with_this_server() -> None:
    """The server takes what Quiesce leaves after a stop; that it would refuse anything else is shown above."""
    with provider() as address:
        model = OpenAIChat("field", base_url=f"{address}/x/v1", api_key="none")
        agent = Agent(model)
        run = agent.start(prompts.STALLED)
        async for event in run:
            if getattr(event, "text", "") == prompts.WORDS[-1]:
                run.cancel()
        assert (await run).stop_reason == "cancelled"
        assert (await agent.invoke_async(prompts.NEXT)).text == "Well."
        async with httpx2.AsyncClient(trust_env=False) as client:
            report = (await client.get(f"{address}/x/report")).json()
        assert [each["status"] for each in report] == [200, 200]
        assert "".join(prompts.WORDS) in json.dumps(report[1]["messages"])


def test_each_adapter_has_a_program_and_an_environment() -> None:
    programs = {path.stem for path in (ROOT / "bench/field/adapters").glob("[!_]*.py")}
    assert programs == set(ADAPTERS)
    assert {environment for environment, _ in ADAPTERS.values()} == set(REQUIREMENTS)


def test_the_table_counts_what_differs_and_says_what_could_not_be_run() -> None:
    common = {
        "prompt_kept": "yes",
        "kept": "no",
        "usage": "0/0",
        "next": "answered",
        "openai_faults": [],
        "strict_faults": [],
    }
    trials = [
        {"close_ms": 1.0, "return_ms": 2.0, **common},
        {"close_ms": None, "return_ms": 4.0, **common, "strict_faults": ["message 1: user after user"], "next": "400"},
    ]
    text = table(*SCENARIOS["stalled"], {"one": trials, "two": "no such package"})
    row = next(line for line in text.splitlines() if line.startswith("  one"))
    assert "1.0 (1.0), 1 not within 5 s" in row
    assert "3.0 (4.0)" in row
    assert "yes: 1, no: user after user: 1" in row
    assert "two  could not be run: no such package" in text
