"""The only door to background tasks.

asyncio keeps weak references to tasks and tells nobody when one fails. A task started
here belongs to a `Tasks`, which holds it, says who learns of its failure, and can wait
for or cancel everything that it started.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

__all__ = ["Tasks"]

T = TypeVar("T")


class Tasks:
    """The background tasks of one owner.

    ``failed(name, error)`` is called for each task that ends with an error nobody
    awaits; without it the event loop's exception handler is told.
    """

    __slots__ = ("_failed", "_running")

    def __init__(
        self, failed: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self._failed: Final = failed
        self._running: Final[set[asyncio.Task[Any]]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine in the background under this owner."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._failed is not None:
            self._failed(task.get_name(), error)
            return
        task.get_loop().call_exception_handler(
            {
                "message": f"background task {task.get_name()} failed",
                "exception": error,
                "task": task,
            }
        )

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until all have ended; False when ``seconds`` passed before that."""
        if not self._running:
            return True
        _, pending = await asyncio.wait(tuple(self._running), timeout=seconds)
        return not pending

    async def cancel(self) -> None:
        """Cancel all and wait until each has ended."""
        while self._running:
            running = tuple(self._running)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await asyncio.sleep(0)  # lets the done callbacks run
