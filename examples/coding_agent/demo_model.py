"""A scripted model, so that the example runs without a key: it fixes a greeting, whatever it is asked for."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quiesce.events import Delta
from quiesce.messages import AssistantMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Answer, Call, Say, ScriptedModel

FILES = {
    "greeting.py": 'def greet(name):\n    return "Helo " + name\n',
    "test_greeting.py": "from greeting import greet\n\nassert greet('Ann') == 'Hello, Ann!'\nprint('ok')\n",
}
EDIT = {"old": '"Helo " + name', "new": 'f"Hello, {name}!"'}
REVIEW = "I read greeting.py. The greeting is right now, and the function has no other callers."


def answer(turn: int, id: str) -> Answer:
    """The answer number `turn` to a prompt. Call ids are unique in the conversation."""
    match turn:
        case 0:
            return [Say("I look at the code first. ", pause=0.02), Call("read_file", {"path": "greeting.py"}, id)]
        case 1:
            edit = Call("edit_file", {"path": "greeting.py", "edits": [EDIT]}, id)
            return [Say("The greeting is misspelt. This would mend it:", pause=0.02), edit]
        case 2:
            tests = Call("shell", {"command": "python3 test_greeting.py && sleep 5"}, id)
            return [Say("Now the tests. ", pause=0.02), tests]
        case 3:
            return [Call("reviewer", {"prompt": "greeting.py: the greeting was misspelt."}, id)]
        case _:
            return Say("Done: the greeting is spelt right, and the tests pass.", pause=0.02)


class DemoModel(ScriptedModel):
    """Answers by the number of answers since the prompt, so a restart goes on where the conversation is."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        messages = request.messages
        prompt = max(number for number, each in enumerate(messages) if isinstance(each, UserMessage))
        turn = sum(isinstance(each, AssistantMessage) for each in messages[prompt:])
        is_review = "edit_file" not in [tool.name for tool in request.tools]
        one = ScriptedModel(Say(REVIEW, pause=0.02) if is_review else answer(turn, f"call_{len(messages)}"))
        async with one.stream(request) as deltas:
            yield deltas


def write_demo_files(folder: Path) -> None:
    """Something to work on, in a folder that does not exist yet."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for name, content in FILES.items():
            (folder / name).write_text(content)
