"""Decisions without I/O: what each verb does to a work row, and what must stay true.

Nothing here reads a clock, a database, a socket or a random number. The store locks
rows, asks `tenure.kernel.transitions`, and writes back what it says; the property tests
ask the same functions without a database.
"""
