from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.ids import AttemptId, NodeId
from tenure.kernel import transitions
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
from tests.kernel.works import (
    MINE,
    NOW,
    OTHER,
    asleep,
    claimed,
    due,
    ended,
    later,
    lost_attempt,
    retry,
    said,
)

SECOND = 1_000_000
ATTEMPT = AttemptId("atmpt_new")


def settle(
    work: Work,
    result: Result,
    earlier: Attempt | None = None,
    *,
    claim: int = 3,
    node: NodeId = MINE,
    late_success: bool = True,
    order: Order | None = None,
) -> transitions.Change:
    answer: Settlement = said(result, claim=claim, node=node, work=work)
    return transitions.settle(
        work, answer, earlier, NOW, late_success=late_success, order=order
    )


def written(change: transitions.Change) -> Work:
    assert change.work is not None
    return change.work


# --- settle, by the holder --------------------------------------------------------------


def test_a_success_ends_the_row_and_leaves_its_evidence():
    change = settle(claimed(), Succeeded())
    row = written(change)
    assert (row.state, row.claimed_by, row.settled_at) == (State.SUCCEEDED, None, NOW)
    assert change.answer is Answer.APPLIED
    attempt = change.attempt
    assert attempt is not None
    assert (attempt.claim, attempt.node, attempt.outcome) == (
        3,
        MINE,
        AttemptOutcome.SUCCEEDED,
    )
    assert (attempt.begun_at, attempt.ended_at) == (NOW - 4, NOW - 1)
    assert attempt.state_after is State.SUCCEEDED
    assert change.passes_head


def test_a_charged_failure_counts_and_waits_for_its_retry():
    row = written(settle(claimed(), retry(NOW + 9)))
    assert (row.state, row.phase, row.due_at) == (State.READY, Phase.LATER, NOW + 9)
    assert (row.failures, row.tries, row.reason) == (1, 1, "status_503")


def test_a_reset_counts_as_nothing_and_is_due_at_once():
    change = settle(claimed(), retry(NOW, charged=False))
    row = written(change)
    assert (row.phase, row.failures, row.tries) == (Phase.DUE, 0, 0)
    assert change.attempt is not None
    assert change.attempt.outcome is AttemptOutcome.RESET


def test_the_count_budget_and_the_delay_are_charged_apart():
    only_delay = Failed(retry_at=NOW, charged=False, counts_try=True, reason="r")
    row = written(settle(claimed(), only_delay))
    assert (row.failures, row.tries) == (0, 1)


def test_a_failure_without_retry_is_the_end():
    row = written(settle(claimed(), retry(None)))
    assert (row.state, row.failures, row.settled_at) == (State.DEAD, 1, NOW)


def test_waiting_sleeps_unless_a_wake_came_meanwhile():
    assert written(settle(claimed(wakes=2), Waiting(wakes=2))).phase is Phase.ASLEEP
    woken = written(settle(claimed(wakes=3), Waiting(wakes=2)))
    assert (woken.phase, woken.due_at) == (Phase.DUE, NOW)


def test_a_row_at_fault_parks_with_its_reason():
    row = written(settle(claimed(), Parked(reason="undecodable")))
    assert (row.state, row.reason) == (State.PARKED, "undecodable")


def test_an_attempt_cut_by_a_drain_is_kept_uncharged_and_due_at_once():
    change = settle(claimed(failures=1, tries=1), Cut())
    row = written(change)
    assert (row.phase, row.due_at, row.failures) == (Phase.DUE, NOW, 1)
    assert change.attempt is not None
    assert change.attempt.outcome is AttemptOutcome.CUT


def test_the_first_attempt_is_remembered_once():
    first = written(settle(claimed(), retry()))
    assert first.first_attempt_at == NOW - 5
    again = claimed(first_attempt_at=77)
    assert written(settle(again, retry())).first_attempt_at == 77


@pytest.mark.parametrize(
    "result", [retry(), retry(None), Waiting(wakes=0), Parked(reason="r"), Cut()]
)
def test_after_a_cancel_request_everything_but_success_is_cancelled(result: Result):
    asked = claimed(cancel_requested_at=NOW - 1, reason="by an operator")
    row = written(settle(asked, result))
    assert (row.state, row.reason) == (State.CANCELLED, "by an operator")
    assert row.failures == 0
    assert written(settle(asked, Succeeded())).state is State.SUCCEEDED


@pytest.mark.parametrize(
    "result", [retry(), retry(None), Waiting(wakes=0), Parked(reason="r"), Cut()]
)
def test_an_earlier_success_rescues_every_other_outcome(result: Result):
    row = written(settle(claimed(success_claim=1), result))
    assert (row.state, row.failures) == (State.SUCCEEDED, 0)


