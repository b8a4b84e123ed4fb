"""A chat for many users: login, conversations of one's own, Stop, and what each has to pay.

`pip install "quiesce[openai]" fastapi uvicorn`, then `uvicorn chat:app`, and

    curl -N localhost:8000/chats/first -H 'Authorization: Bearer ann-key' --json '{"prompt": "Tell me a story."}'
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from fastapi import Body, Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from quiesce import Agent, Limits, Run, Session, ToolContext, tool
from quiesce.errors import SessionNotFound
from quiesce.server import stop_on_disconnect

STORE = "chats.db"  # or postgresql://...


@dataclass(frozen=True)
class User:
    id: str
    plan: str


USERS = {"ann-key": User("ann", "free"), "bob-key": User("bob", "paid")}  # your own login instead
CAPS = {"free": Decimal("0.10"), "paid": Decimal(20)}  # what a user may spend, in USD
spent: defaultdict[str, Decimal] = defaultdict(Decimal)  # a table of your database instead


@tool
async def invoices(ctx: ToolContext[User]) -> str:
    """The invoices of the user."""
    return f"{ctx.deps.id} has no open invoices."  # the user comes from the login, never from the model


agent = Agent("openai:gpt-5-mini", deps_type=User, tools=[invoices], store=STORE, timeout=120)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    agent.cancel("the server is restarting", source="shutdown", arm=False)
    await asyncio.gather(*charging)


app = FastAPI(lifespan=lifespan)
charging: set[asyncio.Task[None]] = set()


def login(given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> User:
    if given.credentials not in USERS:
        raise HTTPException(401, "Who are you?")
    return USERS[given.credentials]


LoggedIn = Annotated[User, Depends(login)]


def session_of(user: User, chat: str) -> str:
    return f"user-{user.id}/{chat}"  # the first part is not in the request


@app.post("/chats/{chat}")
async def say(chat: str, user: LoggedIn, request: Request, prompt: str = Body(embed=True)) -> StreamingResponse:
    left = CAPS[user.plan] - spent[user.id]
    if left <= 0:
        raise HTTPException(402, "This month's budget is used up.")
    run = agent.start(
        prompt, session=session_of(user, chat), deps=user, limits=Limits(cost=left), on_busy="cancel_previous"
    )
    stop_on_disconnect(request, run)
    task = asyncio.create_task(charge(user, run))
    charging.add(task)
    task.add_done_callback(charging.discard)
    return StreamingResponse(run.text_stream(), media_type="text/plain")


async def charge(user: User, run: Run) -> None:
    """The best figure for a whole answer, and no more than is certain for one that was stopped."""
    receipt = await run.stopped()
    cost = (await run.usage.final()).cost
    if cost is not None and cost.value is not None:
        spent[user.id] += cost.value if receipt.stop_reason == "end_turn" else cost.low


@app.post("/chats/{chat}/stop")
async def stop(chat: str, user: LoggedIn) -> dict[str, list[str]]:
    name = session_of(user, chat)
    runs = [run for run in agent.active_runs if run.conversation.session_name == name]
    for run in runs:
        run.cancel("the Stop button")
    return {"receipts": [str(await run.stopped()) for run in runs]}


@app.get("/chats/{chat}")
async def read(chat: str, user: LoggedIn) -> list[dict[str, str]]:
    session = Session(session_of(user, chat), STORE)
    try:
        await session.load()
    except SessionNotFound:
        raise HTTPException(404, "There is no such chat.") from None
    return [{"kind": type(message).__name__, "text": message.text} for message in session.messages]


@app.get("/me")
async def me(user: LoggedIn) -> dict[str, str]:
    await asyncio.gather(*charging)
    return {"user": user.id, "spent": str(spent[user.id]), "may spend": str(CAPS[user.plan])}
