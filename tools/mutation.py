#!/usr/bin/env python3
"""Mutation testing of stopping: changes one place of the source at a time, and says which changes no test notices.

    python tools/mutation.py --sample 300 --seed 1 --jobs 2 --resume build/mutation.jsonl

Each job has a copy of the source, the tests and the pages in a temporary directory; the working tree is never changed.
A mutant is killed when the tests chosen for its file fail or do not end in time. Exits with 1 when the tests fail
without any mutation. With `--resume`, each outcome is appended to a file at once, and mutants that are in it are
not tried again: an interrupted run continues, and a mutant whose line is deleted from the file is tried again.

It is an own runner because cosmic-ray (MIT) has neither a seeded sample nor tests by file, and mutmut 3 (BSD) replaces
functions by wrappers and forks within one pytest process: the injector would count and stop at other lines.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final, Literal, TypeAlias

ROOT: Final = Path(__file__).parent.parent
SRC: Final = Path("src/quiesce")
Outcome: TypeAlias = Literal["killed", "timed out", "survived"]


def _stopped(*workloads: str) -> tuple[str, ...]:
    """The tests that stop these workloads at every point."""
    name = "tests/injection/test_every_point.py::test_stop_at_every_point_from_every_source"
    return tuple(f"{name}[{workload}-{reader}]" for workload in workloads for reader in ("run", "task"))


_core = "tests/core/test_{}.py".format
_SEALING: Final = (
    *map(_core, ("sealing", "stop_in_tools", "stop_in_answer", "bad_input")),
    *_stopped("one_tool", "bad_calls", "torn_arguments"),
    "tests/interrupts/test_steering.py",
)
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "cancellation/*.py": (
        *map(_core, ("token", "scopes", "token_waiting", "token_leaks", "outside", "signals")),
        *map(_core, ("settling", "own_exceptions", "ctrl_c", "last_resort")),
        "tests/api/test_odd_arguments.py::test_each_argument_with_odd_values[stop_on_signals-signals]",
        "tests/api/test_odd_arguments.py::test_each_argument_with_odd_values[stop_on_signals-modes]",
        *_stopped("one_tool", "nested_tokens"),
    ),
    "run/settle.py": (
        *map(_core, ("contract", "stop_in_tools", "stop_in_answer", "last_resort", "settling", "hooks", "ctrl_c")),
        *map("tests/undo/test_{}.py".format, ("undo", "trees", "waiting", "stopping")),
        "tests/task/test_undo.py",
        *map("tests/sessions/test_{}.py".format, ("failing_store", "answering", "line")),
        *map("tests/delegation/test_{}.py".format, ("stopping", "left_alone")),
        "tests/api/test_limits.py",
        *map(_core, ("lost_loops", "freed")),
        "tests/tools/test_paused_processes.py",
        "tests/interrupts/test_every_point.py::test_stop_at_every_point[all_answered]",
        *_stopped("one_tool", "hooks_that_wait", "tools_that_may_be_left", "session_with_tools", "structured_output"),
    ),
    "run/stop_event.py": (
        *map(_core, ("settling", "last_resort")),
        *map("tests/interrupts/test_{}.py".format, ("steering", "busy")),
        *map("tests/sessions/test_{}.py".format, ("failing_store",)),
        *_stopped("one_tool", "hooks_that_wait"),
    ),
    "run/ending.py": (
        *map(_core, ("contract", "run", "last_resort", "bad_models", "settling", "stop_in_answer")),
        *map("tests/task/test_{}.py".format, ("budget", "undo")),
        *map("tests/sessions/test_{}.py".format, ("failing_store", "answering")),
        *_stopped("one_tool", "turn_limit", "structured_output"),
        "tests/delegation/test_handoff.py",
        "tests/api/test_limits.py",
    ),
    "run/steer.py": (
        *map("tests/interrupts/test_{}.py".format, ("steering", "cut_answers", "busy")),
        "tests/delegation/test_handoff.py",
        "tests/api/test_limits.py",
        "tests/api/test_limits_everywhere.py::test_stop_at_every_point",
        *_stopped("text"),
    ),
    "conversation/validity.py": _SEALING,
    "conversation/sealing.py": _SEALING,
    "conversation/answer.py": (
        *map(_core, ("answer_builder", "sealing", "bad_models", "stop_in_answer", "hostile_answers")),
        "tests/interrupts/test_steering.py",
        *map(
            "tests/providers/test_endings.py::{}".format,
            ("test_an_ending", "test_a_stop_in_a_server_tool_leaves_the_input_open_above"),
        ),
        *_stopped("interleaved_calls", "reasoning"),
    ),
}
COMPARISONS: Final = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: Final = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
BLOCKS: Final = ("shield", "timeout", "fail_after", "move_on_after", "suppress")


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the bytes from `start` to `end` become `new`."""

    file: Path
    line: int
    what: str
    start: int
    end: int
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"

    @property
    def key(self) -> str:
        """What identifies it as long as the source does not change."""
        return f"{self} @{self.start}"

    def applied(self, source: bytes) -> bytes:
        """The source with this change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


# --- Mutants of a file ------------------------------------------------------------------------------------------------


def mutants_of(file: Path, source: str) -> Iterator[Mutant]:
    """All mutants of a file that are still Python."""
    tree = ast.parse(source)
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in _code(tree):
        for new, what in _changes(node):
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            mutant = Mutant(file, node.lineno, what, start, end, new)
            try:
                ast.parse(mutant.applied(source.encode()))
            except SyntaxError:
                continue
            yield mutant


def _code(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The nodes that run: without annotations, docstrings, imports, decorators and what only describes."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_description(node):
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield node
            yield from _code(node)


def _is_description(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in ("__slots__", "__all__")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """What may stand in the place of a node, and a name for the change."""
    if isinstance(node, ast.stmt):
        yield from _changes_of_statement(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARISONS[type(node.ops[0])]()
        yield _text(ast.Compare(node.left, [other], node.comparators)), f"{_text(node)}: the comparison is changed"
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _text(ast.BoolOp(other_op, node.values)), f"{_text(node)}: `and` and `or` are exchanged"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _text(node.operand), f"{_text(node)}: without `not`"
    elif isinstance(node, ast.IfExp):
        yield _text(ast.IfExp(node.test, node.orelse, node.body)), f"{_text(node)}: the branches are exchanged"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        yield _text(changed), f"{_text(node)}: the operator is changed"
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value), f"{node.value} is {not node.value}"
        elif isinstance(node.value, int | float):
            yield repr(node.value + 1), f"{node.value} is {node.value + 1}"


def _changes_of_statement(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Raise | ast.Delete):
        yield "pass", f"deleted: {_first_line(node)}"
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None", f"returns None: {_first_line(node)}"
    elif isinstance(node, ast.Break | ast.Continue):
        yield ("continue" if isinstance(node, ast.Break) else "break"), "`break` and `continue` are exchanged"
    elif isinstance(node, ast.If | ast.While):
        changed = type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        yield _indented(changed, node.col_offset), f"negated: {_first_line(node)}"
    elif isinstance(node, ast.With | ast.AsyncWith) and any(name in _first_line(node) for name in BLOCKS):
        yield (
            _indented(ast.If(ast.Constant(value=True), node.body, []), node.col_offset),
            f"without {_first_line(node)}",
        )


def _text(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(node))
    return f"({text})" if isinstance(node, ast.Compare | ast.BoolOp | ast.IfExp | ast.BinOp) else text


def _indented(node: ast.stmt, column: int) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).replace("\n", "\n" + " " * column)


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


# --- Running tests against them ---------------------------------------------------------------------------------------


class WorkingCopy:
    """A copy of the source, the tests and the pages, in which one mutant at a time is tried.

    Bytecode of the source is checked by a hash, so that only a mutant's file is compiled again. That of the tests is
    checked by their time, as usual: they do not change.
    """

    def __init__(self, directory: Path) -> None:
        self._root: Final = directory
        self._child: subprocess.Popen[bytes] | None = None
        for name in ("src", "tests", "bench", "docs"):  # tests take a server and a store from the last two
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", directory)
        compileall.compile_dir(directory / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    def outcome(self, tests: tuple[str, ...], limit: float) -> Outcome:
        """What becomes of the tests within `limit` seconds: a mutant lives when they pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--timeout", "0"]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self._root / "src"), str(self._root)])}
        environment |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(self._root / ".hypothesis")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self._root / "output").open("wb") as output:
            child = self._child = subprocess.Popen(  # noqa: S603
                command, cwd=self._root, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                return "survived" if child.wait(limit) == 0 else "killed"
            except subprocess.TimeoutExpired:
                return "timed out"
            finally:
                _kill_group(child)

    def stop(self) -> None:
        """End the tests that run, if any. From any thread."""
        if self._child is not None and self._child.poll() is None:
            _kill_group(self._child)

    def output(self) -> str:
        """What the last tests printed."""
        return (self._root / "output").read_text(errors="replace")

    def try_mutant(self, mutant: Mutant, limit: float) -> Outcome:
        """Run the tests of the mutant's file with the mutant."""
        file = self._root / mutant.file
        source = file.read_bytes()
        file.write_bytes(mutant.applied(source))
        try:
            return self.outcome(tests_of(mutant.file), limit)
        finally:
            file.write_bytes(source)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def tests_of(file: Path) -> tuple[str, ...]:
    """The tests that are run for a file."""
    return next(tests for pattern, tests in TESTS.items() if file.match(pattern))


def limits(copy: WorkingCopy, files: set[Path], factor: float) -> dict[tuple[str, ...], float]:
    """How long the tests of these files may take: `factor` times what they take now. Exits when some fail."""
    found: dict[tuple[str, ...], float] = {}
    for tests in dict.fromkeys(tests_of(file) for file in sorted(files)):
        pattern = next(each for each, known in TESTS.items() if known == tests)
        began = time.monotonic()
        if copy.outcome(tests, 900) != "survived":
            print(copy.output()[-3000:])
            sys.exit(f"The tests of {pattern} fail without a mutation.")
        took = time.monotonic() - began
        found[tests] = max(30.0, factor * took)
        print(f"{pattern}: its tests take {took:.0f} s", flush=True)
    return found


def all_mutants(only: str) -> Iterator[Mutant]:
    """All mutants of the files that the tests are known for. Each is compiled, which takes a hundredth of a second."""
    files = sorted({file for pattern in TESTS for file in (ROOT / SRC).glob(pattern)})
    for file in files:
        if only in str(file):
            yield from mutants_of(file.relative_to(ROOT), file.read_text())


class Outcomes:
    """The mutants by what became of them, in a file too when there is one, so that a run can be continued."""

    def __init__(self, sample: list[Mutant], file: Path | None) -> None:
        self.found: Final[dict[Outcome, list[Mutant]]] = {"killed": [], "timed out": [], "survived": []}
        self.remaining: Final[list[Mutant]] = []
        self._file: Final = file
        known: dict[str, Outcome] = {}
        if file is not None and file.exists():
            known = dict(map(json.loads, file.read_text().splitlines()))
        for mutant in sample:
            if mutant.key in known:
                self.found[known[mutant.key]].append(mutant)
            else:
                self.remaining.append(mutant)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Note and print an outcome."""
        self.found[outcome].append(mutant)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps([mutant.key, outcome]) + "\n")
        counts = ", ".join(f"{len(mutants)} {name}" for name, mutants in self.found.items())
        print(f"{outcome} {mutant} ({counts})", flush=True)


def run(outcomes: Outcomes, jobs: int, factor: float) -> None:
    """Try the mutants that have no outcome yet."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory, ThreadPoolExecutor(jobs) as pool:
        every = [WorkingCopy(Path(directory) / str(number)) for number in range(jobs)]
        allowed = limits(every[0], {mutant.file for mutant in outcomes.remaining}, factor)
        free: queue.SimpleQueue[WorkingCopy] = queue.SimpleQueue()
        for copy in every:
            free.put(copy)

        def attempt(mutant: Mutant) -> Outcome:
            copy = free.get()
            try:
                return copy.try_mutant(mutant, allowed[tests_of(mutant.file)])
            finally:
                free.put(copy)

        waiting = {pool.submit(attempt, mutant): mutant for mutant in outcomes.remaining}
        try:
            for done in as_completed(waiting):
                outcomes.add(waiting[done], done.result())
        except BaseException:  # Ctrl-C: what runs now has no outcome
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in every:
                copy.stop()
            raise


def main() -> None:
    """Parse the command line, run the sample, and print the score and the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to try")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once")
    parser.add_argument(
        "--factor", type=float, default=3, help="the time limit of a mutant, as a factor of the usual time"
    )
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--resume", type=Path, help="a file with the outcomes so far, which is read and appended to")
    parser.add_argument("--list", action="store_true", help="print the sample and try nothing")
    options = parser.parse_args()
    every = list(all_mutants(options.only))
    sample = random.Random(options.seed).sample(every, min(options.sample, len(every)))  # noqa: S311
    print(f"{len(sample)} of {len(every)} mutants, seed {options.seed}")
    if options.list:
        print(*sample, sep="\n")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    outcomes = Outcomes(sample, options.resume)
    run(outcomes, options.jobs, options.factor)
    found = outcomes.found
    stopped = len(sample) - len(found["survived"])
    took = time.monotonic() - began
    print(f"\n{stopped} of {len(sample)} mutants killed ({stopped / len(sample):.0%}) in {took:.0f} s,", end=" ")
    print(f"{len(found['timed out'])} of them because the tests did not end in time")
    for name in ("timed out", "survived"):
        print(f"{name}:", *sorted(str(mutant) for mutant in found[name]), sep="\n  ")


if __name__ == "__main__":
    main()
