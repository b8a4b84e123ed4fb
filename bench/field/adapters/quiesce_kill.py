"""Quiesce once more, with the slow tool declared as one that can be killed. It runs in a process of its own then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from quiesce import ToolContext, tool
from quiesce.events import TextDelta, ToolProgress

from .. import prompts
from ._harness import main
from ._subject import Show
from .quiesce import Quiesce


class QuiesceKill(Quiesce):
    stopped_with = 'run.cancel(), slow tool with @tool(on_stop="kill")'

    def _tools(self) -> list[Any]:
        quick, _ = super()._tools()
        effect, seconds = str(self.tools.effect), prompts.SLOW_SECONDS

        @tool(on_stop="kill")
        def slow(ctx: ToolContext) -> str:
            """Take your time."""
            ctx.report("began")
            time.sleep(seconds)
            Path(effect).write_text(str(time.monotonic()))
            return "the slow tool is done"

        return [quick, slow]

    async def run(self, prompt: str, show: Show) -> None:
        self._run = self._agent.start(prompt)
        async for event in self._run.events():
            match event:
                case TextDelta(text):
                    show(text)
                case ToolProgress(progress="began"):
                    self.tools.slow_began.set()
                case _:
                    pass
        await self._run


if __name__ == "__main__":
    main(QuiesceKill)
