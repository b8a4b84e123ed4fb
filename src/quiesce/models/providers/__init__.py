"""One file per provider."""
