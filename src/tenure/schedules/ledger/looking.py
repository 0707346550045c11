"""What a node asks before it ticks: one statement, because an idle node does little else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.schedules.ledger import catalogue, controls, ticking

if TYPE_CHECKING:
    from tenure.ids import NodeId
    from tenure.store.tx import Tx

__all__ = ["Look", "look_for"]

_DUE: Final = f"SELECT ({ticking.NEXT_DUE}) AS next_at"
_AROUND: Final = (
    f"{_DUE}, EXISTS ({catalogue.STALE} LIMIT 1) AS stale,"
    f" EXISTS ({controls.FAILING}) AS failing,"
    " EXISTS (SELECT 1 FROM job_run r WHERE r.state = 'open') AS running,"
    " EXISTS (SELECT 1 FROM job_group) AS grouped"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """When something is due next (µs), what time it is there, and what to look after.

    `stale`: another definition is in force than open nodes say. `failing`: a job may
    have to pause itself. `running`: there are runs whose work may have ended unsaid.
    `grouped`: jobs share lanes, which this node may serve or not any more.
    """

    now: int
    next_at: int | None
    stale: bool = False
    failing: bool = False
    running: bool = False
    grouped: bool = False


def look_for(tx: Tx, *, node: NodeId, around: bool) -> Look:
    """Return what a node has to do; with `around` also beside its own due jobs."""
    row = tx.first(_AROUND if around else _DUE, {"node": node})
    assert row is not None, "a row of subqueries is always there"
    if not around:
        return Look(now=tx.now, next_at=row.next_at)
    return Look(
        now=tx.now,
        next_at=row.next_at,
        stale=bool(row.stale),
        failing=bool(row.failing),
        running=bool(row.running),
        grouped=bool(row.grouped),
    )
