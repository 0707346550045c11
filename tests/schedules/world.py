"""An engine with jobs, over each database, on a clock that a test may set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.ids import TenantId
from tenure.limits import Durations
from tenure.outbox.keyring import new_key
from tenure.schedules.declaring import Packages
from tenure.schedules.model import Job, Run
from tests.invariants import faults

TENANT = TenantId("default")
FAST = Durations(20)
KEYS = (SecretStr(new_key()),)


def settings_for(url: str, **more: Any) -> Settings:
    return Settings(database_url=url, secret_keys=KEYS, **more)


@asynccontextmanager
async def engine_of(
    url: str, packages: Packages, **more: Any
) -> AsyncGenerator[Engine]:
    """Run a node with these jobs."""
    engine = Engine(
        settings_for(url),
        packages=packages,
        durations=more.pop("durations", FAST),
        **more,
    )
    async with engine:
        yield engine
        assert await engine.backend.read(faults) == []


async def until_runs(
    engine: Engine, job: str, fact: Callable[[list[Run]], bool], seconds: float = 20.0
) -> list[Run]:
    """Wait until the runs of a job are as they should be; return them, newest first."""
    async with asyncio.timeout(seconds):
        while True:
            found = await engine.schedules.list_runs(TENANT, job=job, limit=200)
            if fact(found):
                return found
            await asyncio.sleep(0.02)


async def ended(engine: Engine, run: str, seconds: float = 20.0) -> Run:
    """Wait until a run is over; return it."""
    async with asyncio.timeout(seconds):
        while (found := await engine.schedules.find_run(TENANT, run)).state == "open":  # noqa: ASYNC110 - another process may end it
            await asyncio.sleep(0.02)
        return found


async def job_of(engine: Engine, ref: str) -> Job:
    return await engine.schedules.find_job(TENANT, ref)


async def pass_to_window(engine: Engine, ref: str) -> int:
    """Let time pass to a moment after a job's next window; return its instant."""
    job = await job_of(engine, ref)
    assert job.nominal_at is not None
    now = await engine.backend.read(lambda tx: tx.now)
    engine.backend.clock_offset_us += job.nominal_at - now + 10_000
    return job.nominal_at
