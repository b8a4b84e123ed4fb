"""Built-in tools, each with a stop policy that suits it.

    from quiesce.tools.builtin import http_get, python, read_file, shell, write_file

    Agent(..., tools=[shell, read_file])

`make_shell`, `make_python`, `make_files` and `make_http_get` make variants: another folder, a sandbox, other limits.
"""

from .coding import coding_tools
from .files import WrittenFile, make_files, read_file, undo_write, write_file
from .http import http_get, make_http_get
from .programs import make_python, make_shell, python, shell

__all__ = [
    "WrittenFile",
    "coding_tools",
    "http_get",
    "make_files",
    "make_http_get",
    "make_python",
    "make_shell",
    "python",
    "read_file",
    "shell",
    "undo_write",
    "write_file",
]
