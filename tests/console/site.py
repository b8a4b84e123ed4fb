"""A real server with scripted agents, in a process of its own: `python -m tests.console.site`.

What a run does follows from the first word of its prompt, see SCRIPTS. It listens twice: directly, and behind a wire
that can be cut. Prints both ports; then takes the commands `cut`, `mend` and `release`, a line each, and ends when its
input does.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from quiesce import Agent, tool
from quiesce.errors import AuthenticationFailed
from quiesce.events import Delta
from quiesce.messages import AssistantMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Answer, Call, Fail, Say, ScriptedModel, Stall, Think, Used
from quiesce.server.app import Application, create_app
from quiesce.server.keys import Keys, hash_key
from quiesce.server.listener import server
from quiesce.server.settings import Settings
from quiesce.tools.context import ToolContext
from quiesce.usage.prices import Price

from .wire import Wire

CLOSING = threading.Event()
FAREWELL = asyncio.Event()
RELEASE = asyncio.Event()
PRICE = Price(Decimal(3), Decimal(15))
KEY = "the-key-of-the-console-tests"
OPERATOR_KEY = "the-key-of-the-operator"
NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'>{{7*7}}'

STORY = (
    "The harbour lay still. Somebody had left a lamp burning on the quay, and its light moved with the water as if it "
    "were looking for the boat that it belonged to. Nobody came. After a while the first gulls woke up and argued "
    "about the day, and the lamp, which had been so important in the dark, could hardly be seen any more.\n\n"
)

MARKDOWN = """# The plan

