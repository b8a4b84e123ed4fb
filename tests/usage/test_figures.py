"""The figures of a ledger after a stop: estimates that hold the truth, their sums, and the table."""

import asyncio
from decimal import Decimal
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce import Agent, Conversation, tool
from quiesce.errors import ConnectionFailed, RateLimited
from quiesce.events import AnswerEnd, AnswerStart, ModelCallEnded, TextDelta, UsageDelta
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
from quiesce.models.scripted import Call, Drop, Fail, Raw, Say, ScriptedModel, Stall, Think, Used
from quiesce.retry import Retry
from quiesce.usage import Figure, Price, Provenance, Usage, register_vocabulary
from quiesce.usage.estimate.answer_count import Block
from quiesce.usage.estimate.calibration import Calibration
from quiesce.usage.estimate.content import Preamble
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.pieces import Pieces
from quiesce.usage.estimate.received import ReceivedAnswer
from quiesce.usage.figure import NONE, reported, total
from quiesce.usage.ledger import TokenUsage
from tests.usage.kit import WORDS, cut_after, figures

pytestmark = pytest.mark.promise("P6")


# --- After a stop ----------------------------------------------------------------------------------------------------


@pytest.mark.case("openai-agents-js#995")
@pytest.mark.case("eve#952")
@pytest.mark.case("Reasonix#7184")
@pytest.mark.case("get-convex/agent#293")
def test_usage_after_a_stop_is_neither_zero_nor_missing() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say(WORDS * 50)], then=[Say(WORDS * 50)]))
        result = await cut_after(agent, 5)
        (entry,) = result.usage.entries
        assert entry.ended == "hung_up"
        assert entry.request_id == "scripted-1"
        assert entry.usage.input.value
        assert entry.usage.output.value
        assert not result.usage.is_final

    asyncio.run(main())


@pytest.mark.case("pydantic-ai#cumulative-usage")
def test_cumulative_reports_are_not_added_up() -> None:
    async def main() -> None:
        steps = [step for n in range(1, 31) for step in (Raw(TextDelta("word ")), Used(100, n, final=False))]
        result = await cut_after(Agent(ScriptedModel([*steps, Stall()])), 30)
        assert result.usage.input == reported(100)
        assert result.usage.output.value == 30
        assert result.usage.output.source is Provenance.PARTIAL
        assert result.usage.output.high < 60

    asyncio.run(main())


def test_a_report_before_the_first_word_is_not_the_whole_answer() -> None:
    async def main() -> None:
        model = ScriptedModel([Used(100, 1, final=False), Say(WORDS * 20), Stall()], name="openai:gpt-4o")
        result = await cut_after(Agent(model), len(WORDS * 20) // 8)
        assert result.usage.input == reported(100)
        assert result.usage.output.value == 221
        assert result.usage.output.source is Provenance.TOKENIZED

    asyncio.run(main())


def test_nothing_heard_is_unknown_and_not_zero() -> None:
    async def main() -> None:
        model = ScriptedModel([Stall()])
        run = Agent(model).start("hello")
        async for event in run:
            if isinstance(event, AnswerStart):
                run.cancel()
        result = await run
        assert result.usage.output.value is None
        assert result.usage.output.high is None
        assert result.usage.input.value
        assert "unknown" in str(result.usage)

    asyncio.run(main())


def test_a_request_that_limits_its_answer_bounds_the_bill() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say(WORDS * 9), Stall()]), stop_policy="drain", settings={"max_tokens": 500})
        result = await cut_after(agent, 3)
        assert result.usage.output.high == 500
        agent.config.drain_pool.cut()
        assert (await result.usage.final()).output.high == 500

    asyncio.run(main())


def test_a_delta_that_comes_with_the_stop_is_billed_but_not_shown() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("word " * 3, chunk=5), Used(10, 3), Raw(AnswerEnd())])
        run = Agent(model).start("hi")
        words = 0

        def tap(event) -> None:
            nonlocal words
            words += isinstance(event, TextDelta)
            if words == 3:
                run.cancel()

        run.tap(tap)
        result = await run
        assert result.stop_reason == "cancelled"
        assert result.usage.output == reported(3)  # the report was on its way

    asyncio.run(main())


def test_what_a_server_writes_before_it_notices_the_hang_up_is_reckoned_with() -> None:
    async def main(after_hang_up: float) -> Figure:
        model = ScriptedModel([Say("one two three four five six", chunk=4), Stall()], name="openai:gpt-4o")
        model.after_hang_up = after_hang_up
        run = await cut_after(Agent(model), 3)
        return run.usage.output

    before, after = asyncio.run(main(0.0)), asyncio.run(main(2.0))
    assert before.value is not None
    assert after.value == before.value + 2
    assert (after.low, after.high) == (before.low, before.high)


@pytest.mark.parametrize(("end", "per_call"), [(0, 0), (1, 7), (6, 30)])
def test_what_surrounds_an_answer_is_told_from_the_answer(end: int, per_call: int) -> None:
    """A constant is no ratio, and what one call costs is known after the first."""
    register_vocabulary("words", lambda text: len(text.split()))
    estimator = UsageEstimator("mine", tokenizer="words")
    sent = SentRequest((UserMessage((Text("hi"),)),), Preamble(None))
    call = (Block("arguments", Pieces(["a b c"]), "look "),)
    few, many, some = ((Block("text", Pieces(["w " * count])),) for count in (30, 300, 100))
    for blocks, calls in ((few, 0), (call, 1), (many, 0)):
        words = sum(len(f"{block.name}{''.join(block.parts)}".split()) for block in blocks)
        report = UsageDelta(10, words + end + per_call * calls, final=True)
        estimator.record(Conversation(), sent, ReceivedAnswer(report, blocks, complete=True))
    cut = estimator.usage(Conversation(), sent, ReceivedAnswer(None, some)).output
    assert cut.value == 100
    with_call = estimator.usage(Conversation(), sent, ReceivedAnswer(None, (*some, *call))).output
    assert with_call.value is not None
    assert abs(with_call.value - (104 + per_call)) <= 1


