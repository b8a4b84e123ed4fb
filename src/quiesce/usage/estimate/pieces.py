"""A text that is streamed in pieces."""

from __future__ import annotations

from typing import Final

# So many pieces are joined at a time.
GROUP: Final = 1024


class Pieces(list[str]):
    """The pieces of a text, in order. Joining a million takes 30 ms, so groups of them are joined while they come."""

    __slots__ = ("_groups",)

    _groups: list[str]  # missing until there is one: nearly every text has fewer pieces

    def join_group(self) -> None:
        """Join the next group, if it is complete: called when the number of pieces is a multiple of `GROUP`."""
        if not hasattr(self, "_groups"):
            self._groups = []
        first = len(self._groups) * GROUP
        if len(self) >= first + GROUP:
            self._groups.append("".join(self[first : first + GROUP]))

    def text(self, first: int = 0) -> str:
        """The text from a piece on. From any thread, also while pieces are added."""
        if len(self) < GROUP:
            return "".join(self[first:] if first else self)
        whole = -(-first // GROUP)  # the first group that begins there or later
        groups = getattr(self, "_groups", ())[whole:]
        if not groups:
            return "".join(self[first:])
        return "".join((*self[first : whole * GROUP], *groups, *self[(whole + len(groups)) * GROUP :]))
