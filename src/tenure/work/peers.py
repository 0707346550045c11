"""Which other nodes are dead, as far as one node can tell. Pure; one thread's.

Theory. Clocks of different machines are never compared. A peer is silent when its beat
*number* did not move for 40 s of this node's own clock, while every beat of this node
succeeded, in time, on the same server. An outage, a failover, or a machine that slept
breaks that chain, and the watch starts anew: so nobody is killed by a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.ids import NodeId
    from tenure.store.nodes import NodeRow

__all__ = ["Peers", "Silent"]

GAP_BEATS: Final = 3
"""Beats that this node may miss before what it saw of others counts no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A peer to close, if its beat still has this number."""

    node: NodeId
    beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    beat: int
    since: float


class Peers:
    """What one node saw of the others since its own beats last failed."""

    __slots__ = ("_beat_seconds", "_dead_after", "_last", "_seen", "_server")

    def __init__(self, *, beat_seconds: float, dead_after: float) -> None:
        self._beat_seconds: Final = beat_seconds
        self._dead_after: Final = dead_after
        self._seen: dict[NodeId, _Seen] = {}
        self._last: float | None = None
        self._server: str | None = None

    def failed(self) -> None:
        """Forget everything: a beat of this node did not succeed."""
        self._seen.clear()
        self._last = None

    def beaten(
        self, others: Sequence[NodeRow], *, server: str, now: float
    ) -> list[Silent]:
        """Take in what a good beat saw at boottime ``now``; return who is silent."""
        late = self._last is None or now - self._last > GAP_BEATS * self._beat_seconds
        if late or server != self._server:
            self._seen.clear()
        self._last, self._server = now, server
        seen: dict[NodeId, _Seen] = {}
        silent: list[Silent] = []
        for other in others:
            before = self._seen.get(other.id)
            if before is None or before.beat != other.beat:
                seen[other.id] = _Seen(beat=other.beat, since=now)
                continue
            seen[other.id] = before
            if now - before.since >= self._dead_after:
                silent.append(Silent(node=other.id, beat=other.beat))
        self._seen = seen
        return silent
