"""Rules over a world of work: several nodes, crashes, late and repeated answers.

Stated once and run over the kernel alone, over SQLite and over PostgreSQL. Every claim
that was ever handed out may answer at any time and any number of times, whatever has
become of its node: that is how late, repeated and unknown commits are drawn.
"""

from __future__ import annotations

from abc import abstractmethod

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tenure.ids import NodeId, WorkId, new_attempt_id, new_work_id
from tenure.kernel.commands import (
    Answer,
    Cut,
    Failed,
    Parked,
    Replayed,
    Result,
    Settlement,
    Succeeded,
    Waiting,
)
from tenure.kernel.states import (
    TERMINAL,
    Attempt,
    AttemptOutcome,
    OrderPolicy,
    State,
    Work,
)
from tenure.store.claims import CERTAIN, OPERATOR, SILENCE, NewWork
from tests.simulation.worlds import TENANT, Given, World

SECOND = 1_000_000


class WorkMachine(RuleBasedStateMachine):
    """What may happen, and what must stay true."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world = self.new_world()
        self.given: list[Given] = []
        self.said: dict[tuple[WorkId, int], Settlement] = {}
        self.open: list[NodeId] = []
        self.succeeded_late: set[tuple[WorkId, int]] = set()

    @abstractmethod
    def new_world(self) -> World:
        """Return an empty world."""

    @initialize()
    def two_nodes_open(self) -> None:
        self.open = [self.world.open_node(), self.world.open_node()]

    # --- what happens -----------------------------------------------------------------

    @rule(
        lane=st.integers(0, 4),
        key=st.sampled_from(["a", "b"]),
        delay=st.sampled_from([None, None, None, 3 * SECOND]),
        priority=st.sampled_from([0, 2]),
    )
    def submit(self, lane: int, key: str, delay: int | None, priority: int) -> None:
        self.world.submit(self._new(lane, key, delay, priority))

    @precondition(lambda self: self.open)
    @rule(
        data=st.data(),
        lane=st.integers(0, 4),
        delay=st.sampled_from([None, None, None, 3 * SECOND]),
    )
    def bear(self, data: st.DataObject, lane: int, delay: int | None) -> None:
        """Submit as a node that wants to hold the row at once; it may be closed."""
        nodes = [*self.open, *(given.node for given in self.given[-1:])]
        node = data.draw(st.sampled_from(nodes), label="node")
        given = self.world.submit(self._new(lane, "a", delay, 2), node)
        if given is not None:
            self.given.append(given)

    def _new(self, lane: int, key: str, delay: int | None, priority: int) -> NewWork:
        lane_id = sorted(self.world.rules)[lane]
        ordered = self.world.rules[lane_id].ordered
        return NewWork(
            id=new_work_id(),
            lane=lane_id,
            kind="test",
            tenant=TENANT,
            subject="msg",
            priority=priority,
            due_at=None if delay is None else self.world.now + delay,
            order_key=key if ordered else None,
        )

    @precondition(lambda self: self.open and self.world.rows)
    @rule(data=st.data(), want=st.integers(1, 4))
    def claim(self, data: st.DataObject, want: int) -> None:
        node = data.draw(st.sampled_from(self.open), label="node")
        self.given += self.world.claim(node, want)

    @precondition(lambda self: self.given)
    @rule(
        data=st.data(),
        kind=st.sampled_from(["ok", "ok", "retry", "dead", "reset", "wait", "cut"]),
        recent=st.booleans(),
    )
    def answer(self, data: st.DataObject, kind: str, recent: bool) -> None:
        pool = self.given[-3:] if recent else self.given
        given = data.draw(st.sampled_from(pool), label="claim")
        self._answer(given, self._result(kind, given))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def repeat_an_answer(self, data: st.DataObject) -> None:
        """An unknown COMMIT: the identical settlement comes again."""
        said = data.draw(st.sampled_from(list(self.said.values())), label="said")
        before = self.world.rows[said.work]
        (answer,) = self.world.settle([said])
        assert answer in {Answer.ALREADY, Answer.LOST}
        assert self.world.rows[said.work] == before

    @precondition(lambda self: self.open)
    @rule(data=st.data(), why=st.sampled_from([SILENCE, CERTAIN, CERTAIN, OPERATOR]))
    def lose_a_node(self, data: st.DataObject, why: str) -> None:
        node = data.draw(st.sampled_from(self.open), label="node")
        self.open.remove(node)
        self.world.close_node(node, why)
        self.open.append(self.world.open_node())

    @precondition(lambda self: self.given)
    @rule(data=st.data(), again=st.booleans())
    def take_over(self, data: st.DataObject, again: bool) -> None:
        """A holder dies for certain, its claims are lost, and others claim them."""
        given = data.draw(st.sampled_from(self.given[-3:]), label="claim")
        if given.node in self.open:
            self.open.remove(given.node)
            self.world.close_node(given.node, CERTAIN)
            self.open.append(self.world.open_node())
        self.sweep()
        if again:
            self.world.now += 11 * SECOND
            self.given += self.world.claim(self.open[0], 8)

    @rule(lane=st.integers(0, 4), rows=st.integers(1, 3))
    def submit_and_claim(self, lane: int, rows: int) -> None:
        for _ in range(rows):
            self.submit(lane=lane, key="a", delay=None, priority=2)
        self.given += self.world.claim(self.open[0], 8)

    @rule()
    def sweep(self) -> None:
        before = dict(self.world.rows)
        lost = self.world.sweep()
        for id_ in lost:
            row = before[id_]
            assert row.state is State.CLAIMED
            assert row.claimed_by not in self.open, "an open node lost a claim"

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        given = data.draw(st.sampled_from(self.given), label="claim")
        before = self.world.rows[given.work]
        if self.world.release(given):
            after = self.world.rows[given.work]
            assert after.releases == before.releases + 1
            assert (after.failures, after.tries) == (before.failures, before.tries)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def run_alone(self, data: st.DataObject) -> None:
        given = data.draw(st.sampled_from(self.given), label="claim")
        self.world.isolate(given)

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data(), verb=st.sampled_from(["cancel", "replay", "wake"]))
    def operate(self, data: st.DataObject, verb: str) -> None:
        id_ = data.draw(st.sampled_from(list(self.world.rows)), label="row")
        before = self.world.rows[id_]
        match verb:
            case "cancel":
                self.world.cancel(id_)
                after = self.world.rows[id_]
                assert after.state is State.CANCELLED or (
                    before.state in TERMINAL or after.cancel_requested_at is not None
                )
            case "replay":
                answer = self.world.replay(id_)
                claimed = before.state is State.CLAIMED
                assert (answer is Replayed.IN_FLIGHT) == claimed
                if answer is Replayed.READY:
                    self._forget_late(id_)
            case _:
                self.world.wake(id_)

    @rule(seconds=st.sampled_from([1, 4, 11, 20]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds * SECOND

    # --- what must stay true ----------------------------------------------------------

    @invariant()
    def every_claim_has_its_evidence(self) -> None:
        for id_, work in self.world.rows.items():
            numbers = {claim for row, claim in self.world.attempts if row == id_}
            running = int(work.state is State.CLAIMED)
            assert len(numbers) == work.claim - work.releases - running
            assert not numbers or max(numbers) <= work.claim

    @invariant()
    def no_lane_exceeds_its_limit(self) -> None:
        for lane, lane_rule in self.world.rules.items():
            if lane_rule.concurrency is not None:
                live = sum(
                    work.lane == lane and work.state is State.CLAIMED
                    for work in self.world.rows.values()
                )
                assert live <= lane_rule.concurrency

    @invariant()
    def ordered_queues_keep_their_order(self) -> None:
        for work in self.world.rows.values():
            lane_rule = self.world.rules[work.lane]
            if not lane_rule.ordered or lane_rule.policy is not OrderPolicy.BLOCK:
                continue
            if work.claim == 0 or work.trigger == 1:
                continue  # a replayed row has left its queue
            behind = [
                other
                for other in self.world.rows.values()
                if other.lane == work.lane
                and other.order_key == work.order_key
                and (other.sequence or 0) < (work.sequence or 0)
                and other.state is not State.CANCELLED
                and other.trigger == 0
            ]
            assert all(other.claim > 0 for other in behind), "somebody was overtaken"

    @invariant()
    def no_late_success_is_wasted(self) -> None:
        for id_, claim in self.succeeded_late:
            work = self.world.rows[id_]
            kept = work.state is State.CLAIMED and (work.success_claim or 0) >= claim
            assert kept or work.state in {State.SUCCEEDED, State.CANCELLED}

    # --- details ----------------------------------------------------------------------

    def _result(self, kind: str, given: Given) -> Result:
        row = self.world.rows[given.work]
        soon = self.world.now + 5 * SECOND
        match kind:
            case "ok":
                return Succeeded()
            case "retry":
                return Failed(
                    retry_at=soon, charged=True, counts_try=True, reason="status_503"
                )
            case "dead":
                return Failed(
                    retry_at=None, charged=True, counts_try=True, reason="status_404"
                )
            case "reset":
                return Failed(
                    retry_at=self.world.now,
                    charged=False,
                    counts_try=False,
                    reason="reset",
                )
            case "wait":
                return Waiting(wakes=row.wakes)
            case "cut":
                return Cut()
            case _:
                return Parked(reason="undecodable")

    def _answer(self, given: Given, result: Result) -> None:
        before = self.world.rows[given.work]
        key = (given.work, given.claim)
        earlier = self.world.attempts.get(key)
        holds = (before.claim, before.claimed_by) == (given.claim, given.node)
        said = Settlement(
            work=given.work,
            claim=given.claim,
            node=given.node,
            lane=given.lane,
            kind="test",
            order_key=given.order_key,
            attempt=new_attempt_id(),
            begun_at=self.world.now,
            ended_at=self.world.now,
            result=result,
        )
        (answer,) = self.world.settle([said])
        self.said[key] = self.said.get(key, said)
        after = self.world.rows[given.work]
        assert (answer is Answer.APPLIED) == holds
        if self._lost_and_nobody_came(before, given, earlier):
            assert holds, "a lost claim's holder answered first and was not heard"
        if holds:
            assert after.claimed_by is None
            return
        first = earlier is not None and earlier.outcome is AttemptOutcome.LOST
        late = first and earlier is not None and earlier.late_at is None
        succeeded = isinstance(result, Succeeded)
        if late and succeeded and given.claim > before.replay_claim:
            self.succeeded_late.add(key)
            assert after.failures == before.failures
        else:
            assert after == before, "a claim that is not held changed the row"

    @staticmethod
    def _lost_and_nobody_came(row: Work, given: Given, earlier: Attempt | None) -> bool:
        """Whether the holder is the last one that can know what happened."""
        return (
            earlier is not None
            and earlier.outcome is AttemptOutcome.LOST
            and earlier.late_at is None
            and row.claim == given.claim
            and row.replay_claim < given.claim
            and row.state in {State.READY, State.PARKED, State.DEAD}
        )

    def _forget_late(self, id_: WorkId) -> None:
        self.succeeded_late = {
            (work, claim) for work, claim in self.succeeded_late if work != id_
        }
