"""From a provider's stream to deltas: one decoder per wire format."""
