"""What a start would change: this release's jobs against the database's catalogue."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from tenure.cli.databases import existing
from tenure.config import Settings
from tenure.engine import Engine
from tenure.schedules.declaring import registry
from tenure.schedules.discovering import discover
from tenure.server.planned import plan_out

__all__ = ["import_from_here", "planned"]


def import_from_here() -> None:
    """Let modules of the current folder be imported, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def planned(settings: Settings) -> Any:
    """Return the plan as the API would show it; writes nothing."""
    import_from_here()
    discover(settings.packages)
    declared = registry()

    async def ask() -> Any:
        async with Engine(existing(settings), works=False, packages=declared) as engine:
            return plan_out(await engine.schedules.plan())

    return asyncio.run(ask())
