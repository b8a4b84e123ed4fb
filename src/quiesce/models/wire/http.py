"""What every provider over HTTP has in common: a client for each loop, a stream that is read, and the hang-up."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Final, Generic, TypedDict, TypeVar

import anyio
import anyio.lowlevel
import httpx2
import msgspec

from ...cancellation import BoundedShield
from ...errors import ModelError
from ...events import AnswerStart, Delta
from ...usage.prices import Price
from ..base import ModelRequest, StopPolicyName
from . import attachments
from .certificates import certificates_for
from .failures import Failures, request_id_of, secrets_of
from .sse import Decoder

_T = TypeVar("_T")

# The gap between two pieces of an answer may be long: some models think for minutes without a sign of life.
DEFAULT_TIMEOUT: Final = httpx2.Timeout(600.0, connect=15.0)
# How much of an error's body is read. A provider that fails may send one without end.
_LONGEST_ERROR: Final = 64 * 1024
# The same for a body that is compressed, though that was not asked for: a byte may stand for a thousand.
_LONGEST_PACKED_ERROR: Final = 4 * 1024
# After the end of an answer its usage may follow; so long is waited for that.
_TAIL: Final = 5.0
# After the very last event only the end of the HTTP body follows. Reading it lets the connection be used again.
_LAST_BYTES: Final = 0.2
# Closing a connection takes a fraction of a millisecond.
_CLOSING: Final = 1.0


class WireOptions(TypedDict, total=False):
    """The options that every provider passes on to `WireModel`, which describes them."""

    timeout: float | httpx2.Timeout | None
    extra_headers: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None
    price: Price | None
    stop_policy: StopPolicyName | None
    tokenizer: str | None
    http_client: Callable[[], httpx2.AsyncClient] | None


class WireModel:
    """A model that is reached over HTTP. A provider says how to send a request and how to decode the answer.

    model          the provider's name for the model
    api_key        else it is taken from the environment
    base_url       the address of the provider, when not the usual one
    timeout        seconds (or an `httpx2.Timeout`) for connecting and for each gap in an answer
    extra_headers  sent with every request
    extra_body     merged into the body of every request
    price          what its tokens cost
    stop_policy    what a stop does about the request; the default is what is right for the provider
    tokenizer      the family of the model's vocabulary, for counting
    http_client    makes the `httpx2.AsyncClient` to use: for proxies, certificates and the like
    """

    provider: str = ""
    label: ClassVar[str] = ""
    decoder: ClassVar[Callable[[Failures], Decoder]]
    stop_policy: StopPolicyName = "hang_up"
    tokenizer: str | None = None

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str,
        timeout: float | httpx2.Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        price: Price | None = None,
        stop_policy: StopPolicyName | None = None,
        tokenizer: str | None = None,
        label: str = "",
        http_client: Callable[[], httpx2.AsyncClient] | None = None,
    ) -> None:
        self.model: Final = model
        self.price: Price | None = price
        self.stop_policy = stop_policy or self.stop_policy
        self.tokenizer = tokenizer or self.tokenizer
        self.base_url: Final = base_url.rstrip("/")
        self.timeout: Final = _timeout(timeout)
        self.extra_headers: Final = dict(extra_headers or {})
        self.extra_body: Final = dict(extra_body or {})
        self._http_client: Final = http_client
        self._takes_no_images = False
        if http_client is None:
            certificates_for(self.base_url)  # read now, when there is no run to hold up
        self._failures: Final = Failures(
            label or self.label or self.provider, secrets=secrets_of(api_key, extra_headers), url=self.base_url
        )

    @property
    def name(self) -> str:
        """What the ledger and the receipts call this model."""
        return f"{self.provider}:{self.model}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._failures.clean(self.base_url)}>"

    # --- What a provider fills in -------------------------------------------------------------------------------

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        """Send the request; returns as soon as the head of the answer is there. May raise anything."""
        raise NotImplementedError

    def _decoder(self, request: ModelRequest) -> Decoder:  # noqa: ARG002
        """A fresh decoder for the answer to a request."""
        return type(self).decoder(self._failures)

    # --- What is the same for all -------------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Send a request. Leaving the context closes the connection, unless the answer was read to its end."""
        response = await self._open(request)
        answer = _Answer(response, self._decoder(request), self._failures)
        deltas = answer.deltas()
        try:
            yield deltas
        finally:
            await answer.hang_up(deltas)

    async def _open(self, request: ModelRequest) -> httpx2.Response:
        """Send a request, and once more without images when the server refuses these."""
        opened = await self._try(attachments.without_images(request) if self._takes_no_images else request)
        if isinstance(opened, ModelError) and attachments.is_about_images(opened):
            plain = attachments.without_images(request)
            if plain is not request:
                self._takes_no_images = self._takes_no_images or attachments.takes_none(opened)
                opened = await self._try(plain)
        # Raised out here, so that it has no context: what the transport raises may show the address.
        if isinstance(opened, ModelError):
            raise opened
        return opened

    async def _try(self, request: ModelRequest) -> httpx2.Response | ModelError:
        try:
            response = await self._send(request)
            if response.is_success:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
            return self._failures.of_response(response)
        except Exception as error:
            return self._failures.of(error)

    def new_http_client(self) -> httpx2.AsyncClient:
        """The user's client, or a plain one. It reads a bounded part of an error's body."""
        client = self._plain_client() if self._http_client is None else self._http_client()
        client.event_hooks["response"].append(_bound_error)
        return client

    def _plain_client(self) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
        # Redirects are not followed: the key would go wherever they lead.
        return httpx2.AsyncClient(timeout=self.timeout, limits=limits, verify=certificates_for(self.base_url))


