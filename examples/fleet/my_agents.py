"""The agent of the example. Put yours here."""

from __future__ import annotations

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel

agent = Agent(ScriptedModel(then=[Say("Once upon a time there was a queue. " * 50, chunk=8, pause=0.1)]), name="agent")