def test_hidden_reasoning_stays_open_above() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say(WORDS * 9), Stall()], name="openai:o3-mini"))
        result = await cut_after(agent, 9)
        assert result.usage.output.high is None
        assert result.usage.output.low >= 1
        assert result.usage.tokens.reasoning.value is None  # unknown, not none
        assert result.usage.tokens.reasoning.high is None

    asyncio.run(main())


def test_reasoning_is_part_of_the_output() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Think(WORDS * 10), Say(WORDS), Stall()], name="deepseek:deepseek-reasoner"))
        result = await cut_after(agent, 3)
        tokens = result.usage.tokens
        assert tokens.reasoning.value
        assert tokens.output.value > tokens.reasoning.value

    asyncio.run(main())


def test_a_refused_request_costs_nothing_and_a_broken_one_may() -> None:
    async def main() -> None:
        model = ScriptedModel([Fail(RateLimited("no"))], [Drop()], [Say("yes"), Used(5, 2)], then="no")
        result = await Agent(model, retry=Retry(first=0.0)).invoke_async("hi")
        refused, broken, answered = result.usage.entries
        assert refused.usage == TokenUsage(NONE, NONE)
        assert refused.error == "RateLimited"
        assert broken.error == ConnectionFailed.__name__
        assert broken.usage.output.value is None
        assert broken.usage.input.value
        assert answered.ended == "completed"

    asyncio.run(main())


def test_pictures_have_no_upper_bound() -> None:
    async def main() -> None:
        prompt = UserMessage((Text("what is this"), Image(data=b"png"), Document("text/plain", b"plain text")))
        result = await cut_after(Agent(ScriptedModel([Say(WORDS), Stall()])), 1, prompt)
        assert result.usage.input.high is None
        assert result.usage.input.value >= 1000

    asyncio.run(main())


# --- Sums and tables -------------------------------------------------------------------------------------------------


@given(st.lists(figures, min_size=1, max_size=6))
def test_a_sum_holds_the_sum(parts: list[Figure]) -> None:
    whole = total(parts)
    assert whole.low == sum(part.low for part in parts)
    assert whole.high == sum(part.high for part in parts)


@tool
def nothing() -> str:
    """Do nothing."""
    return "done"


def test_the_table() -> None:
    async def main() -> Usage:
        price = Price(Decimal("2.5"), Decimal(10), Decimal("1.25"))
        model = ScriptedModel(
            [Say("Let me look."), Call("nothing"), Used(12_087, 35, cache_read=11_000)],
            [Say(WORDS * 60), Stall()],
            name="openai:gpt-4o",
            price=price,
        )
        agent = Agent(model, tools=[nothing])
        run = agent.start("hi")
        words = 0
        async for event in run:
            words += isinstance(event, TextDelta)
            if words == 150:
                run.cancel()
        return (await run).usage.snapshot()

    usage = asyncio.run(main())
    print("\n" + str(usage))
    lines = str(usage).splitlines()
    assert [line.split("  ")[0].strip() or line.strip().split("  ")[0] for line in lines] == [
        "model calls",
        "input",
        "cache read",
        "output",
        "cost",
    ]
    assert all(len(line) < 100 for line in lines)
    source = "heuristic" if find_spec("splintr") is None else "tokenized"
    assert [line.split()[-1] for line in lines if line.startswith(("input", "output"))] == [source, source]


def test_each_request_has_an_event_with_its_entry() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Call("nothing"), Used(1, 2)], [Say("x"), Used(3, 4)]), tools=[nothing])
        run = agent.start("hi")
        entries = [event.entry async for event in run if isinstance(event, ModelCallEnded)]
        assert tuple(entries) == run.usage.entries

    asyncio.run(main())


# --- A conversation that grows ----------------------------------------------------------------------------------------

_said = st.text('ab {}"ä日\n', min_size=1, max_size=30).filter(str.strip)
_grown = st.one_of(
    st.builds(lambda text: UserMessage((Text(text),)), _said),
    st.builds(lambda text: AssistantMessage((Reasoning(text), ToolCall("call_1", "look", {"at": text}))), _said),
    st.builds(lambda text: ToolMessage((ToolResult("call_1", "look", (Text(text), Image(data=b"x"))),)), _said),
)


@pytest.mark.parametrize("model", ["unheard-of", "gpt-4o"])
@given(messages=st.lists(_grown, min_size=1, max_size=8).map(tuple), learnt=st.integers(0, 7), anew=st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_estimate_that_grows_with_its_conversation_is_that_of_the_whole(
    model: str, messages: tuple[Message, ...], learnt: int, *, anew: bool
) -> None:
    """Also after something was learnt in between, and when the conversation is not the one that it was."""
    calibration = Calibration()
    grown, conversation, preamble = (
        UsageEstimator(model, calibration=calibration),
        Conversation(),
        Preamble("Be brief."),
    )
    for end in (*range(1, len(messages) + 1), *((1,) if anew else ())):
        if end == learnt:
            calibration.learn_spread(model, "message", 7.0)
        sent = SentRequest(messages[:end], preamble)
        whole = UsageEstimator(model, calibration=calibration).input(Conversation(), sent)
        assert grown.input(conversation, sent) == whole
