"""A world of work rows without a database, and one that holds a database to it.

`MemoryWorld` applies the kernel's decisions to dictionaries. `TwinWorld` sends every
command to a real database as well and demands that both agree afterwards, row by row
and attempt by attempt: so the rules that the state machine states once are checked on
the kernel alone, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, TypeVar

from msgspec.structs import replace

from tenure.ids import LaneId, NodeId, TenantId, WorkId, new_attempt_id
from tenure.kernel import transitions
from tenure.kernel.commands import Answer, Loss, Order, Replayed, Settlement
from tenure.kernel.invariants import broken
from tenure.kernel.states import (
    Attempt,
    AttemptOutcome,
    OrderPolicy,
    Phase,
    State,
    Work,
)
from tenure.store import claims, nodes, schema
from tenure.store.claims.rows import WORK_COLUMNS, as_attempt, as_work
from tenure.store.claims.taking import Walker
from tenure.store.lanes import add_group, add_lane
from tenure.store.tx import Tx

T = TypeVar("T")
TENANT = TenantId("default")
DEADLINE_US = 15_000_000
START = 1_800_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRule:
    """A lane of the worlds: plain, limited, or ordered."""

    concurrency: int | None = None
    ordered: bool = False
    policy: OrderPolicy = OrderPolicy.BLOCK
    skip_after: int | None = None
    at_most_once: bool = False

    @property
    def order(self) -> Order | None:
        if not self.ordered:
            return None
        return Order(policy=self.policy, skip_after=self.skip_after)


LANES: Mapping[str, LaneRule] = {
    "plain": LaneRule(),
    "two at once": LaneRule(concurrency=2),
    "ordered": LaneRule(ordered=True),
    "ordered, skips": LaneRule(ordered=True, policy=OrderPolicy.SKIP, skip_after=1),
    "at most once": LaneRule(at_most_once=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A claim as it was handed to a node."""

    work: WorkId
    claim: int
    node: NodeId
    lane: LaneId
    order_key: str | None


class World(Protocol):
    """What the state machine may do to work."""

    now: int
    rows: dict[WorkId, Work]
    attempts: dict[tuple[WorkId, int], Attempt]
    rules: dict[LaneId, LaneRule]

    def open_node(self) -> NodeId: ...
    def close_node(self, node: NodeId, why: str) -> None: ...
    def submit(
        self, new: claims.NewWork, node: NodeId | None = None
    ) -> Given | None: ...
    def claim(self, node: NodeId, want: int) -> list[Given]: ...
    def settle(self, items: Sequence[Settlement]) -> list[Answer]: ...
    def release(self, given: Given) -> int: ...
    def isolate(self, given: Given) -> bool: ...
    def sweep(self) -> set[WorkId]: ...
    def cancel(self, work: WorkId) -> None: ...
    def replay(self, work: WorkId) -> Replayed: ...
    def wake(self, work: WorkId) -> None: ...


