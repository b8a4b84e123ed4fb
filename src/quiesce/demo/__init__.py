"""`make demo`: watch an agent being stopped, with no key and no network."""
