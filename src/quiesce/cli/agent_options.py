"""The options that choose the agent of a command."""

from __future__ import annotations

import argparse

from ..agent import Agent
from ..processes.environment import hide_environment
from .load_agent import load_agent


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options `--agent` and `--model`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--agent", metavar="MODULE:AGENT", help="an agent from your code")
    which.add_argument(
        "--model",
        metavar="PROVIDER:MODEL",
        help="an agent without tools, with this model (default: QUIESCE_MODEL, or the first model that is available)",
    )


def chosen_agent(options: argparse.Namespace) -> Agent:
    """The agent that the options name. Raises `ConfigurationError` when there is none."""
    hide_environment()  # from processes that tools start
    if options.agent is not None:
        return load_agent(options.agent)
    return Agent(options.model)
