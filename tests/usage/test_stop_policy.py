"""What a stop does about the request that is under way, and how the bill comes to be known."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal

import pytest

from quiesce import Agent
from quiesce.errors import ConfigurationError, ConnectionFailed
from quiesce.events import AnswerEnd, AnswerStart, ModelCallEnded, RunEnded, TextDelta, UsageDelta
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Say, ScriptedModel, Stall, Used
from quiesce.usage import Price, RequestStopPolicy
from quiesce.usage.figure import Provenance
from quiesce.usage.stop_policy import policy_for

pytestmark = pytest.mark.promise("P6")


class Slow:
    """A model that says one word, waits at a gate, and then says the rest, its usage last."""

    price = Price(Decimal(1), Decimal(2))

    def __init__(self, *, rest: int = 50, stop_policy: str = "drain", report: bool = True) -> None:
        self.name = "bedrock:slow"
        self.stop_policy = stop_policy
        self.gate = asyncio.Event()
        self.said = asyncio.Event()
        self.open = 0
        self.read = 0
        self._rest = rest
        self._report = report

    @asynccontextmanager
    async def stream(self, request):
        self.open += 1
        deltas = self._deltas()
        try:
            yield deltas
        finally:
            self.open -= 1
            await deltas.aclose()

    async def _deltas(self):
        yield AnswerStart("request-1", self.name)
        yield TextDelta("One ")
        self.said.set()
        await self.gate.wait()
        for _ in range(self._rest):
            self.read += 1
            yield TextDelta("word ")
        if self._report:
            yield UsageDelta(11, 222, final=True)
        yield AnswerEnd()


async def stopped_in_the_middle(model: Slow, **options):
    agent = Agent(model, **options)
    run = agent.start("hello")
    await model.said.wait()
    run.cancel("enough")
    return agent, await run


@dataclass
class Counting(Slow):
    """A model that cannot be hashed, as a dataclass cannot, and with a counter that counts words."""

    stop_policy: str = "count"

    def __post_init__(self) -> None:
        super().__init__(stop_policy="count")

    async def count_tokens(self, request: ModelRequest) -> int:
        return 100 + sum(len(message.text.split()) for message in request.messages)


async def test_a_model_that_cannot_be_hashed_counts_too() -> None:
    _, result = await stopped_in_the_middle(Counting())
    usage = await result.usage.final()
    assert (usage.input.value, usage.output.value) == (101, 1)
    assert usage.output.source is Provenance.COUNTED


# --- Draining ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P5", "P6")
@pytest.mark.case("litellm#34147")
@pytest.mark.case("strands#3224")
def test_the_stop_is_at_once_and_the_bill_comes_later() -> None:
    async def main() -> None:
        model = Slow()
        agent, result = await stopped_in_the_middle(model)
        assert result.stop_reason == "cancelled"
        assert result.text == "One "
        assert model.open == 1  # still being read
        (entry,) = result.usage.entries
        assert (entry.ended, entry.provisional) == ("draining", True)
        assert entry.usage.output.holds(222)
        assert entry.usage.output.high is None
        assert "draining for the receipt" in str(result.receipt)

        model.gate.set()
        usage = await result.usage.final()
        (entry,) = usage.entries
        assert (entry.ended, entry.provisional, entry.supersedes) == ("drained", False, True)
        assert (usage.input.value, usage.output.value) == (11, 222)
        assert usage.is_final
        assert usage.cost is not None
        assert usage.cost.value == Decimal("0.000455")
        assert model.open == 0
        assert result.receipt.still_running == ()
        assert result.receipt.usage == usage
        assert agent.usage.output.value == 222
        assert result.text == "One "  # nobody is shown what was only read for the bill
        assert agent.messages == result.messages

    asyncio.run(main())


@pytest.mark.promise("P3", "P6")
def test_readers_see_nothing_of_a_drain() -> None:
    async def main() -> None:
        model = Slow()
        agent = Agent(model)
        run = agent.start("hello")
        reader = run.events()
        await model.said.wait()
        model.gate.set()
        run.cancel()
        events = [event async for event in reader]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == run.messages[-1].text
        assert isinstance(events[-1], RunEnded)
        assert sum(isinstance(event, ModelCallEnded) for event in events) == 1
        assert (await run.usage.final()).output.value == 222

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_an_entry_is_superseded_once() -> None:
    async def main() -> None:
        model = Slow()
        _, result = await stopped_in_the_middle(model)
        model.gate.set()
        usage = await result.usage.final()
        ledger = result.usage._ledger
        assert ledger.supersede(usage.entries[0].id, usage.tokens) is False
        assert ledger.usage == usage

    asyncio.run(main())


@pytest.mark.promise("P5", "P6")
@pytest.mark.parametrize("cap", ["seconds", "bytes"])
def test_a_drain_is_capped(cap: str) -> None:
    async def main() -> None:
        model = Slow(rest=100_000)
        policy = RequestStopPolicy("drain", seconds=0.05) if cap == "seconds" else RequestStopPolicy("drain", bytes=100)
        _, result = await stopped_in_the_middle(model, stop_policy=policy)
        if cap == "bytes":
            model.gate.set()
        usage = await result.usage.final()
        (entry,) = usage.entries
        assert (entry.ended, entry.provisional) == ("hung_up", False)
        assert model.open == 0
        assert model.read < 100
        assert usage.output.holds(222)
        assert usage.output.source is not Provenance.REPORTED

    asyncio.run(main())


@pytest.mark.promise("P5", "P6")
def test_no_more_drains_at_once_than_allowed() -> None:
    async def main() -> None:
        policy = RequestStopPolicy("drain", at_once=2)
        model = Slow()
        agent = Agent(model, stop_policy=policy)
        results = []
        for _ in range(3):
            model.said.clear()
            run = agent.start("hello")
            await model.said.wait()
            run.cancel()
            results.append(await run)
        ended = [result.usage.entries[0].ended for result in results]
        assert ended == ["draining", "draining", "hung_up"]
        assert model.open == 2
        model.gate.set()
        usage = await agent.usage.final()
        assert [entry.ended for entry in usage.entries] == ["drained", "drained", "hung_up"]
        assert model.open == 0

    asyncio.run(main())


@pytest.mark.promise("P1", "P5")
def test_a_kill_does_not_drain() -> None:
    async def main() -> None:
        model = Slow()
        agent = Agent(model)
        run = agent.start("hello")
        await model.said.wait()
        run.cancel(mode="kill")
        result = await run
        assert result.usage.entries[0].ended == "hung_up"
        assert model.open == 0
        assert result.receipt.still_running == ()

    asyncio.run(main())


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P5", "P6")
def test_the_end_of_the_loop_cuts_the_drain() -> None:
    kept = {}

    async def main() -> None:
        model = Slow()
        _, result = await stopped_in_the_middle(model)
        kept.update(model=model, result=result)

    asyncio.run(main())  # which cancels what is left
    assert kept["model"].open == 0
    (entry,) = kept["result"].usage.wait(timeout=1).entries
    assert (entry.ended, entry.provisional) == ("hung_up", False)
    assert entry.usage.output.holds(222)


@pytest.mark.promise("P6")
def test_a_drain_that_learns_nothing_still_counts_what_it_read() -> None:
    async def main() -> None:
        model = Slow(report=False)
        _, result = await stopped_in_the_middle(model)
        before = result.usage.output
        model.gate.set()
        usage = await result.usage.final()
        assert usage.entries[0].ended == "drained"
        assert usage.output.low > before.low
        assert usage.output.high is not None

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_drain_that_breaks_leaves_the_estimate() -> None:
    class Breaking(Slow):
        async def _deltas(self):
            yield TextDelta("One ")
            self.said.set()
            await self.gate.wait()
            raise OSError("gone")

    async def main() -> None:
        model = Breaking()
        _, result = await stopped_in_the_middle(model)
        model.gate.set()
        usage = await result.usage.final()
        assert usage.entries[0].ended == "hung_up"
        assert usage.output.value

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_sync_users_can_wait_too() -> None:
    agent = Agent(ScriptedModel([Say("hello"), Used(3, 4)]))
    result = agent("hi")
    assert result.usage.wait().output.value == 4


# --- Looking up, and cancelling at the provider --------------------------------------------------------------------


class Asked(ScriptedModel):
    def __init__(self, policy: str, answers: list[UsageDelta | Exception | None]) -> None:
        super().__init__([Say("Some words "), Stall()], name="openrouter:some/model")
        self.stop_policy = policy
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self._usage_answers = iter(answers)

    async def lookup_usage(self, request_id: str) -> UsageDelta | None:
        self.asked.append(request_id)
        answer = next(self._usage_answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cancel_request(self, request_id: str) -> None:
        self.cancelled.append(request_id)


async def cut(model: ScriptedModel, **options):
    agent = Agent(model, **options)
    run = agent.start("hi")
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel()
    return await run


@pytest.mark.promise("P1", "P6")
def test_a_cut_request_is_looked_up() -> None:
    async def main() -> None:
        model = Asked("lookup", [None, UsageDelta(20, 7)])
        result = await cut(model)
        (entry,) = result.usage.entries
        assert (entry.ended, entry.provisional) == ("hung_up", True)
        assert "looking the bill up" in str(result.receipt)
        usage = await result.usage.final()
        assert model.asked == ["openrouter:some/model-1"] * 2
        assert (usage.input.value, usage.output.value, usage.entries[0].ended) == (20, 7, "hung_up")
        assert usage.is_final
        assert usage.entries[0].supersedes

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_look_up_that_fails_leaves_the_estimate() -> None:
    async def main() -> None:
        result = await cut(Asked("lookup", [OSError("no route")]))
        usage = await result.usage.final()
        (entry,) = usage.entries
        assert not entry.provisional
        assert not entry.supersedes
        assert entry.usage.output.value

    asyncio.run(main())


@pytest.mark.promise("P4", "P6")
@pytest.mark.parametrize(
    ("answer", "words"), [(OSError("a secret"), "OSError"), ({"input": 20}, "TypeError"), (UsageDelta("2"), "input")]
)
async def test_a_look_up_that_is_wrong_is_logged_without_its_text(answer, words: str, caplog) -> None:
    usage = await (await cut(Asked("lookup", [answer]))).usage.final()
    assert not usage.is_provisional
    assert usage.output.value
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "secret" not in caplog.text


@pytest.mark.promise("P4", "P6")
@pytest.mark.parametrize("count", ["many", -1, float("nan"), {}])
async def test_a_count_that_is_no_number_is_logged(count, caplog) -> None:
    model = Counting()

    async def count_tokens(_: ModelRequest) -> object:
        return count

    model.count_tokens = count_tokens
    _, result = await stopped_in_the_middle(model)
    usage = await result.usage.final()
    assert not usage.is_provisional
    assert usage.input.source is not Provenance.COUNTED
    assert len(caplog.records) == 1


@pytest.mark.promise("P6")
def test_a_request_is_cancelled_at_the_provider() -> None:
    async def main() -> None:
        model = Asked("cancel_at_provider", [UsageDelta(20, 9)])
        result = await cut(model)
        usage = await result.usage.final()
        assert model.cancelled == ["openrouter:some/model-1"]
        assert usage.entries[0].ended == "cancelled_at_provider"
        assert usage.output.value == 9

    asyncio.run(main())


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P5")
def test_nothing_is_looked_up_when_the_loop_ends() -> None:
    kept = {}

    async def main() -> None:
        model = Asked("lookup", [])
        kept["model"] = model
        run = Agent(model).start("hi")
        kept["run"] = run
        async for event in run:
            if isinstance(event, TextDelta):
                return  # and asyncio.run cancels the run

    asyncio.run(main())
    assert kept["model"].asked == []
    assert kept["run"].usage.entries[0].ended == "hung_up"
    assert not kept["run"].usage.is_provisional


# --- Which policy --------------------------------------------------------------------------------------------------


def test_the_user_decides_then_the_model_then_the_table() -> None:
    assert policy_for("gemini:x").action == "drain"
    assert policy_for("bedrock:x").action == "drain"
    assert policy_for("openrouter:x").action == "lookup"
    assert policy_for("openai:x").action == "hang_up"
    assert policy_for("who:knows").action == "hang_up"
    assert policy_for("openai:x", "drain").action == "drain"
    assert policy_for("openai:x", "drain", "hang_up").action == "hang_up"
    chosen = RequestStopPolicy("drain", seconds=3)
    assert policy_for("openai:x", None, chosen) is chosen


@pytest.mark.parametrize("make", [lambda: RequestStopPolicy("vanish"), lambda: RequestStopPolicy("drain", seconds=0)])
def test_a_policy_that_makes_no_sense_is_refused(make) -> None:
    with pytest.raises(ConfigurationError):
        make()
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel(), stop_policy="vanish")


@pytest.mark.promise("P1")
def test_final_is_bounded() -> None:
    async def main() -> None:
        model = Slow()
        _, result = await stopped_in_the_middle(model)
        began = time.monotonic()
        usage = await result.usage.final(timeout=0.01)
        assert time.monotonic() - began < 5
        assert usage.is_provisional
        model.gate.set()
        await result.usage.final()

    asyncio.run(main())


class _Breaks(Slow):
    """Its stream ends without an end of the answer, or breaks after it."""

    def __init__(self, *, after_the_end: bool) -> None:
        super().__init__(rest=2)
        self._after_the_end = after_the_end

    async def _deltas(self):
        async for delta in super()._deltas():
            if isinstance(delta, AnswerEnd) and not self._after_the_end:
                return
            yield delta
        raise ConnectionFailed("The connection was lost.")


@pytest.mark.parametrize("after_the_end", [True, False])
def test_a_stream_that_was_read_to_its_end_is_drained_however_it_ended(after_the_end: bool) -> None:
    async def main() -> None:
        model = _Breaks(after_the_end=after_the_end)
        _, result = await stopped_in_the_middle(model)
        model.gate.set()
        usage = await result.usage.final()
        assert usage.entries[0].ended == "drained"
        assert usage.output.value == 222

    asyncio.run(main())
