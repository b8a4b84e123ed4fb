"""The trials, the same for each framework.

An adapter is a `Subject`; `main` is its whole program. It is given the server's address, a scenario and the number of
trials, and prints one JSON line for each trial. It runs in the framework's own environment, so that it can use only the
standard library, httpx2 and msgspec.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib.metadata
import json
import logging
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import httpx2

from ..._openai import bare
from .. import prompts

Show = Callable[[str], None]

TOO_LATE = 5.0  # seconds after the stop that a connection is watched
LIMIT = 20.0  # seconds for one prompt, whatever happens
SEEN = 0.1  # seconds from what the stop waits for to the stop: the run has come to its wait by then


class Subject(abc.ABC):
    """A framework with one agent and one conversation. Made anew for each trial."""

    packages: ClassVar[tuple[str, ...]]
    stopped_with: ClassVar[str]
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


# --- One trial ------------------------------------------------------------------------------------------------------


class Trial:
    """One conversation, one stop, and the prompt after it."""

    def __init__(self, make: type[Subject], server: str, name: str) -> None:
        self.tools = Tools()
        self.subject = make(f"{server}/{name}/v1", self.tools)
        self._server = server
        self._name = name
        self._words_came = threading.Event()
        self.shown: list[str] = []
        self.asked = 0.0
        self.returned: float | None = None
        self.raised = ""

    async def stop_at_words(self, prompt: str) -> dict[str, Any]:
        """Scenario A: the stop comes when words have been shown."""
        await self._run_and_stop(prompt, self._wait_for_words)
        (request,) = await self._report(max(0.0, self.asked + TOO_LATE - time.monotonic()))
        closed = request["closed"]
        usage = self.subject.usage()
        stored = _flat(self.subject.history())
        said = _flat("".join(self.shown))
        after = await self._say_next()
        return {
            "return_ms": self._ms(self.returned),
            "close_ms": self._ms(closed) if closed and closed - self.asked <= TOO_LATE else None,
            "bytes_after": sum(size for at, size in request["sent"] if self.asked < at <= (closed or at)),
            "prompt_kept": _kept(prompt, stored, after["sent"]),
            "kept": _kept(said, stored, after["sent"]),
            "usage": usage,
            **after["verdict"],
        }

    async def stop_in_tool(self) -> dict[str, Any]:
        """Scenario B: the stop comes when the quick tool has finished and the slow one is in the middle."""
        await self._run_and_stop(prompts.TOOLS, self.tools.wait)
        stored = _flat(self.subject.history())
        after = await self._say_next()
        await asyncio.sleep(max(0.0, self.asked + prompts.SLOW_SECONDS + 0.5 - time.monotonic()))
        effect = self.tools.effect_at()
        return {
            "return_ms": self._ms(self.returned),
            "prompt_kept": _kept(prompts.TOOLS, stored, after["sent"]),
            "kept": _kept(prompts.QUICK_RESULT, stored, after["sent"]),
            "effect": effect is not None,
            "effect_after_end": effect is not None and self.returned is not None and effect > self.returned,
            "told": _told_of_slow(after["messages"]),
            **after["verdict"],
        }

    async def _run_and_stop(self, prompt: str, moment: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.ensure_future(asyncio.to_thread(self._stop, moment, loop))
        await self._run(prompt)
        self.returned = time.monotonic()
        await stopping
        if self.returned < self.asked:
            raise RuntimeError(f"the run was over before it was stopped; {self.raised or 'it raised nothing'}")

    def _stop(self, moment: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, as a web handler or a timer would."""
        moment()
        time.sleep(SEEN)
        self.asked = time.monotonic()
        if self.subject.thread_safe:
            self.subject.stop()
        else:
            loop.call_soon_threadsafe(self.subject.stop)

    async def _run(self, prompt: str) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                await self.subject.run(prompt, self._show)
        except Exception as error:
            self.raised = f"{type(error).__name__}: {error}"

    async def _say_next(self) -> dict[str, Any]:
        """Say something else, and what the server thought of it."""
        before = len(await self._report(0))
        self.raised = ""
        shown, self.shown = self.shown, []
        await self._run(prompts.NEXT)
        answered = bool(self.shown)
        self.shown = shown
        requests = (await self._report(0))[before:]
        if not requests:
            verdict = {"next": f"not sent: {self.raised}", "openai_faults": [], "strict_faults": []}
            return {"sent": None, "messages": [], "verdict": verdict}
        request = requests[0]
        verdict = {
            "next": "answered" if answered else str(request["status"]),
            "openai_faults": request["openai_faults"],
            "strict_faults": request["strict_faults"],
        }
        return {"sent": _flat(request["messages"]), "messages": request["messages"], "verdict": verdict}

    def _show(self, text: str) -> None:
        if text:
            self.shown.append(text)
            self._words_came.set()

    def _wait_for_words(self) -> None:
        if not self._words_came.wait(LIMIT):
            raise TimeoutError("no words came")

    async def _report(self, wait: float) -> list[dict[str, Any]]:
        return await asyncio.to_thread(_get, f"{self._server}/{self._name}/report?wait={wait}")

    def _ms(self, at: float | None) -> float | None:
        return None if at is None else (at - self.asked) * 1000


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def _flat(value: Any) -> str:
    """Any history as one text with single spaces, so that words can be looked for in it."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return " ".join(text.replace("\\n", " ").split())


def _kept(words: str, stored: str, sent: str | None) -> str:
    """Where the words are. What is sent with the next prompt is what the model will know."""
    if sent is not None and words in sent:
        return "yes"
    return "stored, not sent" if words in stored else "no"


def _told_of_slow(messages: list[dict[str, Any]]) -> str:
    """What the model is told of the slow tool, if anything."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    slow = next((call["id"] for call in calls if call["function"]["name"] == "slow"), None)
    return next((str(each["content"]) for each in messages if slow and each.get("tool_call_id") == slow), "nothing")


