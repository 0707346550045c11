"""One node: a row that says this process is here, its lock, its beats and its loop.

An incarnation's id is never used again. When others close it (they heard nothing for
40 s, or an operator said so), this process starts nothing more under that id, still
sends the results of what had begun, and goes on under a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from tenure.errors import Unavailable
from tenure.ids import token
from tenure.limits import DRAIN_SETTLE_SECONDS
from tenure.store import nodes
from tenure.store.claims import DRAINED, Walker
from tenure.telemetry.events import Event
from tenure.work.beats import Beats
from tenure.work.fence import Fence
from tenure.work.filelock import FileLock, host_name, lock_path
from tenure.work.loop import Incarnation

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.ids import NodeId
    from tenure.limits import Durations
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events
    from tenure.work.loop import WorkerLoop
    from tenure.work.pauses import Pauses

__all__ = ["Node", "NodeHealth"]

LOCK_TOKEN_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What a health page says of this node; ages in seconds."""

    node: NodeId | None
    state: Literal["starting", "open", "draining", "closed"]
    beat_age: float
    fenced: bool
    stalled: bool
    failing: str | None
    """Why the last beat failed; None when it did not. May name the database's host."""
    held: int
    slots: int

    @property
    def good(self) -> bool:
        """Whether work goes on here: the node is heard, and its loop moves."""
        return self.state == "open" and not self.fenced and not self.stalled


class Node:
    """This process as a member of the fleet. `open`, then `drain`, then `close`."""

    def __init__(
        self,
        backend: Backend,
        loop: WorkerLoop,
        *,
        name: str,
        version: str,
        serves: frozenset[str],
        clock: Clock,
        durations: Durations,
        events: Events,
        pauses: Pauses,
    ) -> None:
        self._backend: Final = backend
        self._loop: Final = loop
        self._name: Final = name
        self._version: Final = version
        self._serves = serves
        self._clock: Final = clock
        self._durations: Final = durations
        self._events: Final = events
        self._host = ""
        self._lock: FileLock | None = None
        self._state: Literal["starting", "open", "draining", "closed"] = "starting"
        running = asyncio.get_running_loop()
        self.beats: Final = Beats(
            backend,
            loop,
            reopen=self._reopen,
            host=lambda: self._host,
            clock=clock,
            durations=durations,
            events=events,
            pauses=pauses,
            post=lambda act: _post(running, act),
        )
        loop.found_closed = self.beats.nudge

    @property
    def id(self) -> NodeId | None:
        """The current incarnation's id."""
        current = self._loop.incarnation
        return None if current is None else current.node

    async def open(self) -> NodeId:
        """Take the lock, write the row, and begin to beat; return the id."""
        self._lock = await asyncio.to_thread(self._take_lock)
        try:
            node = await self._backend.write(self._insert)
        except BaseException:
            await self._give_up_lock(keep_file=False)
            raise
        self._loop.incarnation = self._incarnation(node)
        self._state = "open"
        self._events.tell(Event.NODE_OPENED, node=node, name=self._name)
        self.beats.start()
        return node

    def _take_lock(self) -> FileLock | None:
        self._host = host_name()
        return FileLock.take(
            lock_path(self._backend.dialect, self._backend.url, token(LOCK_TOKEN_BYTES))
        )

    def _insert(self, tx: Tx) -> NodeId:
        return nodes.open_node(
            tx,
            name=self._name,
            host=self._host,
            pid=os.getpid(),
            version=self._version,
            serves=" ".join(sorted(self._serves)),
            lock_path=None if self._lock is None else str(self._lock.path),
        )

    def _incarnation(self, node: NodeId) -> Incarnation:
        return Incarnation(
            node=node,
            fence=Fence(self._clock, self._durations.fence_seconds),
            walker=Walker(node=node, serves=self._serves),
        )

    async def serve(self, serves: frozenset[str]) -> None:
        """Serve lanes that need one of these from now on, and say so in the node's row."""
        if serves == self._serves:
            return
        self._serves = serves
        current = self._loop.incarnation
        if current is None:
            return
        node, text = current.node, " ".join(sorted(serves))
        await self._backend.write(lambda tx: nodes.set_serves(tx, node, text))
        current.walker.serves = serves
        self._loop.signal.wake()

    def _reopen(self) -> Incarnation | None:
        """Open a new incarnation, on the beats' thread; None while stopping."""
        if self._state != "open":
            return None
        node = self._backend.write_blocking(self._insert)
        self._events.tell(Event.NODE_OPENED, node=node, name=self._name)
        return self._incarnation(node)

    async def drain(self) -> None:
        """Say that no new claims are taken; a database that is away is not waited for."""
        if self._state != "open":
            return
        self._state = "draining"
        node = self.id
        if node is not None:
            with contextlib.suppress(Unavailable):
                await self._backend.write(partial(nodes.drain_node, node=node))

    async def close(self, why: str = DRAINED) -> None:
        """Stop beating, close the row, give up the lock. Repeating changes nothing.

        A row that cannot be closed now is closed by others, who find the lock free.
        """
        if self._state == "closed":
            return
        self._state = "closed"
        row_closed = False
        try:
            await asyncio.to_thread(
                self.beats.stop, self._durations.scaled(DRAIN_SETTLE_SECONDS)
            )
            node = self.id
            if node is not None:
                with contextlib.suppress(Unavailable):
                    await self._backend.write(
                        lambda tx: nodes.close_node(tx, node, why)
                    )
                    row_closed = True
                self._events.tell(Event.NODE_CLOSED, node=node, why=why)
        finally:
            await self._give_up_lock(keep_file=not row_closed)

    async def _give_up_lock(self, *, keep_file: bool) -> None:
        if self._lock is not None:
            await asyncio.to_thread(self._lock.release, keep_file=keep_file)

    def health(self) -> NodeHealth:
        """Return what a health page says of this node."""
        current = self._loop.incarnation
        return NodeHealth(
            node=None if current is None else current.node,
            state=self._state,
            beat_age=0.0 if current is None else current.fence.age(),
            fenced=current is None or not current.fence.allows(),
            stalled=self.beats.stalled,
            failing=self.beats.failing,
            held=len(self._loop.hand),
            slots=self._loop.bulkhead.slots,
        )


def _post(loop: asyncio.AbstractEventLoop, act: object) -> None:
    # A loop that has ended holds nothing that could be told.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act)  # pyright: ignore[reportArgumentType]
