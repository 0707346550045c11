"""Waiting for what other processes do: they set no event here, so they are looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tenure.limits import LAB_LOOK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["until", "until_seen"]


async def until(fact: Callable[[], bool]) -> None:
    """Return when something is so; bounded by whoever calls."""
    while not fact():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(LAB_LOOK_SECONDS)


async def until_seen(look: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Look until something is so; False when it was not within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while not await look():  # noqa: ASYNC110 - as above
                await asyncio.sleep(LAB_LOOK_SECONDS)
    except TimeoutError:
        return False
    return True
