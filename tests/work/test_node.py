from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenure.clock import SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.limits import Durations
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.claims import CERTAIN, DRAINED, SILENCE, Walker, cancel
from tenure.store.nodes import NodeRow
from tenure.store.tx import Tx
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.node import Node
from tenure.work.pauses import Pauses, Point
from tests.databases import asyncpg_dsn
from tests.work.rig import (
    QUICK,
    STILL,
    SUCCESS,
    Held,
    Member,
    Probe,
    Rig,
    rigged,
    until,
    until_read,
)


def every_node(tx: Tx) -> dict[int, NodeRow]:
    return {row.id: row for row in nodes.list_nodes(tx, closed=True)}


async def beat(member: Member) -> None:
    """Beat now and wait until that beat and what it found are through."""
    before = member.node.beats.count
    member.node.beats.nudge()
    await until(lambda: member.node.beats.count > before, "another beat")


async def test_an_open_node_beats_with_the_tick_of_its_loop(rig: Rig) -> None:
    member = await rig.member(durations=QUICK)
    rows = await until_read(
        rig.backend, every_node, lambda rows: rows[member.id].beat > 2
    )
    row = rows[member.id]
    assert (row.state, row.serves, row.closed_at) == ("open", "probe", None)
    assert row.tick > 0
    assert row.lock_path is not None
    health = member.node.health()
    assert (health.good, health.fenced, health.stalled) == (True, False, False)


async def test_a_loop_that_does_not_move_is_stalled_although_its_thread_beats(
    rig: Rig,
) -> None:
    member = await rig.member(durations=QUICK, claims=False)
    await until(lambda: member.node.beats.stalled)
    assert not member.node.health().good
    assert member.count(Event.STALLED) == 1
    rig.run(member)
    await until(lambda: not member.node.beats.stalled)


async def test_a_killed_node_of_this_host_is_closed_at_once_by_its_free_lock(
    rig: Rig,
) -> None:
    kind = Probe()
    gate = kind.hold("m")
    dead = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    await dead.kill()
    # Beats of `STILL` are 50 s apart: only the lock can tell so soon.
    heir = await rig.member(durations=STILL)
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.losses) == (2, 1)
    closed = (await rig.backend.read(every_node))[dead.id]
    assert (closed.state, closed.closed_why) == ("closed", CERTAIN)
    assert heir.count(Event.PEER_CLOSED) == 1
    assert closed.lock_path is not None
    left = Path(closed.lock_path)
    await until(lambda: not left.exists())


async def test_a_node_killed_later_is_found_between_two_beats(rig: Rig) -> None:
    durations = Durations(4)  # beats 1.25 s apart, locks looked at each 0.25 s
    dead, heir = await rig.member(durations=durations), await rig.member()
    watching = await rig.member(durations=durations)
    await beat(watching)
    await dead.kill()
    await until_read(
        rig.backend, every_node, lambda rows: rows[dead.id].state == "closed"
    )
    assert watching.count(Event.PEER_CLOSED) + heir.count(Event.PEER_CLOSED) == 1


async def test_a_node_that_lives_keeps_its_lock_and_is_not_closed(rig: Rig) -> None:
    old, new = await rig.member(), await rig.member(durations=QUICK)
    for _ in range(3):
        await beat(new)
    assert (await rig.backend.read(every_node))[old.id].state == "open"
    assert new.count(Event.PEER_CLOSED) == 0


async def elsewhere(rig: Rig, member: Member) -> None:
    """Let a node look like one of another machine: its lock cannot be tried."""
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE node SET host = 'elsewhere' WHERE id = :node", {"node": member.id}
        )
    )


async def test_a_silent_node_of_another_host_is_closed_after_its_silence(
    rig: Rig,
) -> None:
    silent, other = await rig.member(), await rig.member(durations=Durations(50))
    await elsewhere(rig, silent)
    rows = await until_read(
        rig.backend, every_node, lambda rows: rows[silent.id].state == "closed"
    )
    assert rows[silent.id].closed_why == SILENCE
    assert rows[other.id].state == "open"


