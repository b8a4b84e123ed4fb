"""What every provider over HTTP has in common: its options, its clients, and how a request is sent."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, TypedDict

import httpx2
import msgspec

from ...errors import ModelError
from ...usage.prices import Price
from ..base import ModelRequest, StopPolicyName
from . import attachments
from .certificates import certificates_for
from .error_body import bound_error
from .failures import Failures, secrets_of
from .per_loop import PerLoop
from .sse import Decoder
from .streamed_answer import AnswerContext, StreamedAnswer
from .transport import MAX_IDLE, MAX_REQUESTS, StreamingTransport

# The gap between two pieces of an answer may be long: some models think for minutes without a sign of life.
DEFAULT_TIMEOUT: Final = httpx2.Timeout(600.0, connect=15.0)


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
    _waits_only_for_provider: ClassVar[bool] = False
    """Whether a request waits for nothing but its connection: for no code of users, no thread and no process."""

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
        # NO_PROXY alone names no proxy.
        self._has_own_transport: Final = http_client is None and set(urllib.request.getproxies()) <= {"no"}
        if http_client is None:
            certificates_for(self.base_url)  # read now, when there is no run to hold up
        self._failures: Final = Failures(
            label or self.label or self.provider, secrets=secrets_of(api_key, extra_headers), url=self.base_url
        )

    @property
    def name(self) -> str:
        """What the ledger and the receipts call this model."""
        return f"{self.provider}:{self.model}"

    @property
    def cancels_at_once(self) -> bool:
        """Whether a cancelled stream ends without waiting for anything (see `Model`)."""
        return self._waits_only_for_provider and self._has_own_transport and type(self).stream is WireModel.stream

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

    def stream(self, request: ModelRequest) -> AnswerContext:
        """Send a request. Leaving the context closes the connection, unless the answer was read to its end."""
        return AnswerContext(partial(self._answer_to, request))

    async def _answer_to(self, request: ModelRequest) -> StreamedAnswer:
        return StreamedAnswer(await self._open(request), self._decoder(request), self._failures)

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
        client.event_hooks["response"].append(bound_error)
        return client

    def _plain_client(self) -> httpx2.AsyncClient:
        # Redirects are not followed: the key would go wherever they lead.
        certificates = certificates_for(self.base_url)
        if self._has_own_transport:
            return httpx2.AsyncClient(timeout=self.timeout, transport=StreamingTransport(certificates))
        limits = httpx2.Limits(max_connections=MAX_REQUESTS, max_keepalive_connections=MAX_IDLE)
        return httpx2.AsyncClient(timeout=self.timeout, limits=limits, verify=certificates)


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


def _timeout(timeout: float | httpx2.Timeout | None) -> httpx2.Timeout:
    match timeout:
        case None:
            return DEFAULT_TIMEOUT
        case httpx2.Timeout():
            return timeout
        case _:
            return httpx2.Timeout(timeout, connect=min(float(timeout), 15.0))