# --- settle, by a holder that was lost -----------------------------------------------------

LOST = [
    due(claim=3, claimed_by=MINE, claimed_at=NOW - 9),
    later(claim=3, claimed_by=MINE, claimed_at=NOW - 9),
    ended(State.PARKED, claimed_by=MINE, claimed_at=NOW - 9),
    ended(State.DEAD, claimed_by=MINE, claimed_at=NOW - 9),
]


@pytest.mark.parametrize("row", LOST, ids=lambda row: row.state)
def test_a_lost_claim_that_nobody_took_over_still_settles(row: Work):
    assert row.lost
    change = settle(row, retry(NOW + 9), lost_attempt())
    after = written(change)
    assert (after.state, after.claimed_by) == (State.READY, None)
    assert change.answer is Answer.APPLIED
    assert change.attempt is None, "its attempt row exists"
    assert change.late is not None
    assert (change.late.at, change.late.outcome) == (NOW, AttemptOutcome.FAILED)


@pytest.mark.parametrize("row", LOST, ids=lambda row: row.state)
def test_an_answer_twice_changes_nothing(row: Work):
    once = written(settle(row, Succeeded(), lost_attempt()))
    again = settle(once, Succeeded(), lost_attempt(late_at=NOW))
    assert (again.work, again.answer) == (None, Answer.ALREADY)
    assert again.late is None


OVERTAKEN = [due(claim=4), later(claim=4), asleep(claim=4)]


@pytest.mark.parametrize(
    "row",
    [*OVERTAKEN, ended(State.DEAD, claim=4), ended(State.PARKED, claim=4)],
    ids=lambda row: row.phase or row.state,
)
def test_a_late_success_ends_a_row_that_is_not_running(row: Work):
    change = settle(row, Succeeded(), lost_attempt())
    after = written(change)
    assert (after.state, after.claim) == (State.SUCCEEDED, 4)
    assert change.answer is Answer.LATE_KEPT
    assert change.passes_head
    assert change.late is not None


def test_a_late_success_is_kept_beside_a_running_claim():
    running = claimed(claim=5, claimed_by=OTHER)
    change = settle(running, Succeeded(), lost_attempt())
    assert written(change) == replace(running, success_claim=3)
    assert change.answer is Answer.LATE_KEPT
    newer = settle(
        written(change), Succeeded(), lost_attempt(claim=4), claim=4, node=MINE
    )
    assert written(newer).success_claim == 4
    older = settle(written(newer), Succeeded(), lost_attempt(claim=2), claim=2)
    assert written(older).success_claim == 4


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.CANCELLED])
def test_a_late_success_does_not_move_a_row_that_is_decided(state: State):
    change = settle(ended(state, claim=4), Succeeded(), lost_attempt())
    assert (change.work, change.answer) == (None, Answer.LOST)
    assert change.late is not None


@pytest.mark.parametrize(
    "result", [retry(), retry(None), Waiting(wakes=0), Parked(reason="r"), Cut()]
)
@pytest.mark.parametrize("row", [*OVERTAKEN, claimed(claim=4, claimed_by=OTHER)])
def test_a_late_failure_is_evidence_and_nothing_else(result: Result, row: Work):
    change = settle(row, result, lost_attempt())
    assert (change.work, change.answer) == (None, Answer.LOST)
    assert change.late is not None
    assert not change.passes_head


def test_a_replay_bars_the_successes_before_it():
    replayed = due(claim=4, replay_claim=4)
    change = settle(replayed, Succeeded(), lost_attempt())
    assert (change.work, change.answer) == (None, Answer.LOST)
    since = due(claim=5, replay_claim=4)
    later_on = settle(since, Succeeded(), lost_attempt(claim=5), claim=5)
    assert written(later_on).state is State.SUCCEEDED


def test_a_kind_may_say_that_late_successes_do_not_count():
    change = settle(due(claim=4), Succeeded(), lost_attempt(), late_success=False)
    assert (change.work, change.answer) == (None, Answer.LOST)


def test_only_the_first_late_answer_is_kept():
    change = settle(due(claim=4), Succeeded(), lost_attempt(late_at=NOW - 1))
    assert (change.work, change.answer, change.late) == (None, Answer.ALREADY, None)


def test_a_claim_without_evidence_or_of_another_node_is_refused():
    row = due(claim=4)
    assert settle(row, Succeeded()).answer is Answer.LOST
    stolen = settle(row, Succeeded(), lost_attempt(node=OTHER))
    assert (stolen.work, stolen.answer, stolen.late) == (None, Answer.LOST, None)
    wrong_node = settle(claimed(), Succeeded(), node=OTHER)
    assert (wrong_node.work, wrong_node.answer) == (None, Answer.LOST)


