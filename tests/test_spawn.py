from __future__ import annotations

import asyncio
from typing import Any

from tenure.spawn import Tasks


async def test_a_task_runs_and_is_forgotten_when_it_ends() -> None:
    tasks = Tasks()

    async def work() -> int:
        return 7

    task = tasks.start(work(), name="seven")
    assert len(tasks) == 1
    assert await task == 7
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def fails() -> None:
    raise LookupError


async def test_its_owner_learns_of_a_failure() -> None:
    told: list[tuple[str, BaseException]] = []
    tasks = Tasks(lambda name, error: told.append((name, error)))
    tasks.start(fails(), name="failing")
    await tasks.wait()
    await asyncio.sleep(0)
    assert [(name, type(error)) for name, error in told] == [("failing", LookupError)]


async def test_a_failure_without_owner_reaches_the_loop() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context)
    )
    tasks = Tasks()
    tasks.start(fails(), name="failing")
    await tasks.wait()
    await asyncio.sleep(0)
    assert [context["message"] for context in told] == [
        "background task failing failed"
    ]


async def test_cancel_waits_until_everything_has_ended() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    tasks.start(work(), name="waits")
    await asyncio.sleep(0)
    assert not await tasks.wait(0.01)
    await tasks.cancel()
    assert ended == ["cleaned up"]
    assert await tasks.wait()
