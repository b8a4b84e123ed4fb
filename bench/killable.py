"""What a killable call costs: a no-op in a worker process beside the same no-op in a thread, in one run.

python -m bench.killable
"""

from __future__ import annotations

import asyncio
import statistics
import time

from quiesce.cancellation import CancellationToken, TokenView
from quiesce.messages import ToolCall
from quiesce.run_context import RunContext
from quiesce.tools.batch import ToolBatch
from quiesce.tools.tool import Tool
from quiesce.tools.undo.log import UndoLog

ROUNDS = 2000


def nothing() -> int:
    return 1


class Host:
    """The least that a call needs of a run."""

    run_id = "bench"
    has_middleware = False

    def __init__(self) -> None:
        self.token = CancellationToken()
        self.work_token = self.token.child()
        self.context = RunContext(deps=None, state={}, run_id="bench", token=TokenView(self.token))
        self.undo_log = UndoLog()
        self.loop = asyncio.get_running_loop()

    def emit(self, event: object) -> None: ...

    async def before_start(self, call: ToolCall) -> None: ...

    def idempotency_key(self, call: ToolCall) -> str:
        return call.id

    async def before_tool(self, call: ToolCall, questions: object) -> None: ...

    async def after_tool(self, call: ToolCall, result: object) -> object:
        return result

    def fit_result(self, tool: object, result: object, *, late: bool = False) -> object:
        return result

    def record_late(self, outcome: object) -> None: ...

    def stop_because(self, error: BaseException) -> None:
        raise error


async def time_calls(tool: Tool, rounds: int) -> list[float]:
    times: list[float] = []
    for number in range(rounds):
        host = Host()
        batch = ToolBatch((ToolCall(f"c{number}", tool.name, {}),), {tool.name: tool}, host, sequential=False)
        began = time.perf_counter()
        await batch.run()
        times.append(time.perf_counter() - began)
        assert batch.calls[0].result is not None
        assert batch.calls[0].result.text == "1"
    return times


async def measure(rounds: int = ROUNDS) -> dict[str, float]:
    killable = Tool(nothing, name="in_process", on_stop="kill")
    threaded = Tool(nothing, name="in_thread", on_stop="abandon")
    began = time.perf_counter()
    await time_calls(killable, 1)
    first = time.perf_counter() - began
    await time_calls(threaded, 50)
    await time_calls(killable, 50)
    thread: list[float] = []
    process: list[float] = []
    for _ in range(10):  # in turns, so that a busy machine is busy for both
        thread += await time_calls(threaded, rounds // 10)
        process += await time_calls(killable, rounds // 10)
    median_thread, median_process = statistics.median(thread), statistics.median(process)
    return {
        "first_call_ms": first * 1000,
        "thread_ms": median_thread * 1000,
        "process_ms": median_process * 1000,
        "process_p99_ms": statistics.quantiles(process, n=100)[98] * 1000,
        "ratio": median_process / median_thread,
    }


def main() -> None:
    figures = asyncio.run(measure())
    print(f"no-op call in a thread       {figures['thread_ms']:.3f} ms")
    print(f"no-op call in a worker       {figures['process_ms']:.3f} ms (p99 {figures['process_p99_ms']:.3f} ms)")
    print(f"ratio                        {figures['ratio']:.2f}")
    print(f"first call (starts workers)  {figures['first_call_ms']:.0f} ms")


if __name__ == "__main__":
    main()
