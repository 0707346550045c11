"""Route tables: an application's endpoints as a node remembers them.

A table belongs to one `config_version` of its application. Every accept reads that
version from the database, so a table is either exactly the one of its version or newer,
never stale; a version that was not remembered is read again in the same transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from tenure.limits import ROUTE_TABLES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.ids import AppId, EndpointId, LaneId
    from tenure.outbox.filters import EndpointFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One endpoint of a table: its lane, and what it wants to hear."""

    endpoint: EndpointId
    lane: LaneId
    filter: EndpointFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """All endpoints of an application that are not deleted, by id."""

    app: AppId
    version: int
    routes: tuple[Route, ...]


class Routes:
    """The tables that one node remembers; the least recently used one goes first.

    Safe to use from several threads.
    """

    __slots__ = ("_lock", "_max", "_tables")

    def __init__(self, count_max: int = ROUTE_TABLES_MAX) -> None:
        self._max: Final = count_max
        self._tables: Final[OrderedDict[str, RouteTable]] = OrderedDict()
        self._lock: Final = Lock()

    def get(self, app: str, version: int) -> RouteTable | None:
        """Return the table of exactly this version, None when it is not remembered."""
        with self._lock:
            table = self._tables.get(app)
            if table is None or table.version != version:
                return None
            self._tables.move_to_end(app)
            return table

    def keep(self, tables: Iterable[RouteTable]) -> None:
        """Remember tables that a committed transaction read; the newer version wins."""
        with self._lock:
            for table in tables:
                known = self._tables.get(table.app)
                if known is None or known.version <= table.version:
                    self._tables[table.app] = table
                    self._tables.move_to_end(table.app)
            while len(self._tables) > self._max:
                self._tables.popitem(last=False)
