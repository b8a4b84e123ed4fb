"""What the server knows about a run besides the run itself: its owner, agent, session and prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..agent import AnyAgent
from ..cancellation import Mode
from .settings import OnDisconnect

# Characters of the prompt, and of the end of the text, that a view of a run shows.
PROMPT_LENGTH: Final = 200
TEXT_TAIL_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """Facts about a run that do not change.

    on_disconnect      what happens to the run when no client reads its events
    disconnect_grace   seconds without a reader before that happens
    mode               how the run is stopped then
    """

    owner: str
    agent: AnyAgent
    session: str | None
    prompt: str
    created_at: float
    on_disconnect: OnDisconnect = "continue"
    disconnect_grace: float = 0.0
    mode: Mode = Mode.NOW
