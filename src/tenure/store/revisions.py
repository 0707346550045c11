"""The newest revision of this release, known without reading the revisions.

A start with an up-to-date schema asks only this: Alembic is loaded, and the revisions
are read, where there is something to apply.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.store.tx import Tx

KNOWN: Final = (
    "0001_kernel",
    "0002_outbox",
    "0003_retention",
    "0004_inbox",
    "0005_schedules",
)
"""Every revision of this release, oldest first."""
NEWEST: Final = KNOWN[-1]
NEEDED: Final = "0005_schedules"
"""What a start brings: the newest before the first post revision that may be missing."""
VERSION_TABLE: Final = "tenure_revision"
FLOOR: Final = "schema_floor"
"""The setting that names the oldest revision which a node must know to work here."""


def revision_of(tx: Tx) -> str | None:
    """Return the database's revision; None when it has no table of ours."""
    if not sa.inspect(tx.conn).has_table(VERSION_TABLE):
        return None
    found = tx.all(f"SELECT version_num FROM {VERSION_TABLE}")
    return found[0][0] if found else None


def is_newest(tx: Tx) -> bool:
    """Tell whether the database is at this release's newest revision."""
    return revision_of(tx) == NEWEST


def is_served(tx: Tx) -> bool:
    """Tell whether this release works on the database as it is, with nothing to apply.

    It does on its own newest revision, and on one that a newer release only added to:
    a node that restarts in the middle of a roll-out must come back. A post revision of
    its own may still be missing: the operator applies that when all nodes are new.
    """
    at = revision_of(tx)
    if at is None:
        return False
    if at in KNOWN:
        return KNOWN.index(at) >= KNOWN.index(NEEDED)
    return floor_of(tx) in KNOWN


def floor_of(tx: Tx) -> str | None:
    """Return the revision that a node must know; None where nobody wrote it down."""
    value = tx.scalar("SELECT value FROM setting WHERE name = :name", {"name": FLOOR})
    return None if value is None else bytes(value).decode()


def load_apply(*, post: bool) -> Callable[[Tx], list[str]]:
    """Load Alembic and the revisions, and return what applies those that are missing.

    Blocks for half a second or more, so not for an event loop's thread.
    """
    from tenure.store import migrating

    return partial(migrating.apply, scripts=migrating.load(), post=post)
