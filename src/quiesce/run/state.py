"""The state of one run: what the loop and the settling read and write, in parts that each have a name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from ..cancellation import BoundedShield, CancellationToken, Mode, TokenView
from ..errors import StoreError
from ..events import ChildEvent, Event, HookFailed
from ..hooks import HookEvent
from ..phases import Phase
from ..result import RunResult
from ..run_context import RunContext
from ..sessions import Conversation
from ..sessions.queue.waiting import BusyPolicy
from ..usage.ledger import Ledger
from .claim import Claim
from .config import RunConfig, RunInput, billing_terms
from .events.fanout import EventFanout
from .family import Family, Parent
from .foreign_tasks import ForeignTasks
from .progress import Progress
from .prompts import PendingPrompts
from .saving import Saving
from .spending import Spending
from .tool_calls import RunTools
from .turn import TurnInProgress


class RunState:
    """Everything that a run knows about itself. Only for the run's own loop, except for what says otherwise."""

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
        above = None if parent is None else parent.state
        self.run_id: Final = run_id
        self.config = config
        self.token: Final = token
        self.claim: Final = Claim(conversation, input, _context(run_id, config, conversation, input, token))
        self.progress: Final = Progress(token)
        self.turn: Final = TurnInProgress(conversation)
        self.prompts: Final = PendingPrompts(run_id, conversation, self.steer_soon)
        self.family: Final = Family(parent)
        self.events: Final = EventFanout() if above is None else EventFanout(above.events, self._as_child)
        self.saving: Final = Saving()
        self.tools: Final = RunTools(self, None if above is None else above.tools.undo_log)
        self.spending: Final = Spending(self, None if above is None else above.ledger, billing_terms(config))
        self.foreign_tasks: Final = ForeignTasks()
        self.shield: Final = BoundedShield(f"settling run {run_id}")
        self.result: RunResult | None = None

    # --- Short ways to the parts ----------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation:
        """The conversation that the run writes to, once it holds it."""
        return self.claim.conversation

    @property
    def ledger(self) -> Ledger:
        """The record of the run's requests."""
        return self.spending.bill.ledger

    def lineage(self) -> tuple[RunState, ...]:
        """This run and its parents, from here to the root."""
        return (self, *self.family.above)

    def still_running(self) -> tuple[str, ...]:
        """What could not be proved to have stopped."""
        tasks = (task.get_name() for task in self.foreign_tasks.abandoned if not task.done())
        return (*self.tools.still_running(), *tasks, *self.spending.followed(), *self.family.still_running())

    # --- Events and hooks -----------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Tell the readers, unless the run is over."""
        if self.progress.phase is not Phase.ENDED:
            self.events.push(event)

    def _as_child(self, event: Event) -> Event:
        """An event as the readers of the parent see it."""
        return ChildEvent(self.family.call_id or "", self.run_id, event)

    async def call_hooks(self, event: HookEvent) -> None:
        """Call the hooks for an event, from the run's own task."""
        await self.saving.durable()
        called = self.config.hooks.call(event, self.hook_failed)
        await self.foreign_tasks.run(called, f"hooks for {type(event).__name__}")

    def wants(self, event: type[HookEvent]) -> bool:
        """Whether a hook is registered for a kind of event."""
        return bool(self.config.hooks.wanting(event))

    def hook_failed(self, name: str, event: HookEvent, error: BaseException) -> None:
        """A hook raised: an event, not a dead run."""
        self.emit(HookFailed(name, type(event).__name__, f"{type(error).__name__}: {error}"))

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
