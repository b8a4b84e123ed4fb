"""A program that stops well on Ctrl-C and SIGTERM, and says so in its exit code."""

import os
import signal
import sys

from quiesce import Agent, stop_on_signals
from quiesce.models.scripted import Say, ScriptedModel, Stall


def main() -> int:
    agent = Agent(ScriptedModel([Say("Compiling the almanac. "), Stall()]))
    run = agent.start("Compile the almanac.")
    with stop_on_signals(run) as stop:
        os.kill(os.getpid(), signal.SIGTERM)  # so that this example ends: in real life another process sends it
        result = run.wait()
    print(result.receipt)
    code = 128 + stop.received[0] if stop.received else 0
    print(f"exit code {code}")
    return 0  # a real program returns `code`


sys.exit(main())
