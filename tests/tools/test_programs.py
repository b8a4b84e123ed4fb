"""`ctx.run_process`: programs whose output is kept and whose end is certain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import hazards
import pytest
from hazards import survivors
from tool_runs import agent_with, call, results, run_async, stop_when, stray_processes

from quiesce import ToolContext
from quiesce.events import ToolProgress
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.processes.supervised import live_processes, start_program
from quiesce.processes.supervisor import ProgramJob
from quiesce.tools.program import ProcessResult
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P4", "P5")

PREPARE = f"import sys; sys.path[:0] = {[str(Path(hazards.__file__).parent), *sys.path]!r}; import hazards\n"
KEPT: list[ProcessResult] = []


async def run(argv: list[str], ctx: ToolContext, options: dict | None = None) -> str:
    KEPT.append(await ctx.run_process(argv, **(options or {})))
    return KEPT[-1].stdout


def runner(**options) -> Tool:
    return Tool(run, **{"on_stop": "cancel", "grace": 0.05, **options})


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", PREPARE + code]


def printed(text: str):
    def seen(event: object) -> bool:
        return isinstance(event, ToolProgress) and text in str(event.progress)

    return seen


async def result_of(argv: list[str], **options) -> ProcessResult:
    answer = await call(runner(), {"argv": argv, "options": options})
    assert not answer.is_error, answer.text
    return KEPT.pop()


def test_a_program_runs_to_its_end() -> None:
    async def main() -> None:
        ended = await result_of(["sh", "-c", "cat; echo err >&2; exit 3"], input="words")
        assert (ended.stdout, ended.stderr, ended.code, ended.ok) == ("words", "err\n", 3, False)
        ended = await result_of(["sh", "-c", 'echo "$PWD $ONE"'], cwd="/", env={"ONE": "1"})
        assert (ended.stdout, ended.ok) == ("/ 1\n", True)
        ended = await result_of(["sh", "-c", "kill -9 $$"])
        assert ended.code == -9

    run_async(main())


def test_a_program_that_is_not_there_is_an_error_for_the_model() -> None:
    async def main() -> None:
        answer = await call(runner(), {"argv": ["no-such-program"]})
        assert "no-such-program could not be started (FileNotFoundError" in answer.text
        for wrong in ([], ["a\0b"]):
            assert (await call(runner(), {"argv": wrong})).is_error

    run_async(main())


def test_big_input_and_output_pass() -> None:
    async def main() -> None:
        text = "x" * 3_000_000
        ended = await result_of(["cat"], input=text, max_output=4_000_000)
        assert ended.stdout == text
        cut = await result_of(["cat"], input="a" * 600 + "b" * 600, max_output=1000)
        assert cut.stdout == "a" * 500 + "\n[... 200 characters left out ...]\n" + "b" * 500
        nothing_read = await result_of(["true"], input=text)
        assert nothing_read.ok

    run_async(main())


@pytest.mark.case("codex#7985")
@pytest.mark.case("codex#25772")
@pytest.mark.case("codex#21994")
@pytest.mark.parametrize("mode", ["now", "kill"])
@pytest.mark.parametrize("hazard", ["stubborn", "double_fork", "hundred_children", "hydra", "full_pipe"])
def test_a_stop_leaves_no_process(hazard: str, mode: str, tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        code = f"""
class Context:
    def report(self, what): print("here")
