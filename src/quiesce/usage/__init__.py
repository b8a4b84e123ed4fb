"""What runs used and what it cost."""

from .figure import Figure, Provenance
from .ledger import Ledger, LedgerEntry, TokenUsage, Usage
from .prices import Cost, Price

__all__ = ["Cost", "Figure", "Ledger", "LedgerEntry", "Price", "Provenance", "TokenUsage", "Usage"]
