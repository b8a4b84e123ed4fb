"""The price list is large: it is loaded in a thread, all of it, before the first request is billed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.promise("P1")

PROGRAM = """
import sys, threading
from quiesce.usage.price_list import load_prices
if "without" in sys.argv:
    def start(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = start
load_prices("openai:gpt-4o")
for thread in threading.enumerate():
    if thread.name == "quiesce-prices":
        thread.join()
print("genai_prices.data" in sys.modules)
"""


@pytest.mark.parametrize(("threads", "loaded"), [("with", "True"), ("without", "False")])
def test_the_whole_list_is_loaded_in_a_thread(threads: str, loaded: str) -> None:
    pytest.importorskip("genai_prices")
    done = subprocess.run([sys.executable, "-c", PROGRAM, threads], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == loaded, done.stderr