hazards.{hazard}({book!r}{"" if hazard == "stubborn" else ", Context()"})
"""
        agent = agent_with(runner(), calls=[Call("run", {"argv": python(code)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(mode=mode), ready=printed("here"))
        result = results(outcome)["run"]
        assert survivors(book) == []
        assert stray_processes() == []
        assert result.outcome is Outcome.KILLED
        assert "Before that it had printed:\nhere" in result.text
        assert outcome.receipt.still_running == ()

    run_async(main())


def test_output_is_kept_up_to_the_cut() -> None:
    async def main() -> None:
        argv = ["sh", "-c", "trap 'echo last words; exit' TERM; echo first words; while true; do sleep 0.01; done"]
        agent = agent_with(runner(grace=10), calls=[Call("run", {"argv": argv})])
        outcome, events = await stop_when(agent, lambda run: run.cancel(), ready=printed("first words"))
        text = results(outcome)["run"].text
        assert "Before that it had printed:\nfirst words\nlast words\n" in text
        assert "last words" in "".join(str(event.progress) for event in events if isinstance(event, ToolProgress))

    run_async(main())


def test_a_program_that_fills_its_pipes_does_not_hold_the_stop() -> None:
    async def main() -> None:
        agent = agent_with(runner(), calls=[Call("run", {"argv": ["yes"], "options": {"max_output": 10_000}})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=printed("y"))
        assert results(outcome)["run"].outcome is Outcome.KILLED
        assert len(results(outcome)["run"].text) < 12_000

    run_async(main())


def test_what_a_program_leaves_running_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        code = f"import os\nif os.fork() == 0: hazards.stubborn({book!r})\nwhile not os.path.exists({book!r}): pass"
        ended = await result_of(python(code))
        assert (ended.ok, ended.left_running) == (True, 1)
        assert survivors(book) == []

    run_async(main())


def test_a_timeout_ends_it_and_says_so() -> None:
    async def main() -> None:
        ended = await result_of(["sh", "-c", "echo begun; sleep 1000"], timeout=2)
        assert (ended.timed_out, ended.ok, ended.stdout) == (True, False, "begun\n")

    run_async(main())


def test_limits_hold_for_programs() -> None:
    async def main() -> None:
        hungry = await result_of(python("bytearray(2_000_000_000)"), max_memory=1_000_000_000)
        assert "MemoryError" in hungry.stderr
        burnt = await result_of(python("while True: pass"), max_cpu=0.1)
        assert burnt.code < 0

    run_async(main())


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_cpu": 0.1}, "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"),
        (
            {"max_cpu": 0.1},
            "import resource as r; r.setrlimit(r.RLIMIT_CPU, (60, r.getrlimit(r.RLIMIT_CPU)[1]))\nwhile True: pass",
        ),
        (
            {"max_memory": 1_000_000_000},
            "import resource as r; r.setrlimit(r.RLIMIT_AS, (r.getrlimit(r.RLIMIT_AS)[1],) * 2); bytearray(2 * 10**9)",
        ),
    ],
    ids=["ignored", "lifted", "memory"],
)
def test_a_program_cannot_lift_its_limits(limits: dict, code: str) -> None:
    ended = run_async(result_of(python(code), timeout=30, **limits))
    assert not ended.timed_out
    assert not ended.ok


def test_a_folder_that_was_removed_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def main() -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert "is gone: give another one as cwd" in (await call(runner(), {"argv": ["pwd"]})).text
        assert (await result_of(["pwd"], cwd="/")).stdout == "/\n"
        monkeypatch.chdir(tmp_path)

    run_async(main())


def test_a_policy_of_finish_lets_the_program_finish() -> None:
    async def main() -> None:
        argv = ["sh", "-c", "echo begun; sleep 0.1; echo finished"]
        agent = agent_with(runner(on_stop="finish", grace=30), calls=[Call("run", {"argv": argv})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=printed("begun"))
        result = results(outcome)["run"]
        assert (result.outcome, result.text) == (Outcome.COMPLETED, "begun\nfinished\n")

    run_async(main())


def test_a_policy_of_finish_ends_with_its_grace() -> None:
    async def main() -> None:
        argv = ["sh", "-c", "trap '' TERM; echo begun; while true; do sleep 0.01; done"]
        agent = agent_with(runner(on_stop="finish", grace=0.1), calls=[Call("run", {"argv": argv})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=printed("begun"))
        assert results(outcome)["run"].outcome is Outcome.KILLED
        assert stray_processes() == []

    run_async(main())


def test_a_more_urgent_stop_takes_the_grace_away() -> None:
    async def main() -> None:
        argv = ["sh", "-c", "trap '' TERM; echo begun; while true; do sleep 0.01; done"]
        agent = agent_with(runner(grace=1000), calls=[Call("run", {"argv": argv})])

        def stop_twice(run) -> None:
            run.cancel()
            asyncio.get_running_loop().call_later(0.05, lambda: run.cancel(mode="kill"))

        outcome, _ = await stop_when(agent, stop_twice, ready=printed("begun"))
        assert results(outcome)["run"].outcome is Outcome.KILLED

    run_async(main())


def test_a_tool_may_cancel_its_own_program(tmp_path: Path) -> None:
    async def impatient(ctx: ToolContext) -> str:
        try:
            async with asyncio.timeout(0.1):
                await ctx.run_process(["sleep", "1000"])
        except TimeoutError:
            ended = await ctx.run_process(["echo", "went on"])
            return ended.stdout
        return "never"

    result = run_async(call(Tool(impatient, grace=0.05)))
    assert (result.text, result.outcome) == ("went on\n", Outcome.COMPLETED)
    assert stray_processes() == []


def test_programs_are_refused_where_they_would_not_be_ended() -> None:
    def in_a_thread(ctx: ToolContext) -> str:
        asyncio.run(ctx.run_process(["true"]))
        return "never"

    result = run_async(call(Tool(in_a_thread)))
    assert "ctx.run_process is not available here" in result.text


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_sandbox_confines_and_ends_with_its_programs(tmp_path: Path) -> None:
    async def main() -> None:
        script = f"echo inside > made; touch {Path.home()}/quiesce-escaped 2>&1; ls /proc | grep -c '^[0-9]'"
        ended = await result_of(["sh", "-c", script], cwd=str(tmp_path), sandbox=True)
        assert (tmp_path / "made").read_text() == "inside\n"
        assert not (Path.home() / "quiesce-escaped").exists()
        assert "Read-only file system" in ended.stdout
        assert int(ended.stdout.splitlines()[-1]) < 10
        with socket.create_server(("127.0.0.1", 0)) as server:  # which anything outside of the sandbox reaches
            connect = f"import socket; socket.create_connection({server.getsockname()})"
            # Not through the virtual environment, which may lie below /tmp: the sandbox has a /tmp of its own.
            argv = [os.path.realpath(sys.executable), "-c", connect]
            assert (await result_of(argv, cwd=str(tmp_path))).code == 0
            no_network = await result_of(argv, cwd=str(tmp_path), sandbox=True)
        assert no_network.code == 1
        assert "unreachable" in no_network.stderr or "refused" in no_network.stderr
        argv = ["sh", "-c", "setsid sh -c 'trap \"\" TERM; while true; do sleep 0.01; done' & echo begun; wait"]
        options = {"cwd": str(tmp_path), "sandbox": True}
        agent = agent_with(runner(), calls=[Call("run", {"argv": argv, "options": options})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(), ready=printed("begun"))
        assert results(outcome)["run"].outcome is Outcome.KILLED
        assert stray_processes() == []

    run_async(main())


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_sandbox_counts_no_process_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(10):
            ended = await result_of(["no-such-program"], cwd=str(tmp_path), sandbox=True)
            assert (ended.left_running, ended.ok) == (0, False)

    run_async(main())


@pytest.mark.parametrize("cwd", ["/", "//", "/tmp/.."])
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_sandbox_around_everything_is_refused(cwd: str) -> None:
    result = run_async(call(runner(), {"argv": ["true"], "options": {"sandbox": True, "cwd": cwd}}))
    assert "would protect nothing" in result.text


def test_a_sandbox_that_is_missing_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    result = run_async(call(runner(), {"argv": ["/bin/true"], "options": {"sandbox": True}}))
    assert "Nothing was run." in result.text


SCRIPT = """
from quiesce import Agent
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.builtin import shell
print(Agent(ScriptedModel([Call("shell", {"command": "true"})], then="ok"), tools=[shell])("go").text)
"""


def test_a_program_that_only_runs_programs_leaves_nothing_at_its_exit() -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("ok\n", "")


@pytest.mark.parametrize("options", [{"input": {"a": 1}}, {"input": 5}, {"timeout": "5"}])
def test_options_of_the_wrong_type_start_nothing(options: dict[str, object]) -> None:
    async def main() -> None:
        refused = await call(runner(), {"argv": ["sleep", "600"], "options": options})
        assert refused.is_error
        assert not live_processes
        assert stray_processes() == []

    run_async(main())


def test_a_stop_after_the_end_writes_to_no_file_that_has_got_the_number() -> None:
    async def main() -> None:
        process, *streams = start_program(ProgramJob(("sleep", "600")))
        number = process.handle
        for each in (process, *streams):
            each.close()
        reader, writer = os.pipe()
        try:
            os.dup2(writer, number)
            process.stop(0.0)
            os.set_blocking(reader, False)
            with pytest.raises(BlockingIOError):
                os.read(reader, 100)
        finally:
            for handle in (reader, writer, number):
                with contextlib.suppress(OSError):
                    os.close(handle)

    run_async(main())
