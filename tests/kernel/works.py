"""Work rows, answers and losses for tests of pure decisions."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenure.ids import AttemptId, LaneId, NodeId, TenantId, WorkId
from tenure.kernel.commands import Failed, Result, Settlement
from tenure.kernel.invariants import broken
from tenure.kernel.states import Attempt, AttemptOutcome, Phase, State, Work

NOW: Final = 1_000_000_000
MINE: Final = NodeId(1)
OTHER: Final = NodeId(2)

_NEW: Final = Work(
    id=WorkId("wrk_1"),
    lane=LaneId((1 << 24) | 1),
    kind="test",
    tenant=TenantId("default"),
    subject="msg_1",
    state=State.READY,
    phase=Phase.DUE,
    priority=2,
    due_at=NOW - 10,
    claim=0,
    claimed_by=None,
    claimed_at=None,
    deadline_at=None,
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
    trigger=0,
    reason=None,
    created_at=NOW - 100,
    settled_at=None,
)


def due(**changes: Any) -> Work:
    return sound(replace(_NEW, **changes))


def later(**changes: Any) -> Work:
    return due(**{"phase": Phase.LATER, "due_at": NOW + 50, **changes})


def asleep(**changes: Any) -> Work:
    return due(**{"phase": Phase.ASLEEP, "due_at": None, **changes})


def claimed(**changes: Any) -> Work:
    """A row that MINE holds under claim 3."""
    given = {
        "state": State.CLAIMED,
        "phase": None,
        "claim": 3,
        "claimed_by": MINE,
        "claimed_at": NOW - 5,
        "deadline_at": NOW + 5,
    }
    return due(**{**given, **changes})


def ended(state: State, **changes: Any) -> Work:
    """A row that is dead, parked, cancelled or succeeded after claim 3."""
    given = {
        "state": state,
        "phase": None,
        "due_at": None,
        "claim": 3,
        "settled_at": NOW - 1,
        "reason": "because",
    }
    return due(**{**given, **changes})


def sound(work: Work) -> Work:
    assert broken(work) == []
    return work


def said(
    result: Result, *, claim: int = 3, node: NodeId = MINE, work: Work = _NEW
) -> Settlement:
    return Settlement(
        work=work.id,
        claim=claim,
        node=node,
        lane=work.lane,
        kind=work.kind,
        order_key=work.order_key,
        attempt=AttemptId(f"atmpt_{claim}"),
        begun_at=NOW - 4,
        ended_at=NOW - 1,
        result=result,
    )


def lost_attempt(
    *, claim: int = 3, node: NodeId = MINE, late_at: int | None = None
) -> Attempt:
    return Attempt(
        id=AttemptId(f"atmpt_{claim}"),
        work=_NEW.id,
        claim=claim,
        node=node,
        tenant=_NEW.tenant,
        lane=_NEW.lane,
        kind=_NEW.kind,
        trigger=0,
        number=claim,
        begun_at=None,
        ended_at=NOW - 2,
        outcome=AttemptOutcome.LOST,
        reason="node 1 silent",
        state_after=State.READY,
        next_due_at=NOW - 2,
        late_at=late_at,
        late_outcome=None if late_at is None else AttemptOutcome.FAILED,
    )


def retry(retry_at: int | None = NOW + 9, *, charged: bool = True) -> Failed:
    return Failed(
        retry_at=retry_at, charged=charged, counts_try=charged, reason="status_503"
    )
