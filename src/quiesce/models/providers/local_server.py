"""The process that runs `local:` models: llama.cpp's own server on loopback. Run by its path, so it imports little.

Prints its address on one line when it is ready, and ends with its standard input, as the process that started it does.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

WRONG_WEIGHTS = 3


def main(weights: str, expected: str) -> None:
    """Check the weights, load them, serve."""
    with Path(weights).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected:
            sys.exit(WRONG_WEIGHTS)
    xllamacpp: Any = importlib.import_module("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path = weights
    settings.port = 0
    settings.n_ctx = 8192
    settings.n_parallel = 2
    # It notices a stop between two batches, so a long prompt is read in small ones.
    settings.n_batch = settings.n_ubatch = 32
    # Half the cores: its threads wait for each other by spinning, which on a busy machine costs more than it gains.
    settings.cpuparams.n_threads = max(1, (os.cpu_count() or 2) // 2)
    settings.cpuparams_batch.n_threads = settings.cpuparams.n_threads
    settings.endpoint_slots = True
    settings.endpoint_metrics = True
    settings.verbosity = -1
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # at once: there is nothing to save


if __name__ == "__main__":
    main(*sys.argv[1:])
