"""Keys, other people's runs, other sites, and clients that mean harm."""

from __future__ import annotations

import socket
import stat
import time
from pathlib import Path

import pytest

from quiesce.errors import ConfigurationError
from quiesce.server import Keys, Settings, add_key, hash_key, new_key, serve
from quiesce.server.keys import keys_from_environment, keys_from_file, merge_keys

from .support import endless, read_events, serving, start, talker, two_keys, wait_for_text

pytestmark = pytest.mark.promise("P8")

# Every route that a key protects, for a run {id} and a session {name}.
ROUTES = [
    ("GET", "/runs", None),
    ("POST", "/runs", {"prompt": "x"}),
    ("GET", "/runs/{id}", None),
    ("DELETE", "/runs/{id}", None),
    ("GET", "/runs/{id}/events", None),
    ("GET", "/events", None),
    ("POST", "/runs/{id}/cancel", {}),
    ("POST", "/runs/{id}/steer", {"text": "x"}),
    ("POST", "/runs/{id}/pause", {}),
    ("POST", "/runs/{id}/resume", {"answers": []}),
    ("POST", "/runs/{id}/undo", {}),
    ("POST", "/runs/{id}/continue", {}),
    ("POST", "/runs/{id}/tools/call_1/cancel", {}),
    ("GET", "/sessions", None),
    ("GET", "/sessions/{name}", None),
    ("DELETE", "/sessions/{name}", None),
    ("GET", "/approvals", None),
    ("DELETE", "/approvals/{approval}", None),
    ("GET", "/audit", None),
    ("GET", "/fleet", None),
    ("GET", "/usage", None),
    ("GET", "/usage/keys", None),
    ("GET", "/agents", None),
    ("GET", "/fleet", None),
]


def test_the_list_above_is_every_route_of_the_document():
    from quiesce.server.openapi import document

    documented = {
        (method.upper(), path.replace("{call}", "call_1"))
        for path, methods in document(Settings())["paths"].items()
        for method in methods
        if path != "/healthz"
    }
    assert documented == {(method, path) for method, path, _ in ROUTES}


def test_wrong_missing_and_other_peoples_keys_on_every_route():
    ann, bob, keys = two_keys()
    with (
        serving(endless(), keys=keys) as served,
        served.client(ann) as mine,
        served.client(bob) as other,
        served.client() as nobody,
    ):
        run_id = start(mine, session="diary")
        wait_for_text(mine, run_id)
        for method, template, body in ROUTES:
            path = template.format(id=run_id, name="diary", approval="any")
            for headers in (
                {},
                {"Authorization": "Bearer " + new_key()},
                {"Authorization": "Bearer"},
                {"Authorization": "Basic " + ann},
                {"Authorization": ann},
                {"Authorization": "Bearer " + ann[:-1]},
                {"Authorization": "Bearer " + ann + "x"},
                {"X-Api-Key": ann},
            ):
                refused = nobody.request(method, path, json=body, headers=headers)
                assert refused.status_code == 401, (method, path, headers)
                assert refused.json()["error"]["code"] == "unauthorized"
                assert ann not in refused.text
            if "{" in template:
                assert other.request(method, path, json=body).status_code == 404, (method, path)
        assert other.get("/runs").json() == {"runs": [], "next": None}
        assert other.get("/sessions").json() == {"sessions": []}
        assert other.get("/usage").json()["total"]["calls"] == 0
        assert other.get("/usage").json()["keys"] == []
        assert other.get("/usage/keys").json()["error"]["code"] == "not_operator"
        assert mine.get(f"/runs/{run_id}").json()["run"]["state"] == "running"
        # The same session name and the same idempotency key are other things for another key.
        bobs = start(other, session="diary")
        assert bobs != run_id
        first = mine.post("/runs", json={"prompt": "x"}, headers={"Idempotency-Key": "1"}).json()["run"]["id"]
        second = other.post("/runs", json={"prompt": "x"}, headers={"Idempotency-Key": "1"}).json()["run"]["id"]
        assert first != second
        # What needs no key says nothing about anybody.
        assert nobody.get("/healthz").status_code == 200
        assert run_id not in nobody.get("/openapi.json").text


def test_two_authorization_headers_are_none():
    ann, _, keys = two_keys()
    with serving(talker(), keys=keys) as served, served.client() as client:
        headers = [("Authorization", f"Bearer {ann}"), ("Authorization", f"Bearer {ann}")]
        assert client.get("/runs", headers=headers).status_code == 401


def test_a_query_or_cookie_is_no_key():
    ann, _, keys = two_keys()
    with serving(talker(), keys=keys) as served, served.client() as client:
        assert client.get(f"/runs?key={ann}&api_key={ann}", headers={"Cookie": f"key={ann}"}).status_code == 401


