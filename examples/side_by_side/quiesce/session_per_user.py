"""One prompt in the conversation of one user, which is on disk: `session_per_user.py USER PROMPT`."""

import sys

from quiesce import Agent

agent = Agent("openai:gpt-5-mini", store="sessions.db")
user, prompt = sys.argv[1:]
print(agent(prompt, session=user).text)
