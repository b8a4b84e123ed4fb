"""Undo: what each tool registers, and the log of what a run did."""
