"""Finding and ending everything that a process has started.

On Linux the kernel helps: a *subreaper* becomes the parent of every orphan below it, so a process that forks twice or
begins a session of its own cannot get away, and "no child left" from `waitpid` is proof. Elsewhere the process table
and the process group are all there is; a child that leaves both is not found.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
LINUX: Final = sys.platform.startswith("linux")
# The links of /proc/<pid>/task when there is one thread: two for the directory itself, and one for each thread.
_ONE_THREAD: Final = 3
_PIECE: Final = 65536


def become_subreaper() -> bool:
    """Adopt, from now on, every orphan below this process. Whether the system can do that."""
    return LINUX and _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, where it can."""
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    import ctypes  # only the processes that have children of their own need it

    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def children(pid: int) -> list[int]:
    """The children of a process, zombies included.

    A list that is read while some of them end may leave out others. Their parent gets a signal for each end, and looks
    again.
    """
    if not _kernel_lists_children():
        return [child for child, parent in _parents().items() if parent == pid]
    tasks = f"/proc/{pid}/task"
    found: list[int] = []
    with suppress(OSError):  # it has ended meanwhile
        # Each thread has a directory of its own, and children of its own. Most processes have one thread.
        threads = (str(pid),) if os.stat(tasks).st_nlink == _ONE_THREAD else os.listdir(tasks)
        for thread in threads:
            found.extend(map(int, _read(f"{tasks}/{thread}/children").split()))
    return found


def children_of_thread() -> frozenset[int]:
    """The children that the current thread has started. On Linux."""
    with suppress(OSError):
        return frozenset(map(int, _read(f"/proc/self/task/{threading.get_native_id()}/children").split()))
    return frozenset()


def _kernel_lists_children() -> bool:
    return LINUX and _children_are_in_proc()


@functools.cache
def _children_are_in_proc() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _read(path: str) -> bytes:
    """A file of the kernel's, whole. Without the layers that files have in Python: this is done hundreds of times."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = piece = os.read(handle, _PIECE)
        while piece:
            piece = os.read(handle, _PIECE)
            data += piece
        return data
    finally:
        os.close(handle)


def descendants(pid: int) -> list[int]:
    """Everything below a process, parents before their children, the dead ones included."""
    if not _kernel_lists_children():
        return _below(pid, _parents())
    found = children(pid)
    for each in found:  # it grows while it is walked
        found.extend(children(each))
    return found


def _below(pid: int, parents: dict[int, int]) -> list[int]:
    found = [pid]
    for each in found:
        found.extend(child for child, parent in parents.items() if parent == each and child != each)
    return found[1:]


def _parents() -> dict[int, int]:
    """The parent of every process there is."""
    if not LINUX:
        return {row.pid: row.parent for row in _process_table()}
    parents: dict[int, int] = {}
    for pid in process_ids():
        with suppress(OSError, ValueError, IndexError):
            parents[pid] = int(_stat(pid)[1])
    return parents


def process_ids() -> list[int]:
    """Every process there is, from /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class _Row(NamedTuple):
    pid: int
    parent: int
    group: int
    dead: bool


def _process_table() -> list[_Row]:
    """Every process there is, where there is no /proc; not the program that lists them."""
    with subprocess.Popen(["/bin/ps", "-axo", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE) as ps:
        assert ps.stdout is not None
        fields = [line.split() for line in ps.stdout]
    rows = [_Row(int(row[0]), int(row[1]), int(row[2]), row[3].startswith(b"Z")) for row in fields if len(row) == 4]
    return [row for row in rows if row.pid != ps.pid]


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat that follow the name, which may itself hold blanks and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def program_name(pid: int) -> str:
    """The name of the program that a process runs. From /proc."""
    try:
        return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        return "ended"


def is_dead(pid: int) -> bool:
    """Whether a process has ended, reaped or not. From /proc."""
    try:
        return _stat(pid)[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return True


def alive_below(root: int, group: int) -> int:
    """How many processes below `root` are alive; where orphans are not adopted, those in the group count as below."""
    if LINUX:
        return sum(not is_dead(pid) for pid in descendants(root))
    return len(members(root, group))


def members(root: int, group: int) -> list[int]:
    """Where orphans are not adopted: what is alive below `root`, parents first, and in the group. In one look."""
    rows = _process_table()
    alive = {row.pid for row in rows if not row.dead}
    below = _below(root, {row.pid: row.parent for row in rows})
    in_group = (row.pid for row in rows if row.group == group)
    return [pid for pid in dict.fromkeys((*below, *in_group)) if pid in alive]


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists and may be signalled."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def send_group(group: int, number: int) -> None:
    """Send a signal to a process group, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def group_exists(group: int) -> bool:
    """Whether a process group has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def terminate_tree(root: int, leader: int) -> None:
    """Ask everything below `root` to end, each process once. One that is stopped is woken, so that it can.

    The leader gets the signal first: after its children, it could take their end for its own success. A second look
    finds what was forked during the first, where looking is quick.
    """
    asked: list[int] = []
    for _ in range(2 if LINUX else 1):
        below = descendants(root) if LINUX else members(root, leader)
        fresh = [pid for pid in (leader, *below) if pid not in asked]
        for pid in dict.fromkeys(fresh):
            send((pid,), signal.SIGTERM)
            send((pid,), signal.SIGCONT)
        asked += fresh


def kill_group(leader: int) -> None:
    """End a process and its group: one step for the kernel, however many they are."""
    send((leader,), signal.SIGKILL)  # first, so that it does not see its children end
    send_group(leader, signal.SIGKILL)


def kill_children(killed: set[int]) -> None:
    """End every child of this process, which adopts orphans, but for those `killed` before; and all below them.

    What is killed forks no more. So it is enough that this is called again whenever a child has ended: what was forked
    just before falls to this process when its parent ends, and is a child then. Looking below is only quicker.
    """
    fresh = [pid for pid in children(os.getpid()) if pid not in killed]
    killed.update(fresh)  # their numbers are theirs until they are reaped
    send(fresh, signal.SIGKILL)
    for pid in fresh:  # it grows while it is walked
        below = children(pid)
        send(below, signal.SIGKILL)
        fresh.extend(below)
