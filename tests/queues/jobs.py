"""Tasks of Celery and RQ that run an agent which would never end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from quiesce import Agent
from quiesce.hooks import AfterRun
from quiesce.models.scripted import Say, ScriptedModel, Stall


def note(book: str, **line: object) -> None:
    with Path(book).open("a") as file:
        file.write(json.dumps(line) + "\n")


def talk(book: str, limit: type[BaseException]) -> str:
    """One prompt that the limit cuts, and the next one in the same process."""
    agent = Agent(ScriptedModel([Say("Well, "), Stall()], then="Fine."))

    @agent.hook(AfterRun)
    def ended(event: AfterRun) -> None:
        note(book, process=os.getpid(), cause=str(event.result.receipt.cause), left=event.result.receipt.still_running)

    try:
        agent("go")
    except limit as error:
        note(book, raised=type(error).__name__, active=len(agent.active_runs), kept=agent.messages[-1].text)
        answer = agent("again").text
        note(book, answer=answer)
        return answer
    return "no limit came"


def rq_job(book: str) -> str:
    from rq.timeouts import JobTimeoutException

    return talk(book, JobTimeoutException)
