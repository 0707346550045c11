"""What the puller needs of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["BrokerFailed", "Pulled", "Session"]


class BrokerFailed(Exception):
    """The broker cannot be reached or refuses; the message says what, no password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """One message of a broker.

    `key` is what the broker names it by, the same whenever it comes again; None where
    it has no such name. `acknowledge` tells the broker that it is done.
    """

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    key: str | None
    acknowledge: Callable[[], Awaitable[None]]


class Session(Protocol):
    """A connection to a broker."""

    async def fetch(self) -> Sequence[Pulled]:
        """Return what is there, after a short wait perhaps nothing.

        What is never acknowledged comes again. Raises BrokerFailed.
        """
        ...

    async def aclose(self) -> None:
        """Leave; what was fetched and not acknowledged goes to others."""
        ...
