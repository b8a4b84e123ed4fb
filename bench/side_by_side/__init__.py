"""Twelve everyday programs in four frameworks, run and counted: `make side-by-side`. The page: docs/side_by_side.md."""