# --- The scenarios --------------------------------------------------------------------------------------------------


async def _stops(make: type[Subject], server: str, scenario: str, trials: int) -> None:
    for number in range(trials + 1):
        trial = Trial(make, server, f"{make.__name__}-{scenario}-{number}")
        try:
            if scenario == "tools":
                found = await trial.stop_in_tool()
            else:
                found = await trial.stop_at_words(prompts.STALLED if scenario == "stalled" else prompts.FLOWING)
        finally:
            trial.tools.close()
        if number:  # the first one warms up
            _print(found)


async def _chunks(make: type[Subject], server: str, rounds: int, chunks: int = 5_000) -> None:
    """Scenario C: CPU time of a whole answer, and of the bare client right before it."""
    prompt = f"{prompts.COUNT}{chunks}"
    body = {"model": "field", "messages": [{"role": "user", "content": prompt}], "stream": True}
    async with httpx2.AsyncClient(trust_env=False) as client:
        expected = await bare(client, f"{server}/bare/v1", body)
        for number in range(rounds + 1):
            began = time.process_time()
            assert await bare(client, f"{server}/bare/v1", body) == expected
            bare_seconds = time.process_time() - began
            subject = make(f"{server}/{make.__name__}-chunks-{number}/v1", Tools())
            shown: list[str] = []
            began = time.process_time()
            await subject.run(prompt, shown.append)
            seconds = time.process_time() - began
            subject.tools.close()
            if "".join(shown).split() != expected.split():
                raise RuntimeError("the text that was shown is not the text that was sent")
            if number:
                _print({"ratio": seconds / bare_seconds, "bare_us": bare_seconds / chunks * 1e6})


def _print(found: dict[str, Any]) -> None:
    print(json.dumps(found), file=_out, flush=True)


_out = sys.stdout


def main(make: type[Subject]) -> None:
    """An adapter's whole program."""
    server, scenario, trials = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _print({"versions": {name: importlib.metadata.version(name) for name in make.packages}, "how": make.stopped_with})
    # What a framework prints is not the result.
    with contextlib.redirect_stdout(sys.stderr):
        if scenario == "chunks":
            asyncio.run(_chunks(make, server, int(trials)))
        else:
            asyncio.run(_stops(make, server, scenario, int(trials)))
