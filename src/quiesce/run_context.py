"""The context of one run: what tools, hooks, instructions and middleware are given that belongs to that run alone."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .cancellation import TokenView

    DepsT = TypeVar("DepsT", default=Any)
else:  # the default is for type checkers; workers of killable tools import as little as possible
    DepsT = typing.TypeVar("DepsT")


class RunContext(Generic[DepsT]):
    """One run as the user's own code sees it. Its attributes cannot be replaced; `state` can be written to.

    deps      what the caller gave as `deps=`: connections, the user, a clock. Never stored, nor shared with other runs
    state     a dict of the conversation, saved with its session
    run_id    the run's id
    agent     the name of the agent that the run was started with
    session   the name of the session; None for a conversation that is only in memory
    owner     the API key's owner on a server, "" elsewhere
    task      the id of the task: the same for all runs that follow from one prompt, over approvals and restarts
    token     whether, and why, the run was asked to stop: to read and to wait for
    """

    __slots__ = ("agent", "deps", "owner", "run_id", "session", "state", "task", "token")

    def __init__(
        self,
        *,
        deps: DepsT,
        state: dict[str, Any],
        run_id: str,
        token: TokenView,
        agent: str = "",
        session: str | None = None,
        owner: str = "",
        task: str = "",
    ) -> None:
        self.deps: Final = deps
        self.state: Final = state
        self.run_id: Final = run_id
        self.agent: Final = agent
        self.session: Final = session
        self.owner: Final = owner
        self.token: Final = token
        self.task: Final = task

    def begun(self, state: dict[str, Any], task: str) -> RunContext[DepsT]:
        """The same run once it has begun: with the state of its conversation, and its task."""
        return RunContext(**self.fields(state=state, task=task))

    def fields(self, **changes: Any) -> dict[str, Any]:
        """The attributes by name, with these changes, to make another context of the same run."""
        return {name: getattr(self, name) for name in RunContext.__slots__} | changes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.run_id}>"
