"""Delivery of a run's events to its readers."""
