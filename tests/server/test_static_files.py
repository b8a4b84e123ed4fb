"""The console's files on the wire."""

from __future__ import annotations

import gzip

import pytest

from quiesce.server.app import STATIC

from .support import serving, talker

pytestmark = pytest.mark.promise("P5")


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
        for path in ("/", "/static/main.js"):
            known = client.get(path).headers["etag"]
            assert client.get(path, headers={"If-None-Match": known}).status_code == 304
            for refused in ("identity", "gzip;q=0", "gzip; q=0.0, *;q=0"):
                whole = client.get(path, headers={"Accept-Encoding": refused})
                assert "content-encoding" not in whole.headers
                assert whole.content == (STATIC / (path[len("/static/") :] or "index.html")).read_bytes()
                assert client.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
