"""One run of an agent: its state, its loop, how it settles, and the handle that callers hold."""