class PlainModel(WireModel):
    """A provider whose requests are JSON over HTTP."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self._clients: Final = PerLoop(self.new_http_client, httpx2.AsyncClient.aclose)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], *, stream: bool = True) -> httpx2.Response:
        """Send a body of JSON; returns with the head of the answer, or with the whole of it."""
        client = await self._clients.get()
        asked = {"content-type": "application/json", "accept-encoding": "identity", **headers}
        sent = client.build_request("POST", url, content=body, headers=asked, timeout=self.timeout)
        return await client.send(sent, stream=stream)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Any:
        """The answer to a short request, decoded. Raises a `ModelError` for an answer that is an error."""
        client = await self._clients.get()
        asked = {"content-type": "application/json", **headers} if body else headers
        answer = await client.request(method, url, content=body or None, headers=asked, timeout=self.timeout)
        if not answer.is_success:
            raise self._failures.of_response(answer)
        return msgspec.json.decode(answer.content)


def headers_of(*parts: Mapping[str, str]) -> dict[str, str]:
    """Headers together; later ones win, whatever the case of their names."""
    return {name.lower(): value for part in parts for name, value in part.items()}


def headers_in(variable: str) -> dict[str, str]:
    """The headers in an environment variable: one to a line, as the vendors' SDKs have it."""
    lines = (line.partition(":") for line in os.environ.get(variable, "").split("\n"))
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


async def _bound_error(response: httpx2.Response) -> None:
    """Bound the body of a response that is an error, before the SDK or this module reads it whole."""
    if response.is_error and isinstance(response.stream, httpx2.AsyncByteStream):
        most = _LONGEST_PACKED_ERROR if "content-encoding" in response.headers else _LONGEST_ERROR
        response.stream = _BoundedBody(response.stream, most)


class _BoundedBody(httpx2.AsyncByteStream):
    """The beginning of a body, as much as an explanation can need."""

    def __init__(self, whole: httpx2.AsyncByteStream, most: int) -> None:
        self._whole: Final = whole
        self._most: Final = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for data in self._whole:
            yield data[:left]
            left -= len(data)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._whole.aclose()


class _Answer:
    """One answer that is being read."""

    __slots__ = ("_decoder", "_failures", "_read_to_end", "_response")

    def __init__(self, response: httpx2.Response, decoder: Decoder, failures: Failures) -> None:
        self._response: Final = response
        self._decoder: Final = decoder
        self._failures: Final = failures
        self._read_to_end = False

    async def deltas(self) -> AsyncGenerator[Delta]:
        response, decoder, feed = self._response, self._decoder, self._decoder.feed
        # Without compression the bytes need no decoding.
        body = _unpacked(response) if "content-encoding" in response.headers else response.aiter_raw()
        failure: ModelError | None = None
        yield AnswerStart(request_id_of(response.headers))
        try:
            async for data in body:
                try:
                    found = feed(data)
                except Exception as error:  # what the same bytes said before it is not lost
                    found, failure = decoder.taken, self._failures.of(error)
                for delta in found:
                    yield delta
                if decoder.ended or failure is not None:
                    break
            else:
                self._read_to_end = True
                for delta in decoder.finish():
                    yield delta
        except Exception as error:
            failure = self._failures.of(error)
        if decoder.ended:  # whatever fails from here on, the answer is complete
            for delta in await self._tail(body):
                yield delta
        elif failure is not None:
            raise failure

    async def _tail(self, body: AsyncIterator[bytes]) -> list[Delta]:
        """What follows the end of an answer, within a bound: the usage, and the end of the body."""
        tail: list[Delta] = []
        if self._read_to_end:
            return tail
        with suppress(Exception), anyio.move_on_after(_TAIL) as scope:
            if self._decoder.done:
                scope.deadline = anyio.current_time() + _LAST_BYTES
            async for data in body:
                try:
                    tail += self._decoder.feed(data)
                except Exception:  # an error after the end: what came with it is not lost
                    tail += self._decoder.taken
                if self._decoder.done:
                    scope.deadline = min(scope.deadline, anyio.current_time() + _LAST_BYTES)
            tail += self._decoder.finish()
            self._read_to_end = True
        return tail

    async def hang_up(self, deltas: AsyncGenerator[Delta]) -> None:
        """Close the connection, at once. An answer that was read to its end has given its connection back already."""
        if self._read_to_end:
            await deltas.aclose()
            return
        _cut(self._response)
        shield = BoundedShield("hang-up")
        closing = asyncio.create_task(self._close(deltas), name="hang-up")
        await shield.wait((closing,), seconds=_CLOSING)
        if not closing.done():
            closing.cancel()
        if shield.interrupted:
            raise asyncio.CancelledError

    async def _close(self, deltas: AsyncGenerator[Delta]) -> None:
        with suppress(Exception):
            await self._response.aclose()
        with suppress(Exception):
            await deltas.aclose()


