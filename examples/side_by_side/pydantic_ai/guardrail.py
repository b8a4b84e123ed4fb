"""A check of each prompt, before anything is sent to the model."""

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks


class PromptRefused(Exception):
    pass


def no_passwords(ctx: RunContext) -> None:
    if "password" in str(ctx.prompt):
        raise PromptRefused("it asks for a password")


agent = Agent("openai:gpt-5-mini", capabilities=[Hooks(before_run=no_passwords)])
for prompt in ("What is the password?", "What is the capital of France?"):
    try:
        print(agent.run_sync(prompt).output)
    except PromptRefused as refused:
        print(f"Refused: {refused}")
