"""One prompt in the conversation of one user, which is on disk: `session_per_user.py USER PROMPT`."""

import sys

from strands import Agent
from strands.models.openai import OpenAIModel
from strands.session import FileSessionManager

model = OpenAIModel(model_id="gpt-5-mini")
user, prompt = sys.argv[1:]
agent = Agent(model, session_manager=FileSessionManager(user, storage_dir="sessions"), callback_handler=None)
print(agent(prompt))
