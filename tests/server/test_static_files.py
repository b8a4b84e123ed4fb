"""The console's files on the wire."""

from __future__ import annotations

import gzip
import re

import pytest

from quiesce.server.app import STATIC

from .support import serving, talker

pytestmark = pytest.mark.feature


def test_a_file_is_compressed_for_a_client_that_accepts_it():
    plain = (STATIC / "main.js").read_bytes()
    with serving(talker()) as served, served.client() as client:
        with client.stream("GET", "/static/main.js", headers={"Accept-Encoding": "gzip, deflate"}) as response:
            sent = b"".join(response.iter_raw())
        assert response.headers["content-encoding"] == "gzip"
        assert response.headers["vary"] == "Accept-Encoding"
        assert "javascript" in response.headers["content-type"]
        assert len(sent) < len(plain) / 2
        assert gzip.decompress(sent) == plain
        known = client.get("/static/main.js").headers["etag"]
        assert client.get("/static/main.js", headers={"If-None-Match": known}).status_code == 304
        for refused in ("identity", "gzip;q=0", "gzip; q=0.0, *;q=0"):
            whole = client.get("/static/main.js", headers={"Accept-Encoding": refused})
            assert "content-encoding" not in whole.headers
            assert whole.content == plain
            known = whole.headers["etag"]
            assert client.get("/static/main.js", headers={"If-None-Match": known}).status_code == 304


def test_the_page_names_a_version_that_browsers_keep():
    with serving(talker()) as served, served.client() as client:
        page = client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
        found = re.search(r'src="(static/([0-9a-f]{12})/main.js)"', page.text)
        assert found is not None
        address, version = found.groups()
        kept = client.get(f"/{address}")
        assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert kept.content == (STATIC / "main.js").read_bytes()
        old = client.get(f"/static/{'0' * 12}/main.js")  # a page from before an update goes on with the present files
        assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
        for outside in ("../__init__.py", "%2e%2e/__init__.py", "none.js", ""):
            assert client.get(f"/static/{version}/{outside}").status_code == 404
