"""Azure: a deployment has any name. The model that its answers name has the price and the vocabulary.

https://learn.microsoft.com/azure/ai-foundry/openai/reference: `model` of each chunk is the model, not the deployment.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from quiesce import Agent, Conversation
from quiesce.messages import Text, UserMessage
from quiesce.models.base import Model
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.usage.estimate.answer_count import Block
from quiesce.usage.estimate.content import Preamble
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.pieces import Pieces
from quiesce.usage.estimate.received import ReceivedAnswer
from quiesce.usage.estimate.vocabulary import vocabulary_of
from quiesce.usage.figure import Provenance
from quiesce.usage.price_list import published_price

from ..providers.recordings import ANSWER, KEY, OPENAI_CHAT
from ..providers.wire import Play, chunk, head, sse, streamed, wire

pytestmark = pytest.mark.promise("P6")


def recorded(model: str) -> list[bytes]:
    named = json.dumps(model).encode()
    answer = [event.replace(b'"gpt-4o-mini"', named) for event in OPENAI_CHAT.answer.events]
    # https://github.com/microsoft/autogen/issues/6465: the first chunk is about the prompt, and names no model.
    return [sse({"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}), *answer]


def azure(url: str, deployment: str) -> Model:
    return OpenAIChat(deployment, server="azure", base_url=f"{url}/openai/v1", api_key=KEY)


def test_the_price_is_that_of_the_model_that_answers() -> None:
    async def main() -> None:
        async with wire(otherwise=streamed(recorded("gpt-4o-mini-2024-07-18"), "text/event-stream")) as server:
            for deployment in ("blue-sky", "gpt-4"):  # a name that says nothing, and one that says something else
                agent = Agent(azure(server.url, deployment))
                result = await agent.invoke_async("What colour?")
                price = published_price("azure:gpt-4o-mini-2024-07-18")
                assert price is not None
                assert result.cost is not None
                assert result.cost.value == price.money(25, 5, 0, 12)
                assert result.usage.entries[0].model == f"azure:{deployment}"

    asyncio.run(main())


@pytest.mark.parametrize(("served", "source"), [("gpt-4o-2024-08-06", "tokenized"), ("grok-4-fast", "heuristic")])
def test_a_cut_answer_is_counted_in_the_vocabulary_of_the_model_that_answers(served: str, source: str) -> None:
    async def main() -> None:
        events = recorded(served)
        body = b"".join(chunk(event) for event in events[:5])
        stalled = Play(head("text/event-stream") + body, then="stall")
        async with wire(stalled) as server:
            agent = Agent(azure(server.url, "blue-sky"))
            run = agent.start("What colour?")
            said: list[str] = []
            whole = asyncio.Event()

            def listen(event: object) -> None:
                said.append(getattr(event, "text", ""))
                if "".join(said) == ANSWER:
                    whole.set()

            run.tap(listen)
            await whole.wait()
            run.cancel()
            receipt = await run.stopped()
            await run.usage.final()  # the vocabulary is loaded with the first stop
            figure = receipt.usage.entries[0].usage.output
            assert figure.source is Provenance(source)
            assert figure.low <= 12 + 3

    asyncio.run(main())


def test_other_servers_keep_the_name_that_was_given() -> None:
    """A llama.cpp server says "gpt-3.5-turbo" whatever it runs."""

    async def main() -> None:
        async with wire(otherwise=streamed(recorded("gpt-4o-mini"), "text/event-stream")) as server:
            model = OpenAIChat("some-model", server="together", base_url=f"{server.url}/v1", api_key=KEY)
            result = await Agent(model).invoke_async("What colour?")
            assert result.cost is None

    asyncio.run(main())


def test_what_is_known_of_the_model_that_answers_counts_and_not_the_name_of_the_deployment() -> None:
    """Also when the input was estimated before the first answer named the model."""
    estimator = UsageEstimator("azure:blue-sky", is_deployment=True)
    sent = SentRequest((UserMessage((Text("What colour?"),)),), Preamble(None))
    cut = ReceivedAnswer(None, (Block("text", Pieces(["The sky is blue today."])),))
    before = estimator.usage(Conversation(), sent, cut)
    assert before.output.source is Provenance.HEURISTIC
    assert before.output.high is not None
    estimator.served_by("gpt-5-mini-2025-08-07")
    assert vocabulary_of("azure:gpt-5-mini") is not None
    after = estimator.usage(Conversation(), sent, cut)
    assert after.input.source is Provenance.TOKENIZED
    assert after.output.high is None  # this model thinks unseen
    estimator.served_by("grok-4-fast")
    assert estimator.input(Conversation(), sent).value in range(180, 260)  # with the prompt that xAI adds