Some *quick* and **important** words, `inline code`, and [a link](https://example.org/page "A page").

1. First
2. Second
   - nested
   - list

| File | Lines |
|------|------:|
| `a.py` | 12 |
| `b.py` | 340 |

> A quote that
> goes on.

```python
def add(a: int, b: int) -> int:
    return a + b
```

- [x] done
- [ ] to do

שלום, this line begins from the right.
"""

ATTACK = f"""{NASTY}

[click](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>) [vb](vbscript:x)
[case](JaVaScRiPt:window.hacked=1) [tab](java\tscript:window.hacked=1) [entity](javascript&#58;window.hacked=1)
[rel](/static/main.js) [home](#/usage) [user](https://good.example@evil.example/) <javascript:window.hacked=1>
![pixel](https://evil.example/pixel.png?secret) ![local](/static/icon.svg) <img src="https://evil.example/p.png">
<style>body {{ display: none }}</style> <link rel=stylesheet href=https://evil.example/a.css>
<iframe src="https://evil.example/"></iframe> <svg onload="window.hacked=1"> <a href="javascript:window.hacked=1">a</a>
[![nested](https://evil.example/n.png)](javascript:window.hacked=1) **[bold](javascript:window.hacked=1)**
<https://evil.example/"onmouseover="window.hacked=1> https://evil.example/"onclick="window.hacked=1

```html" onclick="window.hacked=1
<script>window.hacked=1</script>
```

| <img src=x onerror=window.hacked=1> | [t](javascript:window.hacked=1) |
|---|---|
| <script>window.hacked=1</script> | {NASTY} |

# {NASTY}

> {NASTY}

- {NASTY}
"""

SCRIPTS: dict[str, list[Answer]] = {
    "hello": [[Say("Hello there."), Used(input=12, output=4)]],
    "stream": [[Used(input=1240, output=1, final=False), Say(STORY * 40, chunk=6, pause=0.02)]],
    "grow": [
        [Think("A long one is wanted."), Say("First a look. "), Call("search", {"query": "harbour"})],
        [Say(STORY * 8, chunk=30, pause=0.01), Used(input=40, output=700)],
    ],
    "build": [
        [
            Think("The parser has changed, so it must be built."),
            Say("I will build it first. ", chunk=3, pause=0.05),
            Call("search", {"query": "build target"}),
            Used(input=820, output=31),
        ],
        [
            Say("Found it: the target is called `parser`. Now the build. ", chunk=3, pause=0.03),
            Call("build", {"target": "parser"}),
            Used(input=1060, output=26),
        ],
        [Say("The build is done."), Used(input=1200, output=9)],
    ],
    "measure": [
        [Say("I measure it. "), Call("measure"), Used(input=300, output=20)],
        [Say("It is long."), Used(input=330, output=5)],
    ],
    "write": [
        [Say("I write the file. "), Call("write", {"path": "notes.txt"}), Used(input=90, output=15)],
        [Say(STORY * 40, chunk=6, pause=0.02)],
    ],
    "fail": [[Say("I ask the other service. "), Fail(AuthenticationFailed("The key was refused by the provider."))]],
    "lag": [[Say("This one takes its time. "), Call("lagging"), Used(input=300, output=12)], "Done."],
    "flood": [
        [Say("I print everything. "), Call("flood"), Used(input=300, output=20)],
        [Say("That was a lot."), Used(input=90_000, output=5)],
    ],
    "chatter": [[Say(STORY * 200, chunk=8), Used(input=40, output=15_000)]],
    "stubborn": [[Say("This takes a while. "), Call("stubborn"), Used(input=300, output=20)], "Done."],
    "nasty": [
        [Think(NASTY), Say(NASTY), Call("nasty", {"path": NASTY}), Used(input=10, output=10)],
        [Say(NASTY), Used(input=10, output=10)],
    ],
    "draft": [[Say(MARKDOWN[:80], chunk=7), Stall()]],
    "ponder": [[Think("A plan is wanted, with a table.", chunk=4), Stall()]],
    "markdown": [
        [
            Think("A plan is wanted, with a table.", chunk=4, pause=0.02),
            Say(MARKDOWN, chunk=7, pause=0.01),
            Call("look_up", {"query": {"name": "plan", "limit": 3}}),
            Call("patch", {"path": "a.py", "edits": [{"old": "a\nb\nc", "new": "a\nB\nc"}]}),
            Used(input=90, output=250),
        ],
        [Say("Both are **done**."), Used(input=400, output=6)],
    ],
    "attack": [
        [Think(ATTACK), Say(ATTACK), Call("look_up", {"query": {NASTY: ATTACK}}), Used(input=10, output=10)],
        [Say("It is over."), Used(input=10, output=10)],
    ],
    "swarm": [
        [
            Say("I count to many. "),
            *[Call("tick", {"n": n}) for n in range(399)],
            Call("helper", {"prompt": "measure it"}),
            Used(input=50, output=4000),
        ],
        [Say("All is counted."), Used(input=9000, output=6)],
    ],
    "deploy": [
        [
            Say("The tests pass. I would like to deploy to production."),
            Call("deploy", {"environment": "production", "version": "1.4.2"}),
            Used(input=200, output=26),
        ],
        [Say("That is settled."), Used(input=240, output=5)],
    ],
    "again": [*[[Call("write", {"path": "notes.txt"})]] * 12, "It is written."],
    "edit": [
        [
            Say("Two files have to change."),
            Call("edit", {"path": "greeting.py", "text": NASTY}),
            Call("edit", {"path": "farewell.py", "text": "goodbye"}),
            Used(input=500, output=40),
        ],
        [Say("Both are changed."), Used(input=600, output=8)],
    ],
    "choose": [
        [Say("Which one? "), Call("book", {"city": "Rome"}), Used(input=20, output=5)],
        [Say("It is booked."), Used(input=30, output=4)],
    ],
    "wait": [
        [Say("I wait. "), Call("hold"), Used(input=20, output=5)],
        [Say("I have waited."), Used(input=30, output=4)],
    ],
    "ask": [
        [
            Say("I would like to deploy, and to tell everybody."),
            Call("deploy", {"environment": "production", "version": "1.4.2"}),
            Call("announce"),
            Used(input=200, output=14),
        ],
        [Say("That is settled."), Used(input=240, output=5)],
    ],
}


class ByPrompt(ScriptedModel):
    """Plays the script that the last prompt names, from the answer that its conversation has come to."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        last = max(i for i, message in enumerate(request.messages) if isinstance(message, UserMessage))
        words = request.messages[last].text.split() or [""]  # type: ignore[union-attr]
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages[last:])
        answers = SCRIPTS.get(words[0].lower(), SCRIPTS["hello"])
        one = ScriptedModel(answers[min(turn, len(answers) - 1)], name=self.name, price=self.price)
        one._ids = (f"call_{turn}_{time.monotonic_ns()}_{n}" for n in range(1000))  # type: ignore[misc]
        async with one.stream(request) as deltas:
            yield deltas


@tool
async def search(query: str) -> str:
    """Search."""
    await asyncio.sleep(0.25)
    return f"1 result for {query}: parser"


@tool
async def measure() -> str:
    """Measure."""
    await asyncio.sleep(2)
    return "42"


@tool
async def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


@write.undo
async def unwrite(path: str) -> None:
    """Nothing was written, so there is nothing to delete."""


@tool(requires_approval=True)
async def deploy(environment: str, version: str) -> str:
    """Deploy."""
    return f"deployed {version} to {environment}"


def diff(arguments: dict[str, str]) -> str:
    """What an edit would change."""
    path, text = arguments["path"], arguments["text"]
    return f'--- {path}\n+++ {path}\n@@ -1,3 +1,3 @@\n def text():\n-    return "hello"\n+    return "{text}"\n'


@tool(requires_approval=True, preview=diff)
async def edit(path: str, text: str, encoding: str = "utf-8") -> str:
    """Edit a file. The greeting takes until the farewell is edited."""
    if path == "greeting.py":
        FAREWELL.clear()
        await FAREWELL.wait()
    FAREWELL.set()
    return f"edited {path}"


@tool(requires_approval=True)
async def announce() -> str:
    """Tell everybody."""
    return "told"


@tool
def book(city: str, ctx: ToolContext) -> str:
    """Book a hotel."""
    hotel = ctx.interrupt("which", reason={"question": "Which hotel?", "options": ["Astoria", NASTY]})
    return f"booked {hotel} in {city}"


@tool
async def hold() -> str:
    """Wait until the test says `release`."""
    RELEASE.clear()
    await RELEASE.wait()
    return "released"


@tool(grace=20)
async def build(target: str, ctx: ToolContext) -> str:
    """Build something: takes a while, reports, and needs a moment to clean up."""
    try:
        for step in range(1, 121):
            ctx.report({"done": step, "of": 120, "message": f"compiling {target}/{step}.c"})
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        await asyncio.sleep(1.6)
        raise
    return "built"


@tool(grace=60)
async def stubborn() -> str:
    """Does not want to stop: only force makes the run go on without it."""
    end = time.monotonic() + 40
    while time.monotonic() < end and not CLOSING.is_set():
        try:
            await asyncio.sleep(end - time.monotonic())
        except asyncio.CancelledError:
            continue
    return "finished after all"


@tool(on_stop="abandon", grace=0.1)
def lagging() -> str:
    """Cannot be stopped, and ends a while after it was given up."""
    CLOSING.wait(3)
    return "late, but done"


@tool(max_result=None)
async def flood() -> str:
    """Says far too much."""
    return "line after line\n" * 18_750 + "the very last line"


@tool
async def nasty(path: str, ctx: ToolContext) -> str:
    """Says terrible things."""
    ctx.report({"message": NASTY, "done": 1, "of": 2})
    await asyncio.sleep(0.05)
    return f"wrote {path}"


@tool
async def look_up(query: dict[str, Any]) -> dict[str, Any]:
    """Look something up."""
    many = {f"key {n}": n for n in range(250)}
    return {"query": query, "found": [{"name": "plan", "pages": 3, "open": True, "by": None}], "many": many}


@tool
async def patch(path: str, edits: list[dict[str, str]]) -> str:
    """Change a file, and say how."""
    return f"--- {path}\n+++ {path}\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


@tool
async def tick(n: int) -> str:
    """Count."""
    if n == 250:
        raise ValueError("250 is not counted")
    return str(n)


TOOLS = [
    tick,
    book,
    hold,
    search,
    measure,
    write,
    deploy,
    edit,
    announce,
    build,
    stubborn,
    lagging,
    flood,
    nasty,
    look_up,
    patch,
]


def application(*, with_keys: bool) -> Application:
    model = ByPrompt(name="scripted", price=PRICE)
    helper = Agent(model, name="helper", tools=[measure])
    tools = [*TOOLS, helper.as_tool(description="Helps.")]
    agent = Agent(model, name="writer", tools=tools, on_limit="ask")
    other = Agent(model, name=f"other {NASTY}")
    second = Agent(model, name="helper-2")
    keys = Keys({"tests": hash_key(KEY), "ops": hash_key(OPERATOR_KEY)}) if with_keys else None
    store = next((each.removeprefix("--store=") for each in sys.argv if each.startswith("--store=")), None)
    settings = Settings(operators=("ops",) if with_keys else ())
    return create_app(agent, other, second, keys=keys, store=store, settings=settings)


async def main() -> None:
    direct = server(application(with_keys="--keys" in sys.argv), port=0, log_level="error")
    serving = asyncio.create_task(direct.serve())
    while not direct.started:
        await asyncio.sleep(0.01)
    port = direct.servers[0].sockets[0].getsockname()[1]
    wire = Wire(port)
    await wire.open()
    print(port, wire.port, flush=True)
    loop = asyncio.get_running_loop()
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if command == "cut":
            await wire.cut()
        elif command == "mend":
            await wire.open()
        elif command == "release":
            RELEASE.set()
        print("ok", flush=True)
    CLOSING.set()
    await wire.cut()
    direct.drain()
    direct.drain()
    await serving


if __name__ == "__main__":
    asyncio.run(main())
