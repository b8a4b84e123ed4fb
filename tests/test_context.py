"""Long conversations: what is sent stays inside the window and valid; what is kept is everything."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from quiesce import Agent, Conversation, Limits, Price, Summarise, Trim, tool
from quiesce.compaction import HEADING, SUMMARISE, Summary, by_rule_of_thumb, total_size, trimmed
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, ServerError, UnknownModel
from quiesce.events import ContextReduced, ModelCallEnded, ModelCallStarted
from quiesce.messages import (
    AssistantMessage,
    Document,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from quiesce.middleware import Middleware
from quiesce.run.context_window import RequestWindow
from quiesce.run.handle import state_of
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Call, Fail, Say, ScriptedModel, Stall, Used

pytestmark = pytest.mark.promise("P2", "P6")


def conversation(shape: list[int], words: int = 3) -> tuple[Message, ...]:
    """For each number an exchange with so many rounds of tools."""
    said: list[Message] = []
    for place, rounds in enumerate(shape):
        said.append(UserMessage((Text(f"question {place} " * words),)))
        for number in range(rounds):
            calls = [ToolCall(f"c{place}-{number}-{n}", "look", {"n": n}) for n in range(2)]
            said.append(AssistantMessage((Text("Looking."), *calls)))
            said.append(ToolMessage(tuple(ToolResult(call.id, "look", (Text("seen " * words),)) for call in calls)))
        said.append(AssistantMessage((Text(f"answer {place} " * words),)))
    return tuple(said)


def message_sizer(agent: Agent) -> Any:
    assert agent.config.estimator is not None
    return agent.config.estimator.message_sizer(agent.conversation)


@given(
    shape=strategies.lists(strategies.integers(0, 4), min_size=1, max_size=8),
    open_rounds=strategies.integers(0, 5),
    tokens=strategies.one_of(strategies.none(), strategies.integers(1, 600)),
    count=strategies.one_of(strategies.none(), strategies.integers(1, 30)),
)
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
def test_what_is_left_is_valid_and_as_long_as_it_may_be(
    shape: list[int], open_rounds: int, tokens: int | None, count: int | None
) -> None:
    """The last exchange has no final answer yet: that is what the model is asked for."""
    messages = conversation([*shape, open_rounds])[:-1]
    left = trimmed(messages, tokens, count, by_rule_of_thumb)
    assert faults(left) == ()
    assert left[-1] == messages[-1]
    fits = (tokens is None or total_size(left, by_rule_of_thumb) <= tokens) and (count is None or len(left) <= count)
    smallest = min(3, 1 + 2 * open_rounds)
    assert fits or len(left) == smallest, "it neither fits nor is it the least there is"
    if (tokens is None or total_size(messages, by_rule_of_thumb) <= tokens) and (
        count is None or len(messages) <= count
    ):
        assert left is messages


def test_pictures_and_files_have_a_size() -> None:
    assert total_size([UserMessage((Image(data=b"x"),))], by_rule_of_thumb) > 1000
    assert total_size([UserMessage((Document(data=b"x" * 100_000),))], by_rule_of_thumb) > 20_000
    assert total_size([UserMessage((Text("ü" * 400),))], by_rule_of_thumb) > 150


def test_the_conversation_keeps_everything() -> None:
    async def main() -> None:
        earlier = conversation([0] * 10)
        model = ScriptedModel(then="Yes.")
        agent = Agent(model, conversation=Conversation(tuple(earlier)), context=Trim(messages=5))
        events = [event async for event in agent.stream_async("Go")]
        assert len(agent.messages) == len(earlier) + 2
        assert model.requests[0].messages == agent.messages[-4:-1]
        (reduced,) = [event for event in events if isinstance(event, ContextReduced)]
        assert (reduced.left_out, reduced.summarised) == (18, False)

    asyncio.run(main())


def test_a_summary_stands_for_what_is_left_out_and_is_used_again() -> None:
    async def main() -> None:
        store = MemoryStore()
        model = ScriptedModel(
            *["A long answer to remember. " * 8] * 4,
            [Say("They asked four times."), Used(200, 7)],
            then=[Say("Yes."), Used(90, 1)],
            price=Price(input=Decimal(1), output=Decimal(2)),
        )
        agent = Agent(model, session="s", store=store, context=Summarise(230, keep=80))
        for number in range(4):
            await agent.invoke_async(f"Question {number}?")
        events = [event async for event in agent.stream_async("Another?")]
        asked, sent = model.requests[4:6]
        assert "Summarise" in asked.messages[-1].text
        assert faults(asked.messages) == ()
        assert sent.messages[0].text.startswith(HEADING)
        assert "They asked four times." in sent.messages[0].text
        assert faults(sent.messages) == ()
        assert total_size(sent.messages, message_sizer(agent)) <= 230
        booked = [event.entry for event in events if isinstance(event, ModelCallEnded)]
        assert [entry.usage.input.value for entry in booked] == [200, 90]
        assert all(entry.cost is not None for entry in booked)
        assert len(agent.messages) == 10

        other = Agent(model, session="s", store=store, context=Summarise(230, keep=80))
        await other.invoke_async("And in another process?")
        assert len(model.requests) == 7, "the summary that is there is used"
        assert "They asked four times." in model.requests[-1].messages[0].text

    asyncio.run(main())


def test_a_summary_that_fails_leaves_the_oldest_out() -> None:
    async def main() -> None:
        model = ScriptedModel(Fail(ServerError("oops")), then="Yes.")
        agent = Agent(model, conversation=Conversation(tuple(conversation([0] * 10))), context=Summarise(120))
        result = await agent.invoke_async("Go")
        assert result.text == "Yes."
        assert total_size(model.requests[1].messages, message_sizer(agent)) <= 120
        assert [entry.ended for entry in result.usage.entries] == ["failed", "completed"]

    asyncio.run(main())


def test_a_summary_can_be_stopped() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("It was"), Stall()], then="Yes.")
        agent = Agent(model, conversation=Conversation(tuple(conversation([0] * 10))), context=Summarise(120))
        run = agent.start("Go")
        while not model.open_streams:
            await asyncio.sleep(0)
        run.cancel("enough")
        result = await run
        assert result.stop_reason == "cancelled"
        assert [entry.ended for entry in result.usage.entries] == ["hung_up"]
        assert model.open_streams == 0

    asyncio.run(main())


def test_a_summary_of_another_conversation_is_not_used() -> None:
    async def main() -> None:
        class Host:
            summary = Summary(2, "another", "wrong")
            message_size = staticmethod(by_rule_of_thumb)

            def keep_summary(self, summary: Summary) -> None:
                raise AssertionError

            async def ask(self, request: Any, model: Any) -> Any:
                raise AssertionError

        messages = (*conversation([0] * 3), UserMessage((Text("Go"),)))
        assert await Summarise(10_000).fit(messages, Host()) is messages

    asyncio.run(main())


def test_sizes_are_in_the_tokens_that_the_model_has_reported() -> None:
    """A model with two bytes to a token: by the rule of thumb, twice as much would be sent as the window holds."""

    def tokens(messages: tuple[Message, ...]) -> int:
        return sum(len(message.text.encode()) // 2 + 4 for message in messages)

    class Reporting(ScriptedModel):
        def stream(self, request: Any) -> Any:
            self._answers = iter([[Say("Well then. " * 40), Used(tokens(request.messages), 220)]])
            return super().stream(request)

    async def main() -> None:
        model = Reporting()
        agent = Agent(model, context=Trim(tokens=2_000))
        for number in range(20):
            await agent.invoke_async(f"Question {number}: " + "why is that so? " * 20)
        sent = [tokens(request.messages) for request in model.requests]
        assert max(sent[5:]) <= 2_000 * 1.1, sent
        assert max(sent) > 1_200, "it is not cut more than it must be"

    asyncio.run(main())


def test_a_model_with_a_vocabulary_is_counted_in_it() -> None:
    pytest.importorskip("splintr")
    from quiesce.usage.estimate.vocabulary import vocabulary_of

    vocabulary = vocabulary_of("openai:gpt-4o")
    assert vocabulary is not None

    async def main() -> None:
        words = "Donaudampfschifffahrtsgesellschaft 9,1;7:5 " * 20  # far from four bytes to a token
        model = ScriptedModel(then="Ja.", name="openai:gpt-4o")
        agent = Agent(model, context=Trim(tokens=1_000))
        for _ in range(8):
            await agent.invoke_async(words)
        one = vocabulary.count(words)
        assert abs(one / (len(words) / 4) - 1) > 0.3
        texts = [part.text for message in model.requests[-1].messages for part in message.content]
        assert 700 - one - 10 <= sum(map(vocabulary.count, texts)) <= 1_000

    asyncio.run(main())


def test_each_message_is_counted_once() -> None:
    from quiesce.usage.estimate.calibration import Calibration
    from quiesce.usage.estimate.message_size import MessageSizer
    from quiesce.usage.estimate.ratio import TokenRatio
    from quiesce.usage.estimate.vocabulary import Vocabulary

    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    message_sizer = MessageSizer(TokenRatio("m", Vocabulary("recorded", count), Calibration()))
    messages = conversation([1, 2])
    first = [message_sizer(message) for message in messages]
    so_far = len(counted)
    assert [message_sizer(message) for message in messages] == first
    assert len(counted) == so_far


def test_what_makes_no_sense_is_refused() -> None:
    for make in (
        Trim,
        lambda: Trim(tokens=0),
        lambda: Trim(messages=-1),
        lambda: Summarise(0),
        lambda: Summarise(10, keep=10),
        lambda: Summarise(10, instructions=" "),
    ):
        with pytest.raises(ConfigurationError):
            make()


# --- Long tasks ------------------------------------------------------------------------------------------------------


@tool
async def look(n: int) -> str:
    """Look."""
    return f"seen {n} " * 20


def looking(turns: int) -> list[list[Call]]:
    return [[Call("look", {"n": number}, id=f"c{number}")] for number in range(turns)]


def test_a_run_of_forty_turns_is_summarised_while_it_goes_on() -> None:
    writer = ScriptedModel(then=[Say("I looked at some."), Used(300, 5)])
    model = ScriptedModel(*looking(40), "Done.")
    agent = Agent(model, tools=[look], context=Summarise(600, model=writer), limits=Limits(turns=100))
    events = list(agent.stream("Look at everything."))
    assert 3 <= len(writer.requests) <= 15
    for request in (*model.requests, *writer.requests):
        assert faults(request.messages) == ()
    for request in model.requests:
        assert total_size(request.messages, message_sizer(agent)) <= 600
        assert request.messages[0].text.startswith("Look at everything.")
    assert HEADING in model.requests[-1].messages[0].text
    reduced = [event for event in events if isinstance(event, ContextReduced)]
    assert {event.summarised for event in reduced} == {True}
    assert len(agent.messages) == 82
    assert len([event for event in events if isinstance(event, ModelCallEnded)]) == 41 + len(writer.requests)


def test_trim_keeps_the_beginning_of_requests_the_same() -> None:
    model = ScriptedModel(*looking(60), "Done.")
    agent = Agent(model, tools=[look], context=Trim(tokens=900), limits=Limits(turns=100))
    agent("Look at everything.")
    sent = [request.messages for request in model.requests]
    changed = sum(later[: len(earlier)] != earlier for earlier, later in itertools.pairwise(sent))
    assert 1 <= changed <= 16, "without steps, each request after the first dozen begins anew"
    sizes = [total_size(messages, message_sizer(agent)) for messages in sent]
    assert max(sizes) <= 900
    assert min(sizes[20:]) > 400
    assert all(faults(messages) == () for messages in sent)


def test_trim_goes_on_from_where_it_was_in_another_process() -> None:
    store = MemoryStore()
    model = ScriptedModel(then="A long answer to remember. " * 8)
    for number in range(30):
        Agent(model, session="s", store=store, context=Trim(tokens=500))(f"Question {number}?")
    changed = sum(
        later.messages[: len(earlier.messages)] != earlier.messages
        for earlier, later in itertools.pairwise(model.requests)
    )
    assert 1 <= changed <= 10


def test_one_answer_with_hidden_reasoning_does_not_shrink_the_window() -> None:
    """It reported 14 times the tokens that its text has."""
    earlier = conversation([0] * 60, words=40)
    model = ScriptedModel([Say("It is so. " * 10), Used(400, 2000)], then="Yes.")
    agent = Agent(model, context=Trim(tokens=8_000))
    agent("Why?")
    agent("Go.", conversation=Conversation(tuple(earlier)))
    rough = total_size(model.requests[-1].messages, by_rule_of_thumb)
    assert 4_500 < rough < 9_000, rough


def test_what_readers_are_told_about_the_context_is_true() -> None:
    model = ScriptedModel(*looking(12), "Done.")
    agent = Agent(model, tools=[look], context=Trim(tokens=600))
    run = [event for event in agent.stream("Look.") if isinstance(event, ContextReduced | ModelCallStarted)]
    sizer = message_sizer(agent)
    for number, (event, following) in enumerate(itertools.pairwise(run)):
        if isinstance(event, ContextReduced):
            index = sum(isinstance(each, ModelCallStarted) for each in run[: number + 1])
            sent, whole = model.requests[index].messages, agent.messages[: 1 + 2 * index]
            assert isinstance(following, ModelCallStarted)
            assert (event.left_out, event.summarised) == (len(whole) - len(sent), False)
            assert (event.tokens_before, event.tokens_after) == (total_size(whole, sizer), total_size(sent, sizer))
            assert event.source == "heuristic"
    assert any(isinstance(event, ContextReduced) for event in run)


@pytest.mark.promise("P6")
def test_the_time_to_tell_what_is_left_out_grows_with_the_conversation_only() -> None:
    class Watched(tuple[Message, ...]):
        looks = 0

        def __iter__(self) -> Any:
            self.looks += 1
            return super().__iter__()

    async def main() -> None:
        run = Agent(ScriptedModel([Stall()])).start("go")
        messages = Watched(conversation([0] * 200))
        reduced = RequestWindow(state_of(run)).reduction(messages, tuple(messages[100:]))
        assert reduced.left_out == 100
        assert messages.looks < 10
        run.cancel()
        await run

    asyncio.run(main())


def test_a_summary_goes_through_the_middleware() -> None:
    seen: list[str] = []

    class Watch(Middleware[Any]):
        @asynccontextmanager
        async def model_call(self, call: Any, next: Any, /) -> Any:
            seen.append(call.request.messages[-1].text)
            async with next(call) as deltas:
                yield deltas

    model = ScriptedModel("They asked.", then="Yes.")
    earlier = Conversation(tuple(conversation([0] * 10)))
    agent = Agent(model, conversation=earlier, context=Summarise(120), middleware=[Watch()])
    result = agent("Go")
    assert seen[0] == SUMMARISE
    assert len(seen) == len(model.requests) == len(result.usage.entries) == 2


def test_a_summary_is_written_by_a_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with pytest.raises(UnknownModel):
        Summarise(100, model="nobody:at-all")
    assert Summarise(100, model="openai:gpt-5-mini")._model.name == "openai:gpt-5-mini"
