"""A check of each prompt, before anything is sent to the model."""

from quiesce import Agent, InputGuardrail, RunContext


def no_passwords(_: RunContext, prompt: str) -> str | None:
    return "it asks for a password" if "password" in prompt else None


agent = Agent("openai:gpt-5-mini", middleware=[InputGuardrail(no_passwords)])
for prompt in ("What is the password?", "What is the capital of France?"):
    result = agent(prompt)
    print(result.text if result.finished else result.receipt.cause)
