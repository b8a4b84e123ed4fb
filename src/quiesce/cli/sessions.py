"""`quiesce sessions list | show | export | import | backup | repair | delete`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import ConfigurationError
from ..messages import (
    AssistantMessage,
    CutNote,
    Message,
    ProviderPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ..receipt import late_line
from ..sessions.backup import back_up
from ..sessions.export import export_session, import_session
from ..sessions.journal.rows import late_outcomes
from ..sessions.records import RunRecord, SessionInfo
from ..sessions.repair import repair_session
from ..sessions.session import Session
from ..sessions.store import SessionStore
from ..sessions.stores.resolve import default_path, resolve_store
from .json_lines import add_option, print_line, tell
from .main import Subparsers
from .sanitize import clean, date_text


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "sessions", help="list, show, export, import, back up, repair and delete saved conversations"
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")

    def action(name: str, run: Any, help: str) -> argparse.ArgumentParser:
        each = actions.add_parser(name, help=help)
        each.add_argument("--store", help=f"path or URL of the store (default: {default_path()})")
        if name != "export":  # which is JSON Lines already
            add_option(each, "the outcome" if name not in ("list", "show") else "what is found")
        each.set_defaults(run=run)
        return each

    action("list", _list, "list all sessions, the last used first")
    show = action("show", _show, "show the runs and messages of one session")
    show.add_argument("name", help="name of the session")
    export = action("export", _export, "write one session as JSON Lines")
    export.add_argument("name", help="name of the session")
    export.add_argument("-o", "--output", type=Path, help="a file (default: standard output)")
    imported = action("import", _import, "read a session from JSON Lines")
    imported.add_argument("file", type=Path, nargs="?", help="a file (default: standard input)")
    imported.add_argument("--name", help="name of the session (default: its name in the file)")
    backup = action("backup", _backup, "copy a whole SQLite store, also while runs go on")
    backup.add_argument("target", type=Path, metavar="FILE|DIR", help="a new file, or a folder for one")
    repair = action("repair", _repair, "repair a damaged session: keep the intact part, and copy the rest to a file")
    repair.add_argument("name", help="name of the session")
    repair.add_argument("-o", "--output", type=Path, help="the file (default: NAME.damaged-TIME.jsonl)")
    delete = action("delete", _delete, "delete one session permanently")
    delete.add_argument("name", help="name of the session")


@contextmanager
def _opened(options: argparse.Namespace) -> Generator[SessionStore]:
    """The store of the command. Raises `ConfigurationError` for a file that cannot be read or written meanwhile."""
    store = resolve_store(options.store)
    try:
        yield store
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or 'The file'}: {error.strerror}.", kept="The store is unchanged."
        ) from None
    finally:
        store.close().result()


def _list(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        found = store.sessions().result()
    if options.json:
        for info in found:
            print_line(info)
        return 0
    found = [info for info in found if not info.is_record]
    if not found:
        print(f"No sessions in {store.url}.")
        return 0
    wide = max(len(info.name) for info in found)
    for info in found:
        print(clean(f"{info.name:<{wide}}  {date_text(info.updated)}  {info.length:>5} messages{_held(info)}"))
    return 0


def _show(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        session = Session(options.name, store)
        messages = session.load_sync()
        runs = store.runs(options.name).result()
        late = {run.run_id: late_outcomes(store.rows(options.name, run.run_id, marks=True).result()) for run in runs}
    if options.json:
        told = [{"record": run, "late": late[run.run_id]} for run in runs]
        print_line({"session": options.name, "runs": told, "messages": messages, "damage": session.damage})
        return 0
    for run in runs:
        print(clean(_run_line(run)))
        for outcome in late[run.run_id]:
            print(clean(late_line(outcome)))
    for message in messages:
        print()
        print(clean(_plain(message)))
    if session.damage:
        print(f"\nDAMAGED from here on. {session.damage} `quiesce sessions repair` keeps the part above.")
    return 0


def _export(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        lines = list(export_session(store, options.name))
        if options.output is not None:
            options.output.write_bytes(b"".join(lines))
            return 0
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()
    return 0


def _import(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        data = sys.stdin.buffer.read() if options.file is None else options.file.read_bytes()
        name = import_session(store, data.splitlines(), name=options.name)
    tell(options, f"Imported {name!r}.", {"imported": name})
    return 0


def _backup(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        file = str(back_up(store, options.target))
    tell(options, file, {"file": file})
    return 0


def _repair(options: argparse.Namespace) -> int:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    file = options.output or Path(f"{quote(options.name, safe=' @')}.damaged-{stamp}.jsonl")

    def keep(lines: list[bytes]) -> None:
        with file.open("xb") as copy:
            copy.writelines(line + b"\n" for line in lines)

    with _opened(options) as store:
        repaired = repair_session(store, options.name, keep)
    if repaired is None:
        tell(options, f"Nothing is wrong with {options.name!r}.", {"session": options.name, "damage": None})
        return 0
    rest = f"what was cut away ({len(repaired.cut)}) is in {file}" if repaired.cut else "nothing was cut away"
    tell(
        options,
        f"{repaired.damage}\nRepaired {options.name!r}: {repaired.kept} messages are kept; {rest}.",
        {
            "session": options.name,
            "damage": str(repaired.damage),
            "kept": repaired.kept,
            "file": str(file) if repaired.cut else None,
        },
    )
    return 0


def _delete(options: argparse.Namespace) -> int:
    with _opened(options) as store:
        store.delete(options.name).result()
    tell(options, f"Deleted {options.name!r}.", {"deleted": options.name})
    return 0


# --- Text -----------------------------------------------------------------------------------------------------------


def _held(info: SessionInfo) -> str:
    return f"  in use by {info.holder}" if info.holder is not None and info.expires_in > 0 else ""


def _run_line(run: RunRecord) -> str:
    what = run.status if run.status != "ended" else run.reason
    return f"run {run.run_id}  {date_text(run.started)}  {run.agent}: {what}"


def _plain(message: Message) -> str:
    match message:
        case UserMessage(content):
            return "user:      " + " ".join(_part(part) for part in content)
        case AssistantMessage(content):
            return "assistant: " + " ".join(_part(part) for part in content)
        case ToolMessage(results):
            return "\n".join(f"tool:      {each.name} ({each.outcome}): {each.text}" for each in results)


def _part(part: object) -> str:
    match part:
        case Text(text) | CutNote(text):
            return text
        case Reasoning(text):
            return f"[thinks: {text}]"
        case ToolCall(name=name, arguments=arguments):
            return f"[calls {name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"
        case ProviderPart(provider, kind):
            return f"[{provider}: {kind}]"
        case _:
            return f"[{type(part).__name__.lower()}]"
