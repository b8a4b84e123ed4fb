"""A person at the full-screen chat, in this process: Textual draws the screen, we press the keys."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual import events

from quiesce.agent import AnyAgent
from quiesce.cli.chat_backend import Backend, LocalBackend
from quiesce.cli.chat_controller import ChatController
from quiesce.cli.chat_screen import ChatApp
from quiesce.cli.chat_sessions import ChatSessions
from quiesce.cli.chat_widgets import Composer
from quiesce.sessions import SessionStore

from . import agents

AT_REST = "At rest: Esc has nothing to stop"


class PilotScreen:
    """The chat as a person sees it."""

    def __init__(self, app: ChatApp, pilot: Any) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def text(self) -> str:
        """What is on the screen, line by line."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        self.app.query_one(Composer).insert(text)
        await self._pilot.pause()

    async def paste(self, text: str) -> None:
        self.app.query_one(Composer).post_message(events.Paste(text))
        await self._pilot.pause()

    async def say(self, line: str) -> None:
        await self.type(line)
        await self.press("enter")

    async def wait_for_exit(self, code: int = 0) -> None:
        end = time.monotonic() + 30
        while self.app.return_code is None:
            assert time.monotonic() < end, "the chat did not end"
            await asyncio.sleep(0.02)
        assert self.app.return_code == code

    async def wait(self, wanted: str | Callable[[str], object], seconds: float = 30.0) -> str:
        """Look at the screen until a pattern, or a condition, is there. Returns the screen."""
        end = time.monotonic() + seconds
        while True:
            shown = self.text
            if wanted(shown) if callable(wanted) else re.search(wanted, shown):
                return shown
            assert time.monotonic() < end, f"{wanted!r} did not come; the screen shows:\n{shown}"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def pilot_chat(
    agent: str | AnyAgent = "",
    *,
    size: tuple[int, int] = (100, 30),
    store: SessionStore | None = None,
    session: str | None = None,
    backend: Backend | None = None,
) -> AsyncGenerator[PilotScreen]:
    """The chat with an agent of `agents`, begun and at rest; its run is stopped at the end."""
    if backend is None:
        made = getattr(agents, agent)() if isinstance(agent, str) else agent
        backend = LocalBackend(made, ChatSessions(made, store, session))
    controller = ChatController(backend)
    app = ChatApp(controller)
    async with app.run_test(size=size) as pilot:
        shown = PilotScreen(app, pilot)
        await shown.wait("Esc")
        yield shown
        while app.is_running and controller.is_running:
            controller.stop("the test is over")
            await pilot.pause(0.02)
    await backend.close()
