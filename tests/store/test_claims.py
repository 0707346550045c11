"""What the hot statements cost: pages read on PostgreSQL, steps run on SQLite.

Counts, not times: they are the same on a busy machine. The full counts run in the
benchmarks; here is a tenth of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event

from tenure.ids import LaneId
from tenure.store import claims, schema
from tenure.store.claims import Claimed, SweepRule, Walker
from tenure.store.claims.sweeping import candidates
from tenure.store.tx import Tx
from tests.store.yard import DEADLINE_US, SECOND, TENANT, Yard, answer

WANT = 50
DAY = 86_400 * SECOND
FAR_LANES = 5_000


class Undone(Exception):
    """Rolls a measurement back."""


def load(
    tx: Tx,
    name: str,
    count: int,
    *,
    lane: str,
    state: str = "ready",
    phase: str | None = "due",
    priority: int = 2,
    due_in: int | None = 0,
) -> None:
    """Insert many rows; `lane` is an expression over the row's number i."""
    series = (
        "generate_series(1, :n) AS g(i)"
        if tx.dialect == "postgresql"
        else "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < :n) SELECT i FROM n) AS g"
    )
    over = state in {"succeeded", "dead", "cancelled"}
    tx.run(
        "INSERT INTO work (id, lane, kind, tenant, subject, state, phase, priority,"
        " due_at, created_at, settled_at, reason)"
        f" SELECT 'wrk_{name}' || (1000000000 + i), {lane}, 'test', 'default', 'm',"
        f" '{state}', {'NULL' if phase is None else repr(phase)}, {priority},"
        f" {'NULL' if due_in is None else tx.now + due_in}, {tx.now},"
        f" {tx.now if over else 'NULL'}, NULL FROM {series}",
        {"n": count},
    )


async def lanes_of(yard: Yard, count: int) -> list[LaneId]:
    group = await yard.group()
    return [await yard.lane(group) for _ in range(count)]


async def base(yard: Yard) -> list[LaneId]:
    """1,000 rows due in 20 lanes."""
    made = await lanes_of(yard, 20)
    await yard.do(lambda tx: load(tx, "base", 1_000, lane=f"{made[0]} + i % 20"))
    return made


async def other_load(yard: Yard) -> None:
    """A tenth of the backlogs that must not cost other lanes anything."""
    paused = await yard.lane(state="paused")
    delayed = await yard.lane()
    far = (await yard.group()) << 24

    def fill(tx: Tx) -> None:
        tx.insert(
            schema.lane,
            [
                {
                    "id": far + number,
                    "kind": "test",
                    "tenant": TENANT,
                    "subject": "ep_1",
                    "needs": "test",
                    "deadline_us": DEADLINE_US,
                    "created_at": tx.now,
                }
                for number in range(1, FAR_LANES + 1)
            ],
        )
        load(
            tx,
            "settled",
            100_000,
            lane="(1 << 24) | (1 + i % 20)",
            state="succeeded",
            phase=None,
            due_in=None,
        )
        load(tx, "paused", 20_000, lane=str(paused))
        load(tx, "future", FAR_LANES, lane=f"{far} + i", phase="later", due_in=DAY)
        load(
            tx,
            "delayed",
            20_000,
            lane=str(delayed),
            phase="later",
            due_in=DAY,
            priority=0,
        )

    await yard.do(fill)


# --- PostgreSQL ----------------------------------------------------------------------------


@dataclass(slots=True)
class Plans:
    """The plans that one connection really ran, as the server tells them."""

    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def listen(self, _: object, message: Any) -> None:
        _, found, plan = message.message.partition("plan:")
        if found:
            self.seen.append(json.loads(plan))

    def pages(self) -> int:
        return sum(pages_of(plan["Plan"]) for plan in self.seen)

    def faults(self) -> list[str]:
        """Name plans that read `work` from end to end."""
        return [
            f"{node['Node Type']}: {plan['Query Text']}"
            for plan in self.seen
            for node in nodes_of(plan["Plan"])
            if node.get("Relation Name") == "work"
            and node["Node Type"] in {"Seq Scan", "Bitmap Heap Scan"}
        ]


def pages_of(plan: dict[str, Any]) -> int:
    return plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)


async def watch(yard: Yard) -> Plans:
    """Have the yard's connection say what it runs; it has one at a time."""
    plans = Plans()

    def start(tx: Tx) -> None:
        raw = tx.conn.connection.driver_connection
        assert isinstance(raw, asyncpg.Connection)
        raw.add_log_listener(plans.listen)
        for text in (
            "LOAD 'auto_explain'",
            "SET auto_explain.log_min_duration = 0",
            "SET auto_explain.log_analyze = on",
            "SET auto_explain.log_timing = off",
            "SET auto_explain.log_buffers = on",
            "SET auto_explain.log_format = json",
            "SET auto_explain.log_level = notice",
        ):
            tx.conn.exec_driver_sql(text)

    await yard.do(start)
    return plans


