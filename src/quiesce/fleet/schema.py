"""The tables of a fleet. A migration, once released, is never changed: a new version is a new entry at the end.

Workers of the version before go on while a newer one migrates: a migration only adds tables, and columns with defaults.
"""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE quiesce_fleet_runs (
            id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, label TEXT,
            kind TEXT NOT NULL, given BYTEA NOT NULL, timeout DOUBLE PRECISION, state TEXT NOT NULL DEFAULT 'queued',
            created DOUBLE PRECISION NOT NULL, started DOUBLE PRECISION, ended DOUBLE PRECISION,
            job BIGINT NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '', attempt BIGINT NOT NULL DEFAULT 0,
            reason TEXT NOT NULL DEFAULT '', detail BYTEA NOT NULL DEFAULT 'null'::bytea,
            on_worker_loss TEXT NOT NULL, continued_from TEXT NOT NULL DEFAULT '',
            restarted_as TEXT NOT NULL DEFAULT '', losses BIGINT NOT NULL DEFAULT 0, idempotency_key TEXT,
            fingerprint BYTEA NOT NULL DEFAULT ''::bytea, stop TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX quiesce_fleet_active ON quiesce_fleet_runs (session) WHERE state IN ('queued', 'running')",
        "CREATE INDEX quiesce_fleet_of_owner ON quiesce_fleet_runs (owner, created)",
        """CREATE UNIQUE INDEX quiesce_fleet_keys ON quiesce_fleet_runs (owner, idempotency_key)
            WHERE idempotency_key IS NOT NULL""",
        """CREATE TABLE quiesce_fleet_commands (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run TEXT NOT NULL, kind TEXT NOT NULL,
            body BYTEA NOT NULL, created DOUBLE PRECISION NOT NULL, delivered DOUBLE PRECISION,
            took BOOLEAN NOT NULL DEFAULT false)""",
        "CREATE INDEX quiesce_fleet_undelivered ON quiesce_fleet_commands (run) WHERE delivered IS NULL",
        """CREATE TABLE quiesce_fleet_workers (
            id TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, pid BIGINT NOT NULL, agents TEXT[] NOT NULL,
            capacity BIGINT NOT NULL, started DOUBLE PRECISION NOT NULL, heartbeat DOUBLE PRECISION NOT NULL,
            lease DOUBLE PRECISION NOT NULL, draining BOOLEAN NOT NULL DEFAULT false)""",
    ),
    (
        """CREATE TABLE quiesce_fleet_freezes (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, agent TEXT NOT NULL, reason TEXT NOT NULL,
            frozen_by TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, released DOUBLE PRECISION,
            released_by TEXT NOT NULL DEFAULT '', release_reason TEXT NOT NULL DEFAULT '')""",
        "CREATE UNIQUE INDEX quiesce_fleet_frozen ON quiesce_fleet_freezes (agent) WHERE released IS NULL",
    ),
    (
        """CREATE TABLE quiesce_fleet_caps (
            owner TEXT NOT NULL, agent TEXT NOT NULL, runs BIGINT, tokens BIGINT, cost NUMERIC, run_tokens BIGINT,
            run_cost NUMERIC, PRIMARY KEY (owner, agent))""",
        """CREATE TABLE quiesce_fleet_usage (
            day DATE NOT NULL, owner TEXT NOT NULL, agent TEXT NOT NULL, runs BIGINT NOT NULL, tokens BIGINT NOT NULL,
            cost NUMERIC NOT NULL, PRIMARY KEY (day, owner, agent))""",
        "ALTER TABLE quiesce_fleet_runs ADD COLUMN reserved_tokens BIGINT, ADD COLUMN reserved_cost NUMERIC",
    ),
    (
        """CREATE TABLE quiesce_fleet_webhooks (
            id TEXT NOT NULL PRIMARY KEY, url TEXT NOT NULL, secret TEXT NOT NULL, events TEXT[] NOT NULL,
            owner TEXT NOT NULL, agent TEXT NOT NULL, private BOOLEAN NOT NULL, created DOUBLE PRECISION NOT NULL,
            disabled DOUBLE PRECISION)""",
        """CREATE TABLE quiesce_fleet_deliveries (
            id TEXT NOT NULL PRIMARY KEY, webhook TEXT NOT NULL, run TEXT NOT NULL, event TEXT NOT NULL,
            body BYTEA NOT NULL, created DOUBLE PRECISION NOT NULL, due DOUBLE PRECISION NOT NULL,
            attempts BIGINT NOT NULL DEFAULT 0, delivered DOUBLE PRECISION, failed DOUBLE PRECISION,
            answer TEXT NOT NULL DEFAULT '')""",
        """CREATE INDEX quiesce_fleet_due ON quiesce_fleet_deliveries (due)
            WHERE delivered IS NULL AND failed IS NULL""",
        "CREATE INDEX quiesce_fleet_of_webhook ON quiesce_fleet_deliveries (webhook, created)",
    ),
    (
        "ALTER TABLE quiesce_fleet_runs ADD COLUMN version TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE quiesce_fleet_workers ADD COLUMN versions TEXT[] NOT NULL DEFAULT '{}'",
        """CREATE INDEX quiesce_fleet_of_version ON quiesce_fleet_runs (agent)
            WHERE state = 'queued' AND version <> ''""",
    ),
    ("ALTER TABLE quiesce_fleet_workers ADD COLUMN lost BOOLEAN NOT NULL DEFAULT false",),
)

NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
"""The server's clock: those of many machines differ."""
