"""One product in three frameworks, run and counted: `python -m bench.side_by_side.glue`.

The product is a coding agent with a web page: examples/glue. Each application is started and used over HTTP, as its
page does. What a framework has no part for, and the application does not write itself, is a `no` in the table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from . import page
from .answers import SLEEP
from .programs import FRAMEWORKS, ROOT, ProgramFailed, count_lines
from .provider import provider

APPS: Final = ROOT / "examples" / "glue"
NAMES: Final = ("quiesce", "openai_agents", "pydantic_ai")
GREETING: Final = 'print("Helo")\n'
WAIT: Final = 30.0
ROWS: Final = {
    "lines": "lines of app.py",
    "restart": "an approval is answered after kill -9 and a restart",
    "stop_s": "at rest after a stop in a command",
    "left": "processes of the command that the stop left",
    "crash_left": "processes of a command that kill -9 of the server left",
    "valid": "the next request is one that OpenAI accepts",
    "told": "the model is told about the call that was stopped",
    "undo": "stop and take it all back",
}


class App:
    """An application in a process of its own, and one user of it. Its routes are those that two of the three wrote."""

    def __init__(self, name: str, python: str, address: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._python, self._address = python, address
        self._process: subprocess.Popen[str] | None = None
        self.client = httpx2.Client(timeout=WAIT, trust_env=False)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = [self._python, "-m", "uvicorn", "app:app", "--app-dir", str(APPS / self.name), "--port", "0"]
        key = {"OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1", "NO_PROXY": "127.0.0.1"}
        base = {"OPENAI_BASE_URL": f"{self._address}/glue-{self.name}/v1", "HOME": str(self.folder)}
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=os.environ | key | base, stdout=log, stderr=log, text=True
            )
        self.client.base_url = self.wait_for(self._url)

    def _url(self) -> str:
        found = re.findall(r"running on (http://\S+)", (self.folder / "log").read_text())
        return found[-1] if found and self._answers(found[-1]) else ""

    def _answers(self, url: str) -> bool:
        try:
            return self.client.get(url).status_code == 200
        except httpx2.HTTPError:
            return False

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def sign_in(self, user: str) -> None:
        """From here on, requests are those of this user."""
        self.client.cookies = {"user": user}
        (self.folder / "data" / user).mkdir(parents=True, exist_ok=True)
        (self.folder / "data" / user / "greeting.py").write_text(GREETING)

    def greeting(self, user: str) -> str:
        return (self.folder / "data" / user / "greeting.py").read_text()

    def requests(self) -> list[dict[str, Any]]:
        """What the model got."""
        with httpx2.Client(trust_env=False) as client:
            return client.get(f"{self._address}/glue-{self.name}/report").json()

    def wait_for(self, found: Callable[[], Any]) -> Any:
        end = time.monotonic() + WAIT
        while not (value := found()):
            if time.monotonic() > end:
                raise ProgramFailed(f"{self.name}: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return value

    def _post(self, path: str, body: object) -> Any:
        response = self.client.post(path, json=body)
        if response.status_code >= 300:
            raise ProgramFailed(f"{self.name}: {path} was answered with {response.status_code} {response.text}")
        return response.json() if response.content else None

    # --- The four routes ----------------------------------------------------------------------------------------

    def prompt(self, text: str) -> None:
        self._post("/prompt", {"prompt": text})

    def state(self) -> dict[str, Any]:
        return self.client.get("/state").json()

    def answer(self, asked: str, *, approve: bool) -> None:
        self._post("/answer", {"id": asked, "approve": approve})

    def stop(self) -> None:
        self._post("/stop", {})

    def take_back(self) -> bool:
        """Stop and take it all back; whether there is such a thing."""
        return False

    def at_rest(self) -> dict[str, Any]:
        """The state, once nothing runs."""
        return self.wait_for(lambda: None if (state := self.state())["running"] else state)


class Ours(App):
    """The application of Quiesce: its routes come with the library."""

    _run = ""

    def prompt(self, text: str) -> None:
        self._run = self._post("/agent/runs", {"prompt": text, "session": "project"})["run"]["id"]

    def state(self) -> dict[str, Any]:
        run = self.client.get(f"/agent/runs/{self._run}").json()["run"]
        return {"running": run["ended_at"] is None, "text": run["text_tail"], "asked": run["interrupts"]}

    def answer(self, asked: str, *, approve: bool) -> None:
        body = {"answers": [{"id": asked, "answer": approve}]}
        self._run = self._post(f"/agent/runs/{self._run}/resume", body)["run"]["id"]

    def stop(self) -> None:
        self._post(f"/agent/runs/{self._run}/cancel", {})

    def take_back(self) -> bool:
        self._post(f"/agent/runs/{self._run}/undo", {})
        return True


def approve(app: App, times: int) -> None:
    """Approve one call after the other."""
    for _ in range(times):
        (asked,) = app.at_rest()["asked"]
        app.answer(asked["id"], approve=True)


def drive(app: App) -> dict[str, Any]:
    """Use the application; what was seen. Raises `ProgramFailed` when it does not do its work."""
    app.start()
    app.sign_in("bob")
    app.sign_in("ann")
    app.prompt("Mend the greeting.")
    approve(app, 2)
    _expect(app, "Done. I found no faults.")
    if app.greeting("ann") != GREETING.replace("Helo", "Hello") or app.greeting("bob") != GREETING:
        raise ProgramFailed(f"{app.name}: the files are not what they should be.")
    undone = app.take_back() and app.greeting("ann") == GREETING
    app.sign_in("bob")
    app.prompt("Mend the greeting.")
    approve(app, 1)
    app.at_rest()
    app.kill()
    app.start()
    return {"undo": undone, "restart": _goes_on(app), **_stopped(app)}


def _goes_on(app: App) -> bool:
    """Whether what was asked before the crash can be answered, and the task comes to its end."""
    try:
        approve(app, 1)
        _expect(app, "Done. I found no faults.")
    except (ProgramFailed, ValueError):
        return False
    return True


def _stopped(app: App) -> dict[str, Any]:
    """Stop a command with children, then go on."""
    app.sign_in("ann")
    app.prompt("Run forever.")
    approve(app, 1)
    app.wait_for(lambda: len(_sleeping()) >= 3)
    began = time.monotonic()
    app.stop()
    app.at_rest()
    seconds = time.monotonic() - began
    left = _end_sleeping()
    app.prompt("Go on.")
    app.at_rest()
    last = app.requests()[-1]
    app.prompt("Run forever.")
    approve(app, 1)
    app.wait_for(lambda: len(_sleeping()) >= 3)
    app.kill()
    crash_left = _end_sleeping()
    told = last["calls"] == 5  # four of the first task, and the one that was stopped
    valid = last["unanswered"] == 0
    return {"stop_s": seconds, "left": left, "crash_left": crash_left, "valid": valid, "told": told}


def _end_sleeping() -> int:
    """How many processes of the command there are a second later. They are ended here."""
    time.sleep(1)
    left = _sleeping()
    for process in left:
        os.kill(process, 9)
    return len(left)


def _sleeping() -> list[int]:
    """The processes that the command of the model consists of."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            command = Path("/proc", entry, "cmdline").read_bytes() if entry.isdigit() else b""
        except OSError:  # it has ended meanwhile
            continue
        if command == f"sleep\0{SLEEP}\0".encode():
            found.append(int(entry))
    return found


