"""The beats of a node: a thread with a connection of its own that says "I am here".

It depends neither on the event loop nor on the pool that the loop uses, so that a busy
loop is not taken for a dead node; it carries the loop's tick, so that a dead loop is not
taken for a living one. After each good beat it compares claims in memory with those in
the database, judges the other nodes, and takes back what dead ones held.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.errors import Unavailable
from tenure.store import nodes
from tenure.store.claims import CERTAIN, SILENCE, SweepRule, reconcile, sweep
from tenure.store.claims.sweeping import SWEEP_ROWS
from tenure.telemetry.events import Event
from tenure.work.filelock import LockState, probe, remove_free
from tenure.work.pauses import Point
from tenure.work.peers import Peers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.clock import Clock
    from tenure.ids import NodeId, WorkId
    from tenure.limits import Durations
    from tenure.store.backend import Backend
    from tenure.store.claims import LostRow, Reconciled
    from tenure.store.nodes import Beat, NodeRow
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events
    from tenure.work.loop import Incarnation, WorkerLoop
    from tenure.work.pauses import Pauses

__all__ = ["Beats"]

NEVER_US: Final = 1 << 60
STALLED_BEATS: Final = 3
"""Beats with one and the same tick after which the loop counts as stalled."""
STILL_BEATS: Final = 2
"""What one beat may add, in beats, to the time for which the tick stood still: a thread
that was stopped itself, or could not reach the database, has watched nobody meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    beat: Beat
    server: str


