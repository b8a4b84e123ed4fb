"""Tools: functions that a model may call, and how each is stopped."""
