"""The runs around a run: the one whose tool started it, and those that its own tools have started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..cancellation import Source
from ..events import ChildEvent, Event
from ..result import RunResult
from .state_ref import StateRef, weaker

if TYPE_CHECKING:
    from .state import RunState


class ChildHandle(Protocol):
    """What a run needs of the handle of a child run."""

    def cancel(self, reason: str = "", *, source: Source = "user") -> bool:
        """Ask the child to stop."""
        ...


class ChildRun(Struct, frozen=True):
    """A run that a tool of this one has started."""

    handle: ChildHandle
    state: RunState


class Parent(Struct, frozen=True):
    """The run that a child run belongs to, and the call of it that started the child."""

    state: RunState
    call_id: str


class Family:
    """The parent of a run and its children. Only for the run's own loop."""

    __slots__ = ("__weakref__", "_run_id", "children", "lineage", "parent", "ref")

    def __init__(self, ref: StateRef, parent: Parent | None) -> None:
        self.ref: Final = ref
        self._run_id: Final = ref.state.run_id
        self.parent = parent
        self.lineage: tuple[RunState, ...] = (ref.state, *(() if parent is None else parent.state.family.lineage))
        """The run, its parent, and so on up to the root."""
        self.children: Final[list[ChildRun]] = []

    def weaken(self) -> None:
        """At rest, its parts and its parent no longer keep the run alive, and it no longer keeps its parents alive."""
        self.ref.weaken()
        self.lineage = tuple([weaker(state) for state in self.lineage])
        if self.parent is not None:
            self.parent = replace(self.parent, state=weaker(self.parent.state))

    def as_child(self, event: Event) -> Event:
        """An event as the readers of the parent see it."""
        return ChildEvent(self.call_id or "", self._run_id, event)

    @property
    def call_id(self) -> str | None:
        """The call of the parent that started the run."""
        return None if self.parent is None else self.parent.call_id

    def is_below(self, run_id: str) -> bool:
        """Whether a run is the parent, or one of its parents."""
        return any(state.run_id == run_id for state in self.lineage[1:])

    @property
    def living(self) -> list[ChildRun]:
        """The children that have not ended."""
        return [child for child in self.children if not child.state.progress.ended]

    def results(self) -> tuple[RunResult, ...]:
        """The results of the children that have one."""
        results = (child.state.result for child in self.children)
        return tuple(result for result in results if result is not None)

    def still_running(self) -> Iterator[str]:
        """What is left of the children: those that have not ended, and what they have left running."""
        for child in self.children:
            if not child.state.progress.ended:
                yield f"run {child.state.run_id} ({child.state.config.agent})"
            yield from child.state.still_running()
