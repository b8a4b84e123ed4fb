"""A coding agent with a web page. Each user has a folder and a conversation; the agent asks before it changes anything.

    python examples/coding_agent/app.py            # then open http://127.0.0.1:8000

MODEL names the model ("anthropic:claude-sonnet-5"); without it, a scripted one shows what the page can do.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from demo_model import DemoModel, write_demo_files
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from quiesce import Agent, Limits, RunContext, Trim
from quiesce.models.base import Model
from quiesce.processes.environment import hide_environment
from quiesce.server import mount
from quiesce.tools.builtin import coding_tools

PAGE = Path(__file__).parent / "page"
READING = ("read_file", "list_files", "search_files")


def coding_agent(folder_of: Callable[[RunContext], str], model: Model | str) -> Agent:
    """The agent of all users. Its tools work in the user's folder; changes and commands are approved by the user."""
    tools = coding_tools(folder_of, snapshot="copy")
    reviewer = Agent(
        model,
        name="reviewer",
        instructions="Read the files that are named, and list their faults. Say so when there are none.",
        tools=[tool for tool in tools if tool.name in READING],
    )
    return Agent(
        model,
        name="coder",
        instructions="You are a careful programmer. Read before you edit, run the tests, then ask the reviewer.",
        tools=[*tools, reviewer.as_tool(description="Reviews files. Name them, and say what has changed.")],
        limits=Limits(turns=200),
        context=Trim(tokens=150_000),
    )


def make_app(data: Path, users: Sequence[str], model: Model | str) -> Starlette:
    """The application. `data` gets a folder for each user, and the store that a restart goes on from."""

    def owner_of(request: Request) -> str | None:
        """The user of a request. This is where your own login goes: a cookie with a name proves nothing."""
        user = request.cookies.get("user")
        return user if user in users else None

    def folder_of(ctx: RunContext) -> str:
        return str(data / ctx.owner)

    for user in users:
        (data / user).mkdir(parents=True, exist_ok=True)
    app = Starlette()
    mount(app, coding_agent(folder_of, model), "/agent", owner_of=owner_of, store=data / "sessions.db")
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def main() -> None:
    data = Path(os.environ.get("DATA", "coding_agent_data"))
    users = os.environ.get("USERS", "ann,bob").split(",")
    if "MODEL" not in os.environ:
        for user in users:
            write_demo_files(data / user)
    hide_environment()  # the model's key, from commands that the model runs
    app = make_app(data, users, os.environ.get("MODEL") or DemoModel())
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), access_log=False, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
