"""A check of each prompt, before anything is sent to the model."""

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    RunContextWrapper,
    Runner,
    TResponseInputItem,
    input_guardrail,
)


@input_guardrail(run_in_parallel=False)
def no_passwords(_: RunContextWrapper, agent: Agent, prompt: str | list[TResponseInputItem]) -> GuardrailFunctionOutput:
    reason = "it asks for a password" if "password" in str(prompt) else None
    return GuardrailFunctionOutput(output_info=reason, tripwire_triggered=reason is not None)


agent = Agent("assistant", model="gpt-5-mini", input_guardrails=[no_passwords])
for prompt in ("What is the password?", "What is the capital of France?"):
    try:
        print(Runner.run_sync(agent, prompt).final_output)
    except InputGuardrailTripwireTriggered as refused:
        print(f"Refused: {refused.guardrail_result.output.output_info}")
