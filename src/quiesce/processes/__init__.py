"""Processes that can be ended for certain, with everything that they start.

`fork_server.py` is a small program that forks; each fork becomes a supervisor (`supervisor.py`), the parent of one
worker or program and of every orphan below it, so that "nothing is left" can be proved. `supervised.py` is the host's
side of a supervisor. `kill_tree.py` finds and ends processes, `stream_end.py` reads and writes their pipes.
Killable tools, programs, MCP servers over stdio and local models all run this way.
"""
