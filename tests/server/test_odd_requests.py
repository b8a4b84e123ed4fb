"""Every operation of the OpenAPI document with odd bodies, paths, queries and headers: it is refused, or it works.

No answer is a failure of the server, every refusal has the shape of the document, and none shows what is another key's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import Settings, create_app
from quiesce.server.openapi import document

from .support import Served, serving, start, two_keys

pytestmark = pytest.mark.promise("P8")

SECRET = "of-bob-alone"
LONG = "x" * 5000
DEEP = b"[" * 5000 + b"]" * 5000
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1", "0", "0.5", "1e-320", "9" * 400, "1_000", "٣", "", " 1")
TEXTS = ("", " ", "\0", "../..", "a/b", "ä", "\ud800", "%00", "%zz", "'; drop table runs; --", LONG, "run-" + "0" * 24)
BODIES = (
    b"", b" ", b"null", b"true", b"0", b'""', b"[]", b"{", b"}", b"{}x", b"\xff\xfe", b"\0", b"NaN", b'{"x":NaN}', DEEP,
    b'{"x":' + DEEP + b"}", b'"\\ud800"', b"\xef\xbb\xbf{}", b'{"\\ud800":1}', b"9" * 5000, b"-" * 100,
    b'{"a":1,"a":2}',
)  # fmt: skip
VALUES = (
    b"null", b"true", b"0", b"-1", b"1e999", b"NaN", b"1e400", b"9" * 400, b'""', b'"\\u0000"', b'"\\ud800"',
    b'"\\udfff x"', b'"\xff"', b"[]", b"{}", b"[null]", DEEP, b'{"type":"approve","arguments":' + DEEP + b"}",
    b'{"type":"deny","reason":5}', b'{"type":["approve"]}', b'[{"type":"text","text":"\\ud800"}]',
    b'[{"type":"image","data":"!","media_type":"\\u0000"}]', b'[{"id":"\\ud800","answer":true}]',
    b'[{"id":"x","answer":1e999}]',
)  # fmt: skip
HEADERS = (
    {"Content-Type": "text/plain"}, {"Content-Type": ""}, {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Encoding": "gzip"}, {"Idempotency-Key": ""}, {"Idempotency-Key": LONG}, {"Idempotency-Key": b"\xff"},
    {"Last-Event-ID": "-1"}, {"Last-Event-ID": "9" * 400}, {"Last-Event-ID": b"\xb2"}, {"Last-Event-ID": "1e3"},
    {"Accept-Encoding": "gzip;q=NaN, *;q=x"}, {"Accept": "x/"}, {"Origin": "http://[::1"}, {"Origin": "null"},
    {"Sec-Fetch-Site": "x"}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": b"Bearer \xff"},
    {"Authorization": "Basic x"}, {"If-None-Match": "*"}, {"Range": "bytes=9-1"}, {"Host": "["}, {"Expect": "x"},
)  # fmt: skip


@tool(requires_approval=True)
async def pay(to: Any) -> str:
    """Pay."""
    return to


AS_JSON = {"Content-Type": "application/json"}


class OneOwner:
    """Sends requests of ann, and looks at each answer."""

    def __init__(self, client: httpx2.Client, of_bob: str) -> None:
        self.client = client
        self.of_bob = of_bob
        self.refused = msgspec.json.Decoder(dict[str, dict[str, str]])
        self.count = 0
        self.wrong: list[Any] = []

    def send(self, method: str, path: str, **options: Any) -> None:
        asked = (method, path[:200], {name: repr(value)[:200] for name, value in options.items()})
        with self.client.stream(method, path, **options) as response:
            kind = response.headers.get("content-type", "")
            if kind.startswith("text/event-stream") and response.status_code == 200:
                text = next(response.iter_text(), "")  # such a stream may have no end
            else:
                text = response.read().decode()
        self.count += 1
        told = (
            text.replace(self.of_bob, "").replace(f"bob/{SECRET}", "") if "bob" in path or self.of_bob in path else text
        )
        is_wrong = response.status_code >= 500 or SECRET in told or self.of_bob in told
        if is_wrong or (response.status_code >= 400 and not self.is_problem(text)):
            self.wrong.append((asked, response.status_code, text[:500]))

    def is_problem(self, text: str) -> bool:
        try:
            return set(self.refused.decode(text)["error"]) == {"code", "message", "todo"}
        except (msgspec.MsgspecError, KeyError):
            return False


def requests(run_id: str, of_bob: str, names: dict[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Odd requests for every operation: the method, the path, and the options of the client."""
    described = document(Settings())
    for template, operations in described["paths"].items():
        for method, operation in operations.items():
            path = template.format(**names)
            for parameter in operation["parameters"]:
                where, name = parameter["in"], parameter["name"]
                if where == "query":
                    for odd in (*TEXTS, *NUMBERS, f"0.5_{LONG}", "1e999_x", "NaN_0", "2026-02-30", "9999999-1-1"):
                        yield method, f"{path}?{name}={quoted(odd)}", {}
                    yield method, f"{path}?{name}=1&{name}=x&{name}", {}
                elif where == "path":
                    for odd in (*TEXTS, of_bob, f"bob/{SECRET}", "."):
                        yield method, template.format(**{**names, name: quoted(odd)}), {}
            if method == "post":
                for body in BODIES:
                    yield method, path, {"content": body, "headers": AS_JSON}
                schema = operation.get("requestBody", {"content": {"application/json": {"schema": {"$ref": "/"}}}})
                fields = schema["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                known = described["components"]["schemas"].get(fields, {}).get("properties", {"x": {}})
                fitting = {"StartRun": b'"prompt":"hi",', "SteerRun": b'"text":"hi",'}.get(fields, b"")
                for field in (*known, "\\ud800"):
                    for value in VALUES:
                        content = b'{%b"%b":%b}' % (fitting, field.encode(), value)
                        yield method, path, {"content": content, "headers": AS_JSON}
            for headers in HEADERS:
                content = {"content": b"{}"} if method == "post" else {}
                yield method, path, {"headers": AS_JSON | headers, **content}  # pyright: ignore[reportOperatorIssue]


def quoted(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


def waiting_run(served: Served, client: httpx2.Client, prompt: str, session: str | None, owner: str) -> tuple[str, str]:
    """A run that waits for an approval: its id, and the id of the question."""
    run_id = start(client, prompt, session=session)
    served.at_rest(run_id, owner)
    return run_id, client.get(f"/runs/{run_id}").json()["run"]["interrupts"][0]["id"]


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "stored"])
def test_no_odd_request_fails_or_shows_what_is_anothers(tmp_path: Path, *, stored: bool) -> None:
    ann, bob, keys = two_keys()
    agent = Agent(ScriptedModel(then=[Call("pay", {"to": "Ann"})]), name="payer", tools=[pay])
    settings = Settings(max_wait=0.01, max_runs_per_key=10_000, max_streams_per_key=1000)
    app = create_app(agent, keys=keys, settings=settings, store=tmp_path / "s.db" if stored else None)
    with serving(app=app) as served, served.client(ann) as client, served.client(bob) as other:
        of_bob, _ = waiting_run(served, other, SECRET, SECRET, "bob")
        run_id, _ = waiting_run(served, client, "Pay.", "mine", "ann")
        odd = OneOwner(client, of_bob)
        names = {"id": run_id, "call": "call_1", "name": "mine", "approval": "abc"}
        for method, path, options in requests(run_id, of_bob, names):
            if (method, path.partition("?")[0]) in (("delete", f"/runs/{run_id}"), ("delete", "/sessions/mine")):
                continue  # the run is needed
            odd.send(method.upper(), path, **options)
        assert odd.count > 1000
        assert not odd.wrong, "\n".join(map(str, odd.wrong))
        assert client.get("/healthz").json()["status"] == "ok"
        assert other.get(f"/runs/{of_bob}").json()["run"]["interrupts"]
        assert SECRET in other.get("/audit").text
