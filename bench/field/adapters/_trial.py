"""One trial: one conversation, one stop, and the prompt after it. The same for each framework."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from .. import prompts
from ._subject import LIMIT, STOP_LIMIT, Subject, Tools

TOO_LATE = 5.0  # seconds after the stop that a connection is watched
SEEN = 0.1  # seconds from what the stop waits for to the stop: the run has come to its wait by then


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
        self.returned: float | None = None  # None too if the harness had to end it
        self.raised = ""
        self._limit: asyncio.Timeout | None = None

    async def stop_at_words(self, prompt: str) -> dict[str, Any]:
        """Scenario A: the stop comes when words have been shown."""
        await self._run_and_stop(prompt, self.wait_for_words)
        (request,) = await self.report(max(0.0, self.asked + TOO_LATE - time.monotonic()))
        closed = request["closed"]
        usage = self.subject.usage()
        stored = flat(self.subject.history())
        said = flat("".join(self.shown))
        after = await self.say_next()
        return {
            "return_ms": self.since_asked(self.returned),
            "close_ms": self.since_asked(closed) if closed and closed - self.asked <= TOO_LATE else None,
            "bytes_after": sum(size for at, size in request["sent"] if self.asked < at <= (closed or at)),
            "prompt_kept": _kept(prompt, stored, after["sent"]),
            "kept": _kept(said, stored, after["sent"]),
            "usage": usage,
            **after["verdict"],
        }

    async def stop_in_tool(self) -> dict[str, Any]:
        """Scenario B: the stop comes when the quick tool has finished and the slow one is in the middle."""
        await self._run_and_stop(prompts.TOOLS, self.tools.wait)
        stored = flat(self.subject.history())
        after = await self.say_next()
        await asyncio.sleep(max(0.0, self.asked + prompts.SLOW_SECONDS + 0.5 - time.monotonic()))
        effect = self.tools.effect_at()
        return {
            "return_ms": self.since_asked(self.returned),
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
        await self.run_to_its_end(prompt)
        await stopping
        if self.returned is not None and self.returned < self.asked:
            raise RuntimeError(f"the run was over before it was stopped; {self.raised or 'it raised nothing'}")

    def _stop(self, moment: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, as a web handler or a timer would."""
        moment()
        time.sleep(SEEN)
        self.ask(loop)

    def ask(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the run. From another thread."""
        self.asked = time.monotonic()
        if self.subject.thread_safe:
            self.subject.stop()
        else:
            loop.call_soon_threadsafe(self.subject.stop)
        loop.call_soon_threadsafe(self.limit_the_stop, loop)

    def limit_the_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once stopped, a run gets no more than `STOP_LIMIT`."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(loop.time() + STOP_LIMIT)

    async def run_to_its_end(self, prompt: str) -> None:
        """Until the framework says that the run is over, or a limit ends it."""
        limit = asyncio.timeout(LIMIT)
        try:
            async with limit:
                self._limit = limit
                await self.subject.run(prompt, self._show)
        except Exception as error:
            self.raised = f"{type(error).__name__}: {error}"
        finally:
            self._limit = None
        self.returned = None if limit.expired() else time.monotonic()

    async def say_next(self) -> dict[str, Any]:
        """Say something else, and what the server thought of it."""
        before = len(await self.report(0))
        returned, self.raised = self.returned, ""
        shown, self.shown = self.shown, []
        await self.run_to_its_end(prompts.NEXT)
        answered = bool(self.shown)
        self.shown, self.returned = shown, returned
        requests = (await self.report(0))[before:]
        if not requests:
            verdict = {"next": f"not sent: {self.raised}", "openai_faults": [], "strict_faults": []}
            return {"sent": None, "messages": [], "verdict": verdict}
        request = requests[0]
        verdict = {
            "next": "answered" if answered else str(request["status"]),
            "openai_faults": request["openai_faults"],
            "strict_faults": request["strict_faults"],
        }
        return {"sent": flat(request["messages"]), "messages": request["messages"], "verdict": verdict}

    def _show(self, text: str) -> None:
        if text:
            self.shown.append(text)
            self._words_came.set()

    def wait_for_words(self) -> None:
        if not self._words_came.wait(LIMIT):
            raise TimeoutError("no words came")

    async def report(self, wait: float) -> list[dict[str, Any]]:
        return await asyncio.to_thread(_get, f"{self._server}/{self._name}/report?wait={wait}")

    def since_asked(self, at: float | None) -> float | None:
        return None if at is None else (at - self.asked) * 1000


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def flat(value: Any) -> str:
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
