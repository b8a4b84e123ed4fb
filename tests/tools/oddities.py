"""Tools that end, print, return or ask in odd ways, in a module that a worker process can import."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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


def inherited_handles() -> str:
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True)
    links = [line.split(" -> ") for line in listed.stdout.splitlines() if " -> " in line]
    return str([target for place, target in links if int(place.split()[-1]) > 2 and "/proc/" not in target])


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


# --- Forks ---------------------------------------------------------------------------------------------------------


def _catches_term() -> bool:
    """Whether this process has a handler for TERM, as the kernel sees it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    caught, blocked = (
        int(line.split()[1], 16) for kind in ("SigCgt:", "SigBlk:") for line in lines if line.startswith(kind)
    )
    return bool((caught | blocked) >> (signal.SIGTERM - 1) & 1)


def _fork_and_say(fork: Callable[[], int]) -> bool:
    child = fork()
    if child == 0:
        os._exit(_catches_term() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _exit_with(function: Callable[[], bool]) -> None:
    os._exit(function())


def term_in_forks() -> str:
    """Which ways of forking give a child that handles or blocks TERM; and whether this process still handles it."""
    import multiprocessing
    import subprocess
    from concurrent.futures import ProcessPoolExecutor
    from threading import Thread

    context = multiprocessing.get_context("fork")
    found: dict[str, bool] = {"os.fork": _fork_and_say(os.fork)}
    found["os.forkpty"] = _fork_and_say(lambda: os.forkpty()[0])
    in_thread = Thread(target=lambda: found.update({"a thread": _fork_and_say(os.fork)}))
    in_thread.start()
    in_thread.join()
    process = context.Process(target=_exit_with, args=(_catches_term,))
    process.start()
    process.join()
    found["multiprocessing"] = process.exitcode != 0
    with context.Pool(1) as pool:
        found["Pool"] = pool.apply(_catches_term)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        found["ProcessPoolExecutor"] = executor.submit(_catches_term).result()
    program = subprocess.run(
        [sys.executable, "-c", ""],
        check=False,
        preexec_fn=lambda: _exit_with(_catches_term),
    )
    found["preexec_fn"] = program.returncode != 0
    names = " ".join(name for name, catches in found.items() if catches)
    return f"{names or 'none'}; itself: {_catches_term()}"


def end_children_at_once(count: int) -> str:
    """TERM for each child in the moment that it is there. Which was the first that ended otherwise."""
    for number in range(count):
        child = os.fork()
        if child == 0:
            signal.alarm(2)  # for one that the signal does not end
            signal.pause()
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGTERM:
            return f"not number {number}"
    return "all"


def pools(count: int) -> str:
    """One pool of processes after the other, each ended while its processes begin to wait."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    total = 0
    for number in range(count):
        with context.Pool(2) as pool:
            total += pool.apply(abs, (number % 2,))
    return str(total)


def fork_until_terminated(book: str, ctx: ToolContext) -> str:
    """Does nothing but fork, so that TERM nearly always comes in a fork; and writes down that it could clean up."""
    try:
        ctx.report("ready")
        while True:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    finally:
        Path(book).write_text("cleaned up")


def told_in_a_fork(book: str) -> str:
    """TERM comes in the middle of a fork: while a hook of the standard library runs."""
    import logging

    class Telling:
        def acquire(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        def release(self) -> None: ...

    before, logging._lock = logging._lock, Telling()  # type: ignore[attr-defined]
    try:
        if os.fork() == 0:
            os._exit(0)
        signal.alarm(10)
        time.sleep(FOREVER)
    finally:
        logging._lock = before  # type: ignore[attr-defined]
        Path(book).write_text("cleaned up")
    return "never"


def waits_no_longer(ctx: ToolContext) -> list[bool]:
    return [ctx.token.wait_sync(seconds) for seconds in (-1.0, 0.0)]
