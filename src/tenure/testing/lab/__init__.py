"""The crash lab: the promise proven on a machine, with real processes and databases.

`running.run` starts a database, nodes and a receiver of its own in an empty folder,
submits messages, deals faults meanwhile, and counts what arrived. `model.broken` says
which part of the promise the figures do not keep. Nothing is imported here: the
receiver's process needs little of it.
"""
