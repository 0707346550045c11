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

NEWEST: Final = "0002_outbox"
VERSION_TABLE: Final = "tenure_revision"


def is_newest(tx: Tx) -> bool:
    """Tell whether the database is at this release's newest revision."""
    if not sa.inspect(tx.conn).has_table(VERSION_TABLE):
        return False
    found = tx.all(f"SELECT version_num FROM {VERSION_TABLE}")
    return [row[0] for row in found] == [NEWEST]


def load_apply(*, post: bool) -> Callable[[Tx], list[str]]:
    """Load Alembic and the revisions, and return what applies those that are missing.

    Blocks for half a second or more, so not for an event loop's thread.
    """
    from tenure.store import migrating

    return partial(migrating.apply, scripts=migrating.load(), post=post)
