"""Where a scenario is played: the runs that it starts here are watched, and one of them is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from ..agent import Agent
from ..cancellation import CancellationToken
from ..events import Event, RunEnded, ToolEnded, ToolStarted
from ..messages import Prompt
from ..result import RunResult
from ..run.events.stream import EventStream
from ..run.handle import Run
from ..tools.tool import Tool
from .tool_log import ToolLog


class WatchedRun:
    """A run, everything that it said, and when it ended."""

    def __init__(self, run: Run, agent: Agent, witness: ToolLog, stage: Stage, *, victim: bool) -> None:
        self._stage: Final = stage
        self.run: Final = run
        self.agent: Final = agent
        self.witness: Final = witness
        self.victim: Final = victim
        self.events: Final[list[Event]] = []
        self.ended_at: float | None = None
        self._loop: Final = asyncio.get_running_loop()
        run.tap(self._take)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RunEnded):
            self.ended_at = self._loop.time()

    def runs_of_agent(self) -> int:
        """How many runs this run's agent has had here; what the witness and the model count is for all of them."""
        return sum(1 for watched in self._stage.watched if watched.agent is self.agent)

    def running_tools(self) -> list[Tool]:
        """The tools that have started and have no result yet."""
        started = {event.call.id: event.call.name for event in self.events if isinstance(event, ToolStarted)}
        for event in self.events:
            if isinstance(event, ToolEnded):
                started.pop(event.result.call_id, None)
        tools = (self.agent.config.tools.get(name) for name in started.values())
        return [tool for tool in tools if tool is not None]


class Stage:
    """Given to a scenario. Start runs with it; the first one, or the one called `victim`, is the one to be stopped."""

    def __init__(self) -> None:
        self.parent: Final = CancellationToken()
        self.caller: asyncio.Task[Any] | None = None
        self.watched: Final[list[WatchedRun]] = []
        self.own_causes: Final[set[str]] = set()
        self.patience = 0.0
        self._witnesses: Final[dict[int, ToolLog]] = {}
        self._on_close: Final[list[Callable[[], object]]] = []
        self._on_start: Final[list[Callable[[WatchedRun], None]]] = []

    # --- For scenarios ------------------------------------------------------------------------------------------

    def start(
        self,
        agent: Agent,
        prompt: Prompt,
        *,
        victim: bool | None = None,
        under: CancellationToken | None = None,
        **options: Any,
    ) -> Run:
        """`agent.start`, watched. `under` is a token below `stage.parent` to use instead of that."""
        return self._watch(agent, lambda token: agent.start(prompt, token=under or token, **options), victim=victim).run

    async def invoke(self, agent: Agent, prompt: Prompt, *, victim: bool | None = None, **options: Any) -> RunResult:
        """`agent.invoke_async`, watched."""
        return await self.start(agent, prompt, victim=victim, **options).owned()

    async def read(self, agent: Agent, prompt: Prompt, *, victim: bool | None = None, **options: Any) -> RunResult:
        """Read `agent.stream_async` to its end, watched."""
        streams: list[EventStream] = []

        def begin(token: CancellationToken | None) -> Run:
            streams.append(agent.stream_async(prompt, token=token, **options))
            return streams[0].run

        watched = self._watch(agent, begin, victim=victim)
        async for _ in streams[0]:
            pass
        return await watched.run.result()

    def on_close(self, clean_up: Callable[[], object]) -> None:
        """Call this when everything was checked: to open gates and the like."""
        self._on_close.append(clean_up)

    def expect_cause(self, *sources: str) -> None:
        """The scenario itself stops its victim, from these sources."""
        self.own_causes.update(sources)

    # --- For the kit --------------------------------------------------------------------------------------------

    def on_start(self, function: Callable[[WatchedRun], None]) -> None:
        """Call `function` with each run that is started."""
        self._on_start.append(function)

    @property
    def victim(self) -> WatchedRun | None:
        """The run that is to be stopped, once it has started."""
        return next((watched for watched in self.watched if watched.victim), None)

    def close(self) -> None:
        """Clean up after the scenario."""
        for clean_up in self._on_close:
            clean_up()

    def _watch(
        self, agent: Agent, begin: Callable[[CancellationToken | None], Run], *, victim: bool | None
    ) -> WatchedRun:
        is_victim = self.victim is None if victim is None else victim
        witness = self._witnesses.get(id(agent))
        if witness is None:
            witness = self._witnesses[id(agent)] = ToolLog()
            witness.watch(cast("dict[str, Tool]", agent.config.tools))
        run = begin(self.parent if is_victim else None)
        watched = WatchedRun(run, agent, witness, self, victim=is_victim)
        self.watched.append(watched)
        for function in self._on_start:
            function(watched)
        return watched
