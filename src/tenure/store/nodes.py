"""Node rows: who is open, who beats, who was closed and why.

No two clocks are compared here. A node is judged by whether its beat *number* moved
while another node watched; closing it is conditional on that very number, so a node that
beat again in time stays open. An incarnation that was closed never opens again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from tenure.clock import US
from tenure.ids import NodeId
from tenure.limits import HEARD_SECONDS
from tenure.store import schema
from tenure.store.revisions import NEWEST

if TYPE_CHECKING:
    from tenure.store.tx import Tx

NodeState = Literal["open", "draining", "closed"]

HEARD_US: Final = round(HEARD_SECONDS * US)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One incarnation as stored; instants are µs since the epoch."""

    id: NodeId
    name: str
    host: str
    pid: int
    version: str
    serves: str
    lock_path: str | None
    state: NodeState
    beat: int
    beat_at: int
    tick: int
    tick_at: int | None
    started_at: int
    closed_at: int | None
    closed_why: str | None
    revision: str | None = None


def is_heard(beat_at: int, now: int) -> bool:
    """Tell whether a node that beat then counts as there now; both by the database.

    For explanations only: a node that was killed stays open until another one closes
    it, and when it was the last one, nobody does. No node is ever closed by this.
    """
    return now - beat_at <= HEARD_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a node learns by beating: its own state, and the other nodes not closed.

    `beat` is None when this node has been closed: it must start nothing more and open
    a new incarnation.
    """

    beat: int | None
    others: Sequence[NodeRow]


def open_node(
    tx: Tx,
    *,
    name: str,
    host: str,
    pid: int,
    version: str,
    serves: str,
    lock_path: str | None,
) -> NodeId:
    """Open a new incarnation and return its id, which is never used again."""
    node: NodeId = tx.scalar(
        sa.insert(schema.node)
        .values(
            name=name,
            host=host,
            pid=pid,
            version=version,
            serves=serves,
            lock_path=lock_path,
            beat=1,
            beat_at=tx.now,
            tick_at=tx.now,
            started_at=tx.now,
            revision=NEWEST,
        )
        .returning(schema.node.c.id)
    )
    return node


def set_serves(tx: Tx, node: NodeId, serves: str) -> None:
    """Record what a node can run, once it knows."""
    tx.run(
        "UPDATE node SET serves = :serves WHERE id = :node",
        {"serves": serves, "node": node},
    )


def set_lock_path(tx: Tx, node: NodeId, lock_path: str) -> None:
    """Record where this node's file lock is, once its id is known."""
    tx.run(
        "UPDATE node SET lock_path = :path WHERE id = :node",
        {"path": lock_path, "node": node},
    )


def beat(tx: Tx, node: NodeId, *, tick: int, still_us: int = 0) -> Beat:
    """Raise the node's beat, carrying the worker loop's tick; see who else is there.

    `still_us` is for how long the node saw its tick stand still, by its own clock:
    `tick_at` is set so long before the beat, and so a thread that beats for a dead loop
    shows, while a database whose clock is stepped makes nobody look dead.
    """
    number = tx.scalar(
        "UPDATE node SET beat = beat + 1, beat_at = :now,"
        " tick_at = :moved, tick = :tick"
        " WHERE id = :node AND state <> 'closed' RETURNING beat",
        {"node": node, "now": tx.now, "moved": tx.now - still_us, "tick": tick},
    )
    others = [row for row in list_nodes(tx) if row.id != node]
    return Beat(beat=number, others=others)


def drain_node(tx: Tx, node: NodeId) -> bool:
    """Say that the node takes no new claims; its claims stay its own."""
    return bool(
        tx.run(
            "UPDATE node SET state = 'draining' WHERE id = :node AND state = 'open'",
            {"node": node},
        )
    )


def close_node(tx: Tx, node: NodeId, why: str, *, if_beat: int | None = None) -> bool:
    """Close an incarnation for ever; False when it was closed, or beat meanwhile.

    `if_beat` is the beat number that the caller saw unchanged; None closes whatever the
    number is (by the node itself, by an operator, or where the lock was found free).
    """
    condition = "" if if_beat is None else " AND beat = :beat"
    params = {"node": node, "why": why, "now": tx.now}
    return bool(
        tx.run(
            "UPDATE node SET state = 'closed', closed_at = :now, closed_why = :why"
            f" WHERE id = :node AND state <> 'closed'{condition}",
            params if if_beat is None else {**params, "beat": if_beat},
        )
    )


def list_nodes(tx: Tx, *, closed: bool = False) -> list[NodeRow]:
    """Return nodes by id, those that are closed only when asked for."""
    stmt = sa.select(schema.node).order_by(schema.node.c.id)
    if not closed:
        stmt = stmt.where(schema.node.c.state != "closed")
    return [_as_node(row) for row in tx.all(stmt)]


def _as_node(row: Any) -> NodeRow:
    return NodeRow(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public way to name columns
