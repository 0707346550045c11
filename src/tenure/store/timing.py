"""A backend that says how long each of its writing transactions took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import URL

    from tenure.clock import Clock
    from tenure.store.contract import Backend
    from tenure.store.tx import Dialect, Tx

__all__ = ["TimedBackend"]

T = TypeVar("T")


class TimedBackend:
    """Passes everything on; `committed(seconds)` is called after each `write`."""

    __slots__ = ("_backend", "_clock", "_committed")

    def __init__(
        self, backend: Backend, clock: Clock, committed: Callable[[float], None]
    ) -> None:
        self._backend: Final = backend
        self._clock: Final = clock
        self._committed: Final = committed

    @property
    def clock_offset_us(self) -> int:
        """See `Backend`."""
        return self._backend.clock_offset_us

    @clock_offset_us.setter
    def clock_offset_us(self, offset: int) -> None:
        self._backend.clock_offset_us = offset

    @property
    def dialect(self) -> Dialect:
        """See `Backend`."""
        return self._backend.dialect

    @property
    def url(self) -> URL:
        """See `Backend`."""
        return self._backend.url

    async def open(self) -> None:
        """See `Backend`."""
        await self._backend.open()

    async def aclose(self) -> None:
        """See `Backend`."""
        await self._backend.aclose()

    async def migrate(self, *, post: bool = False) -> list[str]:
        """See `Backend`."""
        return await self._backend.migrate(post=post)

    async def write(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """See `Backend`; what was not committed is not counted."""
        started = self._clock.monotonic()
        result = await self._backend.write(fn, retry=retry)
        self._committed(self._clock.monotonic() - started)
        return result

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Backend`."""
        return await self._backend.read(fn)

    def write_blocking(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """See `Backend`."""
        return self._backend.write_blocking(fn, retry=retry)

    def read_blocking(self, fn: Callable[[Tx], T]) -> T:
        """See `Backend`."""
        return self._backend.read_blocking(fn)
