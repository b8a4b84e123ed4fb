"""The soak: many runs at a time for an hour, with stops, steers, approvals and store restarts at random."""
