"""Every row of the table in docs/performance.md, measured in one go: `python -m bench.rows`."""
