"""Three nodes tick; one is stopped and goes on, one is killed: each window has its run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from tenure.clock import SystemClock
from tenure.config import Settings
from tenure.engine import Engine
from tenure.outbox.keyring import new_key
from tenure.store.backend import Backend, open_backend
from tests.crash.many import jobs_of
from tests.invariants import faults

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
SHARE = 4
"""Three nodes and the database share two cores, and one node at a time is missing."""
SECOND_US = 1_000_000


async def calibrated(url: str, keys: str) -> int:
    """Return how many runs a second one node here carries through, by trying."""
    packages = jobs_of(1)
    settings = Settings(
        database_url=url, secret_keys=(SecretStr(keys),), schedules=False
    )
    clock = SystemClock()
    async with Engine(settings, packages=packages) as engine:
        schedules = engine.schedules
        (job,) = await schedules.list_jobs("default", package="many")  # pyright: ignore[reportArgumentType]
        began = clock.monotonic()
        calls = [b"{}"] * 1_000
        coordinate = job.definition.coordinate
        await schedules.submit_declared(coordinate, calls, {})
        while await open_runs(engine.backend):
            await asyncio.sleep(0.02)
        return round(len(calls) / (clock.monotonic() - began))


async def open_runs(backend: Backend) -> int:
    count: int = await backend.read(
        lambda tx: tx.scalar("SELECT count(*) FROM job_run WHERE state = 'open'")
    )
    return count


async def start(url: str, keys: str, jobs: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.many", url, keys, str(jobs)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(15, id="short"),
        pytest.param(60, id="whole", marks=pytest.mark.long),
    ],
)
async def test_stopped_and_killed_nodes_cost_no_window_and_double_none(
    postgres_url: str, seconds: int
):
    keys = new_key()
    carried = await calibrated(postgres_url, keys)
    jobs = max(5, carried // SHARE)
    nodes = [await start(postgres_url, keys, jobs) for _ in range(3)]
    backend = await open_backend(postgres_url)
    try:
        await asyncio.sleep(seconds / 5)
        os.kill(nodes[0].pid, signal.SIGSTOP)
        await asyncio.sleep(seconds / 5)
        nodes[1].kill()
        await nodes[1].wait()
        await asyncio.sleep(seconds / 5)
        os.kill(nodes[0].pid, signal.SIGCONT)
        await asyncio.sleep(2 * seconds / 5)
        await pause_all(backend)
        async with asyncio.timeout(120):
            while await open_runs(backend):
                await asyncio.sleep(0.2)
        windows = await backend.read(
            lambda tx: tx.all(
                "SELECT w.job, count(*) AS n, min(w.at) AS lo, max(w.at) AS hi,"
                " sum(CASE WHEN w.state = 'succeeded' THEN 1 ELSE 0 END) AS good,"
                " sum(CASE WHEN w.state = 'skipped' THEN w.windows ELSE 0 END) AS skipped"
                " FROM job_window w GROUP BY w.job"
            )
        )
        runs = await backend.read(
            lambda tx: tx.scalar(
                "SELECT count(*) FROM job_run WHERE window_at IS NOT NULL"
            )
        )
        assert await backend.read(faults) == []
    finally:
        await backend.aclose()
        for node in (nodes[0], nodes[2]):
            node.terminate()
            await node.wait()
    assert len(windows) == jobs
    for row in windows:
        assert row.n == row.good == (row.hi - row.lo) // SECOND_US + 1
        assert row.skipped == 0
    assert runs == sum(row.n for row in windows)
    sys.stdout.write(
        f"one node carries {carried} runs/s; {jobs} jobs a second for {seconds} s:"
        f" {runs} windows, one run each\n"
    )


async def pause_all(backend: Backend) -> None:
    """Let nothing fire any more, so that what there is can be counted."""
    await backend.write(
        lambda tx: tx.run(
            "UPDATE job SET due_at = NULL, paused_at = 1 WHERE package = 'many'"
        )
    )
