"""The runs of one agent: starting them, stopping them all, and replacing their options in tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import Struct

from .._threads.background_loop import running_loop
from ..cancellation import CancellationToken, Cause, Mode, Source
from ..conversation.conversation import Conversation
from ..errors import ConversationBusy
from ..events import Event
from ..interrupts import Answers, Interrupt
from ..messages import UserMessage
from ..receipt import UndoReceipt
from ..usage.agent_usage import AgentUsage
from .config import RunConfig
from .events.stream import run_in_background
from .handle import Run, give_up_start, joined
from .host import check_host
from .launch import Launch, RunDefaults, with_options
from .options import RunOptions, check_options
from .own_conversation import OwnConversation
from .start import claim_or_queue
from .state import RunState
from .undo import undo_task

if TYPE_CHECKING:
    from ..sessions import Session

Given: TypeAlias = UserMessage | Answers | None
"""What a run begins with: a prompt, the answers to an interrupt, or None to continue an answer."""

_overrides: Final[ContextVar[Mapping[int, RunOptions[Any]]]] = ContextVar("quiesce_overrides", default={})  # noqa: B039


class FollowedRun(Protocol):
    """A run, as what follows it sees it before its first event."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def config(self) -> RunConfig:
        """What the run is configured with. A handoff changes it."""
        ...

    @property
    def conversation(self) -> Conversation:
        """The conversation that the run writes to."""
        ...

    @property
    def is_child(self) -> bool:
        """Whether a tool of another run has started it."""
        ...


class RunFollower(Protocol):
    """What follows each run of an agent: telemetry."""

    def follow(self, run: FollowedRun) -> Callable[[Event], None]:
        """A function that gets the events of one run."""
        ...


following: Final[ContextVar[RunFollower | None]] = ContextVar("quiesce_following", default=None)
"""What follows the run whose task or tool is the caller: it follows the children of that run too."""


class AgentConfig(Struct, frozen=True):
    """What an agent is made with: the configuration of its runs, and what a run may be given instead."""

    run: RunConfig
    defaults: RunDefaults
    telemetry: RunFollower | None = None


class AgentRuns:
    """Starts the runs of one agent, and knows those that have not ended. Safe from any thread."""

    def __init__(self, config: AgentConfig, conversation: Conversation) -> None:
        self.config = config
        self.own = OwnConversation(conversation, config.run.agent)
        self.usage: Final = AgentUsage()
        self._active: Final[dict[str, Run[Any]]] = {}

    @property
    def active(self) -> tuple[Run[Any], ...]:
        """The runs that have not ended."""
        return tuple(self._active.copy().values())

    # --- Starting -------------------------------------------------------------------------------------------------

    def wait_for(self, given: Given, options: RunOptions[Any], output_type: Any = None) -> Any:
        """Start a run and wait for its result in this thread."""
        checked = self.checked(options)
        return run_in_background(lambda: self.start_or_join(given, checked, output_type), lambda run, _: run.wait())

    async def wait_for_async(self, given: Given, options: RunOptions[Any], output_type: Any = None) -> Any:
        """Start a run and wait for its result in this task."""
        return await self.start_or_join(given, self.checked(options), output_type)[0]

    def start(self, given: Given, options: RunOptions[Any], output_type: Any = None) -> Run[Any]:
        """Start a run, in this thread's loop or in the background."""
        checked = self.checked(options)
        if running_loop() is None:
            return run_in_background(lambda: self.start_or_join(given, checked, output_type), lambda run, _: run)
        return self.start_or_join(given, checked, output_type)[0]

    def checked(self, options: RunOptions[Any]) -> RunOptions[Any]:
        """The options, with what overrides them, in the caller's own thread. Raises `ConfigurationError`."""
        check_host()
        options = {**options, **_overrides.get().get(id(self), {})}
        check_options(options)
        if not {"conversation", "session", "on_busy"} & options.keys() and self.config.defaults.on_busy == "refuse":
            self.own.note_use()
        return options

    def start_or_join(self, given: Given, options: RunOptions[Any], output_type: Any = None) -> tuple[Run[Any], bool]:
        """A run, and whether it is the caller's: a prompt that steered a run of another caller does not own it."""
        config = self.config
        launch = Launch(config.run, config.defaults, self.own, options, output_type)
        state = launch.state(given)
        try:
            steered = claim_or_queue(state)
            if isinstance(steered, Run):
                return joined(steered), False  # pyright: ignore[reportUnknownArgumentType]
            return self._begin(launch, state), True
        except BaseException as error:
            give_up_start(state, error)
            raise

    def _begin(self, launch: Launch, state: RunState) -> Run[Any]:
        """The run, whose conversation is claimed, or which waits for it."""
        inherited = None if state.family.parent is None else following.get()
        telemetry = self.config.telemetry or inherited
        follow = None if telemetry is None else telemetry.follow(state)
        run: Run[Any] = Run(state, timeout=launch.timeout, on_end=self._on_run_end)
        self._active[state.run_id] = launch.conversation.runs[state.run_id] = run
        self.usage.open(state.spending.bill.ledger)
        if follow is not None:
            run.tap(follow)
        if launch.is_own:
            armed, self.own.armed = self.own.armed, None
            if armed is not None:
                state.token.cancel(armed.reason, mode=armed.mode, source=armed.source)
        return run

    def _on_run_end(self, state: RunState) -> None:
        self._active.pop(state.run_id, None)
        self.usage.close(state.spending.bill.ledger)

    # --- Stopping -------------------------------------------------------------------------------------------------

    def cancel(self, reason: str, mode: Mode, source: Source, *, arm: bool) -> tuple[Run[Any], ...]:
        """Stop the active runs and drop the pending approval; with nothing to stop, arm the own conversation."""
        runs = self.active
        for run in runs:
            run.cancel(reason, mode=mode, source=source)
        asked: tuple[Interrupt, ...] = ()
        with suppress(ConversationBusy):
            asked = self.own.conversation.cancel_pending(self.config.run.cut_note)
        if not runs and not asked and arm:
            if self.own.armed is None:
                self.own.armed = Cause(source, reason, mode)
            runs = self.active  # one may have started just now, before it could see that the agent is armed
            if runs:
                self.own.armed = None
        for run in runs:
            run.cancel(reason, mode=mode, source=source)
        return runs

    async def undo(
        self, session: str | Session | None, conversation: Conversation | None, token: CancellationToken | None
    ) -> tuple[UndoReceipt, ...]:
        """Undo the last task of a conversation. Raises `ConfigurationError`."""
        options: RunOptions[Any] = {}
        if session is not None:
            options["session"] = session
        if conversation is not None:
            options["conversation"] = conversation
        if token is not None:
            options["token"] = token
        check_options(options)
        launch = Launch(self.config.run, self.config.defaults, self.own, options, None)
        return await undo_task(launch.conversation, launch.config, token)

    # --- Tests ----------------------------------------------------------------------------------------------------

    @contextmanager
    def override(self, options: RunOptions[Any]) -> Generator[None]:
        """Replace options of all runs that are started inside the block. Raises `ConfigurationError`."""
        check_options(options)
        with_options(self.config.run, options)
        before = _overrides.get()
        merged: RunOptions[Any] = {**before.get(id(self), {}), **options}
        reset = _overrides.set({**before, id(self): merged})
        try:
            yield
        finally:
            _overrides.reset(reset)