class Beats:
    """Beats for the incarnation that the worker loop has just now.

    ``reopen`` opens and returns a new one after this one was found closed, or None when
    the node is stopping; it is called on this thread.
    """

    def __init__(
        self,
        backend: Backend,
        loop: WorkerLoop,
        *,
        reopen: Callable[[], Incarnation | None],
        host: Callable[[], str],
        clock: Clock,
        durations: Durations,
        events: Events,
        pauses: Pauses,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._backend: Final = backend
        self._loop: Final = loop
        self._reopen: Final = reopen
        self._host: Final = host
        self._clock: Final = clock
        self._durations: Final = durations
        self._events: Final = events
        self._pauses: Final = pauses
        self._post: Final = post
        self._peers: Final = Peers(
            beat_seconds=durations.beat_seconds,
            dead_after=durations.dead_after_seconds,
        )
        self._rule: Final = SweepRule(
            short_deadline_us=round(durations.short_deadline_seconds * US),
            stall_grace_us=round(durations.stall_grace_seconds * US),
            backoff_us=round(durations.suspect_backoff_seconds * US),
        )
        self._stopping: Final = threading.Event()
        self._nudged: Final = threading.Event()
        self._thread: Final = threading.Thread(
            target=self._run, name="tenure-beats", daemon=True
        )
        self._others: Sequence[NodeRow] = ()
        self._first = True
        self._failing: str | None = None
        self._tick = -1
        self._same_ticks = 0
        self._still = 0.0
        self._watched = 0.0
        self._unheld: dict[tuple[WorkId, int], float] = {}
        self.count = 0
        """Good beats so far."""
        self.ended = 0
        """How many of them have also done what goes with a beat."""

    def start(self) -> None:
        """Begin to beat, at once and then every beat interval."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Beat no more; return when the thread has ended, or after ``seconds``.

        Not from an event loop. A beat that hangs on the database is left behind.
        """
        self._stopping.set()
        self._nudged.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def nudge(self) -> None:
        """Beat now instead of when it is due."""
        self._nudged.set()

    @property
    def stalled(self) -> bool:
        """Whether the loop's tick stood still over the last beats."""
        return self._same_ticks >= STALLED_BEATS

    @property
    def failing(self) -> str | None:
        """Why the last beat failed, or what goes with it; None when it did not."""
        return self._failing

    # --- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        due, nudged = self._clock.monotonic(), False
        while not self._stopping.is_set():
            self._nudged.clear()
            now = self._clock.monotonic()
            try:
                if nudged or now >= due:
                    due = now + self._durations.beat_seconds
                    self.beat()
                else:
                    self._check_locks()
            except Exception as error:  # noqa: BLE001 - the thread outlives what it met
                self._failed(error)
            left = max(0.0, due - self._clock.monotonic())
            check = self._durations.file_lock_check_seconds
            nudged = self._nudged.wait(min(left, check))

    def _failed(self, error: BaseException) -> None:
        self._peers.failed()
        self._unheld.clear()
        told, self._failing = self._failing is not None, str(error)
        if not told:
            known = isinstance(error, Unavailable)
            self._events.tell(
                Event.BEAT_FAILED, error=None if known else error, why=str(error)
            )

    def beat(self) -> None:
        """Beat once, and do what goes with it. Raises what the database raises."""
        current = self._loop.incarnation
        if current is None:
            return
        tick = self._loop.tick
        still, watched = self._stood_still(tick), self._clock.monotonic()
        sent = current.fence.sending()
        answer = self._backend.write_blocking(
            partial(_beat, node=current.node, tick=tick, still_us=round(still * US))
        )
        if answer.beat.beat is None:
            self._closed(current)
            return
        current.fence.renew(sent)
        self.count += 1
        self._still, self._watched = still, watched
        self._watch_tick(tick)
        self._others = answer.beat.others
        self._reconcile(current)
        silent = self._peers.beaten(
            answer.beat.others, server=answer.server, now=self._clock.boottime()
        )
        closed = self._check_locks(sweep_too=False)
        for peer in silent:
            if self._close(peer.node, SILENCE, if_beat=peer.beat):
                closed += 1
                self._tidy(peer.node)
        first, self._first = self._first, False
        lowest = all(current.node < other.id for other in self._others)
        if closed or first or lowest:
            self._sweep()
        self._failing = None
        self.ended = self.count

    def _closed(self, current: Incarnation) -> None:
        current.fence.shut("closed by another node")
        self._peers.failed()
        self._unheld.clear()
        self._events.tell(Event.NODE_CLOSED_BY_OTHERS, node=current.node)
        opened = self._reopen()
        if opened is not None:
            self._loop.incarnation = opened
            self._first = True
            self._loop.signal.wake_soon()
            self._nudged.set()

    def _stood_still(self, tick: int) -> float:
        """Return for how long this thread has seen the tick stand still, in seconds."""
        if tick != self._tick:
            return 0.0
        passed = self._clock.monotonic() - self._watched
        return self._still + min(passed, STILL_BEATS * self._durations.beat_seconds)

    def _watch_tick(self, tick: int) -> None:
        same = tick == self._tick and self._loop.open
        self._same_ticks = self._same_ticks + 1 if same else 0
        self._tick = tick
        if self._same_ticks == STALLED_BEATS:
            self._events.tell(Event.STALLED, tick=tick)

    # --- claims: memory and database -------------------------------------------------

    def _reconcile(self, current: Incarnation) -> None:
        age = self._durations.reconcile_age_seconds
        # Two beats must find a claim; a nudged one that follows at once is the same one.
        began = self._clock.monotonic()
        apart = self._durations.beat_seconds / 2
        unheld_before = {
            claim for claim, since in self._unheld.items() if began - since >= apart
        }

        def compare(tx: Tx) -> Reconciled:
            # The clock is read before memory is looked at: a claim that is not in this
            # snapshot of memory because it came later is younger than this instant.
            _ = tx.now
            self._pauses.at_blocking(Point.RECONCILE, node=current.node)
            before = self._loop.claiming_since
            held = self._loop.held_by(current.node)
            after = self._loop.claiming_since
            # A node that has stopped may have let go of claims that had begun.
            old = self._stopping.is_set() or any(
                since is not None and self._clock.monotonic() - since > age / 2
                for since in (before, after)
            )
            return reconcile(
                tx,
                current.node,
                held,
                NEVER_US if old else round(age * US),
                unheld_before=unheld_before,
            )

        found = self._backend.write_blocking(compare)
        self._unheld = {claim: self._unheld.get(claim, began) for claim in found.unheld}
        if found.released or found.gone or found.cancel:
            self._post(partial(self._loop.reconciled, found))

    # --- other nodes -----------------------------------------------------------------

    def _check_locks(self, *, sweep_too: bool = True) -> int:
        """Close peers of this host whose lock is free; return how many."""
        closed = 0
        gone: set[NodeId] = set()
        for other in self._others:
            if other.host != self._host() or other.lock_path is None:
                continue
            if probe(Path(other.lock_path)) is LockState.FREE:
                closed += self._close(other.id, CERTAIN, if_beat=None)
                self._tidy(other.id)
                gone.add(other.id)
        if gone:
            self._others = [other for other in self._others if other.id not in gone]
        if closed and sweep_too:
            self._sweep()
        return closed

    def _tidy(self, node: NodeId) -> None:
        """Remove the lock file that a closed peer left behind, unless it holds it."""
        for other in self._others:
            if other.id == node and other.lock_path is not None:
                remove_free(Path(other.lock_path))

    def _close(self, node: NodeId, why: str, *, if_beat: int | None) -> int:
        def close(tx: Tx) -> bool:
            return nodes.close_node(tx, node, why, if_beat=if_beat)

        closed = self._backend.write_blocking(close)
        if closed:
            self._events.tell(Event.PEER_CLOSED, node=node, why=why)
        return int(closed)

    def _sweep(self) -> None:
        while not self._stopping.is_set():
            taken = self._backend.write_blocking(self._sweep_once)
            if taken:
                states = sorted({str(row.state) for row in taken})
                self._events.tell(Event.SWEPT, rows=len(taken), now=states)
                self._loop.signal.wake_soon()
            if len(taken) < SWEEP_ROWS:
                return

    def _sweep_once(self, tx: Tx) -> list[LostRow]:
        return sweep(tx, self._rule)


def _beat(tx: Tx, *, node: NodeId, tick: int, still_us: int) -> _Answer:
    beaten = nodes.beat(tx, node, tick=tick, still_us=still_us)
    server = "sqlite"
    if tx.dialect == "postgresql":
        server = str(tx.scalar("SELECT CAST(pg_postmaster_start_time() AS text)"))
    return _Answer(beat=beaten, server=server)
