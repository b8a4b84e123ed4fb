"""Webhooks: HTTP requests that tell other programs of runs, signed by the scheme of Standard Webhooks.

Each worker sends what is due in the store, at least once. A delivery that fails is sent again, later and later, for
three days. https://www.standardwebhooks.com has libraries that check the signature.
"""

from __future__ import annotations

import asyncio
import base64
import builtins
import hashlib
import hmac
import logging
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import ConfigurationError, StoreError
from . import webhook_table
from .database import FleetDatabase
from .listener import is_set_within
from .webhook_table import Delivery, DeliveryCounts, Webhook

_log: Final = logging.getLogger("quiesce.fleet")
# Seconds until the next try, after each that failed; those of the specification's example. Up to a tenth is added.
RETRIES: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
# Seconds that a receiver may take to answer.
TIMEOUT: Final = 15.0
# Seconds after which the store is read although no notification has come.
SLOW_PACE: Final = 5.0
_AT_ONCE: Final = 20
_PREFIX: Final = "whsec_"
_GONE: Final = 410


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message: HMAC-SHA256 over its id, the time of the sending, and its body."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    digest = hmac.new(key, b"%s.%d.%s" % (message_id.encode(), timestamp, body), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class Webhooks:
    """The webhooks of a fleet."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database: Final = database

    async def add(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        owner: str = "",
        agent: str = "",
        private: bool = False,
    ) -> Webhook:
        """Add a webhook with a secret of its own, for all runs, or those of one owner or agent.

        `private` allows a host whose address is not public. Raises `ConfigurationError` for an address or an event that
        is not valid.
        """
        import httpx2

        try:
            address, _ = urlsplit(url), httpx2.URL(url)
            is_meant = address.scheme in ("http", "https") and address.hostname and address.port != 0
        except (ValueError, httpx2.InvalidURL):
            is_meant = False
        if not is_meant:
            raise ConfigurationError(f"{url!r} is not an http address.", todo="Use https://...")
        try:
            checked = webhook_table.checked_events(events)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        secret = _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        webhook = Webhook(f"wh_{secrets.token_hex(6)}", url, secret, checked, owner, agent, private)
        await self._database.ask(webhook_table.put, webhook)
        return webhook

    async def remove(self, webhook: str) -> bool:
        """Remove a webhook by its id, and what was to be delivered to it. False when there is none."""
        async with self._database.transaction() as db:
            return await webhook_table.delete(db, webhook)

    async def list(self) -> builtins.list[tuple[Webhook, DeliveryCounts]]:
        """All webhooks, and what became of their deliveries of the last days."""
        return await self._database.ask(webhook_table.select)


class WebhookSender:
    """Sends what is due. For one event loop; any number of processes may do so."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database: Final = database
        self._changed: Final = asyncio.Event()
        self._sending: Final[set[asyncio.Task[None]]] = set()
        self._clients: Final[dict[str, Any]] = {}

    def wake(self) -> None:
        """Look for deliveries now."""
        self._changed.set()

    async def run(self) -> None:
        """Send until this is cancelled. What is being sent then is sent again by another process."""
        try:
            while True:
                self._changed.clear()
                wait = SLOW_PACE
                try:
                    wait = await self._begin()
                except StoreError as error:
                    _log.warning("webhooks cannot be read: %s", error)
                await is_set_within(wait, self._changed)
        finally:
            left = tuple(self._sending)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
            for client in self._clients.values():
                await client.aclose()

    async def _begin(self) -> float:
        """Begin to send what is due; how many seconds there are until more is."""
        free = _AT_ONCE - len(self._sending)
        if not free:
            return SLOW_PACE
        async with self._database.connection() as db:
            claimed = await webhook_table.claim(db, free)
            due = None if claimed else await webhook_table.next_due(db)
        for delivery in claimed:
            task = asyncio.get_running_loop().create_task(self._deliver(delivery), name=f"webhook {delivery.id}")
            self._sending.add(task)
            task.add_done_callback(self._sent)
        return 0.0 if claimed else max(0.0, min(SLOW_PACE, SLOW_PACE if due is None else due))

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a webhook was not sent", exc_info=task.exception())

    async def _deliver(self, delivery: Delivery) -> None:
        answer = await self._post(delivery)
        retry_in = None
        if answer and delivery.attempts <= len(RETRIES):
            retry_in = RETRIES[delivery.attempts - 1] * random.uniform(1.0, 1.1)  # noqa: S311
        if answer:
            _log.warning("webhook %s, message %s: %s", delivery.webhook, delivery.id, answer)
        with suppress(StoreError):  # then it is due again, and sent twice
            async with self._database.transaction() as db:
                if answer.startswith(f"{_GONE} "):
                    await webhook_table.disable(db, delivery.webhook, answer)
                else:
                    await webhook_table.mark(db, delivery, answer, retry_in)

    async def _post(self, delivery: Delivery) -> str:
        """Send a message; empty for a success, otherwise what happened. The body of the answer is not read."""
        import httpx2

        from ..tools.builtin.public_network import NotPublic

        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "quiesce",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(delivery.secret, delivery.id, timestamp, delivery.body),
        }
        try:
            url = httpx2.URL(delivery.url)
            client = self._client(url.host if delivery.private else "")
            async with (
                asyncio.timeout(TIMEOUT),
                client.stream("POST", url, content=delivery.body, headers=headers) as response,
            ):
                return "" if response.is_success else f"{response.status_code} {response.reason_phrase}".strip() + "."
        except NotPublic as error:
            return f"{error} Add it with --private."
        except Exception as error:  # of the network, or for an address that cannot be used
            return f"{type(error).__name__}: {error}".rstrip(": ")

    def _client(self, private_host: str) -> Any:
        """A client for public addresses, and for one host whose address need not be public."""
        import httpx2

        from ..tools.builtin.public_network import PrivateHost, PublicTransport

        if private_host not in self._clients:
            hosts = [PrivateHost(private_host.lower().rstrip("."), None)] if private_host else []
            transport = PublicTransport(hosts)
            self._clients[private_host] = httpx2.AsyncClient(transport=transport, timeout=TIMEOUT, trust_env=False)
        return self._clients[private_host]
