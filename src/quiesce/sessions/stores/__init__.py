"""The stores that come with Quiesce: memory, SQLite and Postgres; and what a store of the user's own needs."""
