"""What runs used and what it cost."""

from .calibration import Calibration
from .figure import Figure, Provenance
from .ledger import Ledger, LedgerEntry, TokenUsage, Usage
from .live import LiveUsage
from .prices import Cost, Price, Tier
from .stop_policy import StopPolicy
from .vocabulary import register_vocabulary

__all__ = [
    "Calibration",
    "Cost",
    "Figure",
    "Ledger",
    "LedgerEntry",
    "LiveUsage",
    "Price",
    "Provenance",
    "StopPolicy",
    "Tier",
    "TokenUsage",
    "Usage",
    "register_vocabulary",
]
