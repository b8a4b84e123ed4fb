"""The queue of a session that another process holds: waiting for the lease, and prompts for the run that has it."""
