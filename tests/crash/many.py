"""A node with many jobs that fire each second: python -m tests.crash.many URL KEYS N."""

from __future__ import annotations

import asyncio
import signal
import sys

from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.schedules.declaring import Packages


def jobs_of(count: int) -> Packages:
    """Return jobs that do nothing, each due every second."""
    packages = Packages()

    async def nothing() -> None:
        pass

    for number in range(count):
        job = packages.package("many").job(
            name=f"job_{number:04}", every="1s", catch_up="all", overlap="allow"
        )
        job(nothing)
    return packages


async def main(url: str, keys: str, count: str) -> None:
    settings = Settings(database_url=url, secret_keys=(SecretStr(keys),))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Engine(settings, packages=jobs_of(int(count))):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
