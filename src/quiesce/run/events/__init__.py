"""The events of a run on their way to its readers."""
