"""How the parts of a run refer to its state."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .state import RunState


class StateRef:
    """Shared by the parts of a run. Once the run is at rest, they do not keep its state alive any more.

    So a finished run is freed when its last handle is, without the garbage collector.
    """

    __slots__ = ("state",)

    def __init__(self, state: RunState) -> None:
        self.state = state

    def weaken(self) -> None:
        """Hold the state weakly from now on."""
        self.state = weaker(self.state)


def weaker(state: RunState) -> RunState:
    """The state, as it is used everywhere, without keeping it alive."""
    return state if isinstance(state, weakref.ProxyTypes) else weakref.proxy(state)
