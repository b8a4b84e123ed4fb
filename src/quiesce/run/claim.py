"""A run's claim on its conversation: held at once, or after the runs that came before."""

from __future__ import annotations

import asyncio
from typing import Final

from ..messages import UserMessage
from ..sessions import Conversation
from .config import RunInput


class Claim:
    """What a run wants to write to its conversation, and whether it holds it."""

    def __init__(self, conversation: Conversation, input: RunInput) -> None:
        self.conversation: Final = conversation
        self.input: Final = input
        self.prompt: UserMessage | None = input.prompt
        """The user message that the run begins with, if it begins with one."""
        self.granted: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.held = False
        self.first_message = 0
        """How many messages the conversation had before this run."""
        self.continued_text = ""
        """The text of the answer that this run goes on with."""
