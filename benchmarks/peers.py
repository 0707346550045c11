"""Other task queues on PostgreSQL, each drained of jobs that do nothing.

Every one is asked as its documentation says, with one batch size or concurrency (not
searched for the best), on the same server with the same durability. Jobs are enqueued
before the clock starts. What each keeps of a finished job differs: pgqueuer a log row,
procrastinate the job and its events, DBOS the workflow's status and result.
"""

# Nobody but the benchmarks has these packages, and some have no types.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportFunctionMemberAccess=false

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from benchmarks.processes import Actor

BATCH: Final = 500
CONCURRENCY: Final = 50
CHUNK: Final = 1_000  # jobs of one enqueueing statement


class Pgqueuer(Actor):
    """pgqueuer over an asyncpg pool."""

    SAYS: Final = f"batch {BATCH}, asyncpg pool"

    async def open(self, url: str) -> None:
        """Install its schema."""
        import asyncpg
        from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
        from pgqueuer.queries import Queries

        self.pool = await asyncpg.create_pool(url, min_size=2, max_size=6)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        await self.queries.install()

    async def fill(self, count: int) -> None:
        """Enqueue."""
        for low in range(0, count, CHUNK):
            size = min(CHUNK, count - low)
            await self.queries.enqueue(["noop"] * size, [None] * size, [0] * size)

    async def drain(self, count: int) -> float:
        """Return jobs a second."""
        from pgqueuer import PgQueuer
        from pgqueuer.types import QueueExecutionMode

        queue = PgQueuer.from_asyncpg_pool(self.pool)
        done = 0

        @queue.entrypoint("noop")
        async def noop(_job: Any) -> None:
            nonlocal done
            done += 1

        began = time.perf_counter()
        await queue.qm.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
        took = time.perf_counter() - began
        _check(done, count)
        return count / took

    async def aclose(self) -> None:
        """Close the pool."""
        await self.pool.close()


class Procrastinate(Actor):
    """procrastinate over psycopg."""

    SAYS: Final = f"concurrency {CONCURRENCY}"

    async def open(self, url: str) -> None:
        """Apply its schema."""
        import procrastinate

        connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=6)
        self.app = procrastinate.App(connector=connector)
        self.done = 0

        @self.app.task(name="noop")
        async def noop() -> None:
            self.done += 1

        self.noop = noop
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    async def fill(self, count: int) -> None:
        """Enqueue."""
        for low in range(0, count, CHUNK):
            await self.noop.batch_defer_async(
                *({} for _ in range(min(CHUNK, count - low)))
            )

    async def drain(self, count: int) -> float:
        """Return jobs a second."""
        self.done = 0
        began = time.perf_counter()
        await self.app.run_worker_async(
            wait=False,
            concurrency=CONCURRENCY,
            listen_notify=False,
            install_signal_handlers=False,
        )
        took = time.perf_counter() - began
        _check(self.done, count)
        return count / took

    async def aclose(self) -> None:
        """Close the pool."""
        await self.app.close_async()


class Dbos(Actor):
    """DBOS: a queue of workflows without steps."""

    SAYS: Final = "no limit of workers, polled every 10 ms"

    async def open(self, url: str) -> None:
        """Make its tables: launch it once without work."""
        self.url = url.replace("postgresql://", "postgresql+psycopg://")
        self.done = 0
        await asyncio.to_thread(self._launch)
        await asyncio.to_thread(self._destroy)

    def _launch(self) -> None:
        from dbos import DBOS

        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "application_version": "bench",
                "log_level": "ERROR",
            }
        )

        @DBOS.workflow(name="noop")
        def noop() -> None:
            self.done += 1

        DBOS.launch()
        DBOS.register_queue("bench", polling_interval_sec=0.01)

    @staticmethod
    def _destroy() -> None:
        from dbos import DBOS

        DBOS.destroy(destroy_registry=True)

    async def fill(self, count: int) -> None:
        """Enqueue, one by one: it has no other way."""
        from dbos import DBOSClient

        client = DBOSClient(system_database_url=self.url)
        options: Any = {
            "queue_name": "bench",
            "workflow_name": "noop",
            "app_version": "bench",
        }
        gate = asyncio.Semaphore(16)

        async def one() -> None:
            async with gate:
                await asyncio.to_thread(client.enqueue, options)

        await asyncio.gather(*(one() for _ in range(count)))
        client.destroy()

    async def drain(self, count: int) -> float:
        """Return workflows a second."""
        import asyncpg

        connection = await asyncpg.connect(
            self.url.replace("postgresql+psycopg://", "postgresql://")
        )
        left = (
            "SELECT count(*) FROM dbos.workflow_status"
            " WHERE status IN ('ENQUEUED', 'PENDING')"
        )
        self.done = 0
        await asyncio.to_thread(self._launch)
        began, before = time.perf_counter(), self.done
        while self.done < count or await connection.fetchval(left):
            await asyncio.sleep(0.02)
        took = time.perf_counter() - began
        await connection.close()
        await asyncio.to_thread(self._destroy)
        return (count - before) / took


def _check(done: int, count: int) -> None:
    if done != count:
        raise RuntimeError(f"{done} of {count} jobs ran")
