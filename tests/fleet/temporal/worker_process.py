"""A worker with the agent of the fleet's tests. SIGTERM lets it drain."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from temporalio.client import Client

from quiesce.fleet.temporal import TemporalWorker, TemporalWorkerSettings

from ..agents import agent


async def main(address: str, queue: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await Client.connect(address)
    settings = TemporalWorkerSettings(heartbeat=0.5, drain=0.2)
    await TemporalWorker(agent, client=client, queue=queue, settings=settings).run(stop)


asyncio.run(main(*sys.argv[1:]))
os._exit(0)  # as docs/temporal.md says: a thread of temporalio may abort the process while Python ends
