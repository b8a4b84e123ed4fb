"""The tables of a newer version, while programs of the version before still run."""

from __future__ import annotations

import pytest

from quiesce import Agent
from quiesce.errors import StoreError
from quiesce.sessions import Session
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores import postgres_database, schema, sqlite_file
from quiesce.testing import Say, ScriptedModel

from .conftest import StoreMaker

pytestmark = pytest.mark.promise("P9")
in_both = pytest.mark.parametrize("new_store", ["sqlite", "postgres"], indirect=True)

KNOWN = len(schema.SQLITE_MIGRATIONS)

ADDITIONS = (
    "CREATE TABLE {}notes (text TEXT NOT NULL)",
    "ALTER TABLE {}messages ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE {}journal ADD COLUMN note TEXT NOT NULL DEFAULT ''",
)


def migrate(new_store: StoreMaker, readable_from: int) -> None:
    """A program of the next version uses the store: its migration adds a table and two columns."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, prefix in (
            (sqlite_file, "SQLITE_MIGRATIONS", ""),
            (postgres_database, "POSTGRES_MIGRATIONS", "quiesce_"),
        ):
            added = tuple(text.format(prefix) for text in ADDITIONS)
            patch.setattr(module, name, (*getattr(schema, name), added))
            patch.setattr(module, "READABLE_FROM", readable_from)
        new_store().sessions().result()


def prompt(store: SessionStore, text: str) -> None:
    Agent(ScriptedModel([Say("Yes.")]), session=Session("s", store))(text)


@in_both
def test_a_program_of_the_version_before_goes_on_after_a_migration_that_only_adds(new_store: StoreMaker) -> None:
    running = new_store()
    prompt(running, "before")
    migrate(new_store, KNOWN)
    prompt(running, "on the same connection")
    running.close().result()  # its next operation connects again
    prompt(running, "on another one")
    prompt(new_store(), "in a process that has started since")
    assert len(new_store().load("s").result().messages) == 8


@in_both
def test_after_any_other_migration_it_is_refused_in_words(new_store: StoreMaker) -> None:
    running = new_store()
    prompt(running, "before")
    migrate(new_store, KNOWN + 1)
    running.close().result()
    with pytest.raises(StoreError, match=rf"newer Quiesce \(schema {KNOWN + 1}, this one knows {KNOWN}\)"):
        running.sessions().result()


def test_both_databases_have_the_same_versions() -> None:
    assert len(schema.POSTGRES_MIGRATIONS) == KNOWN
    assert schema.READABLE_FROM <= KNOWN