async def test_a_node_closed_by_others_goes_on_under_a_new_id(rig: Rig) -> None:
    member = await rig.member()
    first = member.id
    await rig.bury(member)
    (work,) = await rig.submit(await rig.lane(), "m")
    row = await rig.until_state(work, "succeeded")
    assert member.id != first
    assert row.claim == 1
    attempt = await rig.attempt(work, 1)
    assert attempt is not None
    assert attempt.node == member.id
    assert member.count(Event.NODE_CLOSED_BY_OTHERS) == 1


async def test_a_node_closed_by_others_still_sends_the_results_of_what_had_begun(
    rig: Rig,
) -> None:
    kind = Probe()
    gate = kind.hold("m")
    member = await rig.member(kind, slots=1)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    first = member.id
    await rig.bury(member)
    member.node.beats.nudge()
    await until(lambda: member.id != first, "a new incarnation")
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.losses) == (1, 1)
    assert kind.requests("m") == 1


async def test_a_claim_that_only_the_database_knows_is_released(rig: Rig) -> None:
    member = await rig.member(durations=QUICK)
    (work,) = await rig.submit(await rig.lane(), "m", due_at=4_000_000_000_000_000)

    def forget(tx: Tx) -> None:
        tx.run("UPDATE work SET phase = 'due' WHERE id = :id", {"id": work})
        walker = Walker(node=member.id, serves=frozenset({"probe"}))
        got = walker.claim(tx, 1, busy={}, lane_max=1).claimed
        assert [claimed.work.id for claimed in got] == [work]

    await rig.backend.write(forget)
    row = await rig.until_row(work, lambda row: row.releases == 1)
    assert (row.losses, row.failures) == (0, 0)
    await rig.until_state(work, "succeeded")


async def test_a_claim_under_way_into_memory_is_not_released(rig: Rig) -> None:
    pauses = Held()
    gate = pauses.hold(Point.CLAIMED)
    member = await rig.member(durations=QUICK, pauses=pauses, claims=False)
    (work,) = await rig.submit(await rig.lane(), "m")
    rig.run(member)
    await gate.wait_entered()
    await rig.until_state(work, "claimed")
    count = member.node.beats.count
    # Longer than the age (two beats) from which a forgotten claim is released.
    await until(lambda: member.node.beats.count > count + 4)
    assert (await rig.row(work)).releases == 0
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.releases) == (1, 0)


async def test_a_claim_that_only_memory_knows_is_ended_before_it_begins(
    rig: Rig,
) -> None:
    pauses = Held()
    gate = pauses.hold(Point.LOADED)
    member = await rig.member(pauses=pauses, slots=1)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    await rig.lose_alone(work)
    await beat(member)
    await until(lambda: (work, 1) not in member.loop.hand)
    assert member.kind.begun == []
    assert member.count(Event.RECONCILED) == 1


async def test_a_delivery_that_has_begun_outlives_the_loss_of_its_claim(
    rig: Rig,
) -> None:
    kind = Probe()
    gate = kind.hold("m")
    member = await rig.member(kind, slots=1)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    await rig.lose_alone(work)
    await beat(member)
    await beat(member)
    assert (work, 1) in member.loop.hand
    gate.opened.set()
    await rig.until_state(work, "succeeded")


@pytest.mark.parametrize("late_success", [True, False], ids=["delivery", "other"])
async def test_a_cancel_request_ends_what_runs_unless_its_request_has_begun(
    rig: Rig, late_success: bool
) -> None:
    kind = Probe(late_success=late_success)
    gate = kind.hold("m")
    member = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    await rig.backend.write(lambda tx: cancel(tx, [work], "operator"))
    await beat(member)
    if late_success:
        await beat(member)
        assert (work, 1) in member.loop.hand
        gate.opened.set()
        await rig.until_state(work, "succeeded")
    else:
        await rig.until_state(work, "cancelled")


