"""Tools that are hard to stop, in a module of their own so that a worker process can import them.

Each process that they start writes its id and start time to a file, so that a survivor can be recognised.
"""

from __future__ import annotations

import collections
import itertools
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
    """The processes in the book that still exist. Zombies count. A book in which none has signed proves nothing."""
    pairs = [line.split() for line in Path(book).read_text().splitlines()]
    assert pairs, "no process has signed the book"
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
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sign(book)
            while True:
                time.sleep(FOREVER)
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


def pool_of_processes(ctx: ToolContext) -> str:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as processes:
        work = [processes.submit(time.sleep, FOREVER) for _ in range(4)]
        while not all(each.running() for each in work[:2]):
            time.sleep(0.001)
        ctx.report("ready")
        return str([each.result() for each in work])
