"""A run's claim on its conversation: held at once, or after the runs that came before."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ..messages import UserMessage
from ..run_context import RunContext
from ..sessions import Conversation
from .config import RunInput


class Claim:
    """What a run wants to write to its conversation, and whether it holds it."""

    def __init__(self, conversation: Conversation, input: RunInput, context: RunContext[Any]) -> None:
        self.conversation: Final = conversation
        self.context = context
        """The run as the user's code sees it, with the state of the conversation once that is held."""
        self.input: Final = input
        self.prompt: UserMessage | None = input.prompt
        """The user message that the run begins with, if it begins with one."""
        self.granted: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.held = False
        self.first_message = 0
        """How many messages the conversation had before this run."""
        self.continued_text = ""
        """The text of the answer that this run goes on with."""

    def begin(self, initial_state: dict[str, Any]) -> None:
        """The conversation is held and loaded: its state is what the user's code sees from now on."""
        before = self.context
        self.context = RunContext(
            deps=before.deps,
            state=self.conversation.begin_state(initial_state),
            run_id=before.run_id,
            token=before.token,
            agent=before.agent,
            session=before.session,
            owner=before.owner,
        )
