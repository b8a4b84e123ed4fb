"""A blocking call in one thread, stopped from another one."""

import threading

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel

agent = Agent(ScriptedModel(then=[Say("Let me think. Two and two, you say. That would be four.", pause=0.05)]))

threading.Timer(0.15, agent.cancel, ["that took too long"]).start()  # a web handler, a watchdog, a button
result = agent("What is two and two?")
print(result.receipt)
print()
print("So far:  ", result.text)
print("And now: ", agent("Please go on.").text)
