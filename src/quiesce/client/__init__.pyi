from .client import Client as Client
from .event_stream import EventGap as EventGap
from .event_stream import StreamedEvent as StreamedEvent
