"""`Harness`: starts the runs of a scenario, records their events, and knows which run is to be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from ..agent import AnyAgent
from ..cancellation import CancellationToken
from ..events import Event, RunEnded, ToolEnded, ToolStarted
from ..interrupts import Answers
from ..messages import Prompt
from ..result import RunResult
from ..run.events.stream import EventStream
from ..run.handle import Run
from ..tools.tool import Tool
from .tool_log import ToolLog


class WatchedRun:
    """A run with its events, the log of its tools, and the time of its end."""

    def __init__(self, run: Run, agent: AnyAgent, tool_log: ToolLog, harness: Harness, *, target: bool) -> None:
        self._harness: Final = harness
        self.run: Final = run
        self.agent: Final = agent
        self.tool_log: Final = tool_log
        self.target: Final = target
        self.events: Final[list[Event]] = []
        self.ended_at: float | None = None
        self._loop: Final = asyncio.get_running_loop()
        run.tap(self._record)

    def _record(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RunEnded):
            self.ended_at = self._loop.time()

    @property
    def loop_is_closed(self) -> bool:
        """Whether the loop was closed around the run."""
        return self._loop.is_closed()

    @property
    def interrupted(self) -> bool:
        """Whether a raw Ctrl-C was raised, maybe between what happened and the event that tells of it."""
        return self._harness.ctrl_c

    def runs_of_agent(self) -> int:
        """How many runs of the same agent were started here. The tool log and the model count for all of them."""
        return sum(1 for watched in self._harness.watched if watched.agent is self.agent)

    def running_tools(self) -> list[Tool]:
        """The tools that have started and have no result yet."""
        started = {event.call.id: event.call.name for event in self.events if isinstance(event, ToolStarted)}
        for event in self.events:
            if isinstance(event, ToolEnded):
                started.pop(event.result.call_id, None)
        tools = (self.agent.config.tools.get(name) for name in started.values())
        return [tool for tool in tools if tool is not None]


class Harness:
    """Starts and watches the runs of a scenario. The first run, or the one with `target=True`, is stopped."""

    def __init__(self) -> None:
        self.parent: Final = CancellationToken()
        self.caller: asyncio.Task[Any] | None = None
        self.watched: Final[list[WatchedRun]] = []
        self.own_causes: Final[set[str]] = set()
        self.extra_time = 0.0
        self.ctrl_c = False
        """Whether a raw Ctrl-C was raised in Quiesce's code."""
        self._tool_logs: Final[dict[int, ToolLog]] = {}
        self._on_close: Final[list[Callable[[], object]]] = []
        self._on_start: Final[list[Callable[[WatchedRun], None]]] = []

    # --- For scenarios ------------------------------------------------------------------------------------------

    def start(
        self,
        agent: AnyAgent,
        prompt: Prompt,
        *,
        target: bool | None = None,
        under: CancellationToken | None = None,
        **options: Any,
    ) -> Run:
        """`agent.start`, watched. `under` is a token below `harness.parent` to use instead of that."""
        return self._watch(agent, lambda token: agent.start(prompt, token=under or token, **options), target=target).run

    def start_answer(self, agent: AnyAgent, answers: Answers, *, target: bool | None = None, **options: Any) -> Run:
        """`agent.start_answer`, watched."""
        return self._watch(agent, lambda token: agent.start_answer(answers, token=token, **options), target=target).run

    def start_continue(self, agent: AnyAgent, *, target: bool | None = None, **options: Any) -> Run:
        """`agent.start_continue`, watched."""
        return self._watch(agent, lambda token: agent.start_continue(token=token, **options), target=target).run

    async def invoke(self, agent: AnyAgent, prompt: Prompt, *, target: bool | None = None, **options: Any) -> RunResult:
        """`agent.invoke_async`, watched."""
        return await self.start(agent, prompt, target=target, **options)

    async def read(self, agent: AnyAgent, prompt: Prompt, *, target: bool | None = None, **options: Any) -> RunResult:
        """Read `agent.stream_async` to its end, watched."""
        streams: list[EventStream] = []

        def begin(token: CancellationToken | None) -> Run:
            streams.append(agent.stream_async(prompt, token=token, **options))
            return streams[0].run

        watched = self._watch(agent, begin, target=target)
        async for _ in streams[0]:
            pass
        return await watched.run

    def on_close(self, clean_up: Callable[[], object]) -> None:
        """Call `clean_up` after the last check: to open gates, for example."""
        self._on_close.append(clean_up)

    def expect_cause(self, *sources: str) -> None:
        """Declare that the scenario itself stops its target, from these sources."""
        self.own_causes.update(sources)

    # --- For the kit --------------------------------------------------------------------------------------------

    def on_start(self, function: Callable[[WatchedRun], None]) -> None:
        """Call `function` with each run that is started."""
        self._on_start.append(function)

    @property
    def target(self) -> WatchedRun | None:
        """The run to be stopped, once it has started."""
        return next((watched for watched in self.watched if watched.target), None)

    def close(self) -> None:
        """Call the functions that `on_close` was given. Raises the first `AssertionError` of them, after the last."""
        failed: list[AssertionError] = []
        for clean_up in self._on_close:
            try:
                clean_up()
            except AssertionError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _watch(
        self, agent: AnyAgent, begin: Callable[[CancellationToken | None], Run], *, target: bool | None
    ) -> WatchedRun:
        is_target = self.target is None if target is None else target
        tool_log = self._tool_logs.get(id(agent))
        if tool_log is None:
            tool_log = self._tool_logs[id(agent)] = ToolLog()
            tool_log.watch(cast("dict[str, Tool]", agent.config.tools))
        run = begin(self.parent if is_target else None)
        watched = WatchedRun(run, agent, tool_log, self, target=is_target)
        self.watched.append(watched)
        for function in self._on_start:
            function(watched)
        return watched
