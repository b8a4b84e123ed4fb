"""The state of one run: what the loop and the settling read and write, in parts that each have a name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .. import sessions
from ..cancellation import BoundedShield, CancellationToken, Mode, TokenView
from ..cancellation.raised import raised_in, stop_cause
from ..conversation.conversation import Conversation
from ..errors import StoreError
from ..events import Event, HookFailed
from ..hooks import HookEvent
from ..interrupts import PendingTurn
from ..messages import UserMessage
from ..result import RunResult
from ..run_context import RunContext
from ..sessions.queue.busy_policy import BusyPolicy
from ..sessions.type_guard import is_session
from ..tools.current_run import run_of_call
from ..usage.ledger import Ledger
from .config import RunConfig, RunInput, billing_terms
from .events.fanout import EventFanout
from .family import Family, Parent
from .foreign_tasks import ForeignTasks
from .progress import Progress
from .prompts import PendingPrompts
from .spending import Spending
from .state_ref import StateRef
from .tool_calls import RunTools
from .turn import TurnInProgress

if TYPE_CHECKING:
    from ..sessions.journal.journal import Journal
    from .running_task import RunningTask


class Claim:
    """A run's claim on its conversation: what it begins with, and whether it holds the conversation."""

    __slots__ = (
        "context",
        "continued_text",
        "conversation",
        "first_message",
        "granted",
        "held",
        "input",
        "prompt",
        "task",
        "waiting_turn",
    )

    def __init__(self, conversation: Conversation, input: RunInput, context: RunContext[Any]) -> None:
        self.conversation: Final = conversation
        self.context = context
        """The run as the user's code sees it, with the state of the conversation once that is held."""
        self.input: Final = input
        self.prompt: UserMessage | None = input.prompt
        """The user message that the run begins with, if it begins with one."""
        self.granted: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.held = False
        self.first_message = 0
        """How many messages the conversation had before this run."""
        self.continued_text = ""
        """The text of the answer that this run goes on with."""
        self.waiting_turn: PendingTurn | None = None
        """The turn that this run answers, as it waited before."""

        self.task: RunningTask | None = None
        """The task that the run is a part of, once the conversation is held."""

    def begin(self, initial_state: dict[str, Any], task: RunningTask) -> None:
        """The conversation is held and loaded: its state is what the user's code sees from now on."""
        self.task = task
        self.context = self.context.begun(self.conversation.begin_state(initial_state), task.id)


class Saving:
    """The journal of a run whose conversation has a store. Only for the run's own loop."""

    __slots__ = ("journal", "unsaved")

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.unsaved: StoreError | None = None
        """Why the store does not have everything, once that is known."""

    def open(self, state: RunState) -> Journal:
        """Begin to open the session, which is the run's conversation."""
        session = state.claim.conversation
        assert is_session(session)
        self.journal = state.events.barrier = session.journal(state)
        return self.journal

    def keep(self, conversation: Conversation, name: str, value: bytes) -> None:
        """Keep a value of the conversation, in its store where it has one."""
        conversation.values[name] = value
        if self.journal is not None:
            self.journal.set_value(name, value)

    async def durable(self) -> None:
        """Wait until everything that happened so far is saved, where there is a store to save it in."""
        if self.journal is not None:
            await self.journal.durable()


