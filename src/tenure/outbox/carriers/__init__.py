"""What an attempt does, one file for each kind of endpoint.

`naming` says which kinds there are and what their address may be; `model` is what a
carrier is handed and what it answers. A carrier carries one message once: retries,
evidence and what an answer means belong to the delivery, whatever the kind.
"""
