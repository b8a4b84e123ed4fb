"""What an adapter is: a framework with one agent and one conversation, and the two tools that each gets."""

from __future__ import annotations

import abc
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from .. import prompts

Show = Callable[[str], None]

LIMIT = 60.0  # seconds for one prompt, whatever happens; the first one of some imports half of its framework
STOP_LIMIT = 10.0  # seconds from a stop to the end of its run: longer than the provider stalls and the slow tool blocks


class Subject(abc.ABC):
    """A framework with one agent and one conversation. Made anew for each trial."""

    packages: ClassVar[tuple[str, ...]]
    stopped_with: ClassVar[str]
    imports: ClassVar[str]  # what a first program with a model of OpenAI imports
    # Whether `stop` may be called from any thread. Else it is called in the event loop's.
    thread_safe: ClassVar[bool] = False

    def __init__(self, url: str, tools: Tools) -> None:
        self.url = url
        self.tools = tools

    @abc.abstractmethod
    async def run(self, prompt: str, show: Show) -> None:
        """Say something, show each piece of text that comes, and return when the framework says that the run is over.

        What the framework raises for a stop is expected; anything else is raised.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop the run, as the framework's documentation says."""

    @abc.abstractmethod
    def history(self) -> Any:
        """The conversation as the framework has it now."""

    @abc.abstractmethod
    def usage(self) -> str:
        """What the framework reports for the run that was stopped: `input/output`, or `none`."""


class Tools:
    """What both tools do, and when they did it."""

    def __init__(self) -> None:
        self.quick_done = threading.Event()
        self.slow_began = threading.Event()
        self._place = tempfile.TemporaryDirectory(prefix="field-")
        self.effect = Path(self._place.name) / "effect"

    def quick(self) -> str:
        self.quick_done.set()
        return prompts.QUICK_RESULT

    def slow(self) -> str:
        self.slow_began.set()
        time.sleep(prompts.SLOW_SECONDS)
        self.effect.write_text(str(time.monotonic()))
        return "the slow tool is done"

    def functions(self) -> list[Callable[[], str]]:
        """Both as functions that a framework can make tools of: it reads their names and docstrings."""

        def quick() -> str:
            """Be quick."""
            return self.quick()

        def slow() -> str:
            """Take your time."""
            return self.slow()

        return [quick, slow]

    def wait(self) -> None:
        """Until the quick one has finished and the slow one is in the middle."""
        if not (self.quick_done.wait(LIMIT) and self.slow_began.wait(LIMIT)):
            raise TimeoutError("the tools did not run")

    def effect_at(self) -> float | None:
        return float(self.effect.read_text()) if self.effect.exists() else None

    def close(self) -> None:
        self._place.cleanup()
