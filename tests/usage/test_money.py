"""Prices, what a figure costs by them, and budgets."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce import Agent, Limits
from quiesce.errors import ConfigurationError
from quiesce.models.scripted import Say, ScriptedModel
from quiesce.usage import Figure, Price, Provenance, Tier
from quiesce.usage.prices import cost_of
from tests.usage.kit import WORDS, figures

pytestmark = pytest.mark.promise("P6")


# --- Prices ----------------------------------------------------------------------------------------------------------


def test_prices_that_are_no_decimals() -> None:
    """With text, the end of a run failed, and its readers waited for ever."""
    assert Price("1", 10, 0.3) == Price(Decimal(1), Decimal(10), Decimal("0.3"))
    result = Agent(ScriptedModel(Say(WORDS), price=Price("1", "10")))("Go")
    assert result.usage.cost.value > 0
    with pytest.raises(ConfigurationError, match="'cheap' is no price"):
        Price("cheap", "10")
    for wrong in (float("nan"), "NaN", Decimal("sNaN"), float("inf")):
        with pytest.raises(ConfigurationError, match="is no price"):
            Price(1, wrong)


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


_rates = st.none() | st.sampled_from([Decimal(0), Decimal("0.3"), Decimal(3), Decimal("3.75")])


@st.composite
def _cached(draw: st.DrawFn, tokens: int) -> Figure:
    """What is known of the cached part of an input: nothing, all, or that it is at least so much."""
    low = draw(st.sampled_from([0, tokens // 3, tokens]))
    kind = draw(st.sampled_from(["unknown", "reported", "at least", "at most"]))
    return {
        "unknown": Figure(None, 0, None, Provenance.UNKNOWN),
        "reported": Figure(low, low, low, Provenance.REPORTED),
        "at least": Figure(low, low, None, Provenance.PARTIAL),
        "at most": Figure(None, 0, low, Provenance.UNKNOWN),
    }[kind]


@given(figures | st.just(Figure(40, 40, 40, Provenance.REPORTED)), figures, _rates, _rates, st.data())
def test_the_bounds_of_a_cost_are_those_of_all_its_corners(
    sent: Figure, out: Figure, read_rate, write_rate, data
) -> None:
    """However much of the input is cached, and in which tier its price is: no wider, and no narrower."""
    price = Price(Decimal(3), Decimal(15), read_rate, write_rate, tiers=(Tier(2500, Decimal(6), Decimal(20)),))
    read, written = data.draw(_cached(sent.low)), data.draw(_cached(sent.low))
    cost = cost_of(price, input=sent, cache_read=read, cache_write=written, output=out)

    def corners(tokens: int, words: int) -> list[Decimal]:
        reads = {read.low, tokens if read.high is None else min(read.high, tokens)}
        writes = {written.low, tokens if written.high is None else min(written.high, tokens)}
        return [price.money(tokens, some, min(more, max(0, tokens - some)), words) for some in reads for more in writes]

    value = price.money(sent.value, read.value or 0, written.value or 0, out.value)
    assert cost.value == value
    assert cost.low == min(*corners(sent.low, out.low), value)
    assert cost.high == max(*corners(sent.high, out.high), value)


# --- Budgets ---------------------------------------------------------------------------------------------------------


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
