"""The first part of the demo: a small local model is stopped in the middle of a sentence."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

from ..agent import Agent
from ..errors import QuiesceError
from ..events import TextDelta
from ..models.providers.local import is_available
from ..run.handle import Run
from .keyboard import has_keyboard, on_escape
from .screen import Screen

MODEL: Final = "local:smollm2"
_PROMPT: Final = "Tell me a story about a baker who could not stop baking."
# Seconds for the first part, with the one download of the weights; after that the demo continues without it.
_TIMEOUT: Final = 40.0
_STOP_AFTER: Final = 160


async def real_model(screen: Screen) -> None:
    """Stream the small local model and stop it; print a notice where it is not available."""
    if not is_available():
        screen.notice(
            "The small local model (quiesce[local]) is not available here: the whole demo uses a scripted one."
        )
        return
    screen.notice("First a real model, on this machine: SmolLM2, 135 million parameters. It will be stopped.")
    try:
        run = Agent(MODEL, instructions="You tell short stories.", timeout=_TIMEOUT).start(_PROMPT)
        screen.prompt(_PROMPT)
        await _read_some(run, screen)
        await run
    except QuiesceError as error:
        screen.notice(
            f"The small local model is not available here ({error.what}): the demo goes on with a scripted one."
        )
    else:
        screen.receipt(await run.stopped())
    screen.notice("Now a scripted model with two tools.")


async def _read_some(run: Run, screen: Screen) -> None:
    with on_escape(lambda: run.cancel("Esc was pressed")) if has_keyboard() else nullcontext():
        spoken = 0
        async for event in run:
            screen.show(event, speaker="model")
            spoken += len(event.text) if isinstance(event, TextDelta) else 0
            if spoken >= _STOP_AFTER:
                run.cancel("enough of that")
