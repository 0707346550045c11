"""The sweep: claims whose holder is not an open node are lost.

It goes by state, not by age: a row is a candidate because its holder is closed (or its
loop stalled), and the kernel decides again under the row's lock, so that an old read
can never take a row that was settled or claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.ids import LaneId, NodeId, WorkId, new_attempt_id
from tenure.kernel import transitions
from tenure.kernel.commands import Loss
from tenure.kernel.states import State, Work
from tenure.kernel.transitions import Change
from tenure.limits import (
    RATE_AHEAD_SECONDS,
    SHORT_DEADLINE_SECONDS,
    STALL_GRACE_SECONDS,
    SUSPECT_BACKOFF_SECONDS,
)
from tenure.store.claims import ordering
from tenure.store.claims.rows import decide_rows

if TYPE_CHECKING:
    from tenure.store.tx import Tx

SECOND_US: Final = 1_000_000
SWEEP_ROWS: Final = 500
RATE_AHEAD_US: Final = round(RATE_AHEAD_SECONDS * SECOND_US)

CERTAIN: Final = "its lock was free"
"""Why a node was closed whose process is dead for certain: nothing can be in flight."""
SILENCE: Final = "silent"
OPERATOR: Final = "closed by an operator"
DRAINED: Final = "drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRule:
    """The durations of one sweep, in microseconds."""

    short_deadline_us: int = round(SHORT_DEADLINE_SECONDS * SECOND_US)
    stall_grace_us: int = round(STALL_GRACE_SECONDS * SECOND_US)
    backoff_us: int = round(SUSPECT_BACKOFF_SECONDS * SECOND_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRow:
    """One claim that was taken from its holder."""

    work: WorkId
    claim: int
    node: NodeId
    state: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A claimed row as the sweep's first read shows it."""

    work: WorkId
    claim: int
    node: NodeId
    lane: LaneId
    loss: Loss


def candidates(tx: Tx, rule: SweepRule) -> list[Candidate]:
    """Return claims that look lost; nothing is changed and nothing is locked.

    The row of a node closed for silence or by an operator waits for its deadline too,
    when its kind's deadline is short: a request on the wire is not sent again while it
    can still be answered. A node whose lock was free is dead for certain. A node is
    stalled when it went on beating while its loop's tick stood still; after an outage
    neither has moved, so nobody is.
    """
    found = tx.all(
        "SELECT w.id, w.claim, w.claimed_by, w.lane,"
        " n.state, n.closed_why, l.at_most_once"
        " FROM work w LEFT JOIN node n ON n.id = w.claimed_by"
        " LEFT JOIN lane l ON l.id = w.lane"
        " WHERE w.state = 'claimed' AND (n.id IS NULL"
        " OR (n.state = 'closed' AND (n.closed_why = :certain"
        " OR w.deadline_at <= :now OR w.deadline_at - w.claimed_at > :short))"
        " OR (n.state <> 'closed' AND w.deadline_at < :overdue"
        " AND n.beat_at - n.tick_at > :grace))"
        " LIMIT :rows",
        {
            "certain": CERTAIN,
            "now": tx.now,
            "short": rule.short_deadline_us + RATE_AHEAD_US,
            "overdue": tx.now - rule.stall_grace_us,
            "grace": rule.stall_grace_us,
            "rows": SWEEP_ROWS,
        },
    )
    lost: list[Candidate] = []
    for id_, claim, node, lane, state, why, once in found:
        reason = f"node {node} {why}" if state == "closed" else f"node {node} stalled"
        lost.append(
            Candidate(
                work=id_,
                claim=claim,
                node=node,
                lane=lane,
                loss=Loss(
                    charged=why not in {OPERATOR, DRAINED},
                    backoff_us=rule.backoff_us,
                    at_most_once=bool(once),
                    reason=reason if state is not None else f"node {node} unknown",
                ),
            )
        )
    return lost


def lose(tx: Tx, lost: Sequence[Candidate]) -> list[LostRow]:
    """Lose the candidates that are still held by whom the first read saw."""
    by_id = {candidate.work: candidate for candidate in lost}
    orders = ordering.orders(tx, {candidate.lane for candidate in lost})

    def decide(work: Work) -> Change | None:
        candidate = by_id[work.id]
        held = transitions.holds(work, candidate.claim, candidate.node)
        if work.state is not State.CLAIMED or not held:
            return None
        order = orders.get(work.lane) if work.order_key is not None else None
        return transitions.lose(
            work, candidate.loss, new_attempt_id(), tx.now, order=order
        )

    return [
        LostRow(
            work=id_,
            claim=before.claim,
            node=by_id[id_].node,
            state=change.work.state,
            reason=by_id[id_].loss.reason,
        )
        for id_, (before, change) in decide_rows(tx, list(by_id), decide).items()
        if change.work is not None
    ]


def sweep(tx: Tx, rule: SweepRule | None = None) -> list[LostRow]:
    """Take every claim whose holder is not an open node; return what was taken.

    At most 500 rows at a time; call again while it returns that many.
    """
    return lose(tx, candidates(tx, rule or SweepRule()))
