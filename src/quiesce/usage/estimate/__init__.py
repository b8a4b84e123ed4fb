"""Estimates of tokens: counting, calibration, and the figures of one call."""
