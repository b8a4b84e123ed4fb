"""A stop at every point of one small run: before each callback that the run gives to the event loop.

The run has one tool call with text before it, and an answer after it. If it has more than `MOST` points, so many are
taken at equal distances. Code in threads does not run in the event loop; the number of points may differ by a few.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from .. import prompts
from ._subject import Subject
from ._trial import Trial, flat

MOST = 150


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts callbacks, and runs a function before the one with a given number."""

    def __init__(self) -> None:
        super().__init__()
        self.count: int | None = None
        self._at = 0
        self._stop: Callable[[], None] = lambda: None

    def stop_at(self, number: int, stop: Callable[[], None]) -> None:
        """Begin to count. 0 is never reached."""
        self.count, self._at, self._stop = 0, number, stop

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self.count is not None:
            self.count += 1
            if self.count == self._at:
                super().call_soon(self._stop)
        return super().call_soon(callback, *args, context=context)


async def points(make: type[Subject], server: str, _rounds: int) -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    total = 0
    for _ in range(2):  # the first one warms up
        trial = Trial(make, server, f"{make.__name__}-points-0")
        loop.stop_at(0, lambda: None)
        await trial.run_to_its_end(prompts.LOOK_UP)
        total, loop.count = loop.count, None
        trial.tools.close()
        if trial.raised or prompts.ANSWER[-1].strip() not in flat("".join(trial.shown)):
            raise RuntimeError(f"the run did not come to its end: {trial.raised}")
    taken = range(1, total + 1) if total <= MOST else [1 + each * total // MOST for each in range(MOST)]
    found = [each for point in taken if (each := await _stop_at(loop, make, server, point)) is not None]
    yield {"total": total, "points": len(found), **_counted(found)}


def _counted(found: list[dict[str, Any]]) -> dict[str, int]:
    """At how many points what went wrong. `refused` and `lost` exclude each other; the rest is counted beside them."""
    lost = ("prompt_lost", "text_lost", "result_lost")
    refused = [bool(each["openai_faults"]) or each["next"].startswith("not sent") for each in found]
    return {
        **{name: sum(each[name] for each in found) for name in lost},
        "hung": sum(each["return_ms"] is None for each in found),
        "refused": sum(refused),
        "strict": sum(bool(each["strict_faults"]) or no for each, no in zip(found, refused, strict=True)),
        "lost": sum(not no and any(each[name] for name in lost) for each, no in zip(found, refused, strict=True)),
    }


async def _stop_at(loop: CountingLoop, make: type[Subject], server: str, point: int) -> dict[str, Any] | None:
    """What a stop at one point left. None if the run was over before."""
    trial = Trial(make, server, f"{make.__name__}-points-{point}")
    had_result = False

    def stop() -> None:
        nonlocal had_result
        had_result = trial.tools.quick_done.is_set()
        trial.asked = time.monotonic()
        trial.subject.stop()
        trial.limit_the_stop(loop)

    try:
        loop.stop_at(point, stop)
        await trial.run_to_its_end(prompts.LOOK_UP)
        loop.count = None
        if not trial.asked:
            return None
        after = await trial.say_next()
    finally:
        trial.tools.close()
    sent = after["sent"]  # None if the framework refused the next prompt: then nothing is known to be lost
    return {
        "point": point,
        "return_ms": trial.since_asked(trial.returned),
        "prompt_lost": sent is not None and prompts.LOOK_UP not in sent,
        "text_lost": sent is not None and any(piece.strip() not in sent for piece in trial.shown),
        "result_lost": sent is not None and had_result and prompts.QUICK_RESULT not in sent,
        **after["verdict"],
    }
