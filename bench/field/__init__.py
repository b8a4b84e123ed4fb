"""The same stops in other frameworks, in one run: `make field`. What is measured: docs/field.md."""
