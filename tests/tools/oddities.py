"""Tools that end, print, return or ask in odd ways, in a module that a worker process can import."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

from hazards import FOREVER, sign

from quiesce import ToolContext


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
    logging.getLogger("oddities.log").warning("careful with %s", "this")
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
