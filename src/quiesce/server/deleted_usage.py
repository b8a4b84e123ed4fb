"""The usage of deleted runs, which outlives them in the store.

The values of each owner are sums by day, model and agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from ..sessions import SessionStore
from .owner_values import OwnerValues
from .schemas import UsageView
from .usage import UsageKey, UsageRows, add_up

_NAME: Final = ".usage"
_SUM: Final = "usage "
# The runs that are counted and perhaps not deleted yet, because a crash came between.
_COUNTED: Final = "counted"


def owner_of_deleted(stored: str) -> str | None:
    """The owner whose record a stored session is; None for any other session."""
    owner, _, name = stored.partition("/")
    return unquote(owner) if name == _NAME else None


class DeletedUsage:
    """Keeps the usage of deleted runs. Only for the server's own loop."""

    def __init__(self, store: SessionStore) -> None:
        self._store: Final = store
        self._values: Final = OwnerValues(store, _NAME)

    async def read(self, owner: str) -> tuple[UsageRows, list[str]]:
        """The sums of an owner, and the runs among them that may not be deleted yet. Raises a `StoreError`."""
        values = await self._values.read(owner)
        return list(_sums(values).items()), _counted(values)

    async def add(self, owner: str, by_run: Mapping[str, UsageRows]) -> None:
        """Add the usage of runs, before they are deleted. Raises a `StoreError`; then it may be repeated."""
        await self._values.change(owner, lambda values: self._changed(values, by_run))

    async def _changed(self, values: Mapping[str, bytes], by_run: Mapping[str, UsageRows]) -> dict[str, bytes]:
        """The values that change when runs are added. One that was counted before does not count again."""
        counted = _counted(values)
        left = [run_id for run_id in counted if await asyncio.wrap_future(self._store.find_run(run_id))]
        before = _sums(values)
        sums = dict(before)
        for run_id, rows in by_run.items():
            for key, usage in () if run_id in left else rows:
                add_up(sums, key, usage)
        changed = {_SUM + "\n".join(key): sums[key] for key in sums if sums[key] != before.get(key)}
        encoded = {name: msgspec.json.encode(usage) for name, usage in changed.items()}
        return {**encoded, _COUNTED: msgspec.json.encode([*dict.fromkeys((*left, *by_run))])}


def _sums(values: Mapping[str, bytes]) -> dict[UsageKey, UsageView]:
    found: dict[UsageKey, UsageView] = {}
    for name, value in values.items():
        if name.startswith(_SUM):
            day, model, agent = (*name.removeprefix(_SUM).split("\n", 2), "")[:3]  # older sums have no agent
            found[day, model, agent] = msgspec.json.decode(value, type=UsageView)
    return found


def _counted(values: Mapping[str, bytes]) -> list[str]:
    return msgspec.json.decode(values.get(_COUNTED, b"[]"), type=list[str])
