"""Two builds on one database: the new one renames the jobs and moves them elsewhere.

It is rolled out, rolled back in the middle, and rolled out again, while a job fires ten
times a second and records are reminded of. Each window and each record is called once,
and each job has one history.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tenure.outbox.keyring import new_key
from tenure.store.backend import open_backend
from tests.invariants import faults
from tests.upgrade.jobs import RECORDS

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
WINDOWS = 200


class Builds:
    """The processes that run."""

    def __init__(self, url: str, file: Path) -> None:
        self._url, self.file = url, file
        self._keys = new_key()
        self._began = datetime.now(UTC).isoformat()
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self, build: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.upgrade.jobs", build),
            *(self._url, self._keys, str(self.file), self._began),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        self.running.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        return process

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        self.running.remove(process)
        process.terminate()
        async with asyncio.timeout(60):
            await process.wait()

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    async def until(self, windows: int) -> None:
        async with asyncio.timeout(120):
            while sum(" window " in line for line in self.lines()) < windows:  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.1)


async def test_a_rollout_that_renames_moves_and_is_rolled_back_fires_each_once(
    postgres_url: str, tmp_path: Path
):
    builds = Builds(postgres_url, tmp_path / "calls")
    try:
        first, second = await builds.start("old"), await builds.start("old")
        await builds.until(30)
        new = await builds.start("new")  # the roll-out
        await builds.stop(first)
        await builds.until(80)
        back = await builds.start("old")  # rolled back
        await builds.stop(new)
        await builds.until(120)
        await builds.start("new")  # and out again
        await builds.stop(second)
        await builds.start("new")
        await builds.stop(back)
        await builds.until(WINDOWS)
        async with asyncio.timeout(60):
            while sum(" record " in line for line in builds.lines()) < RECORDS:  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.1)
    finally:
        for process in list(builds.running):
            await builds.stop(process)
    called = Counter(line.partition(" ")[2] for line in builds.lines())
    assert {line: n for line, n in called.items() if n > 1} == {}
    assert sum("record" in line for line in called) == RECORDS
    by = Counter(line.split()[0] for line in builds.lines())
    assert min(by["old"], by["new"]) > 20
    backend = await open_backend(postgres_url)
    try:
        assert await backend.read(faults) == []
        jobs = await backend.read(
            lambda tx: tx.all("SELECT id, name FROM job WHERE package <> 'builtin'")
        )
        assert sorted(row.name for row in jobs) == ["beat", "nudge"]
        beat = next(row.id for row in jobs if row.name == "beat")
        windows = await backend.read(
            lambda tx: tx.all(
                "SELECT count(*) AS n, count(DISTINCT w.at) AS instants, min(w.at) AS lo,"
                " max(w.at) AS hi FROM job_window w WHERE w.job = :job"
                " AND w.state <> 'skipped'",
                {"job": beat},
            )
        )
    finally:
        await backend.aclose()
    (row,) = windows
    fired = sum("window" in line for line in called)
    assert row.n == row.instants >= WINDOWS
    # None between the first and the last is missing: every 0.1 s has its window.
    assert row.n == (row.hi - row.lo) // 100_000 + 1
    assert fired == row.n
    sys.stdout.write(
        f"{fired} windows and {RECORDS} reminders, each called once, by {dict(by)}\n"
    )
