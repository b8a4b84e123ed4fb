"""Bad prompts and configurations: each gets a clear, typed error, and nothing is changed."""

import threading

import pytest

from quiesce import Agent, Conversation, Image, Text, UserMessage
from quiesce.errors import ConfigurationError, InvalidConversation, InvalidPrompt, UnknownModel
from quiesce.messages import AssistantMessage, CutNote
from tests.core.kit import scripted

pytestmark = pytest.mark.promise("P2", "P7")


@pytest.mark.parametrize(
    "prompt",
    [
        3,
        None,
        b"x",
        {},
        "",
        "  ",
        "\ud800",
        [],
        [3],
        [Text("")],
        [Image()],
        UserMessage(()),
        UserMessage((CutNote("x"),)),
    ],
)
async def test_a_prompt_of_the_wrong_type_changes_nothing(prompt):
    agent = Agent(scripted())
    with pytest.raises(InvalidPrompt, match="The conversation is unchanged"):
        agent.start(prompt)
    assert agent.messages == ()
    assert agent.active_runs == ()
    assert (await agent.invoke_async("fine")).stop_reason == "end_turn"


@pytest.mark.parametrize("prompt", ["x", ["a", Text("b")], (Text("a"), Image(url="u")), UserMessage((Text("x"),))])
async def test_prompts_that_can_be_sent(prompt):
    assert (await Agent(scripted()).invoke_async(prompt)).stop_reason == "end_turn"


@pytest.mark.feature
def test_agents_that_cannot_work():
    model = scripted()
    with pytest.raises(UnknownModel):
        Agent("nobody:model")
    for options in (
        {"cut_note": " "},
        {"tool_execution": "sideways"},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": 10**400},
        {"output_type": threading.Lock},
        {"hooks": [lambda event: None]},
        {"hooks": [3]},
        {"hooks": [lambda: None]},
    ):
        with pytest.raises(ConfigurationError):
            Agent(model, **options)
    with pytest.raises(ConfigurationError, match="is not a model"):
        Agent(3)
    with pytest.raises(InvalidConversation):
        Conversation((AssistantMessage((Text("hi"),)),))
    with pytest.raises(InvalidConversation, match="must end with an assistant"):
        Conversation((UserMessage((Text("hi"),)),))
    with pytest.raises(ConfigurationError, match="needs a price"):
        from quiesce import Limits

        Agent(model, limits=Limits(cost="0.5"))("go")