@dataclass(slots=True, kw_only=True)
class MemoryWorld:
    """The kernel's decisions, applied to dictionaries."""

    now: int = START
    rows: dict[WorkId, Work] = field(default_factory=dict[WorkId, Work])
    attempts: dict[tuple[WorkId, int], Attempt] = field(
        default_factory=dict[tuple[WorkId, int], Attempt]
    )
    rules: dict[LaneId, LaneRule] = field(
        default_factory=lambda: {
            LaneId((1 << 24) | at): rule for at, rule in enumerate(LANES.values(), 1)
        }
    )
    closed: dict[NodeId, str | None] = field(default_factory=dict[NodeId, str | None])
    lines: dict[tuple[LaneId, str], list[WorkId]] = field(
        default_factory=dict[tuple[LaneId, str], list[WorkId]]
    )
    sequences: dict[tuple[LaneId, str], int] = field(
        default_factory=dict[tuple[LaneId, str], int]
    )
    not_before: dict[WorkId, int | None] = field(
        default_factory=dict[WorkId, int | None]
    )

    def open_node(self) -> NodeId:
        node = NodeId(len(self.closed) + 1)
        self.closed[node] = None
        return node

    def close_node(self, node: NodeId, why: str) -> None:
        self.closed[node] = self.closed[node] or why

    def submit(self, new: claims.NewWork, node: NodeId | None = None) -> Given | None:
        """Put in a row; with a node, as its claim where nothing speaks against it."""
        due_at: int | None = new.due_at or self.now
        sequence = None
        reason = None
        if new.order_key is not None:
            head = (new.lane, new.order_key)
            sequence = self.sequences.get(head, 1)
            self.sequences[head] = sequence + 1
            line = self.lines.setdefault(head, [])
            if line:
                due_at, reason = None, "head of line"
            line.append(new.id)
            self.not_before[new.id] = new.due_at
        if due_at is None:
            phase = Phase.ASLEEP
        else:
            phase = Phase.DUE if due_at <= self.now else Phase.LATER
        self._put(
            Work(
                id=new.id,
                lane=new.lane,
                kind=new.kind,
                tenant=new.tenant,
                subject=new.subject,
                state=State.READY,
                phase=phase,
                priority=new.priority,
                due_at=due_at,
                claim=0,
                claimed_by=None,
                claimed_at=None,
                deadline_at=None,
                alone=False,
                tries=0,
                failures=0,
                losses=0,
                releases=0,
                first_attempt_at=None,
                replay_claim=0,
                success_claim=None,
                cancel_requested_at=None,
                order_key=new.order_key,
                sequence=sequence,
                wakes=0,
                trigger=new.trigger,
                reason=reason,
                created_at=self.now,
                settled_at=None,
            )
        )
        plain = self.rules[new.lane] in {LANES["plain"], LANES["at most once"]}
        if node is None or not plain or phase is not Phase.DUE or self.closed[node]:
            return None
        return self.hand_over(new.id, node)

    def promote(self) -> None:
        for work in list(self.rows.values()):
            if work.phase is Phase.LATER and (work.due_at or 0) <= self.now:
                self._put(replace(work, phase=Phase.DUE))

    def claimable(self) -> list[Work]:
        """Return the rows that may be claimed now, one by one, in claiming order."""
        due = [work for work in self.rows.values() if work.phase is Phase.DUE]
        due.sort(key=lambda w: (w.lane, w.priority, w.due_at or 0, w.id))
        return [work for work in due if self._has_room(work.lane)]

    def _has_room(self, lane: LaneId) -> bool:
        limit = self.rules[lane].concurrency
        return limit is None or self.live(lane) < limit

    def live(self, lane: LaneId) -> int:
        return sum(
            work.lane == lane and work.state is State.CLAIMED
            for work in self.rows.values()
        )

    def claim(self, node: NodeId, want: int) -> list[Given]:
        self.promote()
        given: list[Given] = []
        while len(given) < want and (free := self.claimable()):
            given.append(self.hand_over(free[0].id, node))
        return given

    def hand_over(self, id_: WorkId, node: NodeId) -> Given:
        work = self.rows[id_]
        assert work.phase is Phase.DUE, f"{id_} is {work.state}, {work.phase}"
        assert self._has_room(work.lane), f"lane {work.lane} has no room"
        self._put(
            replace(
                work,
                state=State.CLAIMED,
                phase=None,
                claim=work.claim + 1,
                claimed_by=node,
                claimed_at=self.now,
                deadline_at=self.now + DEADLINE_US,
                alone=False,
            )
        )
        return Given(
            work=id_,
            claim=work.claim + 1,
            node=node,
            lane=work.lane,
            order_key=work.order_key,
        )

    def settle(self, items: Sequence[Settlement]) -> list[Answer]:
        answers: list[Answer] = []
        for said in items:
            work = self.rows[said.work]
            key = (said.work, said.claim)
            change = transitions.settle(
                work,
                said,
                self.attempts.get(key),
                self.now,
                late_success=True,
                order=self.rules[work.lane].order,
                at_most_once=self.rules[work.lane].at_most_once,
            )
            if change.late is not None:
                attempt = self.attempts[key]
                assert attempt.late_at is None, "late columns are filled once"
                self.attempts[key] = replace(
                    attempt,
                    late_at=change.late.at,
                    late_outcome=change.late.outcome,
                    late_reason=change.late.reason,
                )
            self._apply(work, change)
            answers.append(change.answer)
        return answers

    def release(self, given: Given) -> int:
        work = self.rows[given.work]
        change = transitions.release(work, given.claim, given.node, self.now)
        self._apply(work, change)
        return int(change.answer is Answer.APPLIED)

    def isolate(self, given: Given) -> bool:
        work = self.rows[given.work]
        held = transitions.holds(work, given.claim, given.node)
        if work.state is not State.CLAIMED or not held:
            return False
        assert work.claimed_at is not None
        assert work.deadline_at is not None
        deadline_at = self.now + work.deadline_at - work.claimed_at
        self._put(
            replace(work, alone=True, claimed_at=self.now, deadline_at=deadline_at)
        )
        return True

    def sweep(self) -> set[WorkId]:
        lost: set[WorkId] = set()
        for work in list(self.rows.values()):
            if work.state is not State.CLAIMED:
                continue
            assert work.claimed_by is not None
            why = self.closed[work.claimed_by]
            if why is None:
                continue
            if why != claims.CERTAIN and (work.deadline_at or 0) > self.now:
                continue
            loss = Loss(
                charged=why != claims.OPERATOR,
                at_most_once=self.rules[work.lane].at_most_once,
                reason=f"node {work.claimed_by} {why}",
            )
            order = None if work.order_key is None else self.rules[work.lane].order
            change = transitions.lose(
                work, loss, new_attempt_id(), self.now, order=order
            )
            self._apply(work, change)
            lost.add(work.id)
        return lost

    def cancel(self, work: WorkId) -> None:
        row = self.rows[work]
        self._apply(row, transitions.cancel(row, "by the test", self.now))

    def replay(self, work: WorkId) -> Replayed:
        row = self.rows[work]
        change, answer = transitions.replay(row, 1, self.now)
        self._apply(row, change)
        return answer

    def wake(self, work: WorkId) -> None:
        row = self.rows[work]
        self._apply(row, transitions.wake(row, self.now))

    def _apply(self, before: Work, change: transitions.Change) -> None:
        if change.work is not None:
            self._put(change.work)
        if change.attempt is not None:
            key = (change.attempt.work, change.attempt.claim)
            assert key not in self.attempts, "an attempt is inserted once"
            self.attempts[key] = change.attempt
        if change.passes_head and before.order_key is not None:
            self._pass(before.lane, before.order_key, before.id)

    def _pass(self, lane: LaneId, key: str, id_: WorkId) -> None:
        line = self.lines[lane, key]
        if id_ not in line:
            return
        line.remove(id_)
        if not line:
            return
        front = self.rows[line[0]]
        if front.phase is Phase.ASLEEP:
            due_at = max(self.now, self.not_before[front.id] or 0)
            self._put(
                replace(
                    front,
                    phase=Phase.DUE if due_at <= self.now else Phase.LATER,
                    due_at=due_at,
                    reason=None,
                    wakes=front.wakes + 1,
                )
            )

    def _put(self, work: Work) -> None:
        old = self.rows.get(work.id)
        assert not (faults := broken(work)), (faults, work)
        assert old is None or old.claim <= work.claim <= old.claim + 1
        self.rows[work.id] = work


