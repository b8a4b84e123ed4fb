"""One prompt in the conversation of one user, which is on disk: `session_per_user.py USER PROMPT`."""

import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter

agent = Agent("openai:gpt-5-mini")
user, prompt = sys.argv[1:]
file = Path(f"{user}.json")
conversation = ConversationTypeAdapter.validate_json(file.read_bytes()) if file.exists() else Conversation()
result = agent.run_sync(prompt, conversation=conversation)
file.write_bytes(ConversationTypeAdapter.dump_json(result.conversation))
print(result.output)
