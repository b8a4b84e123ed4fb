"""What a tool returns when its undo needs more than the model sees."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ToolReturn(Struct, frozen=True):
    """A tool's return value in two parts: `content` for the model, `data` for the tool's undo.

        return ToolReturn("Booked.", data=Booking(number))

    `content` is whatever a tool may return. `data` is the `result` of the undo function. With a store it is kept there:
    use types that msgspec can write as JSON (a dataclass or a `msgspec.Struct` of text, bytes and numbers), and name
    the type in the undo function, `def cancel_booking(result: Booking)`, so that it can be read back.
    """

    content: Any
    data: Any = None