def test_other_sites_cannot_press_stop():
    with serving(endless()) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        host = served.url
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": host + ".evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": host, "Sec-Fetch-Site": "cross-site"},
        ):
            for method, path in (("POST", "/cancel"), ("GET", ""), ("GET", "/events"), ("DELETE", "")):
                assert client.request(method, f"/runs/{run_id}{path}", headers=headers).status_code == 403, headers
        # What an HTML form can send without asking first.
        for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
            form = client.post(f"/runs/{run_id}/cancel", content=b'{"mode": "kill"}', headers={"Content-Type": kind})
            assert form.status_code == 415
            empty = client.post(f"/runs/{run_id}/cancel", content=b"", headers={"Content-Type": kind})
            assert empty.status_code == 415
        assert client.get(f"/runs/{run_id}").json()["run"]["state"] == "running"
        own = {"Origin": host, "Sec-Fetch-Site": "same-origin"}
        assert client.post(f"/runs/{run_id}/cancel?wait=5", headers=own).status_code == 200


def test_cors_is_off_unless_an_origin_is_named():
    asking = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with serving(talker()) as served, served.client() as client:
        refused = client.options("/runs", headers=asking)
        assert refused.status_code == 405
        assert "access-control-allow-origin" not in refused.headers
    settings = Settings(cors_origins=("https://app.example",))
    with serving(talker(), settings=settings) as served, served.client() as client:
        allowed = client.options("/runs", headers=asking)
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert client.get("/runs", headers={"Origin": "https://app.example"}).status_code == 200
        assert client.get("/runs", headers={"Origin": "https://evil.example"}).status_code == 403


def test_without_keys_only_this_machine_is_let_in():
    with serving(talker()) as served, served.client() as client:
        for headers in (
            {"Host": "evil.example"},  # a name that points here: DNS rebinding
            {"Host": f"evil.example:{served.port}"},
            {"Host": "127.0.0.1.evil.example"},
            {"X-Forwarded-For": "203.0.113.9"},
            {"Forwarded": "for=203.0.113.9"},
        ):
            assert client.get("/runs", headers=headers).status_code == 401, headers
        for host in ("localhost", f"localhost:{served.port}", "[::1]:80", "127.0.0.1"):
            assert client.get("/runs", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_needs_keys(host):
    with pytest.raises(ConfigurationError, match="no API keys"):
        serve(talker(), host=host)


def test_paths_and_headers_that_try_to_break_out():
    with serving(talker()) as served, served.client() as client:
        for path in (
            "/runs/../../etc/passwd",
            "/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/static/../__init__.py",
            "/static/%2e%2e/__init__.py",
            "/static/..%2f..%2fkeys.py",
            "/static//etc/passwd",
            "/runs/%00",
            "/runs/%0d%0aSet-Cookie:%20a=b",
            "/sessions/%0d%0aX-Evil:%201",
            "/runs/" + "a" * 5000,
        ):
            answer = client.get(path)
            assert answer.status_code in (400, 404), path
            assert "set-cookie" not in answer.headers
            assert "x-evil" not in answer.headers
        for session in ("a\r\nX-Evil: 1", "../x", "a b", "", "a\n", "é", "a" * 200):
            refused = client.post("/runs", json={"prompt": "x", "session": session})
            assert refused.status_code == 422, session
        run_id = start(client, "line\r\nevent: forged\r\ndata: {}\r\n\r\n")
        kinds = {kind for _, kind, _ in read_events(client, run_id)}
        assert "forged" not in kinds
        for key in ("a" * 256, "é".encode(), b"\x01"):
            answer = client.post("/runs", json={"prompt": "x"}, headers={"Idempotency-Key": key})
            assert answer.status_code in (400, 422)


def test_headers_that_keep_browsers_honest():
    with serving(talker()) as served, served.client() as client:
        for path in ("/runs", "/openapi.json", "/nowhere"):
            headers = client.get(path).headers
            assert "script-src 'self';" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "server" not in headers


def _sent_before_refusal(port: int, head: bytes, chunk: bytes, most: int) -> tuple[int, bytes]:
    """Send and send until the server has had enough: how much it took, and what it said."""
    sent, answer = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head)
        try:
            while sent < most:
                client.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        try:
            while part := client.recv(65536):
                answer += part
        except OSError:
            pass
    return sent, answer


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_gigabyte_is_refused_early(chunked):
    gigabyte = 1 << 30
    settings = Settings(max_body=1 << 20)
    head = b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    block = b" " * 65536
    if chunked:
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        block = b"10000\r\n" + block + b"\r\n"
    else:
        head += b"Content-Length: %d\r\n\r\n" % gigabyte
    with serving(talker(), settings=settings) as served:
        sent, answer = _sent_before_refusal(served.port, head, block, gigabyte)
        # What the sockets' own buffers hold was sent too.
        assert sent < 64 << 20
        # The kernel may throw an answer away that arrives while more is being sent.
        assert not answer or b" 413 " in answer.split(b"\r\n", 1)[0]
        with served.client() as client:
            big = client.post("/runs", json={"prompt": "x" * (3 << 19)})
            assert big.status_code == 413
            assert big.json()["error"]["code"] == "too_large"
            assert client.get("/healthz").json()["runs"] == 0


