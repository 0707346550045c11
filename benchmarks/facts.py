"""What a figure belongs to: the machine, the versions, and whether commits are durable."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.databases import Databases

PEERS = ("pgqueuer", "procrastinate", "dbos")


async def facts_of(databases: Databases) -> dict[str, str]:
    """Return name and value of each fact."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "load average before": load,
        "Python": platform.python_version(),
        "PostgreSQL": str(await databases.ask("SHOW server_version")).split()[0],
        "fsync": str(await databases.ask("SHOW fsync")),
        "synchronous_commit": str(await databases.ask("SHOW synchronous_commit")),
        "SQLite": f"{sqlite3.sqlite_version} (synchronous FULL)",
        "file system": file_system(databases.folder),
    } | {name: found for name in PEERS if (found := installed(name))}


def installed(name: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, found, *_ = line.split()
        if str(folder).startswith(place) and len(place) >= len(best):
            best, kind = place, found
    return kind
