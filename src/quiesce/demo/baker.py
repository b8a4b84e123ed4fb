"""The agent of the demo: a baker who plans a market day, with a scripted model in place of a real one.

The model reads the conversation in each request, as a real one would, so its answer after a stop depends on what the
stop left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Final

from ..agent import Agent, AnyAgent
from ..events import Delta
from ..messages import AssistantMessage, Message, Outcome, ToolMessage, ToolResult, UserMessage
from ..models.base import ModelRequest
from ..models.scripted import Call, Say, ScriptedModel, Step, Used
from ..tools.context import ToolContext
from ..tools.tool import tool
from ..usage.prices import Price

FIRST_PROMPT: Final = "It is market day tomorrow. What should we bake?"

OPENING: Final = (
    "Good question. Before I promise anybody a cake I want to know two things: what the sky will do, "
    "and whether the old oven gets hot enough. I will ask about both at the same time.\n"
)
PLAN: Final = (
    "Here is the plan.\n"
    "04:30 - Light the oven and start the rye. Rain until ten means people come hungry and late, and rye does not mind "
    "waiting.\n"
    "06:00 - Cinnamon knots, four trays. Wet mornings sell cinnamon; not one customer has walked past that smell with "
    "an umbrella in one hand and a free hand left over.\n"
    "08:00 - Open the stall. Keep the knots under the lid and the lid slightly open, which is not an accident.\n"
    "10:00 - The sun comes out. Bring the lemon cakes to the front, and act as if this had been the plan all along.\n"
    "12:30 - Sell what is left at half price, keep two knots back for the baker, and let the oven come to rest.\n"
    "That is eleven trays, one person and no miracles. I would bake it."
)
AFTERWARDS: Final = (
    "The plan stands, and the dough is patient. If you want a reason: a good bakery is one that can stop at any moment "
    "and still have something true on the shelf. Ask me anything else, or let the oven cool."
)
GO_ON: Final = frozenset({"", "go on", "continue", "and", "more", "carry on"})


@tool
async def check_weather(town: str, context: ToolContext) -> str:
    """The weather of tomorrow.

    Args:
        town: where the market is
    """
    for step in ("ringing the harbour", "the harbour is looking out of the window", "writing it down"):
        context.report(step)
        await asyncio.sleep(0.7)
    return f"{town}: rain until ten, then sun. Wind from the west, enough for one umbrella."


@tool
def heat_oven(degrees: int, context: ToolContext) -> str:
    """Heat the oven and see how far it gets. It blocks, as old ovens do.

    Args:
        degrees: the temperature to reach
    """
    for reached in range(40, degrees + 1, 30):
        context.report(f"{reached} °C")
        time.sleep(0.55)
    return f"The oven reached {degrees} °C."


class Baker:
    """A scripted model in the role of the baker."""

    def __init__(self, pace: float = 1.0) -> None:
        self.name: Final = "scripted-baker"
        self.price: Final = Price(input=Decimal(3), output=Decimal(15))
        self._pace: Final = pace

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Answer the conversation that is sent."""
        sent = sum(len(str(message)) for message in request.messages) // 4
        steps: list[Step] = [Used(input=sent, final=False), *self._answer(request.messages)]
        written = sum(len(step.text) for step in steps if isinstance(step, Say)) // 4 + 20
        return ScriptedModel([*steps, Used(input=sent, output=written)], name=self.name).stream(request)

    def _answer(self, messages: tuple[Message, ...]) -> Iterator[Step]:
        last = messages[-1]
        missing = [call for call in _calls(len(messages)) if not _finished(call.name, messages)]
        if isinstance(last, UserMessage):
            yield from self._greet(last, messages, missing)
            if missing:
                yield from missing
                return
        elif missing:
            yield self._say("One of them did not get through, so I plan around it.\n")
        yield self._say(PLAN[len(_spoken(messages)) :] or AFTERWARDS)

    def _greet(self, prompt: UserMessage, messages: tuple[Message, ...], missing: list[Call]) -> Iterator[Step]:
        if len(messages) == 1:
            yield self._say(OPENING)
            return
        if prompt.text.strip().lower().rstrip(".!? ") not in GO_ON:
            yield self._say(f'"{prompt.text.strip()}" - noted, and pinned to the flour bin.\n')
        before = messages[-2]
        if isinstance(before, AssistantMessage) and before.cut and missing:
            yield self._say(f"You stopped me. {_what_is_known(messages)}\n")
        elif isinstance(before, AssistantMessage) and before.cut and _spoken(messages):
            yield self._say("Where was I? ...")

    def _say(self, text: str) -> Say:
        return Say(text, chunk=3, pause=0.035 * self._pace)


def _calls(number: int) -> tuple[Call, Call]:
    return (
        Call("check_weather", {"town": "Bergen"}, id=f"weather-{number}"),
        Call("heat_oven", {"degrees": 220}, id=f"oven-{number}"),
    )


def _results(messages: tuple[Message, ...]) -> Iterator[ToolResult]:
    return (result for message in messages if isinstance(message, ToolMessage) for result in message.results)


def _finished(name: str, messages: tuple[Message, ...]) -> bool:
    return any(result.name == name and not result.is_error for result in _results(messages))


def _what_is_known(messages: tuple[Message, ...]) -> str:
    """The outcomes of the tools, as text of the baker."""
    outcomes = {result.name: result.outcome for result in _results(messages)}
    known = " ".join(_OUTCOME_TEXT[name].get(outcome, "") for name, outcome in outcomes.items()).strip()
    return f"{known} I will see to what is missing." if known else "I had not begun anything yet, so I begin now."


_OUTCOME_TEXT: Final[dict[str, dict[Outcome, str]]] = {
    "check_weather": {
        Outcome.COMPLETED: "The weather report had come in by then.",
        Outcome.CANCELLED: "The weather call was cut off.",
        Outcome.NEVER_STARTED: "The weather was not asked for yet.",
    },
    "heat_oven": {
        Outcome.COMPLETED: "The oven is hot.",
        Outcome.ABANDONED: "The oven was left heating by itself; I do not know how far it got.",
        Outcome.NEVER_STARTED: "The oven is still cold.",
    },
}


def _spoken(messages: tuple[Message, ...]) -> str:
    """How much of the plan the conversation holds, over all the answers that it was cut into."""
    spoken = ""
    for message in messages:
        if isinstance(message, AssistantMessage):
            at = next((at for at in range(len(message.text)) if _continues(spoken, message.text[at:])), None)
            spoken += "" if at is None else message.text[at:]
    return spoken


def _continues(spoken: str, text: str) -> bool:
    return bool(text) and PLAN.startswith(spoken + text)


def build_agent(pace: float = 1.0) -> AnyAgent:
    """The agent of the demo."""
    return Agent(
        Baker(pace), name="baker", tools=[check_weather, heat_oven], instructions="You plan market days for a bakery."
    )
