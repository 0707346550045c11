"""Chores: what one node at a time does for all of them, in small steps.

Theory. No leader is elected. A chore is a row; whoever finds it due and free takes it for
a minute, and each step takes it again in the very transaction that does the step and
moves its place on. So two nodes never do the same step, whatever they believe: the row's
lock decides. A holder that died is replaced once its node is closed or its minute is
over, and the next one goes on from the kept place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.limits import CHORE_LEASE_SECONDS, CHORE_REST_FACTOR, CHORE_REST_MAX_SECONDS
from tenure.store import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.ids import NodeId
    from tenure.store.tx import Tx

__all__ = ["Chore", "advance", "due", "rest", "take"]

_LEASE_US: Final = round(CHORE_LEASE_SECONDS * US)
_LATEST_US: Final = round(CHORE_REST_MAX_SECONDS * US)
"""No pass is due later than this."""
_ASTRAY_US: Final = 2 * _LATEST_US
"""What is due later than this was written by a clock that was set back since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A chore in hand: the key after which to go on, and when its pass began (µs)."""

    name: str
    node: NodeId
    place: str
    began_at: int


def due(tx: Tx, names: Sequence[str]) -> list[str]:
    """Return which of these chores somebody should look at now; takes none."""
    asked, params = tx.rows("b", {"name": "text"}, [(name,) for name in names])
    found = tx.all(
        f"SELECT b.name FROM {asked} LEFT JOIN chore c ON c.name = b.name"
        " WHERE c.name IS NULL OR c.due_at <= :now OR c.due_at > :latest",
        {**params, "now": tx.now, "latest": tx.now + _ASTRAY_US},
    )
    wanted = {row[0] for row in found}
    return [name for name in names if name in wanted]


def take(tx: Tx, name: str, node: NodeId) -> Chore | None:
    """Take a chore, or go on with it; None when it is not due or another node has it.

    The row stays locked until this transaction ends.
    """
    found = tx.first(_TAKE, _taking(tx, name, node))
    if found is None:
        first = {"name": name, "due_at": tx.now, "place": ""}
        if tx.insert(schema.chore, [first], on_conflict="nothing"):
            found = tx.first(_TAKE, _taking(tx, name, node))
    if found is None:
        return None
    began, _, place = found[0].partition(" ")
    return Chore(
        name=name, node=node, place=place, began_at=int(began) if began else tx.now
    )


def advance(tx: Tx, chore: Chore, place: str) -> None:
    """Keep how far the pass got, in the transaction that got there."""
    tx.run(
        "UPDATE chore SET place = :place WHERE name = :name",
        {"name": chore.name, "place": f"{chore.began_at} {place}"},
    )


def rest(tx: Tx, chore: Chore, every_seconds: float) -> None:
    """End the pass: the next begins in `every_seconds`, later after a long one.

    In `CHORE_REST_MAX_SECONDS` at most.
    """
    took = tx.now - chore.began_at
    pause = max(round(every_seconds * US), took * CHORE_REST_FACTOR)
    tx.run(
        "UPDATE chore SET place = '', holder = NULL, held_until = NULL,"
        " due_at = :due WHERE name = :name",
        {"name": chore.name, "due": tx.now + min(pause, _LATEST_US)},
    )


# A lease that ends beyond a whole one was written by a clock that was set back since.
_TAKE: Final = """
UPDATE chore SET holder = :node, held_until = :until
WHERE name = :name AND (due_at <= :now OR due_at > :latest) AND (holder IS NULL OR holder = :node
  OR held_until <= :now OR held_until > :until
  OR NOT EXISTS (SELECT 1 FROM node n WHERE n.id = chore.holder
                 AND n.state <> 'closed'))
RETURNING place
"""


def _taking(tx: Tx, name: str, node: NodeId) -> dict[str, object]:
    return {
        "name": name,
        "node": node,
        "now": tx.now,
        "until": tx.now + _LEASE_US,
        "latest": tx.now + _ASTRAY_US,
    }
