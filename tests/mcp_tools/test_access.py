"""Whom an MCP server of agents lets in over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from quiesce import Agent, ToolContext, tool
from quiesce.errors import ConfigurationError
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.protocols.mcp_server import AgentServer, serve
from quiesce.server import Keys, hash_key, new_key

pytestmark = pytest.mark.promise("P8")

LOCAL = ("127.0.0.1", 50000)
REMOTE = ("203.0.113.9", 50000)


@tool
async def whose(ctx: ToolContext) -> str:
    """Whose run it is."""
    return f"run of {ctx.owner!r}"


class Told(ScriptedModel):
    """Calls the tool, then says what it returned and what was said before."""

    def stream(self, request: Any) -> Any:
        last = request.messages[-1]
        answer = (
            [Say(f"{last.results[0].text}, {len(request.messages)}")] if hasattr(last, "results") else [Call("whose")]
        )
        return ScriptedModel(answer).stream(request)


def agent() -> Agent:
    return Agent(Told(), tools=[whose], name="helper")


def call(**arguments: str) -> dict[str, Any]:
    params = {"name": "helper", "arguments": {"prompt": "hello", **arguments}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@asynccontextmanager
async def posting(client: tuple[str, int] = LOCAL, **options: Any) -> AsyncGenerator[Any]:
    """A function that posts a call, as a client at this address."""
    app = AgentServer(agent()).http_app(stateless_http=True, json_response=True, **options)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app, client=client), base_url="http://127.0.0.1:8000"
        ) as http,
    ):

        async def post(headers: dict[str, str] | None = None, **arguments: str) -> httpx2.Response:
            accepted = {"Accept": "application/json, text/event-stream", **(headers or {})}
            return await http.post("/mcp", json=call(**arguments), headers=accepted)

        yield post


async def test_without_keys_only_this_machine_is_let_in():
    async with posting() as post:
        assert "run of ''" in (await post()).text
        for headers in (
            {"Host": "evil.example"},  # a name that points here: DNS rebinding
            {"Host": "127.0.0.1.evil.example"},
            {"X-Forwarded-For": "203.0.113.9"},
        ):
            assert (await post(headers)).status_code == 401, headers
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await post(headers)).status_code == 403, headers
    async with posting(REMOTE) as post:
        assert (await post()).status_code == 401
        assert (await post({"Host": "localhost"})).status_code == 401


async def test_with_keys_each_request_needs_one_and_conversations_belong_to_it():
    ann, bob = new_key(), new_key()
    keys = Keys({"ann": hash_key(ann), "bob": hash_key(bob)})
    async with posting(REMOTE, keys=keys) as post:
        for headers in ({}, {"Authorization": "Bearer " + new_key()}, {"Authorization": ann}):
            assert (await post(headers)).status_code == 401
        anns, bobs = {"Authorization": f"Bearer {ann}"}, {"Authorization": f"Bearer {bob}"}
        assert (await post({**anns, "Origin": "https://evil.example"})).status_code == 403
        first = (await post({**anns, "Host": "any.example"})).json()["result"]
        assert first["content"][0]["text"] == "run of 'ann', 3"
        conversation = first["structuredContent"]["conversation"]
        assert "no such conversation" in (await post(bobs, conversation=conversation)).text
        assert "run of 'ann', 7" in (await post(anns, conversation=conversation)).text


async def test_hosts_that_are_named_need_no_key():
    async with posting(REMOTE, allowed_hosts=["Agents.example", "other.example:9000"]) as post:
        for host in ("agents.example", "agents.example:8000", "other.example:9000"):
            assert (await post({"Host": host})).status_code == 200, host
        for host in ("evil.example", "other.example", "127.0.0.1:8000", "agents.example.evil", ""):
            assert (await post({"Host": host})).status_code == 401, host
        assert (await post({"Host": "agents.example", "Origin": "https://evil.example"})).status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_needs_keys(host: str):
    with pytest.raises(ConfigurationError, match="no API keys"):
        serve(agent(), transport="http", host=host)
