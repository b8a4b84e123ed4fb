"""What the tests of trees share."""

from __future__ import annotations

from quiesce.events import ChildEvent, Event
from quiesce.models.scripted import Call


def asks(*names: str) -> list[Call]:
    return [Call(name, {"prompt": f"do {number}"}) for number, name in enumerate(names)]


async def until(run, kind: type[Event], depth: int = 0) -> Event:
    """The first event of a kind, `depth` levels down."""
    async for outer in run.events():
        event, level = outer, 0
        while isinstance(event, ChildEvent):
            event, level = event.event, level + 1
        if level == depth and isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} at depth {depth}")