class Blocking(Protocol):
    """The part of a backend that the twin uses."""

    def write_blocking(self, fn: Callable[[Tx], T]) -> T: ...


class NoEffects:
    """A kind that adds nothing of its own."""

    late_success = True

    def evidence(self, items: Sequence[claims.Settled]) -> Sequence[claims.Effect]:
        del items
        return ()

    def effects(self, items: Sequence[claims.Settled]) -> Sequence[claims.Effect]:
        del items
        return ()


class TwinWorld(MemoryWorld):
    """The same commands to a real database; both must agree after each one."""

    def __init__(self, backend: Blocking) -> None:
        super().__init__()
        self.backend = backend
        self.walkers: dict[NodeId, Walker] = {}
        self.versions = count()
        self.rules = self._at(_set_up)

    def _at(self, fn: Callable[[Tx], T]) -> T:
        def at_this_instant(tx: Tx) -> T:
            tx.set_now(self.now)
            return fn(tx)

        return self.backend.write_blocking(at_this_instant)

    def open_node(self) -> NodeId:
        node = self._at(
            lambda tx: nodes.open_node(
                tx,
                name="test",
                host="test",
                pid=1,
                version="0",
                serves="test",
                lock_path=None,
            )
        )
        self.closed[node] = None
        self.walkers[node] = Walker(node=node, serves=frozenset({"test"}))
        return node

    def close_node(self, node: NodeId, why: str) -> None:
        super().close_node(node, why)
        self._at(lambda tx: nodes.close_node(tx, node, why))

    def submit(self, new: claims.NewWork, node: NodeId | None = None) -> Given | None:
        given = super().submit(new, node)
        birth = None
        if node is not None:
            birth = claims.Birth(
                node=node,
                serves=frozenset({"test"}),
                count=1,
                lane_max=100,
                busy={},
                skip=frozenset(),
            )
        born = self._at(lambda tx: claims.submit(tx, [new], birth=birth))
        assert [each.work for each in born] == ([self.rows[new.id]] if given else [])
        self.compare()
        return given

    def claim(self, node: NodeId, want: int) -> list[Given]:
        result = self._at(
            lambda tx: self.walkers[node].claim(tx, want, busy={}, lane_max=100)
        )
        self.promote()
        given = [self.hand_over(taken.work.id, node) for taken in result.claimed]
        assert len(given) == want or not self.claimable(), "a due row was passed over"
        self.compare()
        return given

    def settle(self, items: Sequence[Settlement]) -> list[Answer]:
        kinds = {"test": NoEffects()}
        stored = self._at(lambda tx: claims.settle(tx, items, kinds))
        assert super().settle(items) == stored
        self.compare()
        return stored

    def release(self, given: Given) -> int:
        stored = self._at(
            lambda tx: claims.release(tx, given.node, [(given.work, given.claim)])
        )
        assert super().release(given) == stored
        self.compare()
        return stored

    def isolate(self, given: Given) -> bool:
        stored = self._at(
            lambda tx: claims.isolate(tx, given.node, given.work, given.claim)
        )
        assert super().isolate(given) == stored
        self.compare()
        return stored

    def sweep(self) -> set[WorkId]:
        stored = {row.work for row in self._at(claims.sweep)}
        assert super().sweep() == stored
        self.compare()
        return stored

    def cancel(self, work: WorkId) -> None:
        super().cancel(work)
        self._at(lambda tx: claims.cancel(tx, [work], "by the test"))
        self.compare()

    def replay(self, work: WorkId) -> Replayed:
        stored = self._at(lambda tx: claims.replay(tx, [work]))
        assert {work: super().replay(work)} == stored
        self.compare()
        return stored[work]

    def wake(self, work: WorkId) -> None:
        super().wake(work)
        self._at(lambda tx: claims.wake(tx, [work]))
        self.compare()

    def compare(self) -> None:
        columns = ", ".join(WORK_COLUMNS)

        def read(tx: Tx) -> tuple[list[Work], list[Attempt], list[WorkId]]:
            works = [as_work(row) for row in tx.all(f"SELECT {columns} FROM work")]
            found = tx.all(schema.attempt.select())
            lines = tx.all(
                "SELECT work FROM order_line ORDER BY lane, order_key, sequence"
            )
            return works, [as_attempt(row) for row in found], [row[0] for row in lines]

        works, attempts, lines = self._at(read)
        assert {work.id: work for work in works} == self.rows
        stored = {(attempt.work, attempt.claim): attempt for attempt in attempts}
        assert stored.keys() == self.attempts.keys()
        for key, attempt in stored.items():
            mine = self.attempts[key]
            if mine.outcome is AttemptOutcome.LOST:
                mine = replace(mine, id=attempt.id)
            assert attempt == mine
        standing = [id_ for _, line in sorted(self.lines.items()) for id_ in line]
        assert lines == standing


def _set_up(tx: Tx) -> dict[LaneId, LaneRule]:
    """Empty the database's work and make the worlds' lanes."""
    for table in ("attempt", "work", "order_line", "order_head", "lane", "node"):
        tx.run(f"DELETE FROM {table}")
    group = add_group(tx, TENANT)
    return {
        add_lane(
            tx,
            group=group,
            kind="test",
            tenant=TENANT,
            subject=name,
            needs="test",
            deadline_us=DEADLINE_US,
            settings={
                "concurrency": rule.concurrency,
                "ordered": rule.ordered,
                "order_policy": str(rule.policy),
                "skip_after": rule.skip_after,
                "at_most_once": rule.at_most_once,
            },
        ): rule
        for name, rule in LANES.items()
    }
