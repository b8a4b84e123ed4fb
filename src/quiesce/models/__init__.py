"""Models: the protocol, and one file per provider."""
