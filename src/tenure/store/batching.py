"""Group commit: callers that come together share one transaction, and each waits for it.

One loop gathers. While a batch is in flight the next one gathers, so under load the
batch grows to what one commit takes; a lone caller pays `wait_seconds` at most. A batch
that fails is run again in halves until the bad item stands alone, and only its caller
sees the error; so is one that met rows locked by others. Two failures are not an item's
fault: an unreachable database fails every caller, and an unknown COMMIT runs the
*identical* batch again, because the ids in it make the second run find what the first
one did.

A caller who is cancelled leaves; its item goes on, since the transaction may have it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tenure.errors import DatabaseUnavailable, Draining, InvariantViolated, QueueFull
from tenure.limits import (
    BATCH_BYTES,
    BATCH_QUEUE_MAX,
    BATCH_ROWS,
    BATCH_WAIT_SECONDS,
    COMMIT_RETRIES_MAX,
    RETRY_PAUSE_MAX_SECONDS,
)
from tenure.spawn import Tasks
from tenure.store.contract import CommitUnknown, RowsLocked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Batcher"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    size: int
    since: float
    answer: asyncio.Future[Result]


class Batcher(Generic[Item, Result]):
    """Runs items in batches; `run` answers one result per item, in order.

    `run` must be one transaction over its items, best by
    `backend.write(…, retry=len(items) == 1)`: halving finds the locked row sooner than
    waiting for it would. `size` is an item's weight in bytes,
    `key` the order of items inside a batch (the lock order). At most `queue_max`
    callers wait; `concurrency` batches are in flight at once.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Awaitable[list[Result]]],
        *,
        key: Callable[[Item], str],
        size: Callable[[Item], int] = lambda _: 0,
        rows_max: int = BATCH_ROWS,
        bytes_max: int = BATCH_BYTES,
        wait_seconds: float = BATCH_WAIT_SECONDS,
        queue_max: int = BATCH_QUEUE_MAX,
        concurrency: int = 1,
        unknown_pause_seconds: float = RETRY_PAUSE_MAX_SECONDS,
    ) -> None:
        self._run: Final = run
        self._key: Final = key
        self._size: Final = size
        self._rows_max: Final = rows_max
        self._bytes_max: Final = bytes_max
        self._wait_seconds: Final = wait_seconds
        self._queue_max: Final = queue_max
        self._concurrency: Final = concurrency
        self._unknown_pause_seconds: Final = unknown_pause_seconds
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._closing = False
        self._tasks: Tasks | None = None

    def __len__(self) -> int:
        """How many items wait for a batch; those in flight are not counted."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to run batches on the current event loop."""
        if self._tasks is not None:
            raise InvariantViolated("a batcher was started twice")
        self._tasks = Tasks(self._flusher_failed)
        for number in range(self._concurrency):
            self._tasks.start(self._flush_for_ever(), name=f"batcher-{number}")

    async def aclose(self, seconds: float | None = None) -> None:
        """Take nothing more, run what waits, and return when all is answered.

        What is not answered after `seconds` is cancelled: a database that hangs must
        not keep a process from ending.
        """
        self._closing = True
        self._arrived.set()
        self._full.set()
        if self._tasks is not None and not await self._tasks.wait(seconds):
            await self._tasks.cancel()
        while self._queue:  # never started: nobody will run them
            self._fail([self._queue.popleft()], Draining("the batcher was closed"))

    async def put(self, item: Item) -> Result:
        """Run an item in the next batch; return its result once that is committed.

        Raises QueueFull when too many wait, Draining after `aclose`, what `run` raised
        for this item alone, and DatabaseUnavailable for the whole batch.
        """
        return await self.put_nowait(item)

    def put_nowait(self, item: Item) -> asyncio.Future[Result]:
        """Queue an item; return the future of its result."""
        if self._closing:
            raise Draining("this node is stopping and commits nothing new")
        if len(self._queue) >= self._queue_max:
            raise QueueFull(f"{self._queue_max} callers wait for a commit already")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        size = self._size(item)
        self._queue.append(
            _Waiting(item=item, size=size, since=loop.time(), answer=answer)
        )
        self._bytes += size
        self._arrived.set()
        if len(self._queue) >= self._rows_max or self._bytes >= self._bytes_max:
            self._full.set()
        return answer

    async def _flush_for_ever(self) -> None:
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            await self._gather()
            batch = self._take()
            if batch:
                await self._settle(batch)

    async def _gather(self) -> None:
        """Wait for company until the oldest caller has waited long enough."""
        if self._full.is_set() or self._closing:
            return
        loop = asyncio.get_running_loop()
        until = self._queue[0].since + self._wait_seconds
        if until <= loop.time():
            return
        timer = loop.call_at(until, self._full.set)
        try:
            await self._full.wait()
        finally:
            timer.cancel()

    def _take(self) -> list[_Waiting[Item, Result]]:
        batch: list[_Waiting[Item, Result]] = []
        size = 0
        while self._queue and len(batch) < self._rows_max:
            if batch and size + self._queue[0].size > self._bytes_max:
                break
            waiting = self._queue.popleft()
            size += waiting.size
            batch.append(waiting)
        self._bytes -= size
        if len(self._queue) < self._rows_max and self._bytes < self._bytes_max:
            self._full.clear()
        batch.sort(key=lambda waiting: self._key(waiting.item))
        return batch

    async def _settle(self, batch: list[_Waiting[Item, Result]]) -> None:
        """Run a batch; halve it for as long as it fails for a reason of its own."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                results = await self._run_known([w.item for w in part])
            except Exception as error:  # noqa: BLE001 - it belongs to a caller
                if len(part) == 1 or _concerns_all(error):
                    self._fail(part, error)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
            except BaseException as error:
                # Cancelled, or the interpreter ends: nobody may wait for ever.
                self._fail([w for left in [part, *parts] for w in left], error)
                raise
            else:
                self._answer(part, results)

    async def _run_known(self, items: list[Item]) -> list[Result]:
        """Run items, again for as long as nobody knows whether they were committed."""
        for _ in range(COMMIT_RETRIES_MAX - 1):
            try:
                return await self._run(list(items))
            except CommitUnknown:
                await asyncio.sleep(self._unknown_pause_seconds)
        return await self._run(list(items))

    def _answer(
        self, batch: list[_Waiting[Item, Result]], results: list[Result]
    ) -> None:
        if len(results) != len(batch):
            # Committed, but nobody knows which answer is whose.
            message = f"a batch of {len(batch)} items got {len(results)} results"
            self._fail(batch, InvariantViolated(message))
            return
        for waiting, result in zip(batch, results, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(result)

    def _flusher_failed(self, _name: str, error: BaseException) -> None:
        self._closing = True
        left, self._queue = list(self._queue), deque()
        self._fail(left, error)

    @staticmethod
    def _fail(batch: list[_Waiting[Item, Result]], error: BaseException) -> None:
        for waiting in batch:
            if waiting.answer.done():
                continue
            if isinstance(error, asyncio.CancelledError):
                waiting.answer.cancel()
            else:
                waiting.answer.set_exception(error)


def _concerns_all(error: Exception) -> bool:
    """Whether no half of the batch would fare better: the database is out of reach."""
    return isinstance(error, DatabaseUnavailable) and not isinstance(error, RowsLocked)
