"""Ordered queues: one key of one lane, first in, first out.

Theory. `order_head` is the lock and the counter, `order_line` the people in the queue.
Submit takes the next sequence under the head's lock, so the order is the order of
commits. Only the front row of a line is due; those behind are asleep, in no index that
a claim reads. Whatever ends or passes the front row removes its line and wakes the next
in the same transaction. The head's lock comes before the locks of work rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.ids import LaneId, WorkId
from tenure.kernel.commands import Order
from tenure.kernel.states import OrderPolicy, Phase, Work
from tenure.kernel.transitions import stands_in_line
from tenure.store import schema

if TYPE_CHECKING:
    from tenure.store.tx import ColumnType, Tx

Head = tuple[LaneId, str]

_HEAD: Mapping[str, ColumnType] = {"lane": "bigint", "order_key": "text"}


def lock_heads(tx: Tx, heads: Iterable[Head]) -> None:
    """Lock ordered queues by (lane, key); nothing to do on SQLite's one writer."""
    wanted = sorted(set(heads))
    if not wanted or tx.dialect == "sqlite":
        return
    asked, params = tx.rows("b", _HEAD, wanted)
    tx.all(
        f"SELECT 1 FROM {asked}"
        " JOIN order_head h ON h.lane = b.lane AND h.order_key = b.order_key"
        " ORDER BY h.lane, h.order_key FOR NO KEY UPDATE OF h",
        params,
    )


def orders(tx: Tx, lanes: Collection[LaneId]) -> dict[LaneId, Order]:
    """Return the rules of these lanes, of which some may not be ordered at all."""
    if not lanes:
        return {}
    asked, params = tx.rows("b", {"id": "bigint"}, [(lane,) for lane in sorted(lanes)])
    found = tx.all(
        "SELECT l.id, l.order_policy, l.skip_after"
        f" FROM {asked} JOIN lane l ON l.id = b.id",
        params,
    )
    return {
        row[0]: Order(policy=OrderPolicy(row[1]), skip_after=row[2]) for row in found
    }


def take_sequences(tx: Tx, counts: Mapping[Head, int]) -> dict[Head, int]:
    """Lock each queue (made when new) and take `count` sequences; return the first."""
    if not counts:
        return {}
    asked, params = tx.rows(
        "b",
        {**_HEAD, "n": "bigint"},
        [(*head, counts[head]) for head in sorted(counts)],
    )
    taken = tx.all(
        "INSERT INTO order_head (lane, order_key, next_sequence)"
        f" SELECT b.lane, b.order_key, b.n + 1 FROM {asked} WHERE true"
        " ON CONFLICT (lane, order_key) DO UPDATE SET next_sequence ="
        " order_head.next_sequence + excluded.next_sequence - 1"
        " RETURNING lane, order_key, next_sequence",
        params,
    )
    return {(row[0], row[1]): row[2] - counts[row[0], row[1]] for row in taken}


def fronts(tx: Tx, heads: Iterable[Head]) -> dict[Head, tuple[WorkId, int | None]]:
    """Return the front row of each queue and the instant it may not start before."""
    wanted = sorted(set(heads))
    if not wanted:
        return {}
    asked, params = tx.rows("b", _HEAD, wanted)
    found = tx.all(
        "SELECT l.lane, l.order_key, l.work, l.not_before"
        f" FROM {asked} JOIN order_line l ON l.lane = b.lane"
        " AND l.order_key = b.order_key AND l.sequence = (SELECT min(m.sequence)"
        " FROM order_line m WHERE m.lane = b.lane AND m.order_key = b.order_key)",
        params,
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in found}


def join_lines(tx: Tx, rows: Sequence[Mapping[str, object]]) -> None:
    """Put new rows at the end of their queues; their sequences are taken already."""
    tx.insert(schema.order_line, rows)


def pass_heads(tx: Tx, passed: Sequence[Work]) -> dict[WorkId, int | None]:
    """Remove rows from their queues; return the rows that are in front now."""
    lines = sorted(
        (row.lane, row.order_key, row.sequence)
        for row in passed
        if row.order_key is not None and row.sequence is not None
    )
    if not lines:
        return {}
    asked, params = tx.rows("b", {**_HEAD, "sequence": "bigint"}, lines)
    gone = tx.run(
        "DELETE FROM order_line WHERE EXISTS (SELECT 1 FROM"
        f" {asked} WHERE b.lane = order_line.lane"
        " AND b.order_key = order_line.order_key AND b.sequence = order_line.sequence)"
        if tx.dialect == "sqlite"
        else f"DELETE FROM order_line l USING {asked} WHERE b.lane = l.lane"
        " AND b.order_key = l.order_key AND b.sequence = l.sequence",
        params,
    )
    if not gone:
        return {}
    heads = {(lane, key) for lane, key, _ in lines}
    touch_heads(tx, heads)
    return dict(fronts(tx, heads).values())


def pass_missing(
    tx: Tx, heads: Collection[Head], missing: Collection[WorkId]
) -> dict[WorkId, int | None]:
    """Remove from locked queues rows that are no more; return who is in front now."""
    asked, params = tx.rows("b", _HEAD, sorted(heads))
    given, more = tx.rows("m", {"work": "text"}, [(id_,) for id_ in sorted(missing)])
    tx.run(
        f"DELETE FROM order_line WHERE work IN (SELECT m.work FROM {given})"
        f" AND (lane, order_key) IN (SELECT b.lane, b.order_key FROM {asked})",
        {**params, **more},
    )
    return dict(fronts(tx, heads).values())


def touch_heads(tx: Tx, heads: Collection[Head]) -> None:
    """Write queues that lost a row, so that nobody joins one by an older snapshot.

    A caller's transaction under REPEATABLE READ would still see who was in front, and
    sleep behind a row that never wakes it. The write makes its own submit fail with a
    serialization error, which is repeated.
    """
    if not heads or tx.dialect == "sqlite":
        return
    asked, params = tx.rows("b", _HEAD, sorted(heads))
    tx.run(
        "UPDATE order_head h SET next_sequence = h.next_sequence"
        f" FROM {asked} WHERE h.lane = b.lane AND h.order_key = b.order_key",
        params,
    )


def woken(front: Work, not_before: int | None, now: int) -> Work:
    """Let the row in front go, if it still sleeps behind what has been passed.

    One that was in front already and sleeps for an event goes on sleeping.
    """
    if not stands_in_line(front):
        return front
    due_at = max(now, not_before or 0)
    return replace(
        front,
        phase=Phase.DUE if due_at <= now else Phase.LATER,
        due_at=due_at,
        reason=None,
        wakes=front.wakes + 1,
    )
