"""Every verb that changes a work row, decided in one place.

Theory. Other systems let an acknowledgement that arrives late overwrite what somebody
else is doing by then. Here the right to change a row is a credential: the claim's
number *and* its holder. Whoever claims next raises the number, so every older answer
stops matching; whoever answers clears the holder, so a repeated answer stops matching
too. A claim whose holder vanished is only *lost*: the holder is kept, so that its true
outcome can still be the row's outcome until somebody else has begun.

Each function takes the row as it stands under its lock and returns the row as it must
be written, with the attempt to insert or to complete. None reads a clock: `now` and
every instant are microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from tenure.ids import AttemptId, NodeId
from tenure.kernel.commands import (
    Answer,
    Cut,
    Failed,
    Loss,
    Order,
    Parked,
    Replayed,
    Result,
    Settlement,
    Succeeded,
    Waiting,
)
from tenure.kernel.states import (
    Attempt,
    AttemptOutcome,
    OrderPolicy,
    Phase,
    State,
    Work,
)
from tenure.limits import QUARANTINE_LOSSES, SUSPECT_LOSSES

OUTCOME_UNKNOWN: Final = "outcome unknown"
"""Why a row of an at-most-once lane is dead although it may have been done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What a lost claim's holder said after all; completes the attempt's row."""

    at: int
    outcome: AttemptOutcome
    reason: str | None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb does: the row to write (None = unchanged) and its evidence."""

    work: Work | None
    answer: Answer = Answer.APPLIED
    attempt: Attempt | None = None
    late: Late | None = None
    passes_head: bool = False


def ready_at(work: Work, due_at: int, now: int, reason: str | None) -> Work:
    """Make the row ready at `due_at`, as due or later by this transaction's clock."""
    return replace(
        work,
        state=State.READY,
        phase=Phase.DUE if due_at <= now else Phase.LATER,
        due_at=due_at,
        alone=False,
        reason=reason,
        settled_at=None,
    )


def asleep(work: Work, reason: str | None) -> Work:
    """Make the row wait for a wake, in no index but its key."""
    return replace(
        work,
        state=State.READY,
        phase=Phase.ASLEEP,
        due_at=None,
        alone=False,
        reason=reason,
        settled_at=None,
    )


def ended(work: Work, state: State, now: int, reason: str | None) -> Work:
    """End the row (or park it) at `now`; no holder may answer it any more."""
    return replace(
        work,
        state=state,
        phase=None,
        due_at=None,
        claimed_by=None,
        alone=False,
        reason=reason,
        settled_at=now,
    )


def holds(work: Work, claim: int, node: NodeId) -> bool:
    """True while (claim, node) is the credential of this row, whatever its state."""
    return work.claim == claim and work.claimed_by == node


def settle(
    work: Work,
    said: Settlement,
    earlier: Attempt | None,
    now: int,
    *,
    late_success: bool,
    order: Order | None = None,
    at_most_once: bool = False,
) -> Change:
    """Decide what a holder's answer does to the row.

    `earlier` is the attempt row of this very claim when one exists (it was lost, or it
    was settled before). A claim that matches changes the row; one that does not is
    evidence at most, with the one exception that a lost claim's success is never wasted.
    What was cut after it had begun is not done again where `at_most_once` forbids it.
    """
    if not holds(work, said.claim, said.node):
        return _settle_superseded(work, said, earlier, now, late_success=late_success)
    result = said.result
    if at_most_once and isinstance(result, Cut) and said.begun_at is not None:
        result = Failed(
            retry_at=None, charged=False, counts_try=False, reason=OUTCOME_UNKNOWN
        )
    after = _after_result(work, result, now)
    passes = _passes_head(after, order)
    if work.state is State.CLAIMED:
        evidence = _attempt(
            work,
            said.attempt,
            _outcome_of(said.result),
            _reason_of(said.result),
            after,
            ended_at=said.ended_at,
            begun_at=said.begun_at,
        )
        return Change(work=after, attempt=evidence, passes_head=passes)
    return Change(work=after, late=_late(said, now), passes_head=passes)


def _settle_superseded(
    work: Work,
    said: Settlement,
    earlier: Attempt | None,
    now: int,
    *,
    late_success: bool,
) -> Change:
    """Answer a settlement whose claim is not the row's any more."""
    if earlier is None or earlier.node != said.node:
        return Change(work=None, answer=Answer.LOST)
    if earlier.outcome is not AttemptOutcome.LOST or earlier.late_at is not None:
        return Change(work=None, answer=Answer.ALREADY)
    late = _late(said, now)
    rescued = (
        late_success
        and isinstance(said.result, Succeeded)
        and said.claim > work.replay_claim
    )
    if not rescued:
        return Change(work=None, answer=Answer.LOST, late=late)
    match work.state:
        case State.READY | State.DEAD | State.PARKED:
            after = ended(work, State.SUCCEEDED, now, "an earlier attempt succeeded")
            return Change(
                work=after, answer=Answer.LATE_KEPT, late=late, passes_head=True
            )
        case State.CLAIMED:
            kept = replace(work, success_claim=max(said.claim, work.success_claim or 0))
            return Change(work=kept, answer=Answer.LATE_KEPT, late=late)
        case State.SUCCEEDED | State.CANCELLED:
            return Change(work=None, answer=Answer.LOST, late=late)
        case _:
            assert_never(work.state)


