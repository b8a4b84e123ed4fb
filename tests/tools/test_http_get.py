"""`http_get` reaches public addresses, and inside the network only what the developer has named."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import trustme
from tool_runs import call, run_async

from quiesce import Agent
from quiesce.errors import ConfigurationError
from quiesce.models.scripted import ScriptedModel
from quiesce.tools.builtin import http_get, make_http_get, public_network

pytestmark = pytest.mark.feature

PUBLIC, OTHER = "93.184.216.34", "151.101.1.1"


class Site:
    """A server on this machine that writes down what it is asked, and redirects as it is told."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.redirects: dict[str, str] = {}
        self.content_type = ""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                goal = site.redirects.get(self.path)
                self.send_response(302 if goal else 200)
                if goal:
                    self.send_header("location", goal)
                if site.content_type:
                    self.send_header("content-type", site.content_type)
                self.send_header("content-length", "6")
                self.end_headers()
                self.wfile.write(b"inside")

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


class Network:
    """Names, and public addresses that lead to servers on this machine. Everything else on this machine is itself."""

    def __init__(self) -> None:
        self.names: dict[str, list[str] | Callable[[], list[str]]] = {}
        self.routes: dict[str, Site] = {}
        self.connections: list[str] = []


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    resolve, connect = socket.getaddrinfo, anyio.connect_tcp

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        answer = made.names.get(name)
        if answer is None:
            return resolve(host, port, *args, **options)
        addresses = answer() if callable(answer) else answer
        return [found for each in addresses for found in resolve(each, port, type=socket.SOCK_STREAM)]

    async def connect_tcp(remote_host: str, remote_port: int, **options: Any) -> Any:
        try:
            address = str(ip_address(remote_host))
        except ValueError:  # a name, resolved where nobody checks the answer
            address = str((await anyio.getaddrinfo(remote_host, remote_port))[0][4][0])
        made.connections.append(address)
        if address in made.routes:
            return await connect("127.0.0.1", made.routes[address].port)
        if not ip_address(address).is_loopback:
            raise OSError("There is no such host in this test.")
        return await connect(address, remote_port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
    return made


def fetched(url: str, **options: Any) -> str:
    return run_async(call(make_http_get(**options) if options else http_get, {"url": url})).text


SPELLINGS = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.8.9.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "someone@127.0.0.1",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "127。0。0。1",
    "①②⑦.0.0.1",
]


@pytest.mark.parametrize("host", SPELLINGS)
def test_this_machine_is_not_reached_however_it_is_spelled(host: str, site: Site) -> None:
    text = fetched(f"http://{host}:{site.port}/")
    assert "could not be fetched" in text
    assert site.requests == []


def test_the_refusal_says_why(site: Site) -> None:
    assert fetched(site.url) == (
        f"{site.url} could not be fetched: 127.0.0.1 has no public address, and only public ones are allowed here."
    )


INSIDE = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "0.0.0.0",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "192.88.99.1",
    "168.63.129.16",
    "::1",
    "::",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "100::1",
    "3fff::1",
    "5f00::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_a_name_that_leads_inside_is_refused(address: str, network: Network) -> None:
    network.names["innocent.example"] = [address]
    assert "innocent.example has no public address" in fetched("http://innocent.example/")
    assert network.connections == []


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:2800:220:1::1", "2a00:1450::1", "64:ff9b::5db8:d822"])
def test_a_public_address_is_connected_to(address: str, network: Network, site: Site) -> None:
    network.names["site.example"] = [address]
    network.routes[address] = site
    assert fetched("http://site.example/x") == "inside"
    assert network.connections == [address]
    assert site.requests[0][1]["host"] == "site.example"


def test_of_several_addresses_only_the_public_ones_are_used(network: Network, site: Site) -> None:
    network.names["site.example"] = ["127.0.0.1", OTHER, PUBLIC, "10.0.0.1"]
    network.routes[PUBLIC] = site
    assert fetched("http://site.example/x") == "inside"
    assert network.connections == [OTHER, PUBLIC]  # the first one is down


def test_a_redirect_does_not_lead_inside(network: Network, site: Site) -> None:
    outside = Site()
    network.names["site.example"] = [PUBLIC]
    network.routes[PUBLIC] = outside
    outside.redirects = {"/": "/once-more", "/once-more": f"{site.url}/secret"}
    text = fetched("http://site.example/")
    outside.close()
    assert "127.0.0.1 has no public address" in text
    assert len(outside.requests) == 2
    assert site.requests == []


def test_a_name_whose_answer_changes_does_not_lead_inside(network: Network, site: Site) -> None:
    answers = iter([[PUBLIC]])
    network.names["rebind.example"] = lambda: next(answers, ["127.0.0.1"])
    text = fetched(f"http://rebind.example:{site.port}/")
    assert "could not be fetched" in text
    assert network.connections == [PUBLIC]  # the address that was checked, and no other
    assert site.requests == []


def test_a_redirect_to_the_same_name_is_checked_again(network: Network, site: Site) -> None:
    outside = Site()
    answers = iter([[PUBLIC]])
    network.names["rebind.example"] = lambda: next(answers, ["127.0.0.1"])
    network.routes[PUBLIC] = outside
    outside.redirects = {"/": f"http://rebind.example:{site.port}/"}
    assert "rebind.example has no public address" in fetched("http://rebind.example/")
    outside.close()
    assert site.requests == []


