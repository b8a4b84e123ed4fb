"""Going on with an answer that was cut, in the model's own words, where its provider allows that."""

from __future__ import annotations

import pytest

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.events import TextDelta
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.providers.anthropic import Anthropic
from quiesce.models.providers.bedrock import Bedrock
from quiesce.models.providers.openai_chat import OpenAIChat

from .recordings import ANTHROPIC
from .test_hang_up import endless, first_words
from .test_local import needs_llamacpp, weights
from .wire import wire

pytestmark = pytest.mark.promise("P2", "P3")
__all__ = ["weights"]  # a fixture

# From the provider's migration guides: models from 4.6 on answer a prefilled message with 400.
CLAUDES = {
    "claude-3-haiku-20240307": True,
    "claude-3-5-sonnet-20241022": True,
    "claude-3-7-sonnet-latest": True,
    "claude-opus-4-20250514": True,
    "claude-opus-4-1-20250805": True,
    "claude-sonnet-4-5-20250929": True,
    "claude-haiku-4-5": True,
    "claude-sonnet-4-6": False,
    "claude-opus-4-6": False,
    "claude-opus-4-7": False,
    "claude-sonnet-5": False,
    "claude-next": False,
}


@pytest.mark.parametrize(("model", "takes_it"), CLAUDES.items())
def test_which_claude_takes_a_prefilled_answer(model: str, takes_it: bool) -> None:
    assert Anthropic(model, api_key="k").supports_prefill is takes_it
    assert Bedrock(f"us.anthropic.{model}-v1:0", api_key="k", region="us-east-1").supports_prefill is takes_it


def test_thinking_rules_it_out() -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert not Anthropic("claude-sonnet-4-5", api_key="k", extra_body=thinking).supports_prefill


def test_other_models_do_not_take_it() -> None:
    assert not Bedrock("amazon.nova-pro-v1:0", api_key="k", region="us-east-1").supports_prefill
    assert not OpenAIChat("gpt-4o", api_key="k").supports_prefill


def test_vllm_is_told_that_the_answer_goes_on() -> None:
    model = OpenAIChat("qwen2.5-7b", server="vllm")
    asked = UserMessage((Text("Count."),))
    begun = AssistantMessage((Text("One, two,", cut=True),), cut=True)
    body = model.body(ModelRequest((asked, begun)))
    assert body["continue_final_message"]
    assert not body["add_generation_prompt"]
    assert body["messages"][-1] == {"role": "assistant", "content": "One, two,"}
    assert "continue_final_message" not in model.body(ModelRequest((asked,)))


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-6"])
async def test_claude_goes_on_where_it_was_cut(model: str) -> None:
    async with wire(endless(ANTHROPIC), ANTHROPIC.answer.response) as server:
        agent = Agent(Anthropic(model, base_url=server.url, api_key="k"))
        run = agent.start("What colour?")
        await first_words(run)
        run.cancel()
        await run.stopped()
        result = await agent.continue_async()
        last = server.requests[1].json["messages"][-1]
        assert last["role"] == ("assistant" if CLAUDES[model] else "user")
        assert not faults(agent.messages)
        if CLAUDES[model]:
            assert not last["content"][-1]["text"].endswith(" ")
            assert [type(each) for each in agent.messages] == [UserMessage, AssistantMessage]
            assert result.text.startswith("The sky")


@needs_llamacpp
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("weights")
async def test_a_real_model_goes_on_where_it_was_cut() -> None:
    from quiesce.models.providers.local import Local

    prompt = "Count from one to thirty in words, separated by commas."
    settings = {"temperature": 0, "max_tokens": 40}
    whole = (await Agent(Local(), settings=settings).invoke_async(prompt)).text
    agent = Agent(Local(), settings=settings)
    run = agent.start(prompt)
    pieces = 0
    async for event in run.events():
        pieces += isinstance(event, TextDelta)
        if pieces == 12:
            run.cancel()
    cut = (await run).text
    assert whole.startswith(cut.rstrip())
    result = await agent.continue_async()
    assert result.text.startswith(cut.rstrip())
    # The same words as if nobody had stopped it: it does not begin again.
    assert result.text[: len(whole)].split()[: len(cut.split()) + 3] == whole.split()[: len(cut.split()) + 3]
