from .client import Fleet as Fleet
from .records import FleetRun as FleetRun
from .records import OnWorkerLoss as OnWorkerLoss
from .records import RunRequest as RunRequest
from .records import StopState as StopState
from .records import WorkerInfo as WorkerInfo
from .worker import Worker as Worker
from .worker import WorkerSettings as WorkerSettings
