"""Agents in gunicorn and uvicorn: stops by a request, by a client that leaves, by a time limit, and by a signal."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .programs import free_port, listening

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
    pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None, reason="`make proof` installs it"),
]
GUNICORN = ("-m", "gunicorn", "tests.parts.web_apps:flask_app", "--graceful-timeout", "3", "--threads", "4")
UVICORN = ("-m", "uvicorn", "tests.parts.web_apps:starlette_app", "--timeout-graceful-shutdown", "3")


class Site:
    """A server with our application in it."""

    def __init__(self, process: Any, port: int, book: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self._book = book

    def get(self, path: str) -> str:
        return httpx2.get(self.url + path, timeout=30).text

    def receipts(self, count: int) -> list[dict[str, Any]]:
        """The receipts of so many runs, once they are written."""
        wait_until(lambda: self._book.exists() and len(self._book.read_text().splitlines()) >= count)
        return [json.loads(line) for line in self._book.read_text().splitlines()]

    def in_background(self, path: str) -> Callable[[], str]:
        """Send a request in a thread; returns a function that waits for the answer."""
        found: list[str] = []

        def send() -> None:
            try:
                found.append(self.get(path))
            except httpx2.HTTPError as error:
                found.append(type(error).__name__)

        thread = threading.Thread(target=send)
        thread.start()

        def answer() -> str:
            thread.join(30)
            return found[0]

        return answer


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


@contextmanager
def site(command: tuple[str, ...], port_option: Callable[[int], tuple[str, ...]], folder: Path) -> Iterator[Site]:
    port, book = free_port(), folder / "book"
    with listening((sys.executable, *command, *port_option(port)), folder / "log", port, BOOK=str(book)) as process:
        yield Site(process, port, book)


@contextmanager
def gunicorn(folder: Path, *options: str) -> Iterator[Site]:
    with site((*GUNICORN, *options), lambda port: ("--bind", f"127.0.0.1:{port}"), folder) as found:
        yield found


@contextmanager
def uvicorn(folder: Path) -> Iterator[Site]:
    with site(UVICORN, lambda port: ("--port", str(port)), folder) as found:
        yield found


@pytest.mark.promise("P1", "P8")
@pytest.mark.parametrize("preload", [(), ("--preload",)], ids=["", "preload"])
def test_gunicorn_a_run_in_a_thread_is_stopped_by_another_request(preload: tuple[str, ...], tmp_path: Path) -> None:
    with gunicorn(tmp_path, *preload) as server:
        answer = server.in_background("/ask/wait")
        wait_until(lambda: server.get("/active") == "1")
        assert server.get("/stop") == "1"
        assert answer() == "cancelled: Well, "
        assert server.get("/ask/hello") == "end_turn: Fine."
        cut, fine = server.receipts(2)
        assert (cut["cause"], cut["left"], fine["cause"]) == ("user", [], None)


@pytest.mark.promise("P5", "P7")
def test_gunicorn_a_worker_that_is_timed_out_ends_the_run(tmp_path: Path) -> None:
    """The arbiter aborts a sync worker that is silent for too long; gunicorn turns that into SystemExit."""
    with gunicorn(tmp_path, "--worker-class", "sync", "--threads", "1", "--timeout", "2") as server:
        server.in_background("/ask/wait")()
        (cut,) = server.receipts(1)
        assert cut["stop_reason"] == "cancelled"
        assert cut["left"] == []
        assert server.get("/ask/hello") == "end_turn: Fine."
        assert server.receipts(2)[1]["process"] != cut["process"], "a new worker answers"


@pytest.mark.promise("P1", "P8")
def test_uvicorn_a_client_that_leaves_stops_its_run(tmp_path: Path) -> None:
    with uvicorn(tmp_path) as server:
        with httpx2.stream("GET", server.url + "/stream/wait", timeout=30) as response:
            assert next(response.iter_text()) == "Well, "
        (cut,) = server.receipts(1)
        assert (cut["stop_reason"], cut["text"], cut["left"]) == ("cancelled", "Well, ", [])
        assert cut["cause"] in ("disconnect", "caller")
        assert server.get("/stream/hello") == "Fine."


@pytest.mark.promise("P1", "P8")
def test_uvicorn_a_run_is_stopped_by_another_request(tmp_path: Path) -> None:
    with uvicorn(tmp_path) as server, httpx2.stream("GET", server.url + "/stream/wait", timeout=30) as response:
        words = response.iter_text()
        assert next(words) == "Well, "
        assert server.get("/stop") == "1"
        assert list(words) == []
        assert server.receipts(1)[0]["cause"] == "user"


@pytest.mark.promise("P5", "P7")
def test_gunicorn_ends_by_a_signal_in_the_middle_of_a_run(tmp_path: Path) -> None:
    with gunicorn(tmp_path, "--config", "tests/parts/gunicorn_conf.py", "--graceful-timeout", "20") as server:
        answer = server.in_background("/ask/wait")
        wait_until(lambda: server.get("/active") == "1")
        asked = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert answer() == "cancelled: Well, ", "the client gets its answer"
        assert server.process.wait(30) == 0
        assert time.monotonic() - asked < 10, "the run does not hold the server"
        (cut,) = server.receipts(1)
        assert (cut["cause"], cut["left"]) == ("shutdown", [])
        assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.promise("P5", "P7")
def test_uvicorn_ends_by_a_signal_in_the_middle_of_a_run(tmp_path: Path) -> None:
    with uvicorn(tmp_path) as server:
        with httpx2.stream("GET", server.url + "/stream/wait", timeout=30) as response:
            assert next(response.iter_text()) == "Well, "
            server.process.send_signal(signal.SIGTERM)
            (cut,) = server.receipts(1)
        assert server.process.wait(30) in (0, -signal.SIGTERM), "uvicorn raises the signal again when it is done"
        assert (cut["stop_reason"], cut["text"], cut["left"]) == ("cancelled", "Well, ", [])
