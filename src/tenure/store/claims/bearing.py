"""Born claimed: rows that their own node may try at once are inserted as its claim 1.

Theory. A row that is submitted, committed and then claimed by the node that took it in
costs a claim and a read of what that node still has in memory. Where Tenure owns the
transaction and the lane asks for nothing that needs the fleet's view, the row is born
as that node's claim instead. It is a claim like any other: it has number 1, a holder
and a deadline, it is lost with its node, and nothing but the insert differs.

What a claim would have to lock or count for is never born: lanes with a limit, an
order, or a closed door. The lane is read without a lock, as a claim reads it: a pause
that commits a moment later comes a moment too late for either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenure.ids import LaneId, NodeId
from tenure.kernel.states import State, Work
from tenure.store.claims.taking import Claimed
from tenure.store.claims.views import LaneView, is_open, read_lanes

if TYPE_CHECKING:
    from tenure.store.claims.submitting import NewWork
    from tenure.store.tx import Tx


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What a node offers: to hold up to `count` new rows from their insert on.

    `busy` counts its running attempts by lane, at most `lane_max` each; lanes in `skip`
    (its slow ones) get nothing. It can run what `serves` names.
    """

    node: NodeId
    serves: frozenset[str]
    count: int
    lane_max: int
    busy: Mapping[LaneId, int]
    skip: frozenset[LaneId]


def bear(tx: Tx, rows: Sequence[NewWork], birth: Birth) -> list[Claimed]:
    """Choose the rows that are born as claims of the offering node.

    Nothing is written here. At most as many as offered; none when its node is not open.
    """
    now = tx.now
    fit = [
        row
        for row in rows
        if row.order_key is None
        and not row.asleep
        and (row.due_at is None or row.due_at <= now)
        and row.lane not in birth.skip
    ]
    if not fit or birth.count <= 0:
        return []
    views = read_lanes(tx, [row.lane for row in fit])
    state = tx.scalar("SELECT state FROM node WHERE id = :node", {"node": birth.node})
    if state != "open":
        return []
    held = Counter(birth.busy)
    born: list[Claimed] = []
    for row in fit:
        view = views.get(row.lane)
        if len(born) >= birth.count:
            break
        if view is None or not _plain(view, birth, now):
            continue
        if held[row.lane] < birth.lane_max:
            held[row.lane] += 1
            born.append(_claimed(row, view, birth.node, now))
    return born


def _plain(view: LaneView, birth: Birth, now: int) -> bool:
    """Tell whether a lane asks for nothing that a claim would lock it for."""
    free = not view.limits.any and not view.ordered
    return free and is_open(view, now) and view.needs in birth.serves


def _claimed(row: NewWork, view: LaneView, node: NodeId, now: int) -> Claimed:
    return Claimed(
        work=Work(
            id=row.id,
            lane=row.lane,
            kind=row.kind,
            tenant=row.tenant,
            subject=row.subject,
            state=State.CLAIMED,
            phase=None,
            priority=row.priority,
            due_at=row.due_at or now,
            claim=1,
            claimed_by=node,
            claimed_at=now,
            deadline_at=now + view.deadline_us,
            alone=False,
            tries=0,
            failures=0,
            losses=0,
            releases=0,
            first_attempt_at=None,
            replay_claim=0,
            success_claim=None,
            cancel_requested_at=None,
            order_key=None,
            sequence=None,
            wakes=0,
            trigger=row.trigger,
            reason=None,
            created_at=now,
            settled_at=None,
        ),
        lane_subject=view.subject,
        lane_version=view.version,
        deadline_us=view.deadline_us,
        start_at=now,
        number=1,
    )