def test_an_old_result_is_refused_by_the_same_nodes_next_claim():
    again = claimed(claim=4)
    change = settle(again, retry(None), lost_attempt())
    assert (change.work, change.answer) == (None, Answer.LOST)


# --- lose ----------------------------------------------------------------------------------


def lose(work: Work, order: Order | None = None, **loss: object) -> transitions.Change:
    return transitions.lose(work, Loss(**loss), ATTEMPT, NOW, order=order)  # pyright: ignore[reportArgumentType]


def test_a_first_loss_is_due_at_once_and_keeps_the_holder():
    change = lose(claimed())
    row = written(change)
    assert (row.phase, row.losses, row.failures) == (Phase.DUE, 1, 0)
    assert (row.claimed_by, row.claim, row.lost) == (MINE, 3, True)
    assert change.attempt is not None
    assert (change.attempt.outcome, change.attempt.ended_at) == (
        AttemptOutcome.LOST,
        NOW,
    )


def test_a_second_loss_pauses():
    row = written(lose(claimed(losses=1)))
    assert (row.phase, row.due_at) == (Phase.LATER, NOW + 10 * SECOND)


def test_the_third_loss_alone_is_quarantined_and_in_company_is_not():
    alone = written(lose(claimed(losses=2, alone=True)))
    assert (alone.state, alone.reason, alone.losses) == (
        State.PARKED,
        "quarantined",
        3,
    )
    assert alone.claimed_by == MINE, "it may have been innocent: its answer counts"
    company = written(lose(claimed(losses=2)))
    assert (company.state, company.losses) == (State.READY, 3)


def test_the_fifth_loss_in_company_is_quarantined_the_fourth_is_not():
    assert written(lose(claimed(claim=9, losses=3))).state is State.READY
    assert written(lose(claimed(claim=9, losses=4))).state is State.PARKED


def test_an_outage_or_an_operator_charges_nothing():
    row = written(lose(claimed(losses=4, claim=9, alone=True), charged=False))
    assert (row.phase, row.losses, row.failures) == (Phase.DUE, 4, 0)


def test_a_loss_of_a_row_that_must_run_at_most_once_is_its_end():
    row = written(lose(claimed(), at_most_once=True))
    assert (row.state, row.reason, row.claimed_by) == (
        State.DEAD,
        "outcome unknown",
        MINE,
    )


def test_a_loss_after_a_cancel_request_cancels_and_forgets_the_holder():
    row = written(lose(claimed(cancel_requested_at=1), at_most_once=True))
    assert (row.state, row.claimed_by, row.losses) == (State.CANCELLED, None, 0)


def test_a_loss_after_an_earlier_success_succeeds():
    row = written(lose(claimed(success_claim=1, losses=4, claim=9)))
    assert (row.state, row.claimed_by) == (State.SUCCEEDED, None)


def test_a_row_that_is_not_claimed_cannot_be_lost():
    rows = [due(), later(), asleep(), *(ended(s) for s in (State.DEAD, State.PARKED))]
    assert [lose(row) for row in rows] == [transitions.Change(work=None)] * 5


@pytest.mark.parametrize(
    ("policy", "passes"), [(OrderPolicy.BLOCK, False), (OrderPolicy.SKIP, True)]
)
def test_a_quarantined_head_follows_its_lanes_policy(policy: OrderPolicy, passes: bool):
    order = Order(policy=policy)
    poison = claimed(losses=2, alone=True, order_key="k", sequence=1)
    assert lose(poison, order).passes_head is passes
    once = lose(claimed(order_key="k", sequence=1), order, at_most_once=True)
    assert once.passes_head is passes


# --- release -------------------------------------------------------------------------------


def test_a_release_charges_nothing_and_does_not_number_the_attempt():
    before = claimed(failures=1, tries=1, losses=1, reason="status_503")
    change = transitions.release(before, 3, MINE, NOW)
    row = written(change)
    assert (row.phase, row.due_at, row.claimed_by) == (Phase.DUE, NOW, None)
    assert (row.failures, row.tries, row.losses, row.releases) == (1, 1, 1, 1)
    assert row.reason == "status_503"
    assert row.first_attempt_at is None
    assert change.attempt is None
    assert replace(row, claim=4).number == before.number


def test_only_a_held_claim_can_be_released():
    refused = transitions.Change(work=None, answer=Answer.LOST)
    assert transitions.release(claimed(), 3, OTHER, NOW) == refused
    assert transitions.release(claimed(), 2, MINE, NOW) == refused
    lost = due(claim=3, claimed_by=MINE, claimed_at=1)
    assert transitions.release(lost, 3, MINE, NOW) == refused


