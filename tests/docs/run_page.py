"""Run the Python blocks of one page, in order, in one namespace: `python run_page.py docs/hooks.md`.

A block may await at its top level. What a block prints is compared with the block marked `printed` below it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from pages import ROOT, blocks, without_figures


def main(page: Path) -> int:
    module = types.ModuleType("page")  # a real module, because dataclasses and type hints look themselves up in one
    sys.modules["page"] = module
    namespace = vars(module)
    printed = ""
    ran = 0
    text = page.read_text()
    with postgres() if "QUIESCE_STORE" in text else contextlib.nullcontext(), asyncio.Runner() as runner:
        for block in blocks(text):
            if block.runs:
                output = io.StringIO()
                source = "\n" * (block.line - 1) + block.body
                code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                with contextlib.redirect_stdout(output):
                    if code.co_flags & inspect.CO_COROUTINE:
                        runner.run(eval(code, namespace))
                    else:
                        exec(code, namespace)
                printed = output.getvalue()
                ran += 1
            elif block.is_printed and without_figures(block.body) != without_figures(printed):
                print(f"{page}:{block.line}: the page says\n{block.body}\nand the code prints\n{printed}")
                return 1
    print(f"{ran} blocks")
    return 0


@contextlib.contextmanager
def postgres() -> Iterator[None]:
    """A Postgres for a page that needs one; its address is in the environment."""
    sys.path.insert(0, str(ROOT))
    from tests.sessions.conftest import Postgres

    server = Postgres()
    os.environ["QUIESCE_STORE"] = server.new_database()
    try:
        yield
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
