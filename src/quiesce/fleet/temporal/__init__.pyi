from .client import TemporalFleet as TemporalFleet
from .records import RunInfo as RunInfo
from .records import TemporalRun as TemporalRun
from .records import TemporalStopState as TemporalStopState
from .worker import TemporalWorker as TemporalWorker
from .worker import TemporalWorkerSettings as TemporalWorkerSettings