def test_hosts_inside_can_be_named(network: Network, site: Site) -> None:
    network.names["wiki.corp.example"] = network.names["other.corp.example"] = ["127.0.0.1"]
    port = site.port
    for named in ("wiki.corp.example", f"Wiki.Corp.Example:{port}", "WIKI.corp.example."):
        assert fetched(f"http://wiki.corp.example:{port}/", private_hosts=[named]) == "inside"
    assert len(site.requests) == 3
    assert "no public address" in fetched(f"http://other.corp.example:{port}/", private_hosts=["wiki.corp.example"])
    assert "no public address" in fetched(f"http://wiki.corp.example:{port}/", private_hosts=["wiki.corp.example:1"])
    assert "no public address" in fetched(site.url, private_hosts=["wiki.corp.example"])
    assert fetched(site.url, private_hosts=["127.0.0.1"]) == "inside"
    network.routes["fd00::5"] = site
    assert fetched("http://[fd00::5]/", private_hosts=["[fd00::5]:80"]) == "inside"
    assert fetched("http://[fd00::5]/", private_hosts=["fd00::5"]) == "inside"


def test_a_keyless_server_on_this_machine_is_not_reached() -> None:
    from quiesce.server import create_app
    from quiesce.server.listener import server

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def main() -> None:
        running = server(create_app(Agent(ScriptedModel(then="hi"))))
        async with anyio.create_task_group() as group:
            group.start_soon(running.serve, [listener])
            while not running.started:
                await anyio.sleep(0)
            allowed = make_http_get(private_hosts=["localhost"])
            assert '"runs"' in (await call(allowed, {"url": f"http://localhost:{port}/runs"})).text
            assert "no public address" in (await call(http_get, {"url": f"http://localhost:{port}/runs"})).text
            running.drain()

    run_async(main())


def test_proxies_from_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, site.url)
    assert "no public address" in fetched("http://10.0.0.1/")
    assert site.requests == []


def test_a_proxy_that_is_given_is_used(site: Site) -> None:
    assert fetched("http://10.0.0.1/x", proxy=site.url) == "inside"
    assert site.requests[0][0] == "http://10.0.0.1/x"


# --- Headers ----------------------------------------------------------------------------------------------------


def test_headers_go_only_to_their_hosts(network: Network, site: Site) -> None:
    network.names.update({"api.example": [PUBLIC], "evil.example": [PUBLIC]})
    network.routes[PUBLIC] = site
    site.redirects = {"/out": "http://evil.example/in", "/back": "http://api.example/end"}
    headers = {
        "http://api.example": {"Authorization": "Bearer s3cret", "X-Token": "t0ken", "User-Agent": "mine"},
        "*": {"X-Hello": "everybody"},
    }
    tool = make_http_get(headers=headers)

    def seen(url: str) -> list[dict[str, str]]:
        site.requests.clear()
        run_async(call(tool, {"url": url}))
        return [request[1] for request in site.requests]

    [own] = seen("http://api.example/x")
    assert (own["authorization"], own["x-token"], own["user-agent"]) == ("Bearer s3cret", "t0ken", "mine")
    assert own["x-hello"] == "everybody"
    for requests in (
        seen("http://evil.example/x"),
        seen("http://api.example/out")[1:],
        seen("http://api.example:81/x"),
    ):
        [other] = requests
        assert not {"authorization", "x-token"} & set(other)
        assert other["x-hello"] == "everybody"
        assert other["user-agent"].startswith("python-httpx2")
    away, home = seen("http://evil.example/back")
    assert "authorization" not in away
    assert home["authorization"] == "Bearer s3cret"


def test_a_bare_host_means_https(network: Network, site: Site) -> None:
    network.names["api.example"] = [PUBLIC]
    network.routes[PUBLIC] = site
    fetched("http://api.example/x", headers={"api.example": {"X-Token": "t0ken"}})
    assert "x-token" not in site.requests[0][1]


def test_headers_without_a_host_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no host"):
        make_http_get(headers={"Authorization": "Bearer s3cret"})  # pyright: ignore


@pytest.mark.parametrize("host", ["http://", "api.example/path", "ftp://api.example", "api.example:port"])
def test_headers_of_what_is_no_host_are_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="no host for headers"):
        make_http_get(headers={host: {"X-Token": "t"}})


@pytest.mark.parametrize("hosts", ["localhost", ["http://localhost"], ["localhost/x"], [""], ["a:port"]])
def test_hosts_that_are_none_are_refused(hosts: Any) -> None:
    with pytest.raises(ConfigurationError, match="private_hosts"):
        make_http_get(private_hosts=hosts)


def test_a_certificate_is_for_the_name_and_not_for_the_address(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setattr(public_network, "certificates", httpx2.create_ssl_context)  # not those that were read before
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.example").configure_cert(context)
    site = Site(context)
    network.names.update({"site.example": [PUBLIC], "other.example": [PUBLIC]})
    network.routes[PUBLIC] = site
    assert fetched("https://site.example/x", headers={"site.example": {"X-Token": "t0ken"}}) == "inside"
    assert site.requests[0][1]["x-token"] == "t0ken"
    assert "certificate" in fetched("https://other.example/x")
    site.close()


@pytest.mark.parametrize("charset", ["hex", "rot13", "no-such-charset", "idna", "undefined", "x" * 200])
def test_a_page_with_a_charset_that_is_none_is_read_as_utf_8(charset: str, site: Site) -> None:
    site.content_type = f"text/plain; charset={charset}"
    assert fetched(f"{site.url}/page", private_hosts=["127.0.0.1"]) == "inside"


@pytest.mark.promise("P4")
@pytest.mark.parametrize(("size", "text"), [(6, "inside"), (5, "insid\n[cut after 5 bytes]")])
def test_a_page_is_called_cut_when_it_is(size: int, text: str, site: Site) -> None:
    assert fetched(f"{site.url}/page", private_hosts=["127.0.0.1"], max_size=size) == text
