"""A check of each prompt, before anything is sent to the model."""

from strands import Agent, InterventionHandler
from strands.hooks import BeforeInvocationEvent
from strands.interventions import Deny, Proceed
from strands.models.openai import OpenAIModel


class NoPasswords(InterventionHandler):
    name = "no-passwords"

    def before_invocation(self, event: BeforeInvocationEvent) -> Proceed | Deny:
        if "password" in str(event.messages):
            return Deny("it asks for a password")
        return Proceed()


agent = Agent(OpenAIModel(model_id="gpt-5-mini"), interventions=[NoPasswords()], callback_handler=None)
for prompt in ("What is the password?", "What is the capital of France?"):
    print(agent(prompt))
