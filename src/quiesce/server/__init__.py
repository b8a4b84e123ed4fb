"""Agents over HTTP: start, watch, stop and steer runs from a browser, a terminal, or another program.

Needs the extra `serve`: `pip install "quiesce[serve]"`.
"""

from .app import Application, create_app
from .deps import RunRequest
from .keys import Keys, add_key, hash_key, keys_from_file, new_key
from .listener import serve
from .mount import mount, stop_on_disconnect
from .settings import Settings

__all__ = [
    "Application",
    "Keys",
    "RunRequest",
    "Settings",
    "add_key",
    "create_app",
    "hash_key",
    "keys_from_file",
    "mount",
    "new_key",
    "serve",
    "stop_on_disconnect",
]
