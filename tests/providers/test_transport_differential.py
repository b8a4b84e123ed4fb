"""A search for responses that our transport reads differently from the transport of httpx2, which is the oracle.

Both must find the same status, the same headers and the same bytes, and fail exactly when the other does, with the same
error. Where h11 and llhttp differ by right, the generator leaves that form out, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .raw_server import OK, WITHIN, Outcome, Peer, RawServer, client_of, outcome, raw

pytestmark = pytest.mark.promise("P3", "P7")

TOKEN = st.text("abcXYZ019-_.!#$%&'*+^`|~", min_size=1, max_size=12).map(str.encode)
# No space after a value (see `test_the_space_around_a_header_is_not_part_of_it`), and no line that goes on in the next
# one: that is obsolete, h11 joins the lines and llhttp refuses them.
_WORD = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=8)
_WORD = _WORD.map(lambda word: word.translate(dict.fromkeys(range(0x80, 0xA1), "y")))
VALUE = st.lists(_WORD.map(lambda word: word.encode("latin-1")), max_size=3).map(b" ".join).map(bytes.strip)
SPACE = st.sampled_from([b"", b" ", b"  ", b"\t", b" \t "])
# What says where a body ends is written by `framing`. `Upgrade` means nothing in a response that is not 101.
NAMES_OF_FRAMING = {b"content-length", b"transfer-encoding", b"connection", b"proxy-connection", b"upgrade"}
NAME = st.one_of(TOKEN, st.sampled_from([b"Content-Type", b"SERVER", b"x-request-id", b"Vary"])).filter(
    lambda name: name.lower() not in NAMES_OF_FRAMING
)
# The body is read raw, so that this header is one like any other.
HEADER = st.tuples(NAME, SPACE, VALUE).map(lambda parts: parts[0] + b":" + parts[1] + parts[2] + b"\r\n")
# 204 and 304 have no body, whatever their headers say. 101 is an upgrade: ours is an error, by intention.
STATUS = st.one_of(st.sampled_from([200, 201, 204, 304, 404, 429, 500, 529]), st.integers(200, 999))
REASON = st.sampled_from([b" OK", b" Too Many  Requests", b" ", b"", b" caf\xe9", b" 7"])
VERSION = st.sampled_from([b"HTTP/1.1"] * 5 + [b"HTTP/1.0"])
BEFORE = st.sampled_from(
    [b""] * 5
    + [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        b"HTTP/1.1 102\r\n\r\nHTTP/1.1 199 x\r\nA: b\r\n\r\n",
    ]
)
CONNECTION = st.sampled_from(
    [b""] * 4
    + [b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"CONNECTION:x, Close\r\n", b"Connection:\r\n"]
)
BODY = st.one_of(st.binary(max_size=40), st.binary(min_size=1, max_size=3).map(lambda some: some * 30_000))
TRAILER = b"x-trailer-"
EXTENSION = st.sampled_from([b"", b"", b"", b" ", b";a", b";a=b", b';a="b c"', b";a=b;c=d"])


@dataclass
class Sent:
    """What the server writes, each piece by itself, and whether it then closes the connection."""

    pieces: list[bytes]
    closes: bool

    def __repr__(self) -> str:
        shown = [piece if len(piece) < 400 else (piece[:50], len(piece)) for piece in self.pieces]
        return f"Sent({shown}, closes={self.closes})"


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    written = b""
    while body:
        size = draw(st.integers(1, min(len(body), 50))) if draw(st.booleans()) else len(body)
        shown = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"000%X"])) % size
        written += shown + draw(EXTENSION) + b"\r\n" + body[:size] + b"\r\n"
        body = body[size:]
    last = draw(st.sampled_from([b"0", b"000"])) + draw(EXTENSION) + b"\r\n"
    trailers = [TRAILER + b"%d:" % n + value + b"\r\n" for n, value in enumerate(draw(st.lists(VALUE, max_size=2)))]
    return written + last + b"".join(trailers) + b"\r\n"


@st.composite
def framing(draw: st.DrawFn, status: int, old: bool) -> tuple[bytes, bytes, bool]:
    """The header that says where the body ends, the body as it is written, and whether it ends with the connection."""
    body = draw(BODY)
    kind = draw(st.sampled_from(["length", "chunked", "close"]))
    if status in (204, 304):
        # Some servers give the length of the body that there would be.
        return draw(st.sampled_from([b"", b"Content-Length: 0\r\n", b"content-length:7\r\n"])), b"", False
    match kind:
        case "length":
            # Never two lengths, nor a length beside chunks: h11 takes the same twice, and prefers the chunks; llhttp
            # refuses both, as a response that two readers may take for different ones.
            return (
                b"Content-%s:%s%d\r\n" % (draw(st.sampled_from([b"Length", b"LENGTH"])), draw(SPACE), len(body)),
                body,
                False,
            )
        case "chunked" if not old:  # HTTP/1.0 has no chunks
            # The value in small letters: h11 writes it so, whatever it was.
            name = draw(st.sampled_from([b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:chunked\r\n"]))
            return name, draw(chunked(body)), False
        case _:
            return b"", body, True


@st.composite
def responses(draw: st.DrawFn) -> Sent:
    status, version = draw(STATUS), draw(VERSION)
    framed, body, until_closed = draw(framing(status, version == b"HTTP/1.0"))
    connection = draw(CONNECTION)
    if version == b"HTTP/1.0" and b"keep-alive" in connection:
        connection = b""  # llhttp keeps such a connection, as it was asked to; h11 keeps none of HTTP/1.0
    headers = [*draw(st.lists(HEADER, max_size=4)), framed, connection]
    head = version + b" %d" % status + draw(REASON) + b"\r\n" + b"".join(draw(st.permutations(headers))) + b"\r\n"
    whole = draw(BEFORE) + head + body
    closes = until_closed or draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        whole, closes = whole[: draw(st.integers(0, len(whole)))], True
    if len(whole) < 60 and draw(st.booleans()):
        places = list(range(1, len(whole)))
    else:
        places = sorted(draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=6)))
    pieces = [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]
    return Sent([piece for piece in pieces if piece], closes)


class Search:
    """A server in a loop, which both clients ask for each response."""

    def __init__(self) -> None:
        self.sent = Sent([], True)
        self.runner = asyncio.Runner()
        self.server: RawServer
        self._context = raw(self._answer)

    async def _answer(self, peer: Peer) -> None:
        """The first request has the response, and all that follow on the same connection a plain one."""
        await peer.request()
        await peer.send(*self.sent.pieces)
        while not self.sent.closes:
            await peer.request()
            await peer.send(OK)

    def __enter__(self) -> Self:
        self.server = self.runner.run(self._context.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self._context.__aexit__(None, None, None))
        self.runner.close()

    def both(self, sent: Sent) -> tuple[tuple[Outcome, bool], tuple[Outcome, bool]]:
        return self.runner.run(self._both(sent))

    async def _both(self, sent: Sent) -> tuple[tuple[Outcome, bool], tuple[Outcome, bool]]:
        self.sent = sent
        async with asyncio.timeout(WITHIN):
            return await self._one("own"), await self._one("httpx2")

    async def _one(self, which: str) -> tuple[Outcome, bool]:
        """The response, and whether its connection was used again, which it is only for a request that works."""
        async with client_of(which) as client:
            found = await outcome(client, self.server.url)
            connections = self.server.connections
            if self.sent.closes:
                return found, False
            asked = Sent(*(self.sent.pieces, self.sent.closes))
            self.sent = Sent([OK], False)
            again = await outcome(client, self.server.url)
            self.sent = asked
            assert (again.body, again.error) == (b"ok", None), which
            return found, self.server.connections == connections


@pytest.fixture
def search() -> Iterator[Search]:
    with Search() as found:
        yield found


def compare(search: Search, sent: Sent) -> None:
    own, oracle = search.both(sent)
    # Whether trailers are among the headers is asked by `test_trailers_are_not_headers`.
    own[0].headers = [each for each in own[0].headers if not each[0].startswith(TRAILER)]
    assert own == oracle


each_response = given(sent=responses())
options = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def test_both_transports_read_the_same(search: Search) -> None:
    @settings(max_examples=250, derandomize=True, phases=[Phase.generate, Phase.shrink], **options)
    @each_response
    def look(sent: Sent) -> None:
        compare(search, sent)

    look()


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_both_transports_read_the_same_in_a_long_search(search: Search) -> None:
    @settings(max_examples=4000, **options)
    @each_response
    def look(sent: Sent) -> None:
        compare(search, sent)

    look()
