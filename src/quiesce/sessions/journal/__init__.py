"""The journal of a run: what happened, saved before readers see it, and recovery after a crash."""