async def _unpacked(response: httpx2.Response) -> AsyncIterator[bytes]:
    """A compressed body. One read may be unpacked to very much: the loop goes on after each piece of it."""
    async for data in response.aiter_bytes():
        yield data
        await anyio.lowlevel.checkpoint()


def _cut(response: httpx2.Response) -> None:
    """End the connection without waiting for anything: the provider sees the end of it now."""
    stream: Any = response.extensions.get("network_stream")
    with suppress(Exception):  # closed already, or not a socket
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _timeout(timeout: float | httpx2.Timeout | None) -> httpx2.Timeout:
    match timeout:
        case None:
            return DEFAULT_TIMEOUT
        case httpx2.Timeout():
            return timeout
        case _:
            return httpx2.Timeout(timeout, connect=min(float(timeout), 15.0))


class PerLoop(Generic[_T]):
    """One client for each event loop, because connections belong to the loop that opened them.

    A client is closed when its loop shuts down, which closes the async generator that waits in it, and when the model
    is dropped. Nothing but the finalizer holds the clients then: dropped together with the model, their connections
    would be closed by the garbage collector, with warnings.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._make: Final = make
        self._close: Final = close
        self._kept: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _KeptClient[_T]]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock: Final = threading.Lock()
        weakref.finalize(self, _close_later, self._kept).atexit = False

    async def get(self) -> _T:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            kept = self._kept.get(loop)
            if kept is not None:
                return kept.client
            for closed in [each for each in self._kept if each.is_closed()]:
                del self._kept[closed]
            kept = self._kept[loop] = _KeptClient(self._make(), self._close)
        await kept.closed_with_loop()
        return kept.client

    async def aclose(self) -> None:
        """Close the client of the running loop, if there is one."""
        with self._lock:
            kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.aclose()


class _KeptClient(Generic[_T]):
    """A client, which is closed once: when its loop shuts down, or before. The two may come at the same time."""

    def __init__(self, client: _T, close: Callable[[_T], Awaitable[None]]) -> None:
        self.client: Final = client
        self._close: Final = close
        self._closing: asyncio.Event | None = None
        self._at_end: Final = self._close_at_end()

    async def closed_with_loop(self) -> None:
        """From now on, a loop that shuts down closes the client, with its async generators."""
        await anext(self._at_end)

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close_once()

    async def aclose(self) -> None:
        """Close it now."""
        await self._close_once()
        with suppress(RuntimeError):  # the loop shuts down, and is closing the generator as well
            await self._at_end.aclose()

    async def _close_once(self) -> None:
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        try:
            await self._close(self.client)
        finally:
            self._closing.set()


_closing: Final[set[asyncio.Task[None]]] = set()


def _close_later(kept: Mapping[asyncio.AbstractEventLoop, _KeptClient[Any]]) -> None:
    """Close clients, each in its own loop. Called in whichever thread collects the garbage."""
    for loop, client in list(kept.items()):
        with suppress(RuntimeError):  # the loop has closed, and the client with it
            loop.call_soon_threadsafe(_close_now, loop, client)


def _close_now(loop: asyncio.AbstractEventLoop, client: _KeptClient[Any]) -> None:
    task = loop.create_task(_finish(client), name="closing the connections of a model")
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _finish(client: _KeptClient[Any]) -> None:
    with suppress(Exception):
        await client.aclose()
