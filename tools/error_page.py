"""Writes docs/errors.md from src/quiesce/errors.py. A test fails when the page is out of date.

python tools/error_page.py > docs/errors.md
"""

from __future__ import annotations

import inspect

from quiesce import errors
from quiesce.errors import ModelError, QuiesceError

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
    return f"| `{kind.__name__}` | {meaning} | {kind.todo} | {bases} | {retried} |"


if __name__ == "__main__":
    print(page(), end="")
