"""T7: what an idle node asks of its database, with one lane and with ten thousand.

PostgreSQL counts in its own log, so nothing that the node sends can be missed; SQLite
counts in a trace of every connection. Beats are left out: they go over a connection of
their own, once in 5 s. The statement that opens a transaction with its settings counts,
BEGIN and COMMIT are shown apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from sqlite3 import dbapi2
from typing import Any, Final

from benchmarks.databases import SHOWN, Dialect
from benchmarks.figures import Figure, Result
from benchmarks.node import Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run

LANES: Final = (1, 10_000)
_LOGGED: Final = re.compile(
    r"^(\d+) (\S+) LOG: +(?:statement|execute [^:]*):\s*(.*)$", re.MULTILINE
)
_BOUNDS: Final = ("BEGIN", "COMMIT", "ROLLBACK")
_BEAT: Final = re.compile(r"UPDATE node\b")


class Traced(Node):
    """A node that notes every statement of SQLite, with the thread that ran it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    async def trace(self) -> None:
        """Trace the connections that are opened from now on."""
        plain = dbapi2.connect

        def connect(*args: Any, **kwargs: Any) -> Any:
            connection = plain(*args, **kwargs)
            connection.set_trace_callback(self._note)
            return connection

        dbapi2.connect = connect

    def _note(self, text: str) -> None:
        self.seen.append((threading.current_thread().name, text))

    async def forget(self) -> None:
        """Begin to count."""
        self.seen.clear()

    async def said(self) -> list[tuple[str, str]]:
        """Return (thread, statement) in order."""
        return self.seen


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        if dialect == "postgresql" and given.databases.server.log is None:
            result.notes.append("T7 on PostgreSQL needs the log of a server of our own")
            continue
        for count in LANES:
            result.add(await _one(given, dialect, count))
    return result


async def _one(given: Run, dialect: Dialect, count: int) -> Result:
    seconds = given.pick(tiny=1.5, quick=5.0, full=30.0)
    url = await given.databases.fresh(dialect)
    async with child(Traced) as node, _logging(given, dialect):
        if dialect == "sqlite":
            await node.call("trace")
        await node.call("open", url, settings=dict(given.settings))
        await node.call("load_lanes", count)
        # The poll after the load, and what each new connection asks once.
        await asyncio.sleep(given.pick(tiny=1.2, quick=4.0, full=10.0))
        await node.call("forget")
        offset = _size(given)
        first = await node.call("tick")
        await asyncio.sleep(seconds)
        polls = await node.call("tick") - first
        said = await _said(given, dialect, node, url, offset)
    bounds = sum(text.startswith(_BOUNDS) for text in said)
    others = [text for text in said if not text.startswith(_BOUNDS)]
    each = len(others) / max(1, polls)
    result = Result()
    result.figures.append(
        Figure(
            mark="T7",
            what=f"statements per poll, {count:,} lanes, {SHOWN[dialect]}",
            measured=f"{each:.1f} in {polls} polls of {seconds:g} s;"
            f" BEGIN and COMMIT {bounds / max(1, polls):.1f}",
            ratio=each,
            at_most=2,
        )
    )
    counted = Counter(" ".join(text.split())[:70] for text in others)
    shown = "; ".join(f"{n} of `{text}`" for text, n in counted.most_common(8))
    result.notes.append(f"T7, {count:,} lanes, {SHOWN[dialect]}: {shown}")
    return result


@contextlib.asynccontextmanager
async def _logging(given: Run, dialect: Dialect) -> AsyncGenerator[None]:
    if dialect == "sqlite":
        yield
        return
    settings = {"log_statement": "'all'", "log_line_prefix": "'%p %d '"}
    server = given.databases.server
    for name, value in settings.items():
        await server.run(f"ALTER SYSTEM SET {name} = {value}")
    await server.run("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        for name in settings:
            await server.run(f"ALTER SYSTEM RESET {name}")
        await server.run("SELECT pg_reload_conf()")


def _size(given: Run) -> int:
    log = given.databases.server.log
    return 0 if log is None else log.stat().st_size


async def _said(
    given: Run, dialect: Dialect, node: Child, url: str, offset: int
) -> list[str]:
    """Return the statements of the node since `offset`, but those of its beats."""
    if dialect == "sqlite":
        said: list[tuple[str, str]] = await node.call("said")
        who = said
    else:
        log = given.databases.server.log
        assert log is not None
        text = log.read_bytes()[offset:].decode("utf-8", "replace")
        name = url.partition("?")[0].rpartition("/")[2]
        who = [
            (pid, what) for pid, where, what in _LOGGED.findall(text) if where == name
        ]
    beats = {source for source, text in who if _BEAT.search(text)}
    return [text for source, text in who if source not in beats]
