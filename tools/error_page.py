"""Writes docs/errors.md from src/quiesce/errors.py. A test fails when the page is out of date.

python tools/error_page.py > docs/errors.md
"""

from __future__ import annotations

import inspect
from typing import Final

from quiesce import errors
from quiesce.errors import ModelError, QuiesceError

# What to do about errors whose own advice depends on the case, or that are only the root of others.
ADVICE: Final[dict[type[QuiesceError], str]] = {
    QuiesceError: "Read `error.todo`; catch a kind below for what you can handle.",
    errors.ConfigurationError: "Correct the parameter that the message names.",
    errors.UnknownMode: "Use `after_turn`, `after_tools`, `now` or `kill`.",
    errors.DuplicateTool: "Rename one: `@tool(name=...)`, or `MCPServer(prefix=...)` for all of a server's.",
    errors.InvalidTool: "Give each parameter a type that has a JSON schema; the message names the parameter.",
    errors.InvalidPrompt: "Pass a text, a `UserMessage`, or a list of content parts.",
    errors.InvalidConversation: "Change the messages that the error names, or begin a new conversation.",
    errors.UnknownModel: "Write `provider:model`, or pass a model object: [providers](providers.md).",
    errors.MissingExtra: "Run the `pip install` that the message gives.",
    errors.ScriptError: "Add steps, or `then=`: [the scripted model](writing-a-model.md#the-scripted-model).",
    errors.InterruptError: "Look at `agent.interrupts` for what is asked: [asking a person](interrupts.md).",
    errors.UnknownInterrupt: "Use an id from `agent.interrupts`, with the `session=` of the run that asked.",
    errors.InvalidAnswer: "Answer in the form that the interrupt asks for; it stays pending.",
    errors.Cancelled: "Let it pass, or clean up and raise it again.",
    errors.RunError: "Read `error.result` for what was kept, and its `__cause__` for the reason; then prompt again.",
    ModelError: "The kinds below say what to do. The conversation is kept: prompt again.",
    errors.GuardrailTripped: "Nothing, where you raise it; `result.receipt.cause` has the reason.",
    errors.StoreError: "The kinds below say what to do: [when the store fails](sessions.md#when-the-store-fails).",
    errors.ToolError: "Nothing: the model reads it, and the run goes on.",
    errors.UndoConflict: "Nothing, where you raise it; the receipt names what was left as it is.",
    errors.ServerProblem: "Check the address, the key, and that `quiesce serve` runs; the message says more.",
}

HEAD = """\
# Errors

Every exception of Quiesce is a `QuiesceError`, and all of them are in `quiesce.errors`. Each says what happened, what
was kept, and what to do; the parts are there as `error.what`, `error.kept` and `error.todo`.

A stop is not an error: a run that was stopped returns a result whose `stop_reason` is `cancelled` or `limit`. What
raises is a run that *failed*, and its `error.result` holds the conversation and the receipt up to the failure:

```python
from quiesce import Agent
from quiesce.errors import AuthenticationFailed
from quiesce.models.scripted import Fail, ScriptedModel

agent = Agent(ScriptedModel(Fail(AuthenticationFailed("The key was not accepted."))))
try:
    agent("Hello?")
except AuthenticationFailed as error:
    print(error)
    print(error.result.stop_reason, len(error.result.messages))
```

<!-- printed -->
```text
The key was not accepted. The prompt and everything streamed so far are in the conversation. Check the API key.
error 2
```

The two messages are the prompt and a note to the model that its answer ended because of an error, so the conversation
can go on.

## Troubleshooting

Find the name of the error in the traceback. An error that can have several reasons says more in its message.

| error | what it means | what to do | a kind of | retried |
|---|---|---|---|---|"""

TAIL = """
Retried errors are tried again as `Agent(retry=Retry(...))` says; a stop ends the wait at once. An answer that broke off
after people had begun to read it is never retried: see [the decision](decisions/no-retry-of-a-read-answer.md).

(This page is written by `tools/error_page.py`.)"""


def page() -> str:
    """The whole page."""
    kinds = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, QuiesceError)]
    return "\n".join([HEAD, *(_row(kind) for kind in kinds), TAIL, ""])


def _row(kind: type[QuiesceError]) -> str:
    meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    retried = ("yes" if kind.retryable else "no") if issubclass(kind, ModelError) else ""
    return f"| `{kind.__name__}` | {meaning} | {kind.todo or ADVICE[kind]} | {bases} | {retried} |"


if __name__ == "__main__":
    print(page(), end="")
