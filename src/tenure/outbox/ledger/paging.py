"""Pages of a list by key, both ways, as the Svix API does them.

The order shown never changes: a page before a cursor is read backwards from it and
turned round. `done` tells about the direction travelled. A cursor is the key of the
first or last item shown; keys are compared as bytes, in every database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from tenure.ids import Prefix, id_floor, is_id
from tenure.limits import LIST_BYTES
from tenure.outbox.model import Page
from tenure.outbox.rules import Cursor

if TYPE_CHECKING:
    from tenure.store.tx import Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The rows of one page in display order."""

    rows: Sequence[sa.Row[Any]]
    done: bool


def valid_id(prefix: Prefix) -> Callable[[str], bool]:
    """Return the check of a cursor that is an id."""
    return lambda key: is_id(key, prefix)


def fetch(
    tx: Tx,
    stmt: sa.Select[Any],
    key: sa.ColumnElement[str],
    cursor: Cursor,
    *,
    limit: int,
    descending: bool,
    oldest_first: bool = False,
    body: sa.ColumnElement[bytes] | None = None,
) -> Fetched:
    """Read one page of `stmt`, ordered by `key`.

    `oldest_first` starts at the far end when there is no cursor: the items just after
    a lower bound, still shown in the list's order. A page ends early, and is not done,
    where the bytes of `body` pass a bound; it has one item at least.
    """
    backward = cursor.backward or (oldest_first and cursor.key is None)
    rising = descending == backward
    if cursor.key is not None:
        stmt = stmt.where(key > cursor.key if rising else key < cursor.key)
    stmt = stmt.order_by(key.asc() if rising else key.desc())
    if body is not None:
        sizes = stmt.with_only_columns(sa.func.coalesce(sa.func.length(body), 0))
        limit = _fitting([row[0] for row in tx.all(sizes.limit(limit))], limit)
    rows = list(tx.all(stmt.limit(limit + 1)))
    done = len(rows) <= limit
    del rows[limit:]
    if backward:
        rows.reverse()
    return Fetched(rows=rows, done=done)


def _fitting(sizes: Sequence[int], limit: int) -> int:
    """Return how many items fit a page's bytes: one at least, `limit` at most."""
    total = 0
    for at, size in enumerate(sizes):
        total += size
        if total > LIST_BYTES and at > 0:
            return at
    return limit


def between(
    stmt: sa.Select[Any],
    key: sa.ColumnElement[str],
    prefix: Prefix,
    *,
    before: int | None,
    after: int | None,
) -> sa.Select[Any]:
    """Bound a list by the instants of its ids: `before` exclusive, `after` inclusive."""
    if before is not None:
        stmt = stmt.where(key < id_floor(prefix, before))
    if after is not None:
        stmt = stmt.where(key >= id_floor(prefix, after))
    return stmt


def page_of(
    fetched: Fetched,
    convert: Callable[[sa.Row[Any]], T],
    key: Callable[[sa.Row[Any]], str],
) -> Page[T]:
    """Return the page with its two cursors."""
    rows = fetched.rows
    return Page(
        data=tuple(convert(row) for row in rows),
        iterator=key(rows[-1]) if rows else None,
        prev_iterator=f"-{key(rows[0])}" if rows else None,
        done=fetched.done,
    )
