"""Work in processes of its own, which can be ended for certain.

`nursery.py` is a small program that forks; `keeper.py` is what each fork becomes: the parent that everything which a
tool starts falls back to, so that "nothing is left" can be proved; `worker.py` runs functions under a keeper, with
`surroundings.py` and `outputs.py` around them; `reaper.py` finds and ends processes. `containment.py`,
`workers.py` and `worker_call.py` are the side that stays in the host.
"""
