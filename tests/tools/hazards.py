"""Tools that are hard to stop, in a module of their own so that a worker process can import them.

Each process that they start writes its id and start time to a file, so that a survivor can be recognised.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from quiesce import ToolContext

FOREVER = 10_000


def start_time(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def sign(book: str) -> None:
    """Write this process into the book."""
    line = f"{os.getpid()} {start_time(os.getpid())}\n".encode()
    handle = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)


def survivors(book: str) -> list[int]:
    """The processes in the book that still exist. Zombies count."""
    try:
        lines = Path(book).read_text().splitlines()
    except FileNotFoundError:
        return []
    pairs = [line.split() for line in lines]
    return [int(pid) for pid, started in pairs if start_time(int(pid)) == started]


def sleep(book: str, ctx: ToolContext) -> str:
    sign(book)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def hold_interpreter(book: str, ctx: ToolContext) -> str:
    sign(book)
    ctx.report("ready")
    collections.deque(itertools.repeat(0), maxlen=0)  # a loop in C: keeps the interpreter, looks at no signal
    return "done"


def catastrophic_regex(book: str, ctx: ToolContext) -> str:
    sign(book)
    ctx.report("ready")
    return str(re.match(r"(a*)*(a*)*(a*)*b", "a" * 60))


def loop_for_ever(book: str, ctx: ToolContext) -> str:
    sign(book)
    ctx.report("ready")
    while True:
        pass


def swallow_everything(book: str, ctx: ToolContext) -> str:
    sign(book)
    ctx.report("ready")
    while True:
        try:
            time.sleep(FOREVER)
        except BaseException:
            continue


def ignore_term(book: str, ctx: ToolContext) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sign(book)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def child_ignores_term(book: str, ctx: ToolContext) -> str:
    sign(book)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import hazards; hazards.stubborn({book!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    ctx.report("ready")
    child.wait()
    return "done"


def stubborn(book: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sign(book)
    print("here", flush=True)
    time.sleep(FOREVER)


def double_fork(book: str, ctx: ToolContext) -> str:
    sign(book)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
            sign(book)
            os.write(writer, b"x")
            time.sleep(FOREVER)
        os._exit(0)
    os.wait()
    os.read(reader, 1)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def child_in_a_session_of_its_own(book: str, ctx: ToolContext) -> str:
    sign(book)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        sign(book)
        os.write(writer, b"x")
        time.sleep(FOREVER)
    os.read(reader, 1)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def full_pipe(book: str, ctx: ToolContext) -> str:
    sign(book)
    child = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    ctx.report("ready")
    child.wait()
    return "done"


def hundred_children(book: str, ctx: ToolContext) -> str:
    sign(book)
    for _ in range(100):
        if os.fork() == 0:
            sign(book)
            while True:
                try:
                    time.sleep(FOREVER)
                except BaseException:
                    continue
    while len(Path(book).read_text().splitlines()) < 101:
        time.sleep(0.001)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def hydra(book: str, ctx: ToolContext) -> str:
    """Each child, when it is asked to end, forks a successor in a session of its own first."""
    sign(book)

    def grow(*_: object) -> None:
        if os.fork():
            os._exit(0)
        os.setsid()
        sign(book)

    if os.fork() == 0:
        signal.signal(signal.SIGTERM, grow)
        while True:
            time.sleep(FOREVER)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


def hopper(book: str, ctx: ToolContext) -> str:
    """Without end, a process forks the next one into a session of its own, and is gone."""
    sign(book)
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            sign(book)
    while len(Path(book).read_text().splitlines()) < 10:
        time.sleep(0.001)
    ctx.report("ready")
    time.sleep(FOREVER)
    return "done"


HAZARDS = [
    sleep,
    hold_interpreter,
    catastrophic_regex,
    loop_for_ever,
    swallow_everything,
    ignore_term,
    child_ignores_term,
    double_fork,
    full_pipe,
    hundred_children,
    hydra,
    hopper,
]


# --- Odd ends ------------------------------------------------------------------------------------------------------


def exit_at_once() -> str:
    print("about to go", flush=True)
    os._exit(3)


def print_and_exit() -> str:
    print("half a line", end=", ")
    print("a number:", 7, end="")
    os._exit(3)


def take_the_next_of_nothing() -> str:
    return next(iter(()))


def raise_keyboard_interrupt() -> str:
    raise KeyboardInterrupt("from a tool")


def raise_system_exit() -> str:
    raise SystemExit(4)


def terminate_itself() -> str:
    """Ends what it takes for its children."""
    os.killpg(0, signal.SIGTERM)
    time.sleep(FOREVER)
    return "never"


def close_stdout() -> str:
    os.close(1)
    sys.stdout.close()
    return "closed"


def speak(words: str) -> str:
    print(words)
    return words


def kill_itself() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def sign_and_die(book: str) -> str:
    """Ends for a reason of its own, after it has begun."""
    sign(book)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def crash() -> str:
    ctypes.string_at(0)
    return "never"


def take_memory(size: int) -> int:
    return len(bytearray(size))


def burn() -> str:
    while True:
        pass


def burn_quietly() -> str:
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    ctypes.PyDLL(None)
    while True:
        pass


def process_id() -> int:
    return os.getpid()


def leave_a_child(book: str) -> str:
    """Returns at once, and leaves a process behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sign(book)
            time.sleep(FOREVER)
        os._exit(0)
    os.wait()
    while not Path(book).exists():
        time.sleep(0.001)
    return "left"


