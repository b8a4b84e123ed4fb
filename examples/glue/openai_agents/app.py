"""A coding agent with a web page: files, commands, approvals, a reviewer, a conversation per user, and Stop."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents import Agent, RunContextWrapper, Runner, RunResultStreaming, RunState, SQLiteSession, function_tool
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

MODEL = "gpt-5-mini"
USERS = ("ann", "bob")
DATA = Path("data")
Context = RunContextWrapper[Path]


def inside(folder: Path, path: str) -> Path:
    found = (folder / path).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is outside of the folder")
    return found


@function_tool
def read_file(ctx: Context, path: str) -> str:
    """Read a text file."""
    return inside(ctx.context, path).read_text()[:30_000]


@function_tool
def list_files(ctx: Context) -> str:
    """List the files."""
    return "\n".join(str(each.relative_to(ctx.context)) for each in sorted(ctx.context.rglob("*")) if each.is_file())


@function_tool(needs_approval=True)
def write_file(ctx: Context, path: str, content: str) -> str:
    """Write a text file."""
    inside(ctx.context, path).write_text(content)
    return f"Wrote {path}."


@function_tool(needs_approval=True)
def edit_file(ctx: Context, path: str, old: str, new: str) -> str:
    """Replace a text that is in a file exactly once."""
    file = inside(ctx.context, path)
    text = file.read_text()
    if text.count(old) != 1:
        return "The old text is not in the file exactly once."
    file.write_text(text.replace(old, new))
    return f"Edited {path}."


@function_tool(needs_approval=True)
async def shell(ctx: Context, command: str) -> str:
    """Run a shell command."""
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    process = await asyncio.create_subprocess_shell(command, cwd=ctx.context, start_new_session=True, **pipes)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return output.decode(errors="replace")[:30_000]


reviewer = Agent(
    "reviewer", model=MODEL, instructions="Review the files that are named.", tools=[read_file, list_files]
)
coder = Agent(
    "coder",
    model=MODEL,
    tools=[read_file, list_files, write_file, edit_file, shell, reviewer.as_tool("reviewer", "Reviews files.")],
)


class Conversation:
    """The run of one user, or what it asks; the latter is on disk, so that a restart does not lose it."""

    def __init__(self, user: str) -> None:
        self.folder = DATA / user
        self.session = SQLiteSession(user, DATA / "sessions.db")
        self.waiting = DATA / f"{user}.waiting.json"
        self.run: RunResultStreaming | None = None
        self.task: asyncio.Task[None] | None = None
        self.text = ""

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def state(self) -> RunState | None:
        return await RunState.from_string(coder, self.waiting.read_text()) if self.waiting.exists() else None

    def start(self, given: str | RunState) -> None:
        if self.running:
            raise HTTPException(409, "A run is in progress.")
        self.waiting.unlink(missing_ok=True)
        self.task = asyncio.create_task(self._work(given))

    async def _work(self, given: Any) -> None:
        try:
            self.run = Runner.run_streamed(coder, given, context=self.folder, session=self.session, max_turns=50)
            async for _ in self.run.stream_events():
                pass
            if self.run.interruptions:
                # The folder is not stored: it is given again with the answer.
                self.waiting.write_text(self.run.to_state().to_string(context_serializer=lambda _: {}))
            else:
                self.text = str(self.run.final_output or "")
        except Exception as error:
            self.text = f"It failed: {error}"


conversations: dict[str, Conversation] = {}


def conversation_of(request: Request) -> Conversation:
    user = request.cookies.get("user")
    if user not in USERS:
        raise HTTPException(401)
    if user not in conversations:
        (DATA / user).mkdir(parents=True, exist_ok=True)
        conversations[user] = Conversation(user)
    return conversations[user]


async def prompt(request: Request) -> Response:
    conversation_of(request).start((await request.json())["prompt"])
    return Response(status_code=202)


async def show(request: Request) -> Response:
    conversation = conversation_of(request)
    state = None if conversation.running else await conversation.state()
    asked = [] if state is None else state.get_interruptions()
    return JSONResponse(
        {
            "running": conversation.running,
            "text": conversation.text,
            "asked": [{"id": each.call_id, "name": each.name, "arguments": each.arguments} for each in asked],
        }
    )


async def answer(request: Request) -> Response:
    conversation, body = conversation_of(request), await request.json()
    state = await conversation.state()
    found = [] if state is None else [each for each in state.get_interruptions() if each.call_id == body["id"]]
    if state is None or not found:
        raise HTTPException(409, "This is not asked any more.")
    if body["approve"]:
        state.approve(found[0])
    else:
        state.reject(found[0])
    conversation.start(state)
    return Response(status_code=202)


async def stop(request: Request) -> Response:
    conversation = conversation_of(request)
    if conversation.run is not None and conversation.running:
        conversation.run.cancel()
    return Response(status_code=202)


app = Starlette(
    routes=[
        Route("/prompt", prompt, methods=["POST"]),
        Route("/state", show),
        Route("/answer", answer, methods=["POST"]),
        Route("/stop", stop, methods=["POST"]),
        Mount("/", StaticFiles(directory=Path(__file__).parents[1] / "page", html=True)),
    ]
)