def _after_result(work: Work, result: Result, now: int) -> Work:
    """Return the row after its holder's result, requests and rescues considered."""
    held = replace(
        work,
        claimed_by=None,
        first_attempt_at=work.first_attempt_at or work.claimed_at,
    )
    if isinstance(result, Succeeded):
        return ended(held, State.SUCCEEDED, now, result.reason)
    if work.cancel_requested_at is not None:
        return ended(held, State.CANCELLED, now, work.reason or "cancel requested")
    if work.success_claim is not None:
        return ended(held, State.SUCCEEDED, now, "an earlier attempt succeeded")
    match result:
        case Failed():
            counted = replace(
                held,
                failures=work.failures + int(result.charged),
                tries=work.tries + int(result.counts_try),
            )
            if result.retry_at is None:
                return ended(counted, State.DEAD, now, result.reason)
            return ready_at(counted, result.retry_at, now, result.reason)
        case Waiting():
            if work.wakes != result.wakes:
                return ready_at(held, now, now, result.reason)
            return asleep(held, result.reason)
        case Parked():
            return ended(held, State.PARKED, now, result.reason)
        case Cut():
            return ready_at(held, now, now, result.reason)
        case _:
            assert_never(result)


def lose(
    work: Work,
    loss: Loss,
    attempt: AttemptId,
    now: int,
    *,
    order: Order | None = None,
) -> Change:
    """Take the claim from a holder that is not an open node.

    Charged to `losses`, never to `failures`. The first loss is due at once, a later one
    after a pause; the third while running alone, or the fifth at all, is quarantined.
    """
    if work.state is not State.CLAIMED:
        return Change(work=None)
    held = replace(work, first_attempt_at=work.first_attempt_at or work.claimed_at)
    after = _after_loss(held, loss, now)
    evidence = _attempt(
        work,
        attempt,
        AttemptOutcome.LOST,
        loss.reason,
        after,
        ended_at=now,
        begun_at=None,
    )
    return Change(work=after, attempt=evidence, passes_head=_passes_head(after, order))


def _after_loss(work: Work, loss: Loss, now: int) -> Work:
    if work.cancel_requested_at is not None:
        return ended(work, State.CANCELLED, now, work.reason or "cancel requested")
    if work.success_claim is not None:
        return ended(work, State.SUCCEEDED, now, "an earlier attempt succeeded")
    if loss.at_most_once:
        dead = ended(work, State.DEAD, now, OUTCOME_UNKNOWN)
        return replace(dead, claimed_by=work.claimed_by)
    if not loss.charged:
        return ready_at(work, now, now, loss.reason)
    losses = work.losses + 1
    if work.alone or losses >= QUARANTINE_LOSSES:
        quarantined = ended(work, State.PARKED, now, "quarantined")
        return replace(quarantined, claimed_by=work.claimed_by, losses=losses)
    pause = 0 if losses < SUSPECT_LOSSES else loss.backoff_us
    lost = ready_at(work, now + pause, now, f"lost: {loss.reason}")
    return replace(lost, losses=losses)


def release(work: Work, claim: int, node: NodeId, now: int) -> Change:
    """Give back a claim that was not begun: nothing charged, counted in `releases`."""
    if work.state is not State.CLAIMED or not holds(work, claim, node):
        return Change(work=None, answer=Answer.LOST)
    back = replace(work, claimed_by=None, releases=work.releases + 1)
    if work.cancel_requested_at is not None:
        after = ended(back, State.CANCELLED, now, work.reason or "cancel requested")
        return Change(work=after, passes_head=True)
    if work.success_claim is not None:
        reason = "an earlier attempt succeeded"
        return Change(work=ended(back, State.SUCCEEDED, now, reason), passes_head=True)
    return Change(work=ready_at(back, now, now, work.reason))


def stands_in_line(work: Work) -> bool:
    """True while a row of an ordered lane sleeps behind the head of its queue.

    Only what ends or passes the head may wake it; anything else would overtake.
    """
    asleep_ = work.phase is Phase.ASLEEP
    return asleep_ and work.order_key is not None and work.claim == 0


def wake(work: Work, now: int) -> Change:
    """Make a ready row due now; on a claimed row only count, so no wake is missed."""
    if stands_in_line(work):
        return Change(work=None)
    counted = replace(work, wakes=work.wakes + 1)
    match work.state:
        case State.READY:
            due_at = work.due_at if work.phase is Phase.DUE else None
            return Change(work=ready_at(counted, due_at or now, now, work.reason))
        case State.CLAIMED:
            return Change(work=counted)
        case State.SUCCEEDED | State.DEAD | State.CANCELLED | State.PARKED:
            return Change(work=None)
        case _:
            assert_never(work.state)


