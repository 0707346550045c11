"""T9: jobs that fire, beside plain inserts, and beside what must not matter.

Ten thousand jobs come due in one second and are ticked by one node, a transaction for
each five hundred; the yardstick is twice as many work rows inserted in batches of the
same size, in the same database. Then a tick of a few jobs is timed with a hundred
thousand schedules beside it, and with years of windows kept.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

from benchmarks.databases import SHOWN, Dialect, opened
from benchmarks.figures import Figure, Result
from tenure.ids import LaneId, NodeId, TenantId, new_job_id, new_work_id
from tenure.naming.coordinates import Coordinate
from tenure.schedules import tables
from tenure.schedules.calendar.model import encode
from tenure.schedules.calendar.parsing import parse_schedule
from tenure.schedules.ledger import catalogue, ticking
from tenure.schedules.model import Definition, JobSettings, Overlap
from tenure.store import claims, nodes, schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.runs import Run
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

TENANT: Final = TenantId("default")
BATCH: Final = 500
HOUR_US: Final = 3_600_000_000
_NAMES: Final = (
    "id",
    "tenant",
    "package",
    "name",
    "code",
    "lane",
    "definition",
    "body",
)
_TIMES: Final = ("nominal_at", "due_at", "edited_at", "created_at")


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        result.add(await _burst(given, dialect))
        result.add(await _beside(given, dialect))
    return result


async def _burst(given: Run, dialect: Dialect) -> Result:
    count = given.pick(tiny=200, quick=2_000, full=10_000)
    async with opened(await given.databases.fresh(dialect)) as backend:
        node, code = await _ready(backend)
        plain = await _inserted(backend, 2 * count)
        await _load(backend, code, count, spread_us=1_000_000, ahead_us=0)
        backend.clock_offset_us += 2_000_000
        lags: list[int] = []
        began = time.perf_counter()
        while (ticked := await backend.write(_tick(node))).jobs:
            lags += [round((time.perf_counter() - began) * 1e6)] * ticked.jobs
        took = time.perf_counter() - began
    assert len(lags) == count, "every job is ticked once"
    late = statistics.quantiles(lags, n=100)[98] / 1e6
    return Result(
        figures=[
            Figure(
                mark="T9",
                what=f"{count:,} jobs due in one second, {SHOWN[dialect]}",
                measured=f"{took:.2f} s, {count / took:,.0f} jobs/s, lag p99 {late:.2f} s;"
                f" {2 * count:,} rows inserted in {plain:.2f} s",
                ratio=took / plain,
                at_most=3,
            )
        ]
    )


async def _beside(given: Run, dialect: Dialect) -> Result:
    """Time a tick of 28 jobs alone, among many schedules, and with many windows."""
    due, many = 28, given.pick(tiny=500, quick=10_000, full=100_000)
    kept = given.pick(tiny=500, quick=20_000, full=400_000)
    async with opened(await given.databases.fresh(dialect)) as backend:
        node, code = await _ready(backend)
        rounds = given.pick(tiny=3, quick=10, full=30)

        async def measured() -> float:
            times: list[float] = []
            for _ in range(rounds):
                await _load(backend, code, due, spread_us=0, ahead_us=0)
                backend.clock_offset_us += 2
                began = time.perf_counter()
                ticked = await backend.write(_tick(node))
                times.append(time.perf_counter() - began)
                assert ticked.fired == due, "what was due has fired"
            return statistics.median(times)

        alone = await measured()
        await _load(backend, code, many, spread_us=HOUR_US, ahead_us=HOUR_US)
        among = await measured()
        await _windows(backend, kept)
        after = await measured()
    return Result(
        figures=[
            Figure(
                mark="T9",
                what=f"a tick of {due} jobs among {many:,} schedules, {SHOWN[dialect]}",
                measured=f"{among * 1e3:.1f} ms, alone {alone * 1e3:.1f} ms",
                ratio=among / alone,
                at_most=1.5,
            ),
            Figure(
                mark="T9",
                what=f"the same with {kept:,} windows kept, {SHOWN[dialect]}",
                measured=f"{after * 1e3:.1f} ms",
                ratio=after / alone,
                at_most=1.5,
            ),
        ]
    )


def _tick(node: NodeId) -> Callable[[Tx], ticking.Ticked]:
    return lambda tx: ticking.tick(tx, node, limit=BATCH)


async def _ready(backend: Backend) -> tuple[NodeId, str]:
    """Open a node that has the code of one job; return both."""

    def ready(tx: Tx) -> tuple[NodeId, str]:
        node = nodes.open_node(
            tx, name="n", host="h", pid=1, version="b", serves="", lock_path=None
        )
        code = Coordinate(package="bench", name="code")
        body = Definition(package=code.package, name=code.name)
        found = catalogue.enrol(tx, node, TENANT, {code: body})
        return node, found.ids[code]

    return await backend.write(ready)


async def _load(
    backend: Backend, code: str, count: int, *, spread_us: int, ahead_us: int
) -> None:
    """Store jobs that come due over a span from now on, and each hour after."""
    schedule = encode(parse_schedule(every="1h"))
    settings = JobSettings(overlap=Overlap.ALLOW)

    def load(tx: Tx, first: int) -> None:
        now = tx.now
        low = tx.scalar("SELECT coalesce(max(id), 0) FROM lane")
        rows: list[tuple[object, ...]] = []
        for n in range(first, min(count, first + BATCH)):
            name, at = f"job_{n}", now + ahead_us + spread_us * n // max(1, count)
            body = Definition(
                package="env", name=name, schedule=schedule, settings=settings
            )
            lane = low + 1 + n - first
            due = at - at % HOUR_US if not spread_us else at
            rows.append(
                (
                    *(new_job_id(), TENANT, "env", name, code, lane, "", body.encode()),
                    *(due, at, due - 1, now),
                )
            )
        tx.insert_records(tables.job, (*_NAMES, *_TIMES), rows)
        tx.insert_records(tables.job_counter, ("job",), [(row[0],) for row in rows])
        tx.insert_records(
            schema.lane,
            ("id", "kind", "tenant", "subject", "needs", "deadline_us", "created_at"),
            [(row[5], "job", TENANT, row[0], "job:x", 1, now) for row in rows],
        )

    for first in range(0, count, BATCH):
        await backend.write(lambda tx, first=first: load(tx, first))


async def _windows(backend: Backend, count: int) -> None:
    """Keep windows of the jobs that there are, as years leave them."""

    def load(tx: Tx, first: int) -> None:
        jobs = [row[0] for row in tx.all("SELECT id FROM job ORDER BY id LIMIT 28")]
        tx.insert_records(
            tables.job_window,
            ("job", "at", "state", "created_at"),
            [
                (jobs[n % len(jobs)], n * 1_000_000, "succeeded", 1)
                for n in range(first, min(count, first + BATCH))
            ],
        )

    for first in range(0, count, BATCH):
        await backend.write(lambda tx, first=first: load(tx, first))


async def _inserted(backend: Backend, count: int) -> float:
    """Return how long it takes to insert so many work rows in batches."""

    def insert(tx: Tx) -> None:
        claims.submit(
            tx,
            [
                claims.NewWork(
                    id=new_work_id(),
                    lane=LaneId(1),
                    kind="bench",
                    tenant=TENANT,
                    subject="x",
                )
                for _ in range(BATCH)
            ],
        )

    began = time.perf_counter()
    for _ in range(-(-count // BATCH)):
        await backend.write(insert)
    return time.perf_counter() - began
