"""A process of one of two builds: `old`, or `new` that calls its jobs otherwise.

Usage: python -m tests.upgrade.jobs BUILD URL KEYS FILE. It writes one line into FILE for
each call of a job, and ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.schedules.declaring import Packages
from tenure.schedules.reminders import Due
from tenure.schedules.running import current_run

EVERY = 0.1
RECORDS = 200


def write(file: str, line: str) -> None:
    """Append a line at once: processes share the file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def jobs_of(build: str, file: str, began: datetime) -> Packages:
    """Return what a build declares: the same two jobs, by other names."""
    packages = Packages()
    new = build == "new"
    package = packages.package("billing" if new else "app")

    def beat() -> None:
        run = current_run()
        assert run is not None
        write(file, f"{build} window {run.window}")

    def nudge(due: Due) -> None:
        write(file, f"{build} record {due.record}")

    def records(after: str, limit: int) -> list[Any]:
        """More of them from moment to moment, as in a table that is in use."""
        now = datetime.now(UTC)
        there = min(RECORDS, int((now - began).total_seconds() / EVERY))
        ids = [f"{n:04}" for n in range(there)]
        later = began + timedelta(hours=5)
        return [(id_, later, {}) for id_ in ids if id_ > after][:limit]

    package.job(
        name="beat" if new else "tick",
        formerly=["app:tick"] if new else [],
        every=EVERY,
        catch_up="all",
        overlap="allow",
    )(beat)
    package.reminder(
        of=records,
        within="10h",
        name="nudge" if new else "remind",
        formerly=["app:remind"] if new else [],
        cron="* * * * * *",
    )(nudge)
    return packages


async def main(build: str, url: str, keys: str, file: str, began: str) -> None:
    settings = Settings(database_url=url, secret_keys=(SecretStr(keys),))
    packages = jobs_of(build, file, datetime.fromisoformat(began))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Engine(settings, packages=packages):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    Path(sys.argv[4]).touch()
    asyncio.run(main(*sys.argv[1:]))
