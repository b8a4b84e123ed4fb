"""Agents in and against real programs, each with a stop in the middle. `make proof` installs them and runs this."""
