"""For tests of agents: scripted models, virtual time, the injector and the invariant checks."""
