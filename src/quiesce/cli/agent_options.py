"""The agent of a command: the options that choose it, and loading it by name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ..agent import Agent, AnyAgent
from ..errors import ConfigurationError
from ..processes.environment import hide_environment


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options `--agent` and `--model`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--agent", metavar="MODULE:AGENT", help="an agent from your code")
    which.add_argument(
        "--model",
        metavar="PROVIDER:MODEL",
        help="an agent without tools, with this model (default: QUIESCE_MODEL, or the first model that is available)",
    )


def chosen_agent(options: argparse.Namespace) -> AnyAgent:
    """The agent that the options name. Raises `ConfigurationError` when there is none."""
    hide_environment()  # from processes that tools start
    agent = Agent(options.model) if options.agent is None else load_agent(options.agent)
    if agent.config.estimator is not None:
        agent.config.estimator.load()  # a person who stops a run looks at the figures of its receipt at once
    return agent


def take_agent(options: argparse.Namespace, word: str) -> None:
    """Take a word of the command for the agent. Raises `ConfigurationError` when an option names one too."""
    if options.agent is not None or options.model is not None:
        option = "--agent" if options.agent is not None else "--model"
        raise ConfigurationError(f"{word!r} and {option} both name an agent.", todo="Leave one of them out.")
    options.agent = word


def load_agent(target: str) -> AnyAgent:
    """The agent that `module:attribute` names; a function without parameters is called for one.

    The working directory is searched first. Raises `ConfigurationError` when there is no such agent.
    """
    found = _load(target, "agent", "Name an agent as package.module:attribute.")
    if callable(found) and not isinstance(found, Agent):
        found = found()
    if not isinstance(found, Agent):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not an Agent.")
    return found  # pyright: ignore[reportUnknownVariableType]


def load_function(target: str) -> Callable[..., object]:
    """The function that `module:attribute` names. Raises `ConfigurationError` when there is none."""
    found = _load(target, "deps", "Name a function as package.module:attribute.")
    if not callable(found):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not a function.")
    return found


def _load(target: str, default: str, todo: str) -> object:
    module_name, _, attribute = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = import_module(module_name)
        for name in (attribute or default).split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{target!r} cannot be loaded: {error}.", todo=todo) from error
    return found
