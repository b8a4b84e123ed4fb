"""The worker of `bench.temporal_stop`: `python -m bench._temporal_worker ADDRESS`."""

from __future__ import annotations

import asyncio
import signal
import sys

from temporalio.client import Client

from bench._fleet_agent import agent
from quiesce.fleet.temporal import TemporalWorker, TemporalWorkerSettings


async def main(address: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = TemporalWorkerSettings(drain=0)
    await TemporalWorker(agent, client=await Client.connect(address), settings=settings).run(stop)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
