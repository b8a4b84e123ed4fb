from .tracing import Telemetry as Telemetry
