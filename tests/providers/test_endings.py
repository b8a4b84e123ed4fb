"""Every way in which an answer can end: what the run makes of it, what goes back, and how many requests it costs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Retry, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConnectionFailed, ModelError, StreamBroken
from quiesce.events import UsageDelta
from quiesce.messages import AssistantMessage, Message, ProviderPart
from quiesce.models.providers.compatible import SERVERS
from quiesce.usage.figure import Provenance

from .recordings import ANSWER, PROVIDERS, Provider
from .recordings.endings import ANTHROPIC_ENDINGS, ENDINGS, Ending, ending_table
from .test_torn_streams import one_trial, place_of_the_end
from .wire import Play, chunk, head, wire

pytestmark = pytest.mark.promise("P3", "P6")
each_ending = pytest.mark.parametrize("ending", ENDINGS, ids=str)
NO_WAIT = Retry(first=0.0)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


def holds(body: Any, wanted: Any) -> bool:
    """Whether this is somewhere in a body: a string, or an object with at least these fields."""
    if isinstance(wanted, str):
        return wanted in json.dumps(body)
    if isinstance(body, dict):
        here = all(name in body and body[name] == value for name, value in wanted.items())
        return here or any(holds(each, wanted) for each in body.values())
    return isinstance(body, list) and any(holds(each, wanted) for each in body)


def kinds(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """What an answer holds besides text and calls."""
    answer = next(message for message in messages if isinstance(message, AssistantMessage))
    found = (
        part.kind if isinstance(part, ProviderPart) else msgspec.to_builtins(part)["type"] for part in answer.content
    )
    return tuple(kind for kind in found if kind not in ("text", "tool_call"))


@each_ending
def test_an_ending(ending: Ending) -> None:
    async def main() -> None:
        provider, recording = ending.provider, ending.recording
        async with wire(otherwise=provider.answer.response) as server:
            server.play(*[recording.response] * (ending.requests if ending.stop_reason == "error" else 1))
            agent = Agent(ending.model(server.url), tools=[weather], retry=NO_WAIT)
            run = agent.start("What colour?")
            await run.stopped()
            result = run.inspect().result
            assert result is not None
            assert len(server.requests) == ending.requests
            assert not faults(agent.messages)
            goes_on = ending.stop_reason in ("tool_use", "pause")  # the next answer ends the run
            assert result.stop_reason == ("end_turn" if goes_on else ending.stop_reason)
            if ending.stop_reason == "error":
                assert type(result.error).__name__ == ending.error
                return
            assert result.text == (ANSWER if goes_on else ending.text)
            assert kinds(result.new_messages) == (
                ending.kept or (("cut_note",) if ending.refusal and not ending.text else ())
            )
            assert (result.refusal or "") == ending.refusal
            first = result.usage.entries[0].usage
            assert (first.input.value, first.output.value) == (recording.input, recording.output)
            await agent.invoke_async("Go on.")
            sent = server.requests[-1].json
            for each in ending.sent_back:
                assert holds(sent, each), each
            for each in ending.not_sent_back:
                assert not holds(sent, each), each

    asyncio.run(main())


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
def test_the_ordinary_ends_cost_what_the_table_says(provider: Provider) -> None:
    """A text, calls, and a stream that is lost before and after the first words."""
    whole, start = provider.answer.response, head(provider.answer.content_type)
    spoken = b"".join(chunk(event) for event in provider.answer.events[: provider.answer.complete_at])

    async def main() -> None:
        for first, requests, error in (
            (Play(whole), 1, None),
            (Play(provider.calls.response), 2, None),
            (Play(start, then="close"), 4, ConnectionFailed),
            (Play(start + spoken, then="close"), 1, StreamBroken),
        ):
            async with wire(otherwise=first if error else Play(whole)) as server:
                server.play(first)
                run = Agent(provider.make(server.url), tools=[weather], retry=NO_WAIT).start("What colour?")
                await run.stopped()
                result = run.inspect().result
                assert result is not None
                assert len(server.requests) == requests == len(result.usage.entries)
                assert type(result.error) is (error or type(None))
                assert error is not None or result.stop_reason == "end_turn"

    asyncio.run(main())


async def cut(ending: Ending, places: Iterable[int]) -> tuple[int, int]:
    """Cut the response after each of these bytes. Returns how many answers were complete all the same, how many not."""
    response, end = ending.recording.response, place_of_the_end(ending.recording)
    complete = torn = 0
    async with wire(otherwise=Play(ending.provider.answer.response)) as server:
        model = ending.model(server.url)
        for place in places:
            agent = Agent(model, retry=Retry(attempts=1), tools=[weather])
            play = Play(response[:place], then="close")
            result = await one_trial(agent, ending.provider, server, play)
            ended = type(result.error).__name__ == ending.error
            if result.error is None or ended:
                complete += 1
                assert place >= end
                assert ended == (ending.stop_reason == "error")
            else:
                torn += 1
                assert isinstance(result.error, ModelError)
                assert place < end
    return complete, torn


@each_ending
def test_an_ending_cut_at_some_of_its_bytes(ending: Ending) -> None:
    # Around the end of the answer, and elsewhere; all places are hit in the long programme.
    size, end = len(ending.recording.response), place_of_the_end(ending.recording)
    complete, torn = asyncio.run(cut(ending, {*range(1, size, 499), end - 1, end, size - 1}))
    assert complete > 0
    assert torn > 0


@pytest.mark.proof
@each_ending
def test_an_ending_cut_at_every_byte(ending: Ending) -> None:
    complete, torn = asyncio.run(cut(ending, range(len(ending.recording.response))))
    assert complete + torn == len(ending.recording.response)


def test_a_stop_in_a_server_tool_leaves_the_input_open_above() -> None:
    """Each search makes the provider read the conversation again: what was reported at the start is the least."""

    async def main() -> None:
        search = next(each for each in ANTHROPIC_ENDINGS if "web search" in each.fact)
        events = search.recording.events
        begun = next(place for place, event in enumerate(events) if b"server_tool_use" in event) + 1
        body = b"".join(chunk(event) for event in events[:begun])
        stalled = Play(head(search.recording.content_type) + body, then="stall")
        async with wire(stalled, search.provider.answer.response) as server:
            agent = Agent(search.model(server.url))
            run = agent.start("What colour?")
            seen = asyncio.Event()
            run.tap(lambda event: seen.set() if isinstance(event, UsageDelta) and event.server_tools else None)
            await seen.wait()
            run.cancel()
            receipt = await run.stopped()
            assert receipt.stop_reason == "cancelled"
            figure = receipt.usage.entries[0].usage.input
            assert (figure.low, figure.high, figure.source) == (25, None, Provenance.PARTIAL)
            await agent.invoke_async("Go on.")
            assert not holds(server.requests[-1].json, {"type": "server_tool_use"})

    asyncio.run(main())


# --- The tables in docs/providers.md ---------------------------------------------------------------------------------


def key_table() -> str:
    """Keys and addresses of all providers, as a table in Markdown."""
    rows = [
        ("`openai:`, `openai-chat:`", "`OPENAI_API_KEY`", "`OPENAI_BASE_URL`", "https://api.openai.com/v1"),
        (
            "`anthropic:`",
            "`ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`",
            "`ANTHROPIC_BASE_URL`",
            "https://api.anthropic.com",
        ),
        (
            "`bedrock:`",
            "`AWS_BEARER_TOKEN_BEDROCK`, or AWS credentials",
            "`AWS_REGION`, `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_BEDROCK_RUNTIME`",
            "https://bedrock-runtime.&lt;region&gt;.amazonaws.com",
        ),
        (
            "`gemini:`",
            "`GOOGLE_API_KEY`, `GEMINI_API_KEY`",
            "`GOOGLE_GEMINI_BASE_URL`",
            "https://generativelanguage.googleapis.com/v1beta",
        ),
        (
            "`vertex:`",
            "Google's default credentials",
            "`GOOGLE_CLOUD_PROJECT`, `GOOGLE_CLOUD_LOCATION`, `GOOGLE_VERTEX_BASE_URL`",
            "https://aiplatform.googleapis.com",
        ),
        ("`ollama:`", "`OLLAMA_API_KEY`, if any", "`OLLAMA_HOST`", "http://127.0.0.1:11434"),
    ]
    both = {"azure": "`azure:`, `azure-responses:`", "xai": "`xai:`, `xai-responses:`"}
    for name, server in SERVERS.items():
        keys = ", ".join(f"`{each}`" for each in (server.key, *server.other_keys) if each)
        address = "" if server.address is None else f"`{server.address}`"
        if name != "openai":
            rows.append((both.get(name, f"`{name}:`"), keys or "none", address, server.base_url or ""))
    head = ["| name | key | address | usual address |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


@pytest.mark.parametrize(
    ("name", "table"), [("endings", ending_table()), ("keys", key_table())], ids=["endings", "keys"]
)
@pytest.mark.promise("P4")
def test_a_table_of_the_page_is_what_is_tested(name: str, table: str) -> None:
    """`QUIESCE_WRITE_TABLES=1` writes them."""
    page = Path(__file__).parents[2] / "docs" / "providers.md"
    text = page.read_text()
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    written, _, after = rest.partition(end)
    if os.environ.get("QUIESCE_WRITE_TABLES"):
        page.write_text(f"{before}{start}\n{table}\n\n{end}{after}")
    else:
        assert written.strip() == table


@pytest.mark.promise("P3", "P9")
def test_what_only_one_provider_has_outlives_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        search = next(each for each in ANTHROPIC_ENDINGS if "web search" in each.fact)
        async with wire(search.recording.response, otherwise=search.provider.answer.response) as server:
            where = f"sqlite:///{tmp_path}/sessions.db"
            before = Agent(search.model(server.url), session="sky", store=where)
            await before.invoke_async("What colour?")
            after = Agent(search.model(server.url), session="sky", store=where)
            await after.invoke_async("Go on.")
            assert kinds(after.messages) == search.kept
            for each in search.sent_back:
                assert holds(server.requests[-1].json, each), each

    asyncio.run(main())
