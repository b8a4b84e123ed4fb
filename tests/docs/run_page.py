"""Run the Python blocks of one page, in order, in one namespace: `python run_page.py docs/hooks.md`.

A block may await at its top level. What a block prints is compared with the block marked `printed` below it. A page
that names a model of OpenAI or Anthropic talks to a fake provider, which speaks the vendor's protocol on loopback.
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
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.pages import Block, blocks, without_figures  # noqa: E402
from tests.support.fake_provider import environment, fake_provider, say_next  # noqa: E402


@contextlib.contextmanager
def models_for(page: list[Block]) -> Iterator[Callable[[Block], None]]:
    """The fake provider, if the page needs one, and a function that prepares its answers for a block."""
    if not any(block.names_a_vendor or block.script for block in page):
        yield lambda _: None
        return
    with fake_provider() as address:
        os.environ.update(environment(address))
        yield lambda block: say_next(address, block.script) if block.script else None


async def run_cell(code: types.CodeType, namespace: dict[str, object]) -> None:
    exec(code, namespace)


def main(page: Path) -> int:
    module = types.ModuleType("page")  # a real module, because dataclasses and type hints look themselves up in one
    sys.modules["page"] = module
    namespace = vars(module)
    printed = ""
    ran = 0
    text = page.read_text()
    content = blocks(text)
    database = postgres() if "QUIESCE_STORE" in text else contextlib.nullcontext()
    with database, models_for(content) as prepare, asyncio.Runner() as runner:
        for block in content:
            if block.runs:
                prepare(block)
                output = io.StringIO()
                source = "\n" * (block.line - 1) + block.body
                code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                with contextlib.redirect_stdout(output):
                    if code.co_flags & inspect.CO_COROUTINE:
                        runner.run(eval(code, namespace))
                    elif "a cell of a notebook" in block.marks:  # where an event loop is always running
                        runner.run(run_cell(code, namespace))
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
    from tests.sessions.conftest import Postgres

    server = Postgres()
    os.environ["QUIESCE_STORE"] = server.new_database()
    try:
        yield
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
