"""The files of the console: compressed and kept in memory, and named for their version, so that browsers keep them."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from .compression import accepts_gzip

_VERSION: Final = re.compile(r"[0-9a-f]{12}")
# A file at an address with its version never changes. Without a version, browsers ask each time whether it has.
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASK: Final = "no-cache"


class ConsoleFiles(StaticFiles):
    """The files of a folder. A compressed file has the same tag as the file itself, as a weak one.

    The page names the other files with the version of the folder. An address with another version, of a page from
    before an update, has the present file.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder)
        self._folder: Final = folder

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or 304 when the client has it."""
        version, _, rest = path.partition("/")
        is_versioned = _VERSION.fullmatch(version) is not None
        response = await super().get_response(rest if is_versioned else path, scope)
        response.headers["Cache-Control"] = _FOREVER if is_versioned and version == self._version() else _ASK
        return response

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """A file, or 304 when the client has it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Vary"] = "Accept-Encoding"
        if not isinstance(response, FileResponse) or not accepts_gzip(scope):
            return response
        headers = {name: response.headers[name] for name in ("Vary", "Last-Modified")}
        headers |= {"Content-Encoding": "gzip", "ETag": f"W/{response.headers['ETag']}"}
        body = _compressed(Path(full_path), stat_result.st_mtime_ns)
        return Response(body, status_code, headers, response.media_type)

    def page(self, name: str, scope: Scope) -> Response:
        """The page, which names the other files by their version."""
        version = self._version()
        headers = {"ETag": f'"{version}"', "Cache-Control": _ASK}
        if f'"{version}"' in Headers(scope=scope).get("if-none-match", ""):
            return NotModifiedResponse(Headers(headers))
        text = (self._folder / name).read_text("utf-8").replace('"static/', f'"static/{version}/')
        return Response(text, 200, headers, "text/html; charset=utf-8")

    def _version(self) -> str:
        """What changes when a file changes."""
        found = sorted((each.name, each.stat().st_mtime_ns, each.stat().st_size) for each in os.scandir(self._folder))
        return hashlib.sha256(repr(found).encode()).hexdigest()[:12]


@lru_cache(maxsize=128)
def _compressed(path: Path, _changed: int) -> bytes:
    return gzip.compress(path.read_bytes(), 9, mtime=0)
