"""Cases 18, 19a and 20: processes that stop and go on, databases that go and come back.

Real processes under traffic, every kernel duration divided by ten.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import asyncpg
import pytest

from tenure.clock import SystemClock
from tenure.store.backend import open_backend
from tests.crash.fleet import Fleet, fleet
from tests.crash.restarts import attempts_of, count, wait_settled
from tests.crash.sink import Sink
from tests.crash.stressed import (
    FACTOR,
    PATIENCE,
    SETTINGS,
    SLOTS,
    endpoints,
    lines,
    nodes_of,
    until_holding,
    until_nodes,
)
from tests.crash.test_outage import Stoppable, postgres
from tests.databases import asyncpg_dsn

__all__ = ["postgres"]

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


async def test_case_18_a_stopped_process_starts_nothing_old_when_it_goes_on(
    postgres_url: str, tmp_path: Path
) -> None:
    messages, lanes, clock = 20, 6, SystemClock()
    async with (
        Sink(delay=0.4) as sink,
        fleet(postgres_url, tmp_path, nodes=2, settings=SETTINGS) as running,
    ):
        app = await endpoints(running, sink, lanes)
        (stopped, _) = running.nodes
        assert stopped.process is not None
        (first, _) = await nodes_of(postgres_url)
        # The other node alone accepts: who is stopped answers nobody.
        keys = [f"key-{at}" for at in range(messages)]
        sending = Fleet(nodes=running.nodes[1:])
        async with asyncio.TaskGroup() as group:
            group.create_task(sending.submit_all(app, keys))
            await until_holding(postgres_url, first.id, SLOTS // 4)
            stopped.process.send_signal(signal.SIGSTOP)
        held = await until_holding(postgres_url, first.id, 0)
        await until_nodes(postgres_url, ["closed", "open"])
        await sink.wait_distinct(messages * lanes, PATIENCE)
        await wait_settled(postgres_url, messages * lanes)

        before, resumed_us = sink.total, clock.wall_us()
        stopped.process.send_signal(signal.SIGCONT)
        rows = await until_nodes(postgres_url, ["closed", "open", "open"])
        assert rows[0].closed_why == "silent"
        await running.submit_all(app, ["afterwards-1", "afterwards-2"])
        await wait_settled(postgres_url, (messages + 2) * lanes)
        caught = sink.total - before - 2 * lanes
        begun = await attempts_of(
            postgres_url, f"node = {rows[0].id} AND begun_at > {resumed_us}"
        )
        duplicates = sink.total - len(sink.seen)
        lost = await attempts_of(postgres_url, "outcome = 'lost'")
        print(
            f"stopped with {held} claims, lost {lost}, duplicated {duplicates};"
            f" caught between check and write {caught} (at most {SLOTS}), started anew"
            f" under an old claim {begun}"
        )
        assert begun == 0
        assert caught <= SLOTS
        assert duplicates <= lost <= held
        assert await count(postgres_url, "state = 'parked'") == 0
        assert lines(running, "node closed by others") == [1, 0]


async def kill_backends(url: str, rounds: int) -> int:
    """End every session of a database twice a second; return how many were ended."""
    ended = 0
    connection = await asyncpg.connect(asyncpg_dsn(url))
    try:
        for _ in range(rounds):
            ended += await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await asyncio.sleep(0.5)
    finally:
        await connection.close()
    return ended


@pytest.mark.long
async def test_cases_19a_and_20_a_database_that_comes_and_goes_costs_only_time(
    postgres: Stoppable, tmp_path: Path
) -> None:
    messages, lanes, clock = 120, 3, SystemClock()
    keys = [f"key-{at}" for at in range(messages)]
    backend = await open_backend(postgres.url)
    await backend.migrate(post=True)
    await backend.aclose()
    async with (
        Sink(delay=0.1) as sink,
        fleet(postgres.url, tmp_path, nodes=2, settings=SETTINGS) as running,
    ):
        app = await endpoints(running, sink, lanes)
        opened = await until_nodes(postgres.url, ["open", "open"])
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(running.submit_all(app, keys, callers=4))
            ended = await kill_backends(postgres.url, 6)
            await postgres.stop()
            # 90 s by the factor: longer than a node may be silent.
            await asyncio.sleep(90 / FACTOR)
            began = clock.monotonic()
            await postgres.start()
            await sending
        await wait_settled(postgres.url, messages * lanes)
        took = clock.monotonic() - began
        lost = await attempts_of(postgres.url, "outcome = 'lost'")
        print(
            f"accepted {len(running.accepted)}, sessions ended {ended}, refused"
            f" {running.refused}, claims lost {lost}, duplicated"
            f" {sink.total - len(sink.seen)}, all settled {took:.1f} s after the start"
        )
        assert len(sink.seen) == messages * lanes
        assert set(sink.seen.values()) == {1}
        assert lost == 0
        assert await count(postgres.url, "failures > 0 OR losses > 0") == 0
        after = await nodes_of(postgres.url)
        assert [(row.id, row.state) for row in after] == [
            (row.id, "open") for row in opened
        ]
        assert lines(running, r"\] fenced") == [1, 1]
        assert lines(running, r"\] worker loop failed") == [0, 0]