class Cut:
    """A database that a node cannot reach for as long as `away` is set."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, fn: Any, *, retry: bool = True) -> Any:
        if self.away:
            raise DatabaseUnavailable("away")
        return await self._inner.write(fn, retry=retry)

    def write_blocking(self, fn: Any, *, retry: bool = True) -> Any:
        if self.away:
            raise DatabaseUnavailable("away")
        return self._inner.write_blocking(fn, retry=retry)


async def test_a_node_that_cannot_renew_starts_nothing_and_comes_back_by_itself(
    rig: Rig,
) -> None:
    database, pauses = Cut(rig.backend), Held()
    gate = pauses.hold(Point.LOADED)
    backend: Any = database
    member = await rig.member(backend=backend, pauses=pauses, durations=Durations(50))
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    database.away = True
    await until(lambda: member.count(Event.FENCED) == 1)
    await until(lambda: not member.loop.hand)
    assert member.kind.begun == []
    assert not member.node.health().good
    pauses.gates.clear()
    database.away = False
    row = await rig.until_state(work, "succeeded")
    assert row.losses == 0
    assert row.releases == 1
    assert member.count(Event.UNFENCED) == 1
    assert member.count(Event.BEAT_FAILED) == 1


async def test_a_result_waits_in_memory_while_the_database_is_away(rig: Rig) -> None:
    database, kind = Cut(rig.backend), Probe()
    gate = kind.hold("m")
    backend: Any = database
    member = await rig.member(kind, backend=backend)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    database.away = True
    gate.opened.set()
    await until(lambda: member.count(Event.RESULT_WAITS) == 1)
    assert (work, 1) in member.loop.hand
    database.away = False
    row = await rig.until_state(work, "succeeded")
    assert row.claim == 1
    assert kind.requests("m") == 1


async def test_a_suspect_waits_for_what_is_in_flight_and_others_wait_for_it(
    rig: Rig,
) -> None:
    kind = Probe()
    first, suspect = kind.hold("first"), kind.hold("suspect")
    member = await rig.member(kind)
    lane = await rig.lane()
    await rig.submit(lane, "first")
    await first.wait_entered()
    (work,) = await rig.submit(lane, "suspect", due_at=4_000_000_000_000_000)
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE work SET losses = 2, phase = 'due' WHERE id = :id", {"id": work}
        )
    )
    rig.wake()
    await rig.until_state(work, "claimed")
    assert not (await rig.row(work)).alone
    first.opened.set()
    await suspect.wait_entered()
    assert (await rig.row(work)).alone
    (other,) = await rig.submit(lane, "other")
    suspect.opened.set()
    await rig.until_state(work, "succeeded")
    await rig.until_state(other, "succeeded")
    assert [subject for subject, _ in kind.begun] == ["first", "suspect", "other"]
    assert member.count(Event.SUSPECT) == 1


async def test_a_suspect_that_takes_long_mingles_before_others_start(
    rig: Rig,
) -> None:
    kind = Probe()
    suspect = kind.hold("suspect")
    alone: list[bool] = []

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        alone.append((await rig.row(work)).alone)
        return SUCCESS

    kind.plays["other"] = play
    await rig.member(kind, durations=QUICK)
    lane = await rig.lane()
    (work,) = await rig.submit(lane, "suspect", due_at=4_000_000_000_000_000)
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE work SET losses = 2, phase = 'due' WHERE id = :id", {"id": work}
        )
    )
    rig.wake()
    await suspect.wait_entered()
    (other,) = await rig.submit(lane, "other")
    await rig.until_state(other, "succeeded")
    assert alone == [False]
    assert not suspect.opened.is_set()
    suspect.opened.set()
    await rig.until_state(work, "succeeded")


async def test_a_hand_over_that_comes_too_late_is_released_and_not_sent(
    rig: Rig,
) -> None:
    pauses = Held()
    gate = pauses.hold(Point.LOADED)
    member = await rig.member(pauses=pauses)
    (work,) = await rig.submit(await rig.lane(0.4), "m")
    await gate.wait_entered()
    held = member.loop.hand[work, 1]
    await until(held.too_late)
    pauses.gates.clear()
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.releases, row.failures) == (2, 1, 0)
    assert member.kind.begun == [("m", 2)]


async def test_an_attempt_that_does_not_return_by_its_deadline_is_a_failure(
    rig: Rig,
) -> None:
    kind = Probe()
    kind.hold("m")
    member = await rig.member(kind, durations=QUICK)
    (work,) = await rig.submit(await rig.lane(0.2), "m")
    row = await rig.until_row(work, lambda row: row.failures == 1)
    assert (row.state, row.reason) == ("ready", "deadline passed")
    assert member.count(Event.ATTEMPT_OVERRAN) == 1


async def test_a_rate_limited_row_waits_for_its_start(rig: Rig) -> None:
    kind, early = Probe(), list[int]()
    starts: list[int] = []

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        starts.append(prepared.claimed.start_at)
        early.append(prepared.claimed.start_at - guard.instant())
        return SUCCESS

    kind.default = play
    await rig.member(kind)
    await rig.submit(await rig.lane(rate_per_second=10), *"abcd")
    await until(lambda: len(starts) == 4)
    assert [later - first for first, later in pairwise(starts)] == [100_000] * 3
    # A start instant counts in microseconds of two clocks that were read one by one.
    assert max(early) < 1_000


async def test_rows_claimed_together_with_a_suspect_are_given_back_and_run_later(
    rig: Rig,
) -> None:
    kind = Probe()
    suspect = kind.hold("suspect")
    member = await rig.member(kind, claims=False)
    lane = await rig.lane()
    (work,) = await rig.submit(lane, "suspect")
    others = await rig.submit(lane, "x", "y")
    await rig.backend.write(
        lambda tx: tx.run("UPDATE work SET losses = 2 WHERE id = :id", {"id": work})
    )
    rig.run(member)
    await suspect.wait_entered()
    assert list(member.loop.hand) == [(work, 1)]
    assert [(await rig.row(other)).releases for other in others] == [1, 1]
    suspect.opened.set()
    for other in others:
        row = await rig.until_state(other, "succeeded")
        assert (row.failures, row.losses) == (0, 0)


@pytest.mark.parametrize("away", [True, False], ids=["away", "control"])
async def test_a_row_that_could_not_be_closed_is_closed_by_who_finds_its_lock_free(
    rig: Rig, away: bool
) -> None:
    database = Cut(rig.backend)
    backend: Any = database
    member = await rig.member(backend=backend)
    database.away = away
    await member.stop()
    await rig.member()
    rows = await until_read(
        rig.backend, every_node, lambda rows: rows[member.id].state == "closed"
    )
    assert rows[member.id].closed_why == (CERTAIN if away else DRAINED)


async def test_a_node_that_could_not_be_opened_keeps_no_lock(rig: Rig) -> None:
    member = await rig.member(claims=False)
    database = Cut(rig.backend)
    database.away = True
    backend: Any = database
    node = member.node
    second = Node(
        backend,
        member.loop,
        name="second",
        version="test",
        serves=frozenset({"probe"}),
        clock=SystemClock(),
        durations=STILL,
        events=member.events,
        pauses=Pauses(),
    )
    with pytest.raises(DatabaseUnavailable):
        await second.open()
    assert second._lock is not None
    assert second._lock._descriptor is None
    assert not second._lock.path.exists()
    member.loop.found_closed = node.beats.nudge


class Watched(Cut):
    """A database that remembers whether results were to be tried again as a whole."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.retried: list[bool] = []

    async def write(self, fn: Any, *, retry: bool = True) -> Any:
        if fn.__name__ == "together":
            self.retried.append(retry)
        return await super().write(fn, retry=retry)


async def test_a_result_whose_row_is_locked_holds_up_no_other(
    postgres_backend: Backend,
) -> None:
    database, kind = Watched(postgres_backend), Probe()
    locked, other = kind.hold("locked"), kind.hold("other")
    backend: Any = database
    async with rigged(postgres_backend) as rig:
        member = await rig.member(kind, backend=backend)
        lane = await rig.lane()
        (mine,) = await rig.submit(lane, "locked")
        (theirs,) = await rig.submit(lane, "other")
        await locked.wait_entered()
        await other.wait_entered()
        holder = await asyncpg.connect(asyncpg_dsn(postgres_backend.url))
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM work WHERE id = $1 FOR UPDATE", mine)
            locked.opened.set()
            other.opened.set()
            await rig.until_state(theirs, "succeeded")
        await holder.close()
        await rig.until_state(mine, "succeeded")
        await until(lambda: not member.loop.hand)
    assert database.retried[0] is False
