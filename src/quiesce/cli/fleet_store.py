"""The commands `ps`, `stop`, `attach` and `workers` against the store of a fleet, without a server."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

import msgspec

from ..cancellation import Mode
from ..fleet.client import Fleet
from ..fleet.records import ACTIVE, FleetRun, StopState
from .freeze import show_active, stops_text
from .json_lines import print_line
from .remote import only_run
from .sanitize import clean

# The usage of a run that goes on is in its journal, which `ps` does not read.
_NOT_KNOWN: Final = {key: {"value": None, "low": 0, "source": "unknown"} for key in ("input", "output")}


async def chosen_run(fleet: Fleet, wanted: str) -> FleetRun:
    """The run whose id begins with this. Raises `ServerProblem` when there is none, or more than one."""
    return only_run(await fleet.runs(prefix=wanted, limit=4), wanted)


async def listed_runs(fleet: Fleet, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs that the options of `ps` choose, the newest first."""
    states = (("running",) if options.state == "stopping" else (options.state,)) if options.state else ()
    if not options.state and not options.all:
        states = ACTIVE
    if not options.json:
        await show_active(fleet)
    views = (view(run) for run in await fleet.runs(states=states, limit=options.limit))
    return [
        each for each in views if options.state in (None, each["state"]) and options.session in (None, each["session"])
    ]


async def stop_runs(fleet: Fleet, options: argparse.Namespace) -> int:
    """Request the stops that the options of `stop` name, and print how far each has come."""
    mode, undo = Mode(options.mode), True if options.undo else None
    if options.all:
        stopped = await fleet.stop_all(options.reason, agent=options.agent, mode=mode, undo=undo)
        if not options.json:
            print(stops_text(stopped))
        wait = options.wait or 0.0
        async with asyncio.TaskGroup() as group:
            rests = [group.create_task(fleet.rest(run_id, wait)) for run_id in stopped] if wait else []
        left = [run.id for run in (rest.result() for rest in rests) if run is not None and run.is_active]
        if options.json:
            ended = dict(zip(stopped, (rest.result() for rest in rests), strict=False))
            for run_id in stopped:
                run = ended.get(run_id)
                receipt = None if run is None or run.is_active else run.receipt
                print_line({"run": run_id, "accepted": True, "at_rest": receipt is not None, "receipt": receipt})
        elif wait:
            print(f"{len(stopped) - len(left)} at rest, {len(left)} not at rest after {wait:g} s.")
        return 3 if left else 0
    code = 0
    for wanted in options.runs:
        run = await chosen_run(fleet, wanted)
        state = await fleet.stop(run.id, options.reason, mode=mode, undo=undo, wait=options.wait)
        if state is not None and options.json:
            receipt = state.run.receipt if state.at_rest else None
            print_line({"run": run.id, "accepted": state.accepted, "at_rest": state.at_rest, "receipt": receipt})
        elif state is not None:
            print(clean(f"{state.run.id}: {_progress(state)}."))
            if state.at_rest:
                print(clean(str(state.run.receipt)))
        if state is not None and options.wait is not None and not state.at_rest:
            code = 3
    return code


def _progress(state: StopState) -> str:
    if not state.accepted:
        return "was at rest already"
    return "at rest" if state.at_rest else "delivered, not at rest yet" if state.delivered else "accepted"


def view(run: FleetRun) -> dict[str, Any]:
    """A run as the server's views have it, as far as its row says."""
    prompt, receipt = run.prompt, run.receipt
    stopping = run.state == "running" and bool(run.stop)
    return {
        "id": run.id,
        "owner": run.owner,
        "agent": run.agent,
        "session": run.label,
        "state": "stopping" if stopping else run.state,
        "phase": run.state,
        "stop_reason": run.reason or None,
        "created_at": run.created,
        "ended_at": run.ended,
        "worker": run.worker,
        "waiting_for": [],
        "usage": _NOT_KNOWN if receipt is None else msgspec.to_builtins(receipt.usage.tokens),
        "prompt": "" if prompt is None else prompt.text,
        "continued_from": run.continued_from,
        "restarted_as": run.restarted_as,
    }
