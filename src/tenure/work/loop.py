"""The one worker loop of a node: claim what can start now, run it, settle it.

Theory. A claim is a promise to try, so the loop claims only what it can start at once:
as many rows as there are free slots, of lanes that may have more. Everything it holds
is in `hand` from before the claim's transaction is over until the result is committed,
so the beats can compare memory with the database at any moment. Wake-ups only shorten
the sleep between two passes; the poll is what correctness rests on.

::

    claim ─► hold ─► load ─► start ─► run ─► settle ─► leave
                       └───────┴── not begun: release ─┘

The loop never ends by itself and never on an error: it says what failed and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tenure.clock import US
from tenure.errors import Unavailable
from tenure.ids import jitter
from tenure.kernel.commands import Answer
from tenure.limits import (
    DRAIN_SETTLE_SECONDS,
    POLL_JITTER,
    RELEASES_WARN,
    SUSPECT_LOSSES,
    WALK_SHARE,
)
from tenure.spawn import Tasks
from tenure.store.claims import ClaimResult, isolate, mingle, release
from tenure.telemetry.events import Event
from tenure.work.attempts import Attempts
from tenure.work.births import Births
from tenure.work.bulkhead import Bulkhead
from tenure.work.held import Held, Stop
from tenure.work.pauses import Point
from tenure.work.settling import Settler
from tenure.work.signals import Broadcast, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.clock import Clock
    from tenure.ids import NodeId, WorkId
    from tenure.limits import Durations
    from tenure.store.backend import Backend
    from tenure.store.claims import Claimed, Reconciled, Walker
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events
    from tenure.work.bulkhead import Offer
    from tenure.work.fence import Fence
    from tenure.work.kinds import Kinds, Loaded
    from tenure.work.pauses import Pauses

__all__ = ["Incarnation", "WorkerLoop"]

WATCHES_PER_BEAT: Final = 5
"""How often fence and deadlines are looked at: a fifth of a beat late at most."""
PAUSE_MIN_SECONDS: Final = 0.001
"""Before a pass for rows that another node is promoting just now."""
BACKOFF_MIN_SECONDS: Final = 0.05
BACKOFF_MAX_SECONDS: Final = 2.0
"""Between two claims while the database is away."""

NOTHING: Final = ClaimResult(claimed=(), hit_bound=False, next_due_at=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """Under which node id claims are taken, and what goes with that id."""

    node: NodeId
    fence: Fence
    walker: Walker


@dataclass(slots=True)
class _Stamp:
    """When a claim's transaction read its clock: monotonic and database time."""

    at: float = 0.0
    now_us: int = 0


