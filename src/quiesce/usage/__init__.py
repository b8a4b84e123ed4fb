"""What runs used and what it cost."""

from .estimate.calibration import Calibration
from .estimate.vocabulary import register_vocabulary, unload_vocabularies
from .figure import Figure, Provenance
from .ledger import Ledger, LedgerEntry, TokenUsage, Usage
from .live import LiveUsage
from .prices import Cost, Price, Tier
from .stop_policy import RequestStopPolicy

__all__ = [
    "Calibration",
    "Cost",
    "Figure",
    "Ledger",
    "LedgerEntry",
    "LiveUsage",
    "Price",
    "Provenance",
    "RequestStopPolicy",
    "Tier",
    "TokenUsage",
    "Usage",
    "register_vocabulary",
    "unload_vocabularies",
]