def test_a_release_after_a_cancel_request_or_a_success_ends_the_row():
    asked = transitions.release(claimed(cancel_requested_at=1), 3, MINE, NOW)
    assert written(asked).state is State.CANCELLED
    rescued = transitions.release(claimed(success_claim=2), 3, MINE, NOW)
    assert written(rescued).state is State.SUCCEEDED
    assert asked.passes_head
    assert rescued.passes_head


# --- wake, cancel, replay ------------------------------------------------------------------


def test_a_wake_makes_every_ready_row_due_now():
    assert written(transitions.wake(asleep(), NOW)).due_at == NOW
    assert written(transitions.wake(later(), NOW)).due_at == NOW
    row = written(transitions.wake(due(), NOW))
    assert (row.due_at, row.wakes) == (NOW - 10, 1), "it keeps its place among the due"


def test_a_wake_of_a_claimed_row_is_only_counted():
    before = claimed()
    assert written(transitions.wake(before, NOW)) == replace(before, wakes=1)


def test_nothing_wakes_a_row_behind_the_head_of_its_line():
    behind = asleep(order_key="k", sequence=2, reason="head of line")
    assert transitions.wake(behind, NOW).work is None
    change, answer = transitions.replay(behind, 1, NOW)
    assert (change.work, answer) == (None, Replayed.IN_LINE)


@pytest.mark.parametrize("row", [due(), later(), asleep(), ended(State.PARKED)])
def test_a_row_that_is_not_running_is_cancelled_and_its_holder_forgotten(row: Work):
    lost = row if row.phase is Phase.ASLEEP else replace(row, claim=3, claimed_by=MINE)
    change = transitions.cancel(lost, "by an operator", NOW)
    after = written(change)
    assert (after.state, after.claimed_by, after.reason) == (
        State.CANCELLED,
        None,
        "by an operator",
    )
    assert change.passes_head


def test_the_holder_of_a_running_row_is_asked_once():
    asked = written(transitions.cancel(claimed(), "first", NOW))
    assert (asked.state, asked.cancel_requested_at) == (State.CLAIMED, NOW)
    assert transitions.cancel(asked, "second", NOW + 1).work is None


@pytest.mark.parametrize(
    "state", [State.SUCCEEDED, State.DEAD, State.CANCELLED, State.PARKED]
)
def test_a_replay_starts_afresh_but_keeps_numbers(state: State):
    before = ended(
        state, tries=2, failures=2, losses=1, releases=1, first_attempt_at=5, wakes=4
    )
    change, answer = transitions.replay(before, 1, NOW)
    row = written(change)
    assert answer is Replayed.READY
    assert (row.state, row.phase, row.due_at) == (State.READY, Phase.DUE, NOW)
    assert (row.tries, row.failures, row.losses, row.first_attempt_at) == (
        0,
        0,
        0,
        None,
    )
    assert (row.claim, row.replay_claim, row.releases, row.wakes) == (3, 3, 1, 4)
    assert (row.trigger, row.settled_at, row.reason) == (1, None, "replayed")


def test_a_replay_of_what_waits_wakes_it_and_of_what_runs_does_nothing():
    woken, answer = transitions.replay(later(), 1, NOW)
    assert (written(woken).phase, answer) == (Phase.DUE, Replayed.WOKEN)
    running, answer = transitions.replay(claimed(), 1, NOW)
    assert (running.work, answer) == (None, Replayed.IN_FLIGHT)


def test_an_operators_replay_survives_the_answer_of_a_quarantined_holder():
    quarantined = written(lose(claimed(losses=2, alone=True)))
    replayed, _ = transitions.replay(quarantined, 1, NOW)
    change = settle(written(replayed), retry(None), lost_attempt())
    assert (change.work, change.answer) == (None, Answer.LOST)


# --- order ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "order", "passes"),
    [
        (retry(), Order(), False),
        (retry(None), Order(), False),
        (Parked(reason="r"), Order(), False),
        (Succeeded(), Order(), True),
        (retry(), Order(policy=OrderPolicy.SKIP), False),
        (retry(None), Order(policy=OrderPolicy.SKIP), True),
        (Parked(reason="r"), Order(policy=OrderPolicy.SKIP), True),
        (Waiting(wakes=0), Order(policy=OrderPolicy.SKIP, skip_after=1), False),
        (retry(), Order(policy=OrderPolicy.SKIP, skip_after=1), True),
        (retry(), Order(policy=OrderPolicy.SKIP, skip_after=2), False),
        (retry(), Order(policy=OrderPolicy.BLOCK, skip_after=1), False),
    ],
)
def test_what_passes_the_head_of_a_line(result: Result, order: Order, passes: bool):
    head = claimed(order_key="k", sequence=1)
    assert settle(head, result, order=order).passes_head is passes


def test_an_unordered_failure_passes_nothing():
    assert not settle(claimed(), retry(None)).passes_head
