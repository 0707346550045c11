"""Threads for what blocks: bounded, and a place is held until its thread is free.

A caller that gives up does not stop its thread. The place stays taken until the call has
returned, so hung calls use places up instead of piling up behind each other unseen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")


class NotBegunError(Exception):
    """The claim may not begin any more: nothing was called."""


class Threads:
    """Runs blocking calls for one event loop, at most `count` at a time."""

    __slots__ = ("_pool", "_room")

    def __init__(self, count: int, *, name: str) -> None:
        self._room: Final = asyncio.Semaphore(count)
        self._pool: Final = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[[], T], begin: Callable[[], bool]) -> T:
        """Call it in a thread, once there is a free one and `begin` agrees.

        Raises NotBegunError when `begin` does not, and whatever the call raises.
        """
        await self._room.acquire()
        try:
            if not begin():
                raise NotBegunError
            future = self._pool.submit(copy_context().run, call)
        except BaseException:
            self._room.release()
            raise
        loop = asyncio.get_running_loop()

        def free(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._room.release)

        future.add_done_callback(free)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Take nothing more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
