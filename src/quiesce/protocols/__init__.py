"""Agents behind protocols of other programs."""