def cancel(work: Work, reason: str, now: int) -> Change:
    """End a row that is not running; ask the holder of one that is."""
    match work.state:
        case State.READY | State.PARKED:
            after = ended(work, State.CANCELLED, now, reason)
            return Change(work=after, passes_head=True)
        case State.CLAIMED:
            if work.cancel_requested_at is not None:
                return Change(work=None)
            asked = replace(work, cancel_requested_at=now, reason=reason)
            return Change(work=asked)
        case State.SUCCEEDED | State.DEAD | State.CANCELLED:
            return Change(work=None)
        case _:
            assert_never(work.state)


def hold(work: Work, reason: str, attempt: AttemptId, now: int) -> Change:
    """Park a row that is not over, so that nothing but an operator moves it.

    For a restored copy: whoever holds a claim in it lives with the original, and will
    hardly answer here. So the claim is lost without a charge; a success that its holder
    reports after all is kept, as of any lost claim.
    """
    match work.state:
        case State.READY:
            return Change(work=ended(work, State.PARKED, now, reason))
        case State.CLAIMED:
            lost = replace(work, first_attempt_at=work.first_attempt_at or now)
            after = _after_hold(lost, reason, now)
            evidence = _attempt(
                work,
                attempt,
                AttemptOutcome.LOST,
                reason,
                after,
                ended_at=now,
                begun_at=None,
            )
            over = after.state is not State.PARKED
            return Change(work=after, attempt=evidence, passes_head=over)
        case State.PARKED | State.SUCCEEDED | State.DEAD | State.CANCELLED:
            return Change(work=None)
        case _:
            assert_never(work.state)


def _after_hold(work: Work, reason: str, now: int) -> Work:
    if work.cancel_requested_at is not None:
        return ended(work, State.CANCELLED, now, work.reason or "cancel requested")
    if work.success_claim is not None:
        return ended(work, State.SUCCEEDED, now, "an earlier attempt succeeded")
    return ended(work, State.PARKED, now, reason)


def replay(work: Work, trigger: int, now: int) -> tuple[Change, Replayed]:
    """Do it again: budgets and evidence restart, claim number and attempts stay."""
    match work.state:
        case State.READY:
            answer = Replayed.IN_LINE if stands_in_line(work) else Replayed.WOKEN
            return wake(work, now), answer
        case State.CLAIMED:
            return Change(work=None), Replayed.IN_FLIGHT
        case State.SUCCEEDED | State.DEAD | State.CANCELLED | State.PARKED:
            fresh = replace(
                work,
                claimed_by=None,
                tries=0,
                failures=0,
                losses=0,
                first_attempt_at=None,
                replay_claim=work.claim,
                success_claim=None,
                cancel_requested_at=None,
                trigger=trigger,
            )
            return Change(work=ready_at(fresh, now, now, "replayed")), Replayed.READY
        case _:
            assert_never(work.state)


def _passes_head(after: Work, order: Order | None) -> bool:
    """Whether the next row of an ordered lane may go."""
    if after.state in {State.SUCCEEDED, State.CANCELLED}:
        return True
    if order is None or order.policy is OrderPolicy.BLOCK:
        return False
    if after.state in {State.DEAD, State.PARKED}:
        return True
    return order.skip_after is not None and after.failures >= order.skip_after


def _late(said: Settlement, now: int) -> Late:
    return Late(
        at=now, outcome=_outcome_of(said.result), reason=_reason_of(said.result)
    )


def _outcome_of(result: Result) -> AttemptOutcome:
    match result:
        case Succeeded():
            return AttemptOutcome.SUCCEEDED
        case Failed():
            if result.charged or result.counts_try:
                return AttemptOutcome.FAILED
            return AttemptOutcome.RESET
        case Waiting():
            return AttemptOutcome.WAITING
        case Parked():
            return AttemptOutcome.PARKED
        case Cut():
            return AttemptOutcome.CUT
        case _:
            assert_never(result)


def _reason_of(result: Result) -> str | None:
    return result.reason


def _attempt(
    before: Work,
    attempt: AttemptId,
    outcome: AttemptOutcome,
    reason: str | None,
    after: Work,
    *,
    ended_at: int,
    begun_at: int | None,
) -> Attempt:
    assert before.claimed_by is not None
    return Attempt(
        id=attempt,
        work=before.id,
        claim=before.claim,
        node=before.claimed_by,
        tenant=before.tenant,
        lane=before.lane,
        kind=before.kind,
        trigger=before.trigger,
        number=before.number,
        begun_at=begun_at,
        ended_at=ended_at,
        outcome=outcome,
        reason=reason,
        state_after=after.state,
        next_due_at=after.due_at,
    )
