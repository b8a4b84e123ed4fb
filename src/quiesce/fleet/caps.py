"""Caps of a fleet: what all runs of a key, an agent or a day may use together."""

from __future__ import annotations

import builtins
from decimal import Decimal
from typing import Final

from ..errors import ConfigurationError
from . import cap_table
from .cap_table import Cap, CapUse
from .database import FleetDatabase


class Caps:
    """The caps of a fleet. They hold for all replicas and workers from the moment when they are set."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database: Final = database

    async def set(self, cap: Cap) -> None:
        """Set a cap, in place of the one for the same owner and agent.

        Raises `ConfigurationError` for a number below 0, or one that is no amount.
        """
        for name in ("runs", "tokens", "cost", "run_tokens", "run_cost"):
            value: int | Decimal | None = getattr(cap, name)
            if value is not None and not _is_valid(value, may_be_0=not name.startswith("run_")):
                raise ConfigurationError(f"Cap({name}={value}) makes no sense.", todo="Use a positive number.")
        await self._database.ask(cap_table.put, cap)

    async def remove(self, owner: str = "", agent: str = "") -> bool:
        """Remove a cap. False when there is none."""
        return await self._database.ask(cap_table.delete, owner, agent)

    async def list(self) -> builtins.list[tuple[Cap, CapUse | None]]:
        """All caps, and what is used of them; None for a cap of each owner."""
        async with self._database.connection() as db:
            return [
                (cap, None if cap.owner == cap_table.EACH else await cap_table.use(db, cap, cap.owner))
                for cap in await cap_table.select(db)
            ]

    async def of(self, owner: str, agent: str) -> builtins.list[tuple[Cap, CapUse]]:
        """The caps that a run of this owner and agent counts for, and what is used of them."""
        async with self._database.connection() as db:
            found = await cap_table.applying(db, owner, agent)
            return [(cap, await cap_table.use(db, cap, owner)) for cap in found]


def _is_valid(value: int | Decimal, *, may_be_0: bool) -> bool:
    """Whether the table can hold a number, and it is no less than 0."""
    is_finite = not isinstance(value, Decimal) or value.is_finite()
    return is_finite and 0 <= value < 1 << 63 and (bool(value) or may_be_0)
