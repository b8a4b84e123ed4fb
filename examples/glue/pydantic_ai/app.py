"""A coding agent with a web page: files, commands, approvals, a reviewer, a conversation per user, and Stop."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from pydantic_ai import (
    Agent,
    CancellationToken,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    RunContext,
    UsageLimits,
)
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

MODEL = "openai:gpt-5-mini"
USERS = ("ann", "bob")
DATA = Path("data")

reviewer = Agent(MODEL, deps_type=Path, instructions="Review the files that are named.")
coder = Agent(MODEL, deps_type=Path, output_type=[str, DeferredToolRequests])


def inside(folder: Path, path: str) -> Path:
    found = (folder / path).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is outside of the folder")
    return found


@reviewer.tool
@coder.tool
def read_file(ctx: RunContext[Path], path: str) -> str:
    """Read a text file."""
    return inside(ctx.deps, path).read_text()[:30_000]


@reviewer.tool
@coder.tool
def list_files(ctx: RunContext[Path]) -> str:
    """List the files."""
    return "\n".join(str(each.relative_to(ctx.deps)) for each in sorted(ctx.deps.rglob("*")) if each.is_file())


@coder.tool(requires_approval=True)
def write_file(ctx: RunContext[Path], path: str, content: str) -> str:
    """Write a text file."""
    inside(ctx.deps, path).write_text(content)
    return f"Wrote {path}."


@coder.tool(requires_approval=True)
def edit_file(ctx: RunContext[Path], path: str, old: str, new: str) -> str:
    """Replace a text that is in a file exactly once."""
    file = inside(ctx.deps, path)
    text = file.read_text()
    if text.count(old) != 1:
        return "The old text is not in the file exactly once."
    file.write_text(text.replace(old, new))
    return f"Edited {path}."


@coder.tool(requires_approval=True)
async def shell(ctx: RunContext[Path], command: str) -> str:
    """Run a shell command."""
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    process = await asyncio.create_subprocess_shell(command, cwd=ctx.deps, start_new_session=True, **pipes)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return output.decode(errors="replace")[:30_000]


@coder.tool(name="reviewer")
async def review(ctx: RunContext[Path], prompt: str) -> str:
    """Reviews files."""
    result = await reviewer.run(prompt, deps=ctx.deps, usage=ctx.usage)
    return result.output


class Conversation:
    """The run of one user, and the messages on disk, so that a restart does not lose them."""

    def __init__(self, user: str) -> None:
        self.folder = DATA / user
        self.file = DATA / f"{user}.json"
        self.token: CancellationToken | None = None
        self.task: asyncio.Task[None] | None = None
        self.text = ""

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def messages(self) -> list[ModelMessage]:
        return ModelMessagesTypeAdapter.validate_json(self.file.read_bytes()) if self.file.exists() else []

    @property
    def asked(self) -> list[ToolCallPart]:
        """The calls of the last answer: a run that ended without their results has asked for them."""
        messages = [] if self.running else self.messages
        last = messages[-1] if messages else None
        parts = last.parts if isinstance(last, ModelResponse) else []
        return [part for part in parts if isinstance(part, ToolCallPart)]

    def start(self, prompt: str | None, answers: DeferredToolResults | None = None) -> None:
        if self.running:
            raise HTTPException(409, "A run is in progress.")
        self.task = asyncio.create_task(self._work(prompt, answers))

    async def _work(self, prompt: str | None, answers: DeferredToolResults | None) -> None:
        token = self.token = CancellationToken()
        try:
            result = await coder.run(
                prompt,
                deps=self.folder,
                message_history=self.messages,
                deferred_tool_results=answers,
                cancellation_token=token,
                usage_limits=UsageLimits(request_limit=50),
            )
            messages = result.all_messages()
            self.text = result.output if isinstance(result.output, str) else ""
        except RunCancelled as stopped:
            messages = stopped.all_messages()
        except Exception as error:
            self.text = f"It failed: {error}"
            return
        self.file.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))


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
    return JSONResponse(
        {
            "running": conversation.running,
            "text": conversation.text,
            "asked": [
                {"id": each.tool_call_id, "name": each.tool_name, "arguments": each.args_as_json_str()}
                for each in conversation.asked
            ],
        }
    )


async def answer(request: Request) -> Response:
    conversation, body = conversation_of(request), await request.json()
    if body["id"] not in [each.tool_call_id for each in conversation.asked]:
        raise HTTPException(409, "This is not asked any more.")
    conversation.start(None, DeferredToolResults(approvals={body["id"]: body["approve"]}))
    return Response(status_code=202)


async def stop(request: Request) -> Response:
    conversation = conversation_of(request)
    if conversation.token is not None and conversation.running:
        conversation.token.cancel()
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
