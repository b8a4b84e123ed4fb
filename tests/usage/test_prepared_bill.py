"""What is estimated of a request while the provider works makes its bill cheaper, and changes no figure of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from quiesce import Conversation
from quiesce.billing.drain import DrainPool
from quiesce.billing.request_bill import BillingTerms, RequestBill
from quiesce.conversation.answer import AnswerBuilder
from quiesce.errors import StreamBroken
from quiesce.events import AnswerEnd, ReasoningDelta, TextDelta, ToolCallStart, UsageDelta
from quiesce.messages import AssistantMessage, Message, Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import ScriptedModel
from quiesce.usage import Ledger, LedgerEntry, Price
from quiesce.usage.budget import BudgetUse, spending
from quiesce.usage.estimate.content import Preamble
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.stop_policy import RequestStopPolicy

from .generated_requests import prose

pytestmark = pytest.mark.promise("P6")
MODELS = ("openai-chat:bench", "openai:gpt-5", "anthropic:claude-sonnet-4-5", "xai:grok-4", "bedrock:amazon.nova-pro")
PRICE = Price("3", "15", "0.3", "3.75")


def said(chance: random.Random, words: int) -> UserMessage:
    return UserMessage((Text(prose(chance, words)),))


def stream(chance: random.Random, answer: AnswerBuilder) -> None:
    """A part of an answer, with reports of its usage now and then."""
    for _ in range(chance.randrange(4)):
        match chance.randrange(4):
            case 0:
                answer.add(ReasoningDelta(prose(chance, 5)))
            case 1:
                answer.add(ToolCallStart(f"c{chance.random()}", "look"))
            case 2:
                answer.add(UsageDelta(input=chance.choice([None, 50]), output=chance.randrange(50)))
            case _:
                answer.add(TextDelta(prose(chance, 20)))


def conversation_of_cuts(seed: int, prepare: Callable[[RequestBill], None]) -> list[LedgerEntry]:
    """The entries of a conversation whose requests are cut, fail, or are answered, with and without a report."""
    chance = random.Random(seed)
    estimator = UsageEstimator(chance.choice(MODELS), price=chance.choice([None, PRICE]))
    terms = BillingTerms(ScriptedModel("x"), estimator, RequestStopPolicy(), DrainPool())
    conversation, ledger, other = Conversation(), Ledger(), Conversation()
    messages: list[Message] = [said(chance, chance.choice([3, 60, 5000]))]
    entries: list[LedgerEntry | None] = []
    for turn in range(5):
        bill = RequestBill("run", ledger, conversation, lambda: None, terms)
        answer = AnswerBuilder()
        bill.open(ModelRequest(tuple(messages), chance.choice([None, "Be brief."])), answer, turn=turn, attempt=1)
        prepare(bill)
        stream(chance, answer)
        if chance.random() < 0.3:  # another run of the agent teaches something meanwhile
            beside, learnt = RequestBill("other", Ledger(), other, lambda: None, terms), AnswerBuilder()
            beside.open(ModelRequest((said(chance, 9),)), learnt, turn=1, attempt=1)
            learnt.add(TextDelta(prose(chance, 40)))
            learnt.add(UsageDelta(input=30, output=chance.randrange(40, 90), final=True))
            learnt.add(AnswerEnd("max_tokens"))
            entries.append(beside.close("completed"))
        if chance.random() < 0.3:
            answer.add(UsageDelta(input=chance.randrange(10, 900), output=chance.randrange(1, 90), final=True))
            answer.add(AnswerEnd("max_tokens"))
            entries.append(bill.close("completed"))
        else:
            entries.append(bill.close("hung_up") if chance.random() < 0.8 else bill.close("failed", StreamBroken("x")))
        messages += [AssistantMessage((Text(prose(chance, 20)),)), said(chance, chance.choice([3, 60]))]
    return [entry for entry in entries if entry is not None]


@pytest.mark.parametrize("seed", range(60))
def test_a_request_that_was_estimated_in_advance_costs_the_same(seed: int) -> None:
    assert conversation_of_cuts(seed, RequestBill.prepare) == conversation_of_cuts(seed, lambda _: None)


def test_the_input_is_estimated_once_unless_something_was_learnt() -> None:
    estimator, conversation = UsageEstimator(MODELS[0]), Conversation()
    sent = SentRequest((UserMessage((Text("Go on."),)),), Preamble(None))
    estimator.prepare(conversation, sent)
    prepared = sent.estimate
    assert prepared is not None
    assert estimator.input(conversation, sent) is prepared.figure
    estimator.calibration.learn_spread(MODELS[0], "message", 40)
    assert estimator.input(conversation, sent) != prepared.figure


@pytest.mark.parametrize("messages", [("word " * 5000,), ("word",) * 9])
def test_what_takes_long_is_not_estimated_in_advance(messages: tuple[str, ...]) -> None:
    estimator = UsageEstimator(MODELS[0])
    sent = SentRequest(tuple(UserMessage((Text(each),)) for each in messages), Preamble(None))
    estimator.prepare(Conversation(), sent)
    assert sent.estimate is None


def test_a_budget_counts_costs_beside_requests_without_a_price() -> None:
    use, sums = BudgetUse(), []
    for number, price in enumerate((None, PRICE, None, PRICE)):
        estimator = UsageEstimator(MODELS[0], price=price)
        bill = RequestBill(
            f"run{number}",
            Ledger(),
            Conversation(),
            lambda: None,
            BillingTerms(ScriptedModel("x"), estimator, RequestStopPolicy(), DrainPool()),
        )
        answer = AnswerBuilder()
        bill.open(ModelRequest((UserMessage((Text("Go."),)),)), answer, turn=1, attempt=1)
        answer.add(UsageDelta(input=1000, output=100, final=True))
        entry = bill.close("hung_up")
        assert entry is not None
        use.note(entry.id, spending(entry))
        use.note(entry.id, spending(entry))  # a better figure replaces the one before
        sums.append(str(use.cost.normalize()))
    assert sums == ["0", "0.0045", "0.0045", "0.009"]
