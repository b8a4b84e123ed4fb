"""The ready tools do what they say, and are stopped as they say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from tool_runs import agent_with, call, results, run_async, stop_when, stray_processes

from quiesce.events import ToolProgress, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.tools.builtin import (
    WrittenFile,
    make_files,
    make_http_get,
    make_shell,
    python,
    read_file,
    shell,
    undo_write,
    write_file,
)

pytestmark = pytest.mark.promise("P4", "P5")


def said(text: str):
    return lambda event: isinstance(event, ToolProgress) and text in str(event.progress)


def test_shell() -> None:
    async def main() -> None:
        assert (await call(shell, {"command": "echo out; echo err >&2"})).text == "out\nerr"
        assert (await call(shell, {"command": "echo x; exit 3"})).text == "x\n[exit code 3]"
        assert (await call(shell, {"command": "kill -9 $$"})).text == "[ended by signal 9]"
        assert (await call(shell, {"command": "true"})).text == "(no output)"
        left = (await call(shell, {"command": "sleep 1000 & echo done"})).text
        assert left == "done\n[1 of its processes were still running, and were ended]"
        slow = make_shell(timeout=2, grace=0.1, name="slow")
        assert (await call(slow, {"command": "echo x; sleep 100"})).text == "x\n[stopped: it took longer than 2 s]"

    run_async(main())
    assert stray_processes() == []


def test_shell_is_stopped_with_what_it_printed() -> None:
    async def main() -> None:
        agent = agent_with(shell, calls=[Call("shell", {"command": "echo one; sleep 1000 | sleep 1000"})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=said("one"))
        assert results(outcome)["shell"].outcome is Outcome.KILLED
        assert results(outcome)["shell"].text.endswith("Before that it had printed:\none\n")

    run_async(main())
    assert stray_processes() == []


def test_python() -> None:
    async def main() -> None:
        assert (await call(python, {"code": "print(6 * 7)"})).text == "42"
        failed = await call(python, {"code": "1/0"})
        assert "ZeroDivisionError" in failed.text
        assert failed.text.endswith("[exit code 1]")
        agent = agent_with(python, calls=[Call("python", {"code": "print('begun')\nwhile True: pass"})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=said("begun"))
        assert results(outcome)["python"].outcome is Outcome.KILLED
        assert "begun" in results(outcome)["python"].text

    run_async(main())


def test_files(tmp_path: Path) -> None:
    async def main() -> None:
        place = tmp_path / "deep" / "file.txt"
        written = await call(write_file, {"path": str(place), "content": "one\ntwo\nthree\n"})
        assert written.text == f"Wrote 14 characters to {place}."
        assert (await call(read_file, {"path": str(place)})).text == "one\ntwo\nthree\n"
        part = await call(read_file, {"path": str(place), "first_line": 2, "lines": 1})
        assert part.text == "two\n[1 more lines]"
        beyond = await call(read_file, {"path": str(place), "first_line": 4})
        assert (beyond.text, beyond.is_error) == (f"{place} has 3 lines.", True)
        place.write_text("one\x0cand\u2028more\ntwo\n")
        assert (await call(read_file, {"path": str(place), "first_line": 2})).text == "two\n"
        assert "cannot be read: No such file" in (await call(read_file, {"path": str(tmp_path / "none")})).text
        assert "is a folder; it holds: deep" in (await call(read_file, {"path": str(tmp_path)})).text
        os.mkfifo(tmp_path / "fifo")
        assert "not a plain file" in (await call(read_file, {"path": str(tmp_path / "fifo")})).text
        assert sorted(path.name for path in place.parent.iterdir()) == ["file.txt"]

    run_async(main())


def test_writing_keeps_what_an_undo_needs(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"old \xff")
    place.chmod(0o640)
    changed = write_file(path=str(place), content="new").data
    assert (changed.previous, changed.path) == (b"old \xff", str(place))
    assert place.stat().st_mode & 0o777 == 0o640
    undo_write(changed)
    assert place.read_bytes() == b"old \xff"
    made = write_file(path=str(tmp_path / "new" / "deep" / "made"), content="x").data
    undo_write(msgspec.json.decode(msgspec.json.encode(made), type=WrittenFile))  # as a store keeps it
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_files_stay_in_their_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "link").symlink_to(tmp_path / "secret")
    read, write = make_files(str(inside), max_size=10)

    async def main() -> None:
        for path in ("../secret", str(tmp_path / "secret"), "link"):
            assert "outside of the folder" in (await call(read, {"path": path})).text
            assert "outside of the folder" in (await call(write, {"path": path, "content": "x"})).text
        assert (await call(write, {"path": "a", "content": "x" * 11})).text.startswith("Wrote")
        assert "11 bytes; at most 10" in (await call(read, {"path": "a"})).text

    run_async(main())
    assert (tmp_path / "secret").read_text() == "s"


class _Pages(BaseHTTPRequestHandler):
    hold = threading.Event()

    def do_GET(self) -> None:
        status = 404 if self.path == "/missing" else 200
        self.send_response(status)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"page " + self.path.encode())
        if self.path == "/slow":
            self.wfile.flush()
            self.hold.wait(30)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def pages():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    _Pages.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_http_get(pages: str) -> None:
    http_get = make_http_get(private_hosts=["127.0.0.1"])

    async def main() -> None:
        assert (await call(http_get, {"url": f"{pages}/x"})).text == "page /x"
        assert (await call(http_get, {"url": f"{pages}/missing"})).text == "[404 Not Found]\npage /missing"
        assert "not an http address" in (await call(http_get, {"url": "file:///etc/passwd"})).text
        assert (await call(http_get, {"url": f"HTTP{pages[4:]}/x"})).text == "page /x"
        refused = await call(http_get, {"url": "http://127.0.0.1:1/"})
        assert "could not be fetched" in refused.text
        impossible = await call(http_get, {"url": "http://127.0.0.1:99999/"})
        assert impossible.text.startswith("http://127.0.0.1:99999/ could not be fetched: OverflowError")
        short = make_http_get(max_size=4, name="short", private_hosts=["127.0.0.1"])
        assert (await call(short, {"url": f"{pages}/x"})).text == "page\n[cut after 4 bytes]"
        agent = agent_with(http_get, calls=[Call("http_get", {"url": f"{pages}/slow"})])
        outcome, _ = await stop_when(
            agent, lambda run: run.cancel(), ready=lambda event: isinstance(event, ToolStarted)
        )
        assert results(outcome)["http_get"].outcome is Outcome.CANCELLED

    run_async(main())


def test_the_ready_tools_are_light() -> None:
    code = "import quiesce.tools.builtin, sys; print([n for n in ('httpx2', 'pydantic') if n in sys.modules])"
    plain = "from quiesce import *; import sys; print([n for n in ('httpx2', 'pydantic') if n in sys.modules])"
    outputs = [subprocess.run([sys.executable, "-c", each], capture_output=True, check=True) for each in (code, plain)]
    assert outputs[0].stdout == outputs[1].stdout
