"""Waiting for a session that another process holds, and speaking to the run that holds it."""
