"""The newest revision is the one that the revisions end with."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from tenure.store import migrating
from tenure.store.backend import Backend
from tenure.store.revisions import KNOWN, NEEDED, NEWEST, is_newest, is_served


async def test_the_newest_revision_is_the_last_of_the_files():
    scripts = await asyncio.to_thread(migrating.load)
    assert migrating.head(scripts) == NEWEST
    files = [each.revision for each in scripts.walk_revisions()]
    assert files == [*reversed(KNOWN)]


async def test_what_a_start_needs_is_what_a_start_brings():
    scripts = await asyncio.to_thread(migrating.load)
    phases = [scripts.get_revision(each).module.phase for each in KNOWN]
    at = KNOWN.index(NEEDED)
    assert phases[at] == "pre"
    assert phases[at + 1 :][:1] in ([], ["post"])


async def test_a_migrated_database_is_at_it_and_an_older_one_is_not(backend: Backend):
    assert await backend.read(is_newest)
    assert await backend.migrate() == []
    older = "UPDATE tenure_revision SET version_num = '0001_kernel'"
    await backend.write(lambda tx: tx.run(older))
    assert not await backend.read(is_newest)
    assert not await backend.read(is_served)


def test_what_a_start_does_not_need_is_not_loaded():
    ask = (
        "import sys, tenure.server.app, tenure.engine;"
        "print([m for m in ('alembic', 'asyncpg') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
