"""Has processes killed, starved or locked out in the middle of a session, and checks what they left."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from quiesce import Agent, Session
from quiesce.conversation.validity import faults
from quiesce.messages import AssistantMessage, Message, Outcome, ToolMessage, UserMessage
from quiesce.sessions.journal.rows import encode, unpack
from quiesce.sessions.store import SessionStore
from quiesce.testing import ScriptedModel

VICTIM = "victim"


def _named(url: str) -> str:
    """What makes the victim's connections to a database known there by a name."""
    return f"&application_name={VICTIM}" if url.startswith("postgres") else ""


class Executioner:
    """Has processes killed, and checks what they left."""

    def __init__(self, where: str, store: SessionStore, folder: Path) -> None:
        self._where, self._store, self._folder = where, store, folder
        self._labels = itertools.count(1)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sessions.victim"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self._process.communicate()
        self._store.close().result()

    def kill(self, session: str, *, prompts: int = 1, **how: Any) -> bool:
        """Run a victim in a session and kill it; whether it was killed before it was done. Then check everything."""
        label = f"v{next(self._labels)}"
        files = {"acks": str(self._folder / f"{session}.acks"), "witness": str(self._folder / f"{session}.witness")}
        job = {
            "store": self._where + _named(self._where),
            "session": session,
            "label": label,
            "prompts": prompts,
            **files,
            **how,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        status = json.loads(self._process.stdout.readline())["status"]
        assert status in (0, signal.SIGKILL), f"the victim failed by itself: {status}, {how}"
        if self._where.startswith("postgres"):
            asyncio.run(self._wait_for_the_database())
        self.check(session)
        return status != 0

    async def _wait_for_the_database(self) -> None:
        """What the victim has sent before it died, the database may still be about to commit."""
        import asyncpg

        database = await asyncpg.connect(self._where)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
        async with asyncio.timeout(60):
            while await database.fetchval(asked, VICTIM):
                await asyncio.sleep(0.001)
        await database.close()

    def check(self, session: str) -> None:
        acks = self.lines(session, "acks")
        witness = self.lines(session, "witness")
        if not any(info.name == session for info in self._store.sessions().result()):
            assert not acks
            assert not witness
            return
        seen = Session(session, self._store).load_sync()
        assert faults(seen) == (), "P2"
        result = asyncio.run(self._go_on(session))
        assert result[: len(seen)] == seen, "what is shown is what is kept"
        _check_words(result, acks)
        _check_tools(result, acks, witness)
        self._check_events(session, acks)
        runs = self._store.runs(session).result()
        assert all(run.status != "running" for run in runs)
        assert self._store.load(session).result().info.holder is None

    async def _go_on(self, session: str) -> tuple[Message, ...]:
        """The next prompt just works."""
        agent = Agent(ScriptedModel(then="I go on."), session=session, store=self._store)
        result = await agent.invoke_async("go on")
        assert result.text == "I go on."
        assert result.receipt.saved
        assert faults(result.messages) == (), "P2"
        return result.messages

    def _check_events(self, session: str, acks: list[list[str]]) -> None:
        """P9: what was told can be told again, event by event, under the same number."""
        unsaved = {run for kind, run, *_ in acks if kind == "unsaved"}
        told: dict[str, dict[int, bytes]] = {}
        for kind, label, *rest in acks:
            if kind == "event" and label not in unsaved:
                told.setdefault(rest[0], {})[int(rest[1])] = rest[2].encode()
        for run_id, events in told.items():
            rows = self._store.rows(session, run_id).result()
            stored = {number: encode(event) for number, event in unpack(rows)}
            assert stored.items() >= events.items(), "P9: an event that was told is not there, or under another number"

    def lines(self, session: str, kind: str) -> list[list[str]]:
        """What the process has written. A last line that is cut was not acknowledged: the process was killed in it."""
        path = self._folder / f"{session}.{kind}"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]


def _check_words(messages: tuple[Message, ...], acks: list[list[str]]) -> None:
    """P3 and P9: the words that somebody saw, and the ends that were announced."""
    kept: dict[str, str] = {}
    label = ""
    for message in messages:
        if isinstance(message, UserMessage):
            label = message.text.removeprefix("prompt ")
        elif isinstance(message, AssistantMessage):
            kept[label] = kept.get(label, "") + message.text
    told: dict[str, str] = {}
    unsaved = {run for kind, run, *_ in acks if kind == "unsaved"}
    for kind, run, *rest in acks:
        if kind == "text" and run not in unsaved:
            told[run] = told.get(run, "") + rest[0]
        if kind == "ended":
            assert rest[0] == "end_turn", rest
            said = msgspec.json.decode(rest[1], type=list[Message])
            assert list(messages[: len(said)]) == said, "P9: a run that was reported as saved"
    for run, text in told.items():
        assert kept.get(run, "").startswith(text), f"P9: {text!r} was read and {kept.get(run)!r} is kept"


def _check_tools(messages: tuple[Message, ...], acks: list[list[str]], witness: list[list[str]]) -> None:
    """P9 and P4: no job was done twice, no result is lost, and what is said of each call can be true."""
    results = {
        each.call_id: each for message in messages if isinstance(message, ToolMessage) for each in message.results
    }
    jobs = {
        call.arguments["job"]: results[call.id]
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }
    started = Counter(job for what, job, _ in witness if what == "start")
    done = {job for what, job, _ in witness if what == "done"}
    keys = [key for what, _, key in witness if what == "start"]
    assert max(started.values(), default=1) == 1, "P9: a tool ran twice"
    assert len(keys) == len(set(keys)), "a key was used twice"
    unsaved = {run for kind, run, *_ in acks if kind == "unsaved"}
    for kind, run, *rest in acks:
        if kind == "result" and run not in unsaved:
            assert results[rest[0]].text == rest[1], "P9: a result that was told is lost"
    for job in started:
        if job.rpartition(".")[0] in unsaved:
            continue  # it was said that this is not saved
        assert job in jobs, "P9: a tool ran and the conversation does not know"
        assert jobs[job].outcome in (Outcome.COMPLETED, Outcome.UNKNOWN), "P4"
    for job, result in jobs.items():
        if result.outcome is Outcome.COMPLETED:
            assert job in done, "P4: said to be completed"
        if result.outcome is Outcome.NEVER_STARTED:
            assert job not in started, "P4: said to have never started"
