"""The figures of a ledger: estimates that hold the truth, prices, budgets, and the table."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce import Agent, Conversation, Limits, tool
from quiesce.errors import ConfigurationError, ConnectionFailed, RateLimited
from quiesce.events import AnswerEnd, AnswerStart, ModelCallEnded, TextDelta, UsageDelta
from quiesce.messages import Document, Image, Text, UserMessage
from quiesce.models.scripted import Call, Drop, Fail, Raw, Say, ScriptedModel, Stall, Think, Used
from quiesce.retry import Retry
from quiesce.usage import Calibration, Figure, Price, Provenance, Tier, Usage, register_vocabulary
from quiesce.usage.accounts import Accounts
from quiesce.usage.answer_tally import Block
from quiesce.usage.books import Books
from quiesce.usage.content import Preamble
from quiesce.usage.estimate import Heard, Sent
from quiesce.usage.figure import NONE, reported, total
from quiesce.usage.ledger import Ledger, TokenUsage
from quiesce.usage.prices import cost_of

pytestmark = pytest.mark.promise("P6")

WORDS = "the run that is stopped leaves what is true behind it "


async def cut_after(agent: Agent, words: int, prompt="hi"):
    run = agent.start(prompt)

    def count(event) -> None:
        nonlocal words
        words -= isinstance(event, TextDelta)
        if words == 0:
            run.cancel()

    run.tap(count)
    return await run


# --- After a stop --------------------------------------------------------------------------------------------------


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
        agent._setup.drains.cut()
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
    accounts = Accounts("mine", tokenizer="words")
    sent = Sent((UserMessage((Text("hi"),)),), Preamble(None))
    call = (Block("arguments", ["a b c"], "look "),)
    for blocks, calls in (((Block("text", ["w " * 30]),), 0), (call, 1), ((Block("text", ["w " * 300]),), 0)):
        words = sum(len(f"{block.name}{''.join(block.parts)}".split()) for block in blocks)
        report = UsageDelta(10, words + end + per_call * calls, final=True)
        accounts.record(Conversation(), sent, Heard(report, blocks, complete=True))
    cut = accounts.usage(Conversation(), sent, Heard(None, (Block("text", ["w " * 100]),))).output
    assert cut.value == 100
    with_call = accounts.usage(Conversation(), sent, Heard(None, (Block("text", ["w " * 100]), *call))).output
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


# --- Live ----------------------------------------------------------------------------------------------------------


def test_usage_is_live() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say(WORDS * 40)], [Say("two"), Used(3, 1)]))
        run = agent.start("hi")
        seen = []
        async for event in run:
            if isinstance(event, TextDelta):
                seen.append(run.usage.output.value)
        assert seen == sorted(seen)
        assert seen[0] < seen[-1]
        await agent.invoke_async("again")
        assert agent.usage.calls == 2
        assert len({entry.run_id for entry in agent.usage.entries}) == 2
        assert run.usage.calls == 1

    asyncio.run(main())


def test_books_show_what_runs_have_used_as_it_is() -> None:
    books, ledger = Books(), Ledger()
    below = Ledger(ledger)
    books.open(ledger)
    books.open(below)  # a part of the other one already
    entry = below.open(run_id="r", model="m", turn=1, attempt=1)
    assert books.usage.calls == 1
    below.update(entry, TokenUsage(reported(1), reported(2)), ended="completed")
    assert books.usage.output.value == 2
    below.expect(entry)
    books.close(ledger)
    assert len(books.expected()) == 1
    below.supersede(entry, TokenUsage(reported(1), reported(5)))
    below.settle(entry)
    assert books.expected() == ()
    assert books.usage.output.value == 5
    assert books.usage.calls == 1


def test_books_that_grow_old_keep_the_sum_and_the_newest_entries() -> None:
    books = Books(kept=10)
    price = Price(Decimal(1), Decimal(2))
    for number in range(100):
        ledger = Ledger()
        books.open(ledger)
        entry = ledger.open(run_id=f"r{number}", model="m", turn=1, attempt=1)
        ledger.update(entry, TokenUsage(reported(3), reported(7)), price=price, ended="completed")
        books.close(ledger)
        usage = books.usage
        assert usage.calls == number + 1
        assert usage.input == reported(3 * usage.calls)
        assert usage.output == reported(7 * usage.calls)
        assert usage.cost is not None
        assert usage.cost.value == Decimal(17) * usage.calls / 1_000_000
        assert usage.is_final
        assert len(usage.entries) <= 10
        assert usage.entries[-1].run_id == f"r{number}"


# --- Learning ------------------------------------------------------------------------------------------------------


def test_calibration_learns_and_can_be_kept() -> None:
    async def main() -> None:
        said = WORDS * 30
        tokens = len(said) // 3  # a vocabulary that nobody knows
        steps = [Say(said), Used(100, tokens)]
        agent = Agent(ScriptedModel(steps, steps, steps, [Say(said, chunk=300), Stall()]))
        for _ in range(3):
            await agent.invoke_async("go on")
        kept = Calibration.load(agent.calibration.dump())
        fresh = Agent(ScriptedModel([Say(said, chunk=300), Stall()]), calibration=kept)
        naive = Agent(ScriptedModel([Say(said, chunk=300), Stall()]))
        truth = tokens  # the last piece came with the stop
        for each, source in ((agent, "calibrated"), (fresh, "calibrated"), (naive, "heuristic")):
            output = (await cut_after(each, 5)).usage.output
            assert output.source == source
            assert output.holds(truth)
            if source == "calibrated":
                assert abs(output.value - truth) < 0.02 * truth
                assert output.high - output.low < truth

    asyncio.run(main())


def test_calibration_does_not_grow_with_every_new_instruction() -> None:
    calibration = Calibration()
    for number in range(500):
        calibration.learn_spread("m", f"preamble {number}", number)
        calibration.learn_spread("m", "message", 4)
    assert len(calibration.dump()) < 10_000
    assert calibration.spread("m", "preamble 499") is not None
    assert calibration.spread("m", "message") is not None


def test_the_input_starts_from_the_last_report() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("Yes."), Used(5000, 2)], [Say(WORDS * 9), Stall()], name="openai:gpt-4o")
        agent = Agent(model, instructions="x" * 40)
        await agent.invoke_async("first")
        result = await cut_after(agent, 2, "second prompt of a few words")
        figure = result.usage.input
        assert 5000 < figure.low <= figure.value <= figure.high < 5060

    asyncio.run(main())


def test_another_conversation_has_no_anchor() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("Yes."), Used(5000, 2)], [Say(WORDS * 9), Stall()], name="openai:gpt-4o")
        agent = Agent(model)
        await agent.invoke_async("first")
        agent.clear()
        result = await cut_after(agent, 2, "second")
        assert result.usage.entries[0].usage.input.low < 5000

    asyncio.run(main())


@pytest.mark.case("litellm#37185")
def test_a_vocabulary_that_is_off_is_corrected() -> None:
    accounts, talk = Accounts("custom:tuned", tokenizer="o200k_base"), Conversation()
    sent = Sent((UserMessage((Text("hi"),)),), Preamble(None))
    blocks = (Block("text", [WORDS * 40]),)
    for _ in range(3):
        accounts.record(talk, sent, Heard(UsageDelta(9, 880, final=True), blocks, complete=True))
    usage = accounts.usage(talk, sent, Heard(None, blocks))
    assert usage.output.source is Provenance.CALIBRATED
    assert abs(usage.output.value - 880) < 10


def test_a_slow_vocabulary_counts_while_the_answer_is_streamed() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text.split())

    register_vocabulary("slow words", count, slow=True)

    async def main() -> None:
        model = ScriptedModel([Say(WORDS * 200, chunk=7), Stall()])
        model.tokenizer = "slow words"
        run = Agent(model).start("hi")
        left = len(WORDS * 200) // 7

        def cut(event) -> None:
            nonlocal left
            left -= isinstance(event, TextDelta)
            if left == 0:
                counted.clear()
                run.cancel()

        run.tap(cut)
        result = await run
        assert abs(result.usage.output.value - 2200) <= 2
        assert sum(counted) < 500  # what was left to count in the moment of the stop

    asyncio.run(main())


# --- Prices --------------------------------------------------------------------------------------------------------


def test_published_prices() -> None:
    pytest.importorskip("genai_prices")
    from quiesce.usage.price_list import published_price

    price = published_price("anthropic:claude-sonnet-4-5")
    assert price is not None
    assert price.cache_read < price.input < price.cache_write
    assert published_price("ollama:llama3.2") is None
    assert published_price("scripted") is None
    assert published_price("openai:no-such-model-at-all") is None


def test_published_prices_agree_with_the_list() -> None:
    prices = pytest.importorskip("genai_prices")
    from quiesce.usage.price_list import published_price

    for provider, model in (("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-pro"), ("openai", "gpt-4o")):
        for tokens in (1_000, 250_000):
            listed = prices.calc_price(
                prices.Usage(input_tokens=tokens, cache_read_tokens=400, output_tokens=70), model, provider_id=provider
            )
            price = published_price(f"{provider}:{model}")
            assert price.money(tokens, 400, 0, 70) == listed.total_price


def test_tiers_hold_for_the_whole_request() -> None:
    price = Price(Decimal(1), Decimal(1), tiers=(Tier(100, Decimal(2), Decimal(3)),))
    assert price.money(100, 0, 0, 0) == Decimal("0.0001")
    assert price.money(101, 0, 0, 1) == Decimal("0.000205")


figures = st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000)).map(
    lambda three: Figure(sorted(three)[1], min(three), max(three), Provenance.TOKENIZED)
)


@given(figures, figures, st.data())
def test_a_cost_holds_every_cost_that_its_figures_hold(sent: Figure, out: Figure, data) -> None:
    price = Price(
        Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"), tiers=(Tier(2500, Decimal(6), Decimal(20)),)
    )
    unknown = Figure(None, 0, sent.high, Provenance.UNKNOWN)
    cost = cost_of(price, input=sent, cache_read=unknown, cache_write=unknown, output=out)
    tokens = data.draw(st.integers(sent.low, sent.high))
    read = data.draw(st.integers(0, tokens))
    written = data.draw(st.integers(0, tokens - read))
    owed = price.money(tokens, read, written, data.draw(st.integers(out.low, out.high)))
    assert cost.low <= owed <= cost.high
    assert cost.low <= cost.value <= cost.high


# --- Budgets -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P1", "P6")
@pytest.mark.parametrize("limit", ["output_tokens", "tokens", "cost"])
def test_a_budget_cuts_inside_an_answer(limit: str) -> None:
    price = Price(Decimal(0), Decimal(1_000_000))
    limits = {"output_tokens": Limits(output_tokens=100), "tokens": Limits(tokens=150), "cost": Limits(cost=100)}[limit]

    async def main() -> None:
        model = ScriptedModel([Say(WORDS * 500, chunk=4)], name="openai:gpt-4o", price=price)
        result = await Agent(model, limits=limits).invoke_async("hi")
        assert result.stop_reason == "limit"
        output = result.usage.output.value
        most = 150 if limit == "tokens" else 100
        assert most * 0.85 <= output <= most + 3

    asyncio.run(main())


def test_a_budget_counts_what_was_sent() -> None:
    async def main() -> None:
        model = ScriptedModel([Say(WORDS * 500, chunk=4)], name="openai:gpt-4o")
        result = await Agent(model, limits=Limits(tokens=400)).invoke_async(WORDS * 30)
        assert result.stop_reason == "limit"
        assert result.usage.output.value < 110

    asyncio.run(main())


def test_a_budget_of_money_needs_a_price() -> None:
    with pytest.raises(ConfigurationError, match=r"quiesce\[prices\]"):
        Agent(ScriptedModel("x"), limits=Limits(cost="0.50"))("hi")
    pytest.importorskip("genai_prices")
    Agent(ScriptedModel("x", name="openai:gpt-4o"), limits=Limits(cost="0.50"))("hi")


# --- Sums and tables -----------------------------------------------------------------------------------------------


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
    assert "tokenized" in str(usage) or "heuristic" in str(usage)


def test_each_request_has_an_event_with_its_entry() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Call("nothing"), Used(1, 2)], [Say("x"), Used(3, 4)]), tools=[nothing])
        run = agent.start("hi")
        entries = [event.entry async for event in run if isinstance(event, ModelCallEnded)]
        assert tuple(entries) == run.usage.entries

    asyncio.run(main())