class WorkerLoop:
    """Claims, runs and settles for one node. Use it on one event loop.

    ``incarnation`` may be replaced while it runs: what is held under the old one goes
    on under the old one.
    """

    def __init__(
        self,
        backend: Backend,
        kinds: Kinds,
        *,
        slots: int,
        clock: Clock,
        durations: Durations,
        events: Events,
        pauses: Pauses,
    ) -> None:
        self._backend: Final = backend
        self._clock: Final = clock
        self._durations: Final = durations
        self._events: Final = events
        self._pauses: Final = pauses
        self._kinds: Final = kinds
        self._attempts: Final = Attempts(
            backend=backend,
            kinds=kinds,
            clock=clock,
            durations=durations,
            events=events,
            pauses=pauses,
        )
        self._settler: Final = Settler(backend, kinds, clock=clock, events=events)
        self._tasks: Final = Tasks(self._task_failed)
        self._left: Final = Broadcast()
        self._fenced = False
        self._failures = 0
        self._load_apart = False
        self.bulkhead: Final = Bulkhead(
            slots=slots, slow_after=durations.slow_after_seconds
        )
        self.hand: Final[dict[tuple[WorkId, int], Held]] = {}
        self.signal: Final = Signal(clock)
        self.incarnation: Incarnation | None = None
        self.births: Final = Births(self, clock)
        self.at_ease = False
        """Whether the last claim took all that was due, so new work may be born here."""
        self._claiming: float | None = None
        self.open = True
        """False once `close` was called: nothing more is claimed."""
        self.off: str | None = None
        """Why nothing is claimed although the loop runs; None when it claims."""
        self.walked: Callable[[float], None] = lambda _seconds: None
        """Called with how long each claim took, its walk over the lanes included."""
        self.found_closed: Callable[[], None] = lambda: None
        """Called when a claim finds that others have closed this incarnation."""
        self.tick = 0
        """Raised at every pass: what a beat carries to show that the loop lives."""

    # --- life ------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim and run until `close` was called and the last pass has ended."""
        self._settler.start()
        self._tasks.start(self._watch(), name="work.watch")
        while self.open:
            self.tick += 1
            await self.signal.wait(await self._safe_pass())

    def close(self) -> None:
        """Claim nothing more; what is in flight goes on."""
        self.open = self.at_ease = False
        self.signal.wake()

    async def aclose(self) -> None:
        """End everything now; only what is being committed may take a moment."""
        await self._tasks.cancel()
        await self._settler.aclose(self._durations.scaled(DRAIN_SETTLE_SECONDS))

    @property
    def idle(self) -> bool:
        """Whether nothing is held, nor claimed just now by a pass under way."""
        return not self.hand and self.claiming_since is None

    @property
    def claiming_since(self) -> float | None:
        """Monotonic start of a claim that may be committed and is not in `hand` yet."""
        starts = (self._claiming, self.births.since)
        return min((each for each in starts if each is not None), default=None)

    async def wait_for(self, fact: Callable[[], bool], seconds: float) -> bool:
        """Wait for a fact about `hand`; False when ``seconds`` passed before it."""
        until = self._clock.monotonic() + seconds
        while not fact():
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            await self._left.wait(self._clock, left)
        return True

    def look_again(self) -> None:
        """Let whoever waits for a fact look at it again."""
        self._left.tell()

    def held_by(self, node: NodeId) -> list[tuple[WorkId, int]]:
        """Return the claims in memory under a node id; from any thread."""
        return [key for key, held in self.hand.copy().items() if held.node == node]

    def reconciled(self, found: Reconciled) -> None:
        """Act on what a beat found; on the event loop.

        ``gone`` was read a moment ago: what is being settled since then, or has left,
        is not touched.
        """
        ended = 0
        for keys, why in ((found.gone, Stop.GONE), (found.cancel, Stop.CANCELLED)):
            for key in keys:
                held = self.hand.get(key)
                if held is not None and not self.spared(held):
                    ended += held.stop(why)
        if ended or found.released:
            self._left.tell()
            self._events.tell(
                Event.RECONCILED, ended=ended, released=len(found.released)
            )

    def stop(self, why: Stop, *, begun: bool) -> int:
        """End what has not begun, and with ``begun`` also what has; return how many."""
        ended = sum(
            held.stop(why)
            for held in tuple(self.hand.values())
            if begun or not held.begun
        )
        self._left.tell()
        return ended

    def spared(self, held: Held) -> bool:
        """Tell whether an attempt is let finish although its claim is in doubt.

        A delivery whose request has begun: its true outcome still counts.
        """
        kind = self._kinds.get(held.claimed.work.kind)
        return held.begun and kind is not None and kind.late_success

    # --- one pass --------------------------------------------------------------------

    async def _safe_pass(self) -> float:
        try:
            pause = await self._pass()
        except Unavailable as error:
            self._failures += 1
            if self._failures == 1:
                self._events.tell(Event.CLAIM_FAILED, why=str(error))
        except Exception as error:  # noqa: BLE001 - the loop outlives what it met
            self._failures += 1
            self._events.tell(Event.LOOP_FAILED, error=error)
        else:
            self._failures = 0
            return pause
        longest = min(
            BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS * 2 ** min(self._failures, 6)
        )
        return jitter(longest / 2, longest)

    async def _pass(self) -> float:
        """Claim once and hand out; return for how long to sleep."""
        poll = self._durations.poll_max_seconds
        rest = jitter(poll * (1 - POLL_JITTER), poll)
        incarnation, self.at_ease = self.incarnation, self.at_ease and self.off is None
        if self.off is not None or incarnation is None:
            return rest
        if not incarnation.fence.allows():
            return rest
        started = self._clock.monotonic()
        offer = self.bulkhead.offer(started)
        if offer.want <= 0:
            return rest  # whoever leaves wakes the loop
        stamp = _Stamp()
        result, helds, loaded = await self._claim(incarnation, offer, stamp)
        spent = self._clock.monotonic() - started
        self.walked(spent)
        suspects = [h for h in helds if h.claimed.work.losses >= SUSPECT_LOSSES]
        if not self.open:
            await self._give_back(helds)
            return 0.0
        got = len(result.claimed)
        self.at_ease = (
            len(helds) == got < offer.want and not result.hit_bound and not suspects
        )
        if suspects:
            await self._alone(suspects[0], [h for h in helds if h is not suspects[0]])
            return 0.0
        if loaded is not None:
            self._start(helds, loaded)
        elif helds:
            self._tasks.start(self._hand_out(helds), name="work.hand_out")
        if got >= offer.want or (offer.partial and not got):
            return 0.0
        if result.hit_bound:
            return min(rest, spent * (1 / WALK_SHARE - 1))
        if result.next_due_at is None:
            return rest
        due_in = (result.next_due_at - stamp.now_us) / US
        return min(rest, max(due_in, PAUSE_MIN_SECONDS))

    async def _claim(
        self, incarnation: Incarnation, offer: Offer, stamp: _Stamp
    ) -> tuple[ClaimResult, list[Held], Sequence[Loaded] | None]:
        """Claim, and read what the claims need in the same transaction.

        What cannot be read there is left to a transaction of its own (the third value
        is None then), so that a fault of one row never stands before all claims.
        """
        busy = self.bulkhead.busy()
        load, self._load_apart = not self._load_apart, False

        def claim(tx: Tx) -> tuple[ClaimResult, Sequence[Loaded] | None]:
            stamp.at, stamp.now_us = self._clock.monotonic(), tx.now
            result = incarnation.walker.claim(
                tx,
                offer.want,
                busy=busy,
                lane_max=self.bulkhead.lane_max,
                skip=offer.skip,
            )
            if not (load and result.claimed):
                return result, None
            return result, self._attempts.load_claimed(tx, result.claimed)

        self._claiming = self._clock.monotonic()
        try:
            self._load_apart = load  # what fails inside is not tried inside again
            result, loaded = await self._backend.write(claim)
            self._load_apart = False
            if result.node not in {"open", "draining"}:
                # Claims under a closed id would only be taken away again.
                incarnation.fence.shut("closed by another node")
                self.found_closed()
                return NOTHING, [], None
            await self._pauses.at(Point.CLAIMED, claimed=result.claimed)
            return result, *self._seat(result.claimed, loaded, incarnation, stamp)
        finally:
            self._claiming = None
            if not self.open:
                self._left.tell()

    def _seat(
        self,
        claims: Sequence[Claimed],
        loaded: Sequence[Loaded] | None,
        incarnation: Incarnation,
        stamp: _Stamp,
    ) -> tuple[list[Held], Sequence[Loaded] | None]:
        """Hold what was claimed; give back what births have taken the room for."""
        free = self.bulkhead.free
        back: list[Held] = []
        kept: list[Held] = []
        answers: list[Loaded] = []
        for at, claimed in enumerate(claims):
            full = len(kept) >= free or self.bulkhead.full(claimed.work.lane)
            held = self._hold(claimed, incarnation, stamp)
            if full:
                back.append(held)
                continue
            kept.append(held)
            if loaded is not None:
                answers.append(loaded[at])
        if back:
            self._tasks.start(self._give_back(back), name="work.give_back")
        return kept, None if loaded is None else answers

    def receive(
        self,
        incarnation: Incarnation,
        born: Sequence[Claimed],
        loaded: Sequence[Loaded | None],
        *,
        at: float,
        now_us: int,
    ) -> None:
        """Hold what was born as this node's claims, and run it; on the event loop."""
        stamp = _Stamp(at=at, now_us=now_us)
        unloaded: list[Held] = []
        back: list[Held] = []
        for claimed, answer in zip(born, loaded, strict=True):
            full = self.bulkhead.full(claimed.work.lane)
            held = self._hold(claimed, incarnation, stamp)
            if full or not self.open:
                back.append(held)
            elif answer is None:
                unloaded.append(held)
            else:
                self._start([held], [answer])
        if unloaded:
            self._tasks.start(self._hand_out(unloaded), name="work.hand_out")
        if back:
            self._tasks.start(self._give_back(back), name="work.give_back")

    def _hold(self, claimed: Claimed, inc: Incarnation, stamp: _Stamp) -> Held:
        ahead = max(0, claimed.start_at - stamp.now_us) / US
        start = stamp.at + ahead
        length = claimed.deadline_us
        held = Held(
            claimed=_until(claimed, stamp.now_us + round(ahead * US) + length),
            node=inc.node,
            fence=inc.fence,
            clock=self._clock,
            ticket=self.bulkhead.enter(claimed.work.lane, start),
            at=stamp.at,
            now_us=stamp.now_us,
            start=start,
            deadline=start + length / US,
        )
        self.hand[held.key] = held
        if claimed.work.releases >= RELEASES_WARN:
            work, claim = held.key
            self._events.tell(
                Event.RELEASED_OFTEN,
                work=work,
                claim=claim,
                releases=claimed.work.releases,
            )
        return held

    # --- from claim to result --------------------------------------------------------

    async def _hand_out(self, helds: Sequence[Held]) -> None:
        """Load claims and start each one; what cannot be loaded now is given back."""
        try:
            loaded = await self._attempts.load(helds)
        except Unavailable as error:
            self._events.tell(Event.CLAIM_FAILED, why=str(error))
            await self._give_back(helds)
            return
        self._start(helds, loaded)

    def _start(self, helds: Sequence[Held], loaded: Sequence[Loaded]) -> None:
        for held, answer in zip(helds, loaded, strict=True):
            held.task = self._tasks.start(
                self._attempt(held, answer), name="work.attempt"
            )

    async def _attempt(self, held: Held, loaded: Loaded) -> None:
        try:
            ran = await self._attempts.run(held, loaded)
            if ran is None:
                await self._release([held])
                return
            await self._pauses.at(Point.SETTLE, held=held, ran=ran)
            answer = await self._settler.settle(self._attempts.settlement(held, ran))
            self._told(held, answer)
            await self._pauses.at(Point.SETTLED, held=held, answer=answer)
        finally:
            self._leave(held)

    def _told(self, held: Held, answer: Answer) -> None:
        match answer:
            case Answer.APPLIED | Answer.ALREADY:
                return
            case Answer.LOST:
                event = Event.CLAIM_NO_LONGER_HELD
            case Answer.LATE_KEPT:
                event = Event.LATE_SUCCESS_KEPT
        work, claim = held.key
        self._events.tell(event, work=work, claim=claim, lane=held.lane, node=held.node)

    async def _give_back(self, helds: Sequence[Held]) -> None:
        try:
            await self._release(helds)
        finally:
            for held in helds:
                self._leave(held)

    async def _release(self, helds: Sequence[Held]) -> None:
        """Give back claims that were not begun.

        While the database is away nothing is kept: the next beats find claims that only
        the database knows, and release those.
        """
        by_node: dict[NodeId, list[tuple[WorkId, int]]] = {}
        for held in helds:
            held.settling = True
            by_node.setdefault(held.node, []).append(held.key)
        for node, keys in by_node.items():

            def give_back(
                tx: Tx, node: NodeId = node, keys: list[tuple[WorkId, int]] = keys
            ) -> int:
                return release(tx, node, keys)

            try:
                await self._backend.write(give_back)
            except Unavailable as error:
                self._events.tell(Event.CLAIM_FAILED, why=str(error), node=node)

    def _leave(self, held: Held) -> None:
        if self.hand.pop(held.key, None) is None:
            return
        self.bulkhead.leave(held.lane, held.ticket, self._clock.monotonic())
        self._left.tell()
        # Its slot is free, and so is its place in a lane with a limit.
        self.signal.wake()

    # --- suspects --------------------------------------------------------------------

    async def _alone(self, suspect: Held, others: Sequence[Held]) -> None:
        """Run a row that killed its holders twice with nothing beside it.

        What else this claim brought is given back; what is in flight finishes first.
        The row has this node for itself until it is settled or 10 s have passed.
        """
        if others:
            await self._give_back(others)
        while self._company() and suspect.running and suspect.fence.allows():
            self.tick += 1
            await self.wait_for(
                lambda: not self._company() or not suspect.running,
                self._durations.poll_max_seconds,
            )
        work, claim = suspect.key
        if not suspect.running or not suspect.fence.allows():
            await self._give_back([suspect])
            return
        if not await self._mark(isolate, suspect):
            self._leave(suspect)
            return
        self._events.tell(
            Event.SUSPECT, work=work, claim=claim, losses=suspect.claimed.work.losses
        )
        suspect.restart()
        await self._hand_out([suspect])
        until = self._clock.monotonic() + self._durations.suspect_alone_seconds
        while suspect.key in self.hand:
            self.tick += 1
            left = until - self._clock.monotonic()
            if left <= 0 and await self._mark(mingle, suspect) is not None:
                return  # false: the claim was lost, so nothing says that it is alone
            await self.wait_for(
                lambda: suspect.key not in self.hand,
                min(max(left, BACKOFF_MIN_SECONDS), self._durations.poll_max_seconds),
            )

    def _company(self) -> bool:
        """Tell whether a claim has others beside it, those being born included."""
        return len(self.hand) > 1 or self.births.since is not None

    async def _mark(
        self, verb: Callable[[Tx, NodeId, WorkId, int], bool], held: Held
    ) -> bool | None:
        """Return whether the claim was still held; None when nobody knows."""
        work, claim = held.key

        def mark(tx: Tx) -> bool:
            return verb(tx, held.node, work, claim)

        try:
            return await self._backend.write(mark)
        except Unavailable:
            # Not isolated: not run, and released by the next beats as in no hand. Not
            # mingled: asked again, before anything else starts.
            return None

    # --- what goes on beside the passes ----------------------------------------------

    async def _watch(self) -> None:
        """End what may not go on: behind a closed fence, or past its deadline."""
        every = self._durations.beat_seconds / WATCHES_PER_BEAT
        while True:
            await self._clock.sleep(every)
            if not self.open:
                self.tick += 1  # draining: there are no passes that would show life
            now = self._clock.monotonic()
            fenced = False
            for held in tuple(self.hand.values()):
                if not held.fence.allows():
                    fenced = True
                    if not self.spared(held):
                        held.stop(Stop.FENCED)
                if held.entered and now > held.deadline + every:
                    held.stop(Stop.OVERRAN)
            self._tell_fence(fenced=fenced)

    def _tell_fence(self, *, fenced: bool) -> None:
        current = self.incarnation
        fenced = fenced or (current is not None and not current.fence.allows())
        if fenced != self._fenced:
            self._fenced = fenced
            node = None if current is None else current.node
            self._events.tell(Event.FENCED if fenced else Event.UNFENCED, node=node)

    def _task_failed(self, name: str, error: BaseException) -> None:
        self._events.tell(Event.LOOP_FAILED, error=error, task=name)


def _until(claimed: Claimed, deadline_at: int) -> Claimed:
    """Return a claim as memory keeps it: its deadline is the one that is kept here."""
    if claimed.work.deadline_at == deadline_at:
        return claimed
    return replace(claimed, work=replace(claimed.work, deadline_at=deadline_at))
