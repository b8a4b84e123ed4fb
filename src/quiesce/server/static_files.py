"""The files of the console, compressed once and kept in memory, for clients that accept gzip."""

from __future__ import annotations

import gzip
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from .compression import accepts_gzip


class ConsoleFiles(StaticFiles):
    """The files of a folder. A compressed file has the same tag as the file itself, as a weak one."""

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """A file, or 304 when the client has it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Vary"] = "Accept-Encoding"
        response.headers["Cache-Control"] = "no-cache"
        if not isinstance(response, FileResponse) or not accepts_gzip(scope):
            return response
        headers = {name: response.headers[name] for name in ("Vary", "Cache-Control", "Last-Modified")}
        headers |= {"Content-Encoding": "gzip", "ETag": f"W/{response.headers['ETag']}"}
        body = _compressed(Path(full_path), stat_result.st_mtime_ns)
        return Response(body, status_code, headers, response.media_type)

    def page(self, name: str, scope: Scope) -> Response:
        """A file of the folder, whatever the address is that it is asked for at."""
        path, found = self.lookup_path(name)
        assert found is not None, f"{name} was there when the server started"
        return self.file_response(path, found, scope)


@lru_cache(maxsize=128)
def _compressed(path: Path, _changed: int) -> bytes:
    return gzip.compress(path.read_bytes(), 9, mtime=0)
