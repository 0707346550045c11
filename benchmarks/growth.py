"""T5 and cases 23, 24: what a claim costs beside everything that must not matter.

Two databases side by side on one server: 1,000 rows due in 20 lanes, and the same with
a load. Each claim takes 50 rows and is rolled back. Counted are the pages that the
server's own plans report (PostgreSQL) or the steps of the virtual machine (SQLite); the
time is the median of 20 claims, in turn on both.

The fleet's closed lanes come last: they have due rows, so a walk does visit them, 256 a
step. That is not flat by design, only bounded, and so is printed and not judged.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.databases import SHOWN, Dialect, opened
from benchmarks.figures import Figure, Result, median, ms
from benchmarks.loading import DAY_US, load_lanes, load_work
from benchmarks.runs import Run
from tenure.ids import NodeId, TenantId
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.claims import Walker
from tenure.store.lanes import add_group
from tenure.store.tx import Tx

WANT: Final = 50
LANE_MAX: Final = 25
LANES: Final = 20
TIMES: Final = 20
TENANT: Final = TenantId("default")
EXPLAIN: Final = (
    "LOAD 'auto_explain'",
    "SET auto_explain.log_min_duration = 0",
    "SET auto_explain.log_analyze = on",
    "SET auto_explain.log_timing = off",
    "SET auto_explain.log_buffers = on",
    "SET auto_explain.log_format = json",
    "SET auto_explain.log_level = notice",
)
SILENT: Final = ("SET auto_explain.log_min_duration = -1",)


class _Undone(Exception):
    """Rolls a claim back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load, and whether a claim must not feel it."""

    name: str
    load: Callable[[Tx, int, Callable[[int], int]], None]
    judged: bool = True


@dataclass(slots=True, kw_only=True)
class Yard:
    """One database and a node in it."""

    backend: Backend
    group: int
    node: NodeId
    pages: list[int] = field(default_factory=list[int])

    async def do(self, fn: Callable[[Tx], Any]) -> Any:
        """Run in a transaction of its own."""
        return await self.backend.write(fn)

    async def claim(self, *, steps: bool = False) -> tuple[float, int, int]:
        """Claim and undo; return (seconds, rows, steps of SQLite)."""
        rows = counted = 0
        seconds = 0.0

        def run(tx: Tx) -> None:
            nonlocal rows, seconds, counted
            walker = Walker(node=self.node, serves=frozenset({"test"}))

            def step() -> int:
                nonlocal counted
                counted += 10
                return 0

            raw: Any = tx.conn.connection.driver_connection
            if steps:
                raw.set_progress_handler(step, 10)
            began = time.perf_counter()
            found = walker.claim(tx, WANT, busy={}, lane_max=LANE_MAX)
            seconds = time.perf_counter() - began
            if steps:
                raw.set_progress_handler(None, 0)
            rows = len(found.claimed)
            raise _Undone

        with contextlib.suppress(_Undone):
            await self.do(run)
        return seconds, rows, counted

    async def cost(self) -> tuple[int, int]:
        """Return (pages or steps of one claim, rows that it took)."""
        if self.backend.dialect == "sqlite":
            await self.claim()
            _, rows, counted = await self.claim(steps=True)
            return counted, rows
        await self.do(self._explain)
        await self.claim()
        self.pages.clear()
        _, rows, _ = await self.claim()
        pages = sum(self.pages)
        await self.do(lambda tx: _all(tx, SILENT))
        return pages, rows

    def _explain(self, tx: Tx) -> None:
        raw: Any = tx.conn.connection.driver_connection
        raw.add_log_listener(self._listen)
        _all(tx, EXPLAIN)

    def _listen(self, _: object, message: Any) -> None:
        _, found, plan = message.message.partition("plan:")
        if found:
            self.pages.append(_pages_of(json.loads(plan)["Plan"]))


def _pages_of(plan: dict[str, Any]) -> int:
    pages: int = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    return pages


def _all(tx: Tx, texts: tuple[str, ...]) -> None:
    for text in texts:
        tx.conn.exec_driver_sql(text)


def _settled(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    load_work(
        tx,
        "settled",
        of(1_000_000),
        lane=f"{group << 24} + 1 + i % {LANES}",
        state="succeeded",
        phase=None,
        due_in=None,
    )


def _paused(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    load_lanes(tx, group, LANES + 1, 1, state="paused")
    load_work(tx, "paused", of(200_000), lane=str((group << 24) + LANES + 1))


def _tomorrow(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    del group
    other, count = add_group(tx, TENANT), of(50_000)
    load_lanes(tx, other, 1, count, state="open")
    load_work(
        tx, "future", count, lane=f"{other << 24} + i", phase="later", due_in=DAY_US
    )


def _delayed(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    load_work(
        tx,
        "delayed",
        of(200_000),
        lane=str((group << 24) + 1),
        phase="later",
        due_in=DAY_US,
        priority=0,
    )


def _together(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    for load in (_settled, _paused, _tomorrow, _delayed):
        load(tx, group, of)


def _closed(tx: Tx, group: int, of: Callable[[int], int]) -> None:
    del of
    other = add_group(tx, TENANT)
    load_lanes(tx, other, 1, 1_000, state="paused")
    load_work(tx, "closed", 20_000, lane=f"{other << 24} + 1 + i % 1000")
    del group


SCENARIOS: Final = (
    Scenario(name="1,000,000 settled", load=_settled),
    Scenario(name="200,000 behind a paused lane", load=_paused),
    Scenario(name="50,000 lanes due tomorrow", load=_tomorrow),
    Scenario(name="200,000 delayed, first priority", load=_delayed),
    Scenario(name="all four", load=_together),
    Scenario(name="1,000 closed lanes with backlog", load=_closed, judged=False),
)


async def run(given: Run, scenarios: Sequence[Scenario] = SCENARIOS) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        async with _yard(given, dialect) as plain:
            for scenario in scenarios:
                async with _yard(given, dialect) as loaded:
                    await _load(given, loaded, scenario)
                    for yard in (plain, loaded):
                        await _tidy(given, yard)
                    result.figures += await _compare(dialect, scenario, plain, loaded)
    if given.size != "full":
        share = f"{given.pick(tiny=1_000, quick=10, full=1)}"
        result.notes.append(f"T5 with a {share}th of the counts that are named")
    return result


@contextlib.asynccontextmanager
async def _yard(given: Run, dialect: Dialect) -> AsyncGenerator[Yard]:
    url = await given.databases.fresh(dialect)
    async with opened(url) as backend:
        yield await backend.write(lambda tx: _base(tx, backend))
    await given.databases.remove(url)


def _base(tx: Tx, backend: Backend) -> Yard:
    group = add_group(tx, TENANT)
    load_lanes(tx, group, 1, LANES, state="open")
    load_work(tx, "base", 1_000, lane=f"{group << 24} + 1 + i % {LANES}")
    node = nodes.open_node(
        tx, name="n", host="host", pid=1, version="1", serves="test", lock_path=None
    )
    return Yard(backend=backend, group=group, node=node)


async def _load(given: Run, yard: Yard, scenario: Scenario) -> None:
    divisor = given.pick(tiny=1_000, quick=10, full=1)

    def load(tx: Tx) -> None:
        if tx.dialect == "postgresql":
            tx.run("SET LOCAL statement_timeout = 0")
        scenario.load(tx, yard.group, lambda count: count // divisor)

    await yard.do(load)


async def _tidy(given: Run, yard: Yard) -> None:
    """Remove what claims that were undone left behind, and count afresh."""
    if yard.backend.dialect == "postgresql":
        url = yard.backend.url.render_as_string(hide_password=False)
        await given.databases.ask("VACUUM ANALYZE work", url)
    else:
        await yard.do(lambda tx: tx.run("ANALYZE work"))


async def _compare(
    dialect: Dialect, scenario: Scenario, plain: Yard, loaded: Yard
) -> list[Figure]:
    before, _ = await plain.cost()
    after, rows = await loaded.cost()
    if rows != WANT and scenario.judged:
        raise RuntimeError(f"{rows} of {WANT} rows were taken beside {scenario.name}")
    times: dict[int, list[float]] = {0: [], 1: []}
    for _, at, yard in _turns(plain, loaded):
        times[at].append((await yard.claim())[0])
    quick, slow = median(times[0]), median(times[1])
    where = f"{scenario.name}, {SHOWN[dialect]}"
    what = "pages" if dialect == "postgresql" else "steps"
    judged = scenario.judged
    return [
        Figure(
            mark="T5",
            what=f"claim's {what}: {where}",
            measured=f"{after / before:.2f}: {after:,} beside {before:,}",
            ratio=after / before,
            at_most=1.25 if judged else None,
        ),
        Figure(
            mark="T5",
            what=f"claim's time: {where}",
            measured=f"{slow / quick:.2f}: {ms(slow)} beside {ms(quick)}",
            ratio=slow / quick,
            at_most=1.5 if judged else None,
        ),
    ]


def _turns(plain: Yard, loaded: Yard) -> Iterator[tuple[int, int, Yard]]:
    for number in range(TIMES):
        yield number, 0, plain
        yield number, 1, loaded
