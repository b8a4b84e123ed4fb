"""How threads and event loops wait for each other."""
