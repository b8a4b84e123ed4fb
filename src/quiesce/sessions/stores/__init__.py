"""The stores that come with Quiesce: memory, SQLite and Postgres."""
