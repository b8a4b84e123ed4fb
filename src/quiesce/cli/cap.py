"""`quiesce cap`: what all runs of a key, an agent or a day may use together, in a fleet."""

from __future__ import annotations

import argparse
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from .json_lines import add_option, tell_all
from .main import Subparsers
from .remote import add_store_option, in_fleet

if TYPE_CHECKING:
    from ..fleet.cap_table import Cap, CapUse
    from ..fleet.client import Fleet

_VALUES: Final = ("runs", "tokens", "cost", "run_tokens", "run_cost")


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("cap", help="set, list or remove the caps of a fleet: runs at once, tokens, money")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--key", metavar="NAME", help="the runs of this key (default: of all keys together)")
    whose.add_argument("--each-key", action="store_true", help="the runs of each key by itself")
    parser.add_argument("--agent", default="", metavar="NAME", help="only runs of this agent")
    parser.add_argument("--runs", type=int, metavar="N", help="runs at once, queued ones included")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens a day (UTC), in and out")
    parser.add_argument("--cost", type=_money, metavar="AMOUNT", help="money a day (UTC)")
    parser.add_argument("--run-tokens", type=int, metavar="N", help="tokens of one run (default: a tenth of --tokens)")
    parser.add_argument(
        "--run-cost", type=_money, metavar="AMOUNT", help="money of one run (default: a tenth of --cost)"
    )
    parser.add_argument("--remove", action="store_true", help="remove the cap for these runs")
    add_store_option(parser, only=True)
    add_option(parser, "the caps, with what is used of them,")
    parser.set_defaults(run=run, usage_error=parser.error)


def _money(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of money") from None


def run(options: argparse.Namespace) -> int:
    """Set or remove a cap, and print all of them; returns 1 when there is none to remove."""
    from ..fleet.cap_table import EACH, Cap

    owner = EACH if options.each_key else options.key or ""
    values = {name: getattr(options, name) for name in _VALUES}
    is_set = any(value is not None for value in values.values())
    if options.remove and is_set:
        options.usage_error("--remove takes no values")

    async def change(fleet: Fleet) -> int:
        removed = True
        if options.remove:
            removed = await fleet.caps.remove(owner, options.agent)
            if not removed and not options.json:
                print("There is no such cap.")
        elif is_set:
            await fleet.caps.set(Cap(owner, options.agent, **values))
        tell_all(options, await fleet.caps.list(), _text, "No caps.", _value)
        return 0 if removed else 1

    return in_fleet(options, change)


def _value(listed: tuple[Cap, CapUse | None]) -> dict[str, Any]:
    cap, used = listed
    return {**structs.asdict(cap), "used": None if used is None else used._asdict()}


def _text(listed: tuple[Cap, CapUse | None]) -> str:
    cap, used = listed
    parts: list[str] = []
    for value, unit, amount in (
        (cap.runs, "runs at once", used and used.runs),
        (cap.tokens, "tokens a day", used and used.tokens),
        (cap.cost, "of money a day", used and used.cost),
    ):
        if value is not None:
            parts.append(f"{value:,} {unit}" + ("" if amount is None else f" ({amount:,} used)"))
    return f"{cap.scope}: {', '.join(parts)}"