def _expect(app: App, text: str) -> None:
    state = app.at_rest()
    if state["text"] != text:
        raise ProgramFailed(f"{app.name} answered {state}, instead of {text!r}.")


@contextmanager
def running(name: str, python: str, address: str) -> Iterator[App]:
    """An application in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        app = (Ours if name == "quiesce" else App)(name, python, address, Path(folder))
        try:
            yield app
        finally:
            app.kill()
            app.client.close()


def lines_of(name: str) -> int:
    """The lines of code of an application, without its page."""
    return count_lines((APPS / name / "app.py").read_text())


def table(seen: dict[str, dict[str, Any]]) -> str:
    """The table for the page."""

    def cell(row: str, value: object) -> str:
        if row == "stop_s":
            return f"{value:.2f} s"
        return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)

    head = f"| | {' | '.join(FRAMEWORKS[name] for name in seen)} |\n| --- |{' ---: |' * len(seen)}\n"
    rows = [
        f"| {words} | {' | '.join(cell(row, each[row]) for each in seen.values())} |\n" for row, words in ROWS.items()
    ]
    return head + "".join(rows)


def main(names: list[str]) -> None:
    """Run the applications, and write the table when all were run."""
    from .__main__ import python_of

    seen: dict[str, dict[str, Any]] = {}
    with provider() as address:
        for name in names or NAMES:
            with running(name, python_of(name), address) as app:
                seen[name] = {"lines": lines_of(name), **drive(app)}
                print(name, seen[name], file=sys.stderr, flush=True)
    if not names:
        page.PAGE.write_text(page.fill(page.PAGE.read_text(), {"glue": table(seen)}))


if __name__ == "__main__":
    main(sys.argv[1:])
