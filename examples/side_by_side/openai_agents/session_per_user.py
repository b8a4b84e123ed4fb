"""One prompt in the conversation of one user, which is on disk: `session_per_user.py USER PROMPT`."""

import sys

from agents import Agent, Runner, SQLiteSession

agent = Agent("assistant", model="gpt-5-mini")
user, prompt = sys.argv[1:]
print(Runner.run_sync(agent, prompt, session=SQLiteSession(user, "sessions.db")).final_output)
