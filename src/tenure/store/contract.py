"""The door to a database: who may run a function over a `Tx`, and when it runs again.

`write` is one transaction of its own, retried with jitter when the database says that
somebody else was in the way; `read` sees one snapshot and writes nothing. The blocking
pair is for threads (a node's beat, synchronous callers): it has a connection of its own
and never waits for the event loop.

What may be retried by whom::

    nothing was committed   40001 40P01 55P03 BUSY    here, with jitter, bounded
    nothing was committed   connection lost before    here, once, on a new connection
                            COMMIT was sent
    unknown                 connection lost after     CommitUnknown: only the caller can
                            COMMIT was sent           ask again, with the same ids
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from tenure.clock import Clock, SystemClock
from tenure.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import URL

    from tenure.store.tx import Dialect, Tx

__all__ = ["Backend", "BackendSettings", "CommitUnknown", "RowsLocked"]

T = TypeVar("T")


class CommitUnknown(DatabaseUnavailable):
    """The connection was lost after COMMIT was sent: it may have happened or not.

    Ask again with the same ids; rows that exist then are the answer.
    """


class RowsLocked(DatabaseUnavailable):
    """Somebody else held a row too long, or won a deadlock; nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """What a deployment may choose about its database."""

    clock: Clock = field(default_factory=SystemClock)
    """Tells the time on SQLite; PostgreSQL tells its own unless `server_time` is off."""
    server_time: bool = True
    """False lets `clock` tell the time on PostgreSQL too. Only for tests that set their
    clock and are the database's only node: machines that share one need its time."""
    clock_offset_us: int = 0
    """Added to every `Tx.now`: lets a test move a database's time."""
    synchronous: Literal["full", "normal"] = "full"
    """SQLite's own word; "normal" may lose the last commits at a power cut."""


class Backend(Protocol):
    """One database, as one process sees it."""

    clock_offset_us: int

    @property
    def dialect(self) -> Dialect:
        """Which SQL it speaks."""
        ...

    @property
    def url(self) -> URL:
        """Where it is; the password is in it."""
        ...

    async def open(self) -> None:
        """Connect once, so that a wrong address is known at start.

        Raises DatabaseUnavailable when nobody answers, ConfigInvalid for a database
        that cannot be used.
        """
        ...

    async def aclose(self) -> None:
        """Let running transactions end, then close every connection."""
        ...

    async def migrate(self, *, post: bool = False) -> list[str]:
        """Bring the schema up to date; return the revisions that were applied.

        The pre phase only unless `post`. Raises SchemaTooNew for a database whose
        revision this release does not know.
        """
        ...

    async def write(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """Run `fn` in a transaction and commit it; return what it returned.

        `fn` may run several times unless `retry` is False. Raises DatabaseUnavailable
        when the database cannot be reached, RowsLocked when others stay in the way (at
        the first time without `retry`), CommitUnknown when it may have committed, and
        whatever `fn` raises (then nothing is committed).
        """
        ...

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` over one snapshot that it cannot write to."""
        ...

    def write_blocking(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """As `write`, for a thread that has no event loop."""
        ...

    def read_blocking(self, fn: Callable[[Tx], T]) -> T:
        """As `read`, for a thread that has no event loop."""
        ...
