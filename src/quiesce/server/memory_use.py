"""The memory that ended runs and idle sessions need, by owner."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec import Struct

from ..messages import Message


@dataclass(frozen=True, slots=True)
class _Held:
    owner: str
    messages: tuple[Message, ...]
    bytes: int


class MemoryUse:
    """Bytes by owner. A message that several runs and sessions have counts once. Only for the server's own loop."""

    def __init__(self) -> None:
        self._held: Final[dict[Hashable, _Held]] = {}
        self._holders: Final[Counter[int]] = Counter()
        self._by_owner: Final[Counter[str]] = Counter()

    @property
    def total(self) -> int:
        """The bytes of all owners."""
        return self._by_owner.total()

    def largest_first(self) -> list[str]:
        """The owners, the one that needs the most memory first."""
        return [owner for owner, _ in self._by_owner.most_common()]

    def hold(self, key: Hashable, owner: str, messages: tuple[Message, ...], more: int = 0) -> None:
        """Note that something, named by `key`, has these messages and needs so many bytes more."""
        self.drop(key)
        self._held[key] = _Held(owner, messages, more)
        self._by_owner[owner] += more
        for message in messages:
            self._holders[id(message)] += 1
            if self._holders[id(message)] == 1:
                self._by_owner[owner] += size_of(message)

    def drop(self, key: Hashable) -> None:
        """Note that something was dropped."""
        held = self._held.pop(key, None)
        if held is None:
            return
        self._by_owner[held.owner] -= held.bytes
        for message in held.messages:
            self._holders[id(message)] -= 1
            if not self._holders[id(message)]:
                del self._holders[id(message)]
                self._by_owner[held.owner] -= size_of(message)
        if self._by_owner[held.owner] <= 0:
            del self._by_owner[held.owner]


def size_of(value: Any) -> int:
    """About how many bytes a value needs: those of its texts and of everything that holds them."""
    size, left = 0, [value]
    while left:
        each = left.pop()
        size += sys.getsizeof(each)
        if isinstance(each, Struct):
            left.extend(getattr(each, name) for name in each.__struct_fields__)
        elif isinstance(each, list | tuple | set | frozenset):
            left.extend(cast("list[Any]", each))
        elif isinstance(each, dict):
            for item in cast("dict[Any, Any]", each).items():
                left.extend(item)
    return size