def return_in_the_child_too() -> str:
    """A fork that both sides return from."""
    if os.fork() == 0:
        return "child"
    os.wait()
    return "parent"


def leave_a_thread() -> str:
    import threading

    threading.Thread(target=time.sleep, args=(FOREVER,), daemon=True).start()
    return "left"


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def raise_unpicklable() -> str:
    raise Unpicklable("this", "that")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raise_unspeakable() -> str:
    raise Unspeakable


def raise_deep() -> str:
    def deeper() -> None:
        raise ValueError("deep down")

    deeper()
    return "never"


def return_unpicklable() -> object:
    return lambda: None


def clean_up(book: str, ctx: ToolContext) -> str:
    try:
        ctx.report("ready")  # the stop may come before this returns
        time.sleep(FOREVER)
    finally:
        Path(book).write_text("cleaned up")
    return "done"


def finish_when_asked(ctx: ToolContext) -> str:
    """Goes on until it sees the token, whatever TERM says."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.report("ready")
    ctx.token.wait_sync()
    return f"stopped by {ctx.token.cause.source if ctx.token.cause else None}"


def ask_first(ctx: ToolContext) -> str:
    """Asks twice, from another process than the run's."""
    colour = ctx.interrupt("colour", {"choices": ["red", "blue"]})
    try:
        size = ctx.interrupt("size", "how big?", expires_in=60)
    except Exception:
        return "swallowed"
    return f"{size} {colour} {os.getpid()}"


def protected(book: str, ctx: ToolContext) -> str:
    with ctx.shield("commit"):
        ctx.report("ready")
        time.sleep(0.05)
        Path(book).write_text("whole")
    time.sleep(FOREVER)
    return "done"


def log_and_report(ctx: ToolContext) -> str:
    import logging

    print("on stdout")
    print("on stderr", file=sys.stderr)
    logging.getLogger("hazards.log").warning("careful with %s", "this")
    ctx.report({"step": 1})
    ctx.state["changed"] = True
    return f"{ctx.state['given']} {ctx.token.cancelled} {ctx.tool_name} {bool(ctx.run_id)} {ctx.call_id}"


async def asynchronous(ctx: ToolContext) -> str:
    import asyncio

    await asyncio.sleep(0)
    ctx.report("ready")
    await asyncio.sleep(0)
    return "async"


async def steps():
    yield 1
    yield 2


def stop_the_run(ctx: ToolContext) -> str:
    ctx.cancel("enough")
    time.sleep(FOREVER)
    return "never"


def finish_after(seconds: float, book: str) -> str:
    """Takes its time, leaves a mark, returns."""
    time.sleep(seconds)
    with Path(book).open("a") as file:
        file.write("x")
    return "kept"


def loaded(names: list[str]) -> str:
    """Which of these modules this process has imported."""
    return json.dumps([name for name in names if name in sys.modules])


def loaded_with_context(names: list[str], ctx: ToolContext) -> str:
    """The same, after the tool has used what it was given."""
    ctx.token.raise_if_cancelled()
    ctx.report("looked")
    return loaded(names)
