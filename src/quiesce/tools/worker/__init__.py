"""Tools in worker processes, which can be killed."""
