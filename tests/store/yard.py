"""A database with lanes, nodes and work, for tests of the verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import event

from tenure.ids import LaneId, NodeId, TenantId, WorkId, new_attempt_id, new_work_id
from tenure.kernel.commands import Answer, Failed, Result, Settlement, Succeeded
from tenure.kernel.invariants import broken
from tenure.kernel.states import Attempt, Work
from tenure.store import claims, lanes, nodes, schema
from tenure.store.backend import Backend
from tenure.store.claims import Claimed, ClaimResult, Effect, KindSql, Settled, Walker
from tenure.store.claims.rows import WORK_COLUMNS, as_attempt, as_work
from tenure.store.tx import Tx

T = TypeVar("T")
TENANT = TenantId("default")
SECOND = 1_000_000
DEADLINE_US = 15 * SECOND

OK = Succeeded()
DEAD = Failed(retry_at=None, charged=True, counts_try=True, reason="status_404")


def retry(at: int) -> Failed:
    return Failed(retry_at=at, charged=True, counts_try=True, reason="status_503")


@dataclass(slots=True)
class Quiet:
    """A kind that writes nothing of its own and remembers what it was asked for."""

    late_success: bool = True
    evident: list[Settled] = field(default_factory=list[Settled])
    effective: list[Settled] = field(default_factory=list[Settled])

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        self.evident += items
        return ()

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        self.effective += items
        return ()


@dataclass(slots=True)
class Yard:
    """One backend and the verbs over it, each in a transaction of its own."""

    backend: Backend
    kinds: dict[str, KindSql] = field(default_factory=lambda: {"test": Quiet()})

    async def do(self, fn: Callable[[Tx], T]) -> T:
        return await self.backend.write(fn)

    async def now(self) -> int:
        return await self.do(lambda tx: tx.now)

    def pass_time(self, seconds: float) -> None:
        self.backend.clock_offset_us += round(seconds * SECOND)

    async def group(self) -> int:
        return await self.do(lambda tx: lanes.add_group(tx, TENANT))

    async def lane(
        self,
        group: int | None = None,
        *,
        needs: str = "test",
        deadline_us: int = DEADLINE_US,
        **settings: Any,
    ) -> LaneId:
        def make(tx: Tx) -> LaneId:
            return lanes.add_lane(
                tx,
                group=lanes.add_group(tx, TENANT) if group is None else group,
                kind="test",
                tenant=TENANT,
                subject="ep_1",
                needs=needs,
                deadline_us=deadline_us,
                settings=settings,
            )

        return await self.do(make)

    async def node(self, name: str = "n") -> NodeId:
        return await self.do(
            lambda tx: nodes.open_node(
                tx,
                name=name,
                host="host",
                pid=1,
                version="1",
                serves="test",
                lock_path=None,
            )
        )

    async def walker(self) -> Walker:
        return Walker(node=await self.node(), serves=frozenset({"test"}))

    async def close(self, node: NodeId, why: str) -> None:
        assert await self.do(lambda tx: nodes.close_node(tx, node, why))

    async def submit(self, lane: LaneId, count: int = 1, **rest: Any) -> list[WorkId]:
        rows = [new_work(lane, **rest) for _ in range(count)]
        await self.do(lambda tx: claims.submit(tx, rows))
        return [row.id for row in rows]

    async def claim_result(
        self,
        walker: Walker,
        want: int = 100,
        *,
        busy: Mapping[LaneId, int] | None = None,
        lane_max: int = 1_000,
        skip: Sequence[LaneId] = (),
    ) -> ClaimResult:
        return await self.do(
            lambda tx: walker.claim(
                tx, want, busy=busy or {}, lane_max=lane_max, skip=skip
            )
        )

    async def claim(
        self, walker: Walker, want: int = 100, **rest: Any
    ) -> list[Claimed]:
        return [*(await self.claim_result(walker, want, **rest)).claimed]

    async def settle(self, *items: Settlement) -> list[Answer]:
        return await self.do(lambda tx: claims.settle(tx, items, self.kinds))

    async def sweep(self) -> list[claims.LostRow]:
        return await self.do(claims.sweep)

    async def row(self, id_: WorkId) -> Work:
        return (await self.rows([id_]))[id_]

    async def rows(self, ids: Sequence[WorkId]) -> dict[WorkId, Work]:
        found = {row.id: row for row in await self.do(read_all)}
        return {id_: found[id_] for id_ in ids}

    async def attempts(self, id_: WorkId) -> list[Attempt]:
        stmt = (
            schema.attempt.select()
            .where(schema.attempt.c.work == id_)
            .order_by(schema.attempt.c.claim)
        )
        return [as_attempt(row) for row in await self.do(lambda tx: tx.all(stmt))]


def read_all(tx: Tx) -> list[Work]:
    """Read every row, each one sound."""
    columns = ", ".join(WORK_COLUMNS)
    rows = [as_work(row) for row in tx.all(f"SELECT {columns} FROM work")]
    assert [(row.id, broken(row)) for row in rows if broken(row)] == []
    return rows


def new_work(lane: LaneId, **rest: Any) -> claims.NewWork:
    return claims.NewWork(
        id=rest.pop("id", None) or new_work_id(),
        lane=lane,
        kind="test",
        tenant=TENANT,
        subject="msg_1",
        **rest,
    )


def answer(claimed: Claimed, result: Result = OK, **changes: Any) -> Settlement:
    """Return what the holder of this claim says."""
    work = claimed.work
    assert work.claimed_by is not None
    given: dict[str, Any] = {
        "work": work.id,
        "claim": work.claim,
        "node": work.claimed_by,
        "lane": work.lane,
        "kind": work.kind,
        "order_key": work.order_key,
        "attempt": new_attempt_id(),
        "begun_at": work.claimed_at,
        "ended_at": work.claimed_at,
        "result": result,
    }
    return Settlement(**{**given, **changes})


@contextmanager
def statements(tx: Tx):
    """Collect the text of every statement that runs inside."""
    seen: list[str] = []

    def note(conn: object, cursor: object, statement: str, *rest: object) -> None:
        seen.append(statement)

    event.listen(tx.conn, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(tx.conn, "before_cursor_execute", note)