class RunState:
    """Everything that a run knows about itself. Only for the run's own loop, except for what says otherwise."""

    __slots__ = (
        "__weakref__",
        "claim",
        "config",
        "events",
        "family",
        "foreign_tasks",
        "progress",
        "prompts",
        "result",
        "run_id",
        "saving",
        "shield",
        "spending",
        "token",
        "tools",
        "turn",
    )

    def __init__(
        self,
        run_id: str,
        config: RunConfig,
        conversation: Conversation,
        input: RunInput,
        token: CancellationToken,
        *,
        parent: Parent | None = None,
    ) -> None:
        above, ref = None if parent is None else parent.state, StateRef(self)
        self.run_id: Final = run_id
        self.config = config
        self.token: Final = token
        self.claim: Final = Claim(conversation, input, _context(run_id, config, conversation, input, token))
        self.progress: Final = Progress(token)
        self.turn: Final = TurnInProgress(conversation)
        self.prompts: Final = PendingPrompts(run_id, conversation, lambda mode: ref.state.steer_soon(mode))  # noqa: PLW0108
        self.family: Final = Family(ref, parent)
        self.events: Final = EventFanout() if above is None else EventFanout(above.events, self.family.as_child)
        self.saving: Final = Saving()
        self.tools: Final = RunTools(ref, None if above is None else above.tools.undo_log)
        ledger = Ledger(None if above is None else above.spending.bill.ledger)
        self.spending: Final = Spending(ref, ledger, billing_terms(config))
        self.foreign_tasks: Final = ForeignTasks()
        self.shield: Final = BoundedShield(f"settling run {run_id}")
        self.result: RunResult | None = None

    @property
    def context(self) -> RunContext[Any]:
        """The run as its tools see it."""
        return self.claim.context

    @property
    def conversation(self) -> Conversation:
        """The conversation that the run writes to, or waits for."""
        return self.claim.conversation

    @property
    def is_child(self) -> bool:
        """Whether a tool of another run has started it."""
        return self.family.parent is not None

    def still_running(self) -> tuple[str, ...]:
        """What could not be proved to have stopped."""
        abandoned = self.foreign_tasks.abandoned
        tasks = [task.get_name() for task in abandoned if not task.done()] if abandoned else ()
        children = self.family.still_running() if self.family.children else ()
        return (*self.tools.still_running(), *tasks, *self.spending.followed(), *children)

    async def save_progress(self) -> None:
        """Wait until what is about to happen is saved, where there is a store: that of this run, or of the one above.

        A child has no journal; what it uses of the budget is saved with the task.
        """
        above = self.family.lineage[-1]
        if self.saving.journal is not None:
            await self.saving.journal.durable()
        elif above.saving.journal is not None and above.progress.loop is self.progress.loop:
            await above.saving.journal.save_values()

    def let_go(self) -> None:
        """The run is at rest: nothing in it keeps it alive from now on, unless something is left that may need it."""
        left = self.still_running() if self.result is None else self.result.receipt.still_running
        if not left and not self.spending.bill.ledger.expected():
            self.family.weaken()
            self.saving.journal = None
            self.tools.let_go()
            self.foreign_tasks.let_go()

    # --- Events and hooks -----------------------------------------------------------------------------------------

    async def call_hooks(self, event: HookEvent) -> None:
        """Call the hooks for an event, from the run's own task."""
        await self.saving.durable()
        called = self.config.hooks.call(event, self.hook_failed)
        await self.foreign_tasks.run(called, f"hooks for {type(event).__name__}")

    def hook_failed(self, name: str, event: HookEvent, error: BaseException) -> None:
        """A hook raised: an event, not a dead run."""
        self.events.push(HookFailed(name, type(event).__name__, f"{type(error).__name__}: {error}"))

    # --- Steering -------------------------------------------------------------------------------------------------

    def steer_soon(self, mode: Mode) -> None:
        """Cut the current work, because an urgent prompt is in the inbox. From any thread."""
        with suppress(RuntimeError):  # the loop has closed
            self.progress.loop.call_soon_threadsafe(self._steer, mode)

    def _steer(self, mode: Mode) -> None:
        if self.claim.held and self.prompts.inbox.urgent:
            self.progress.work_token.cancel("steered", mode=mode)

    def new_work_token(self) -> None:
        """Begin work that the last steer did not ask to cut."""
        self.progress.work_token = self.token.child()

    # --- What a journal needs of its run (`RunHost`) --------------------------------------------------------------

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.config.agent

    @property
    def busy_policy(self) -> BusyPolicy:
        """What to do when another process holds the session."""
        return BusyPolicy(self.claim.input.on_busy, self.claim.input.prompt)

    @property
    def prompt_receiver(self) -> PendingPrompts:
        """Where prompts of other processes go."""
        return self.prompts

    def deliver(self, events: Sequence[Event]) -> None:
        """Hand the readers events that are saved now."""
        self.events.deliver(events)

    def fail(self, error: StoreError) -> None:
        """End the run, because it cannot be saved."""
        self.progress.fail(error)

    def stop_because(self, error: BaseException) -> None:
        """Stop the run, unless it is at rest: an exception that ends the program was raised, such as Ctrl-C.

        Where that was in the journal, its work is half done: the next run reads the session from the store again.
        """
        if self.saving.journal is not None and raised_in(error, sessions.__name__):
            self.saving.journal.interrupt()
        if not self.progress.at_rest.done():
            reason, source = stop_cause(error)
            self.token.cancel(reason, source=source)


def state_of_call(run_id: str) -> RunState:
    """The state of the run with this id, if the caller is one of its tools. Raises `ConfigurationError` otherwise."""
    state = run_of_call(run_id)
    assert isinstance(state, RunState)
    return state


def _context(
    run_id: str, config: RunConfig, conversation: Conversation, input: RunInput, token: CancellationToken
) -> RunContext[Any]:
    """The run as the user's code sees it, before the conversation is held."""
    return RunContext(
        deps=input.deps,
        state={},
        run_id=run_id,
        token=TokenView(token),
        agent=config.agent,
        session=conversation.session_name,
        owner=input.owner,
    )