def test_slow_clients_are_let_go():
    settings = Settings(header_timeout=0.3, body_timeout=0.3)
    with serving(talker(), settings=settings) as served:
        heads = [
            b"",
            b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
            b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        ]
        lorises = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in heads]
        for loris, head in zip(lorises, heads, strict=True):
            loris.sendall(head)
        for loris in lorises:
            begun = time.monotonic()
            try:
                while loris.recv(65536):
                    pass
            except ConnectionError:
                pass
            assert time.monotonic() - begun < 19  # the server hung up; the client did not give up
            loris.close()
        with served.client() as client:
            assert client.get("/healthz").status_code == 200


def test_a_trickle_of_header_bytes_does_not_buy_time():
    with (
        serving(talker(), settings=Settings(header_timeout=0.3)) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=20) as loris,
    ):
        loris.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for number in range(400):
                loris.sendall(b"X-%d: y\r\n" % number)
                served.pause(0.05)


def test_a_head_that_never_ends_is_refused():
    with serving(talker()) as served:
        head = b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        sent, answer = _sent_before_refusal(served.port, head, b"X-Filler: " + b"y" * 8000 + b"\r\n", 1 << 27)
        assert sent < 64 << 20
        assert not answer or b" 400 " in answer.split(b"\r\n", 1)[0]


def test_keys_are_kept_as_hashes(tmp_path: Path):
    file = tmp_path / "keys"
    ann = add_key(file, "ann")
    bob = add_key(file, "bob")
    assert ann not in file.read_text()
    assert bob not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = Keys(keys_from_file(file))
    assert keys.owner(ann) == "ann"
    assert keys.owner(bob) == "bob"
    for wrong in ("", "x", ann[:-1], ann.upper(), ann + " ", hash_key(ann), "\ud800"):
        assert keys.owner(wrong) is None
    assert ann not in repr(keys)
    with pytest.raises(ConfigurationError, match="already"):
        add_key(file, "ann")
    with pytest.raises(ConfigurationError, match="not a valid name"):
        add_key(file, "a b")


def test_keys_from_the_environment():
    ann, other = new_key(), new_key()
    keys = merge_keys((keys_from_environment(f"ann={ann}, bob={other}"),))
    assert keys is not None
    assert keys.owner(ann) == "ann"
    assert keys.owner(other) == "bob"
    single = merge_keys((keys_from_environment(ann),))
    assert single is not None
    assert single.owner(ann) == "default"
    assert merge_keys((keys_from_environment(""),)) is None
    with pytest.raises(ConfigurationError, match="characters"):
        keys_from_environment("ann=short")


@pytest.mark.parametrize("line", ["ann", "ann md5$a$b", "ann sha256$$", "ann sha256$salt$xyz"])
def test_a_key_file_that_makes_no_sense_is_refused(tmp_path: Path, line):
    (tmp_path / "keys").write_text(line + "\n")
    with pytest.raises(ConfigurationError):
        Keys(keys_from_file(tmp_path / "keys"))
    with pytest.raises(ConfigurationError):
        keys_from_file(tmp_path / "none")


def test_the_consoles_files_and_nothing_else_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<!doctype html><script type=module src=static/main.js></script>")
    (static / "main.js").write_text("export {};")
    (tmp_path / "secret.txt").write_text("secret")
    (static / "link").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr("quiesce.server.app.STATIC", static)
    ann, _, keys = two_keys()
    with serving(talker(), keys=keys) as served, served.client() as nobody:
        page = nobody.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        script = nobody.get("/static/main.js")
        assert "javascript" in script.headers["content-type"]
        assert script.headers["x-content-type-options"] == "nosniff"
        assert script.headers["cache-control"] == "no-cache"
        for path in ("/static/../secret.txt", "/static/%2e%2e/secret.txt", "/static/..%2fsecret.txt", "/static/link"):
            assert nobody.get(path).status_code == 404, path
        assert nobody.get("/runs").status_code == 401
        assert nobody.get("/runs", headers={"Authorization": f"Bearer {ann}"}).status_code == 200
