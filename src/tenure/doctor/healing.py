"""What may be mended on a live database, each by a verb of the kernel's own.

A healing decides again under the locks that every verb takes: what somebody else has
mended or changed meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.ids import LaneId, NodeId, WorkId
from tenure.limits import (
    SHORT_DEADLINE_SECONDS,
    STALL_GRACE_SECONDS,
    SUSPECT_BACKOFF_SECONDS,
)
from tenure.store import claims, nodes
from tenure.store.claims import mending
from tenure.work.filelock import LockState, probe

if TYPE_CHECKING:
    from tenure.doctor.model import About, Suspect
    from tenure.store.tx import Tx

__all__ = [
    "close_dead",
    "lose_claims",
    "mend_lines",
    "promote",
    "sweep_rule",
    "wake_stranded",
]


def sweep_rule(about: About) -> claims.SweepRule:
    """Return the sweep's durations as this deployment counts them."""
    return claims.SweepRule(
        short_deadline_us=about.scaled_us(SHORT_DEADLINE_SECONDS),
        stall_grace_us=about.scaled_us(STALL_GRACE_SECONDS),
        backoff_us=about.scaled_us(SUSPECT_BACKOFF_SECONDS),
    )


def lose_claims(tx: Tx, suspects: Sequence[Suspect], about: About) -> None:
    """Take back claims whose holder is not an open node, by the sweep's own rule."""
    del suspects
    claims.sweep(tx, sweep_rule(about))


def wake_stranded(tx: Tx, suspects: Sequence[Suspect], about: About) -> None:
    """Make rows due that sleep in no line at all."""
    del about
    mending.wake_stranded(tx, [WorkId(suspect.key[0]) for suspect in suspects])


def mend_lines(tx: Tx, suspects: Sequence[Suspect], about: About) -> None:
    """Take out of ordered queues what has ended or is gone, and wake the front."""
    del about
    mending.mend_lines(
        tx, {(LaneId(suspect.key[0]), suspect.key[1]) for suspect in suspects}
    )


def close_dead(tx: Tx, suspects: Sequence[Suspect], about: About) -> None:
    """Close nodes whose lock is free, and take back what they held."""
    for suspect in suspects:
        node = NodeId(suspect.key[0])
        path = tx.scalar(
            "SELECT n.lock_path FROM node n WHERE n.id = :id", {"id": node}
        )
        if path is None or probe(Path(path)) is not LockState.FREE:
            continue
        nodes.close_node(tx, node, claims.CERTAIN)
    claims.sweep(tx, sweep_rule(about))


def promote(tx: Tx, suspects: Sequence[Suspect], about: About) -> None:
    """Make rows due whose instant has come."""
    del suspects, about
    claims.promote(tx)
