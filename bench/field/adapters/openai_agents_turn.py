"""OpenAI Agents SDK once more, stopped in the way that keeps everything: after the turn."""

from __future__ import annotations

from ._harness import main
from .openai_agents import OpenAIAgents


class OpenAIAgentsTurn(OpenAIAgents):
    stopped_with = 'result.cancel(mode="after_turn"), and the events read to their end'

    def stop(self) -> None:
        assert self._result is not None
        self._result.cancel(mode="after_turn")


if __name__ == "__main__":
    main(OpenAIAgentsTurn)
