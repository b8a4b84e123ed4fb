"""A coding agent with a web page: files, commands, approvals, a reviewer, a conversation per user, and Stop."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from quiesce import Agent, Limits, RunContext
from quiesce.server import mount
from quiesce.tools.builtin import coding_tools

MODEL = "openai:gpt-5-mini"
USERS = ("ann", "bob")
DATA = Path("data")


def owner_of(request: Request) -> str | None:
    user = request.cookies.get("user")
    return user if user in USERS else None


def folder_of(ctx: RunContext) -> str:
    return str(DATA / ctx.owner)


for user in USERS:
    (DATA / user).mkdir(parents=True, exist_ok=True)
tools = coding_tools(folder_of, snapshot="copy")
reading = [tool for tool in tools if tool.name in ("read_file", "list_files")]
reviewer = Agent(MODEL, name="reviewer", instructions="Review the files that are named.", tools=reading)
coder = Agent(MODEL, name="coder", tools=[*tools, reviewer], limits=Limits(turns=50))
app = Starlette()
mount(app, coder, "/agent", owner_of=owner_of, store=DATA / "sessions.db")
app.mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True))