@dataclass(slots=True)
class Verbs:
    """Every hot verb, run once and undone."""

    yard: Yard
    walker: Walker
    guarded: bool = True
    claimed: list[Claimed] = field(default_factory=list[Claimed])

    async def undone(self, fn: Callable[[Tx], None]) -> None:
        def run(tx: Tx) -> None:
            if not self.guarded:
                tx.run("SET LOCAL enable_seqscan = on")
                tx.run("SET LOCAL enable_bitmapscan = on")
                tx.run("SET LOCAL enable_hashjoin = on")
                tx.run("SET LOCAL enable_mergejoin = on")
            fn(tx)
            raise Undone

        with pytest.raises(Undone):
            await self.yard.do(run)

    def claim(self, tx: Tx) -> None:
        walker = Walker(node=self.walker.node, serves=self.walker.serves)
        found = walker.claim(tx, WANT, busy={}, lane_max=25)
        self.claimed = [*found.claimed]

    def cycle(self, tx: Tx) -> None:
        """Claim, settle most, and look for the lost and the forgotten."""
        self.claim(tx)
        kept, *done = self.claimed or [None]
        claims.settle(
            tx, [answer(one) for one in done if one is not None], self.yard.kinds
        )
        if kept is not None:
            claims.release(tx, self.walker.node, [(kept.work.id, kept.work.claim)])
        claims.reconcile(tx, self.walker.node, [], 10 * SECOND, unheld_before=[])
        candidates(tx, SweepRule())


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("statistics", ["never analyzed", "analyzed while empty"])
async def test_plans_made_on_empty_tables_stay_cheap_when_they_fill(
    yard: Yard, statistics: str
):
    plans, verbs = await filled_after_planning(yard, statistics, guarded=True)
    await verbs.undone(verbs.cycle)
    assert len(verbs.claimed) == WANT
    assert plans.faults() == []
    worst = max(plans.seen, key=lambda plan: pages_of(plan["Plan"]))
    assert pages_of(worst["Plan"]) < 2_000, worst["Query Text"]


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_without_the_guard_the_same_plans_read_the_whole_table(yard: Yard):
    plans, verbs = await filled_after_planning(
        yard, "analyzed while empty", guarded=False
    )
    await verbs.undone(verbs.claim)
    assert plans.faults() != []


async def filled_after_planning(
    yard: Yard, statistics: str, *, guarded: bool
) -> tuple[Plans, Verbs]:
    """Plan every statement on nearly empty tables, then load 100,000 rows."""
    made = await lanes_of(yard, 20)
    verbs = Verbs(yard=yard, walker=await yard.walker(), guarded=guarded)
    await yard.do(lambda tx: tx.run("ALTER TABLE work SET (autovacuum_enabled = off)"))
    if statistics == "analyzed while empty":
        await yard.do(lambda tx: tx.run("ANALYZE work"))
    (first,) = await yard.submit(made[0])
    plans = await watch(yard)
    for _ in range(8):  # from the sixth on, PostgreSQL may keep a generic plan
        await verbs.undone(verbs.cycle)
    await yard.do(lambda tx: tx.run("DELETE FROM work WHERE id = :id", {"id": first}))
    await yard.do(lambda tx: load(tx, "many", 100_000, lane=f"{made[0]} + i % 20"))
    plans.seen.clear()
    return plans, verbs


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_claim_reads_no_more_pages_whatever_else_is_stored(yard: Yard):
    await base(yard)
    await yard.do(lambda tx: tx.run("ANALYZE work"))
    verbs = Verbs(yard=yard, walker=await yard.walker())
    plans = await watch(yard)
    await verbs.undone(verbs.claim)
    plans.seen.clear()
    await verbs.undone(verbs.claim)
    before, taken = plans.pages(), [one.work.id for one in verbs.claimed]
    await other_load(yard)
    await yard.do(lambda tx: tx.run("ANALYZE work"))
    await verbs.undone(verbs.claim)
    plans.seen.clear()
    await verbs.undone(verbs.claim)
    assert len(verbs.claimed) == len(taken) == WANT
    assert plans.faults() == []
    assert plans.pages() <= 1.25 * before


# --- SQLite --------------------------------------------------------------------------------


async def steps(verbs: Verbs) -> int:
    """Count the virtual machine's steps of one claim, to the nearest ten."""
    count = 0

    def counted(tx: Tx) -> None:
        nonlocal count
        raw: Any = tx.conn.connection.driver_connection

        def step() -> int:
            nonlocal count
            count += 10
            return 0

        raw.set_progress_handler(step, 10)
        try:
            verbs.claim(tx)
        finally:
            raw.set_progress_handler(None, 0)

    await verbs.undone(counted)
    return count


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_claim_runs_no_more_steps_whatever_else_is_stored(yard: Yard):
    await base(yard)
    verbs = Verbs(yard=yard, walker=await yard.walker())
    before = await steps(verbs)
    await other_load(yard)
    after = await steps(verbs)
    assert len(verbs.claimed) == WANT
    assert before > 0
    assert after <= 1.25 * before


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_no_hot_statement_scans_the_table(yard: Yard):
    await base(yard)
    verbs = Verbs(yard=yard, walker=await yard.walker())
    plans: list[str] = []

    def explained(tx: Tx) -> None:
        asked: list[tuple[str, Any]] = []

        def note(
            conn: object, cursor: object, statement: str, parameters: Any, *rest: object
        ) -> None:
            asked.append((statement, parameters))

        event.listen(tx.conn, "before_cursor_execute", note)
        verbs.cycle(tx)
        event.remove(tx.conn, "before_cursor_execute", note)
        for statement, parameters in asked:
            if not statement.startswith(("SELECT", "UPDATE", "\nUPDATE", "DELETE")):
                continue
            found = tx.conn.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
            plans.extend(f"{row[3]} | {statement[:200]}" for row in found)

    await verbs.undone(explained)
    assert len(verbs.claimed) == WANT
    of_work = [
        plan for plan in plans if plan.split(" | ")[0].split()[1:2] in (["w"], ["work"])
    ]
    assert of_work
    scanned = [plan for plan in of_work if plan.startswith("SCAN")]
    # The first entry of what is later, and all that is claimed: both are short.
    short = ("USING INDEX ix_work_later", "USING INDEX ix_work_claimed")
    assert [plan for plan in scanned if not any(name in plan for name in short)] == []
    used = " ".join(of_work)
    for index in ("ix_work_due", "ix_work_later", "ix_work_claimed"):
        assert index in used
