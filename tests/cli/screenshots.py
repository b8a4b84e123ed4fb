"""Pictures of the chat in its states, to be looked at: `make screenshots` keeps them in screenshots/."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from quiesce import Agent
from quiesce.cli.chat_backend import LocalBackend
from quiesce.cli.chat_controller import ChatController
from quiesce.cli.chat_screen import ChatApp
from quiesce.models.scripted import Call, Say, ScriptedModel

from ..console.browser import ARGUMENTS, find_chromium
from . import agents

OUT = Path("screenshots")


class Sitting:
    """A chat with somebody at the keys."""

    def __init__(self, app: ChatApp, pilot: Any) -> None:
        self._app = app
        self._pilot = pilot

    async def say(self, text: str) -> None:
        for letter in text:
            await self._pilot.press({" ": "space", "/": "slash"}.get(letter, letter))
        await self._pilot.press("enter")

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def wait(self, wanted: Callable[[], object]) -> None:
        while not wanted():
            await self._pilot.pause(0.05)

    async def at_rest(self) -> None:
        await self._pilot.pause(0.2)
        await self.wait(lambda: not self._app._controller.is_running)
        await self._pilot.pause(0.3)

    async def shoot(self, name: str) -> None:
        await self._pilot.pause(0.3)
        self._app.save_screenshot(str(OUT / f"terminal-{name}.svg"))


async def tour(agent: Callable[[], Agent], act: Any, size: tuple[int, int] = (100, 30)) -> None:
    app = ChatApp(ChatController(LocalBackend(agent())))
    async with app.run_test(size=size) as pilot:
        await act(Sitting(app, pilot), app._controller)
        while app._controller.is_running:
            app._controller.stop("the pictures are taken")
            await pilot.pause(0.1)


async def answering(chat: Sitting, controller: ChatController) -> None:
    await chat.shoot("1-empty")
    await chat.say("how is bread made")
    await chat.wait(lambda: controller.run is not None and controller.run.phase == "streaming")
    await asyncio.sleep(1)
    await chat.press(*"shorter")
    await chat.shoot("2-answering")
    await chat.press("escape")
    await chat.at_rest()
    await chat.shoot("3-stopped")


async def building(chat: Sitting, controller: ChatController) -> None:
    await chat.say("build everything please")
    await chat.wait(lambda: any(tool.progress and tool.progress["done"] == 3 for tool in controller.tools.values()))
    await chat.press(*"later", "tab")
    await chat.shoot("4-tool")
    await chat.press("escape")
    await asyncio.sleep(1.2)
    await chat.shoot("5-stopping")
    await chat.press("escape")
    await chat.at_rest()
    await chat.shoot("6-forced")


async def asking(chat: Sitting, controller: ChatController) -> None:
    await chat.say("clean up")
    await chat.wait(lambda: controller.pending_questions)
    await chat.at_rest()
    await asyncio.sleep(0.6)
    await chat.shoot("7-question")
    await chat.press("e")
    await chat.shoot("7-question-edited")


async def undoing(chat: Sitting, _: ChatController) -> None:
    await chat.say("write them")
    await chat.at_rest()
    await chat.say("/undo")
    await chat.at_rest()
    await chat.say("/usage")
    await chat.shoot("8-undone")


async def helping(chat: Sitting, _: ChatController) -> None:
    await chat.say("/help")
    await chat.shoot("9-help-small")


async def failing(chat: Sitting, _: ChatController) -> None:
    await chat.say("hello")
    await chat.at_rest()
    await chat.shoot("10-failed")


async def completing(chat: Sitting, _: ChatController) -> None:
    await chat.press("slash", "s")
    await chat.shoot("12-commands")
    await chat.press("backspace", "backspace", *"read", "space", "at", "R")
    await chat.shoot("13-paths")


async def nesting(chat: Sitting, _: ChatController) -> None:
    await chat.say("how is the oven")
    await chat.at_rest()
    await chat.say("and once more")
    await chat.at_rest()
    await chat.press("pageup", "pageup")
    await chat.say("/ps")
    await chat.shoot("14-nested-and-below")


def kitchen() -> Agent:
    """A chef that asks a cook, who looks."""
    cook = Agent(
        ScriptedModel(
            *([Say("Looking."), Call("look", {"what": what})] for what in ("oven", "salt")),
            then="The oven is fine.",
        ),
        tools=[agents.look],
        name="cook",
    )
    chef = ScriptedModel([Say("I ask the cook."), Call("cook", {"prompt": "check the oven"})], then="All is well.")
    return Agent(chef, tools=[cook.as_tool()], name="chef")


async def narrow(chat: Sitting, controller: ChatController) -> None:
    await chat.say("build everything please")
    await chat.wait(lambda: any(tool.progress and tool.progress["done"] == 3 for tool in controller.tools.values()))
    await chat.press("escape")
    await chat.shoot("11-narrow")


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("There is no chromium here. Install one (apt-get install chromium), or set CHROMIUM.")
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["FILES"] = f"{directory}/one.txt {directory}/two.txt"
        asyncio.run(tour(agents.endless, answering))
        asyncio.run(tour(agents.slow_tool, building))
        asyncio.run(tour(agents.careful, asking))
        asyncio.run(tour(agents.writing, undoing, (100, 40)))
        asyncio.run(tour(agents.short, helping, (80, 24)))
        asyncio.run(tour(agents.failing, failing))
        asyncio.run(tour(agents.slow_tool, narrow, (44, 16)))
        asyncio.run(tour(agents.short, completing))
        asyncio.run(tour(kitchen, nesting, (100, 20)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        for svg in sorted(OUT.glob("terminal-*.svg")):
            page.set_content(svg.read_text("utf-8"))
            page.locator("svg").first.screenshot(path=svg.with_suffix(".png"))
            svg.unlink()
        browser.close()
    print(f"{len(list(OUT.glob('terminal-*.png')))} pictures of the terminal in {OUT}/: look at them.")


if __name__ == "__main__":
    main()
