"""Many machines: runs in a queue in Postgres, taken by worker processes, watched and stopped from anywhere.

Needs the extra `postgres`: `pip install "quiesce[postgres]"`.
"""

from .client import Fleet
from .records import FleetRun, OnWorkerLoss, RunRequest, StopState, WorkerInfo
from .worker import Worker, WorkerSettings

__all__ = ["Fleet", "FleetRun", "OnWorkerLoss", "RunRequest", "StopState", "Worker", "WorkerInfo", "WorkerSettings"]
