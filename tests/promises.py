"""The promises, each in one sentence. Every test names one or two that it proves; `test_promises.py` checks it."""

from typing import Final

PROMISES: Final = {
    "P1": "Prompt: from the request to the end, no waiting on provider, back-off or hook; a tool gets its grace.",
    "P2": "Valid: at every moment that can be observed, the conversation is one that every provider accepts.",
    "P3": "Nothing lost: streamed text and finished results stay; only what was torn is cut, and says so.",
    "P4": "Honest: what is said of each tool is true, and a late outcome is recorded when it lands.",
    "P5": "Quiet: after the end nothing of the run is left running or open, except what the receipt names.",
    "P6": "Accounted: every request that was sent has a ledger entry, and never a zero for an unknown.",
    "P7": "One end: exactly one terminal event, and the right one; outside cancellation passes, our own never leaks.",
    "P8": "Isolated: stopping one run touches no other, and a stop that comes too late touches nothing.",
    "P9": "Durable: with a store, a kill at any instant leaves a conversation that loads, is valid and continues.",
}

# Promises whose feature is not built yet, and what is planned. Tests of them are welcome; until the first one lands,
# the promise may be without.
PLANNED: Final[dict[str, str]] = {}
