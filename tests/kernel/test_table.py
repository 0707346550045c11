from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from tenure.ids import AttemptId, NodeId
from tenure.kernel import transitions
from tenure.kernel.commands import (
    Cut,
    Loss,
    Order,
    Parked,
    Result,
    Settlement,
    Succeeded,
    Waiting,
)
from tenure.kernel.invariants import broken
from tenure.kernel.states import (
    Attempt,
    AttemptOutcome,
    OrderPolicy,
    Phase,
    State,
    Work,
)
from tenure.kernel.table import (
    CONDITIONS,
    HELD,
    IN_SQL,
    TABLE,
    UNCHANGED,
    Case,
    Verb,
    diagram,
    line_of,
    page,
    place,
)
from tenure.kernel.transitions import Change
from tests.kernel.works import MINE, NOW, OTHER, due, lost_attempt, retry, said

PLACES = [
    (State.READY, Phase.DUE, NOW - 5),
    (State.READY, Phase.LATER, NOW + 5),
    (State.READY, Phase.ASLEEP, None),
    *((state, None, None) for state in State if state is not State.READY),
]


def small_rows() -> Iterator[Work]:
    """Yield every sound row with up to three claims, in all that decisions look at."""
    for (state, phase, due_at), claim, holder, success, replay in product(
        PLACES, (0, 1, 3), (None, MINE), (None, 2), (0, 1)
    ):
        over = state is State.PARKED or str(state) in {"succeeded", "dead", "cancelled"}
        claimed = state is State.CLAIMED
        base = replace(
            due(),
            state=state,
            phase=phase,
            due_at=due_at,
            claim=claim,
            claimed_by=holder,
            claimed_at=NOW - 9 if claim else None,
            deadline_at=NOW + 9 if claim else None,
            replay_claim=replay,
            success_claim=success,
            reason="because" if over else None,
            settled_at=NOW - 1 if over else None,
        )
        asked: tuple[int | None, ...] = (None, NOW - 3) if claimed else (None,)
        for request, alone, losses, key in product(
            asked,
            (False, True) if claimed else (False,),
            (0, claim - 1) if claimed else (0,),
            (None, "key") if state is State.READY else (None,),
        ):
            row = replace(
                base,
                cancel_requested_at=request,
                alone=alone,
                losses=losses,
                order_key=key,
                sequence=None if key is None else 7,
            )
            if not broken(row):
                yield row
    for losses in range(1, 6):
        yield replace(
            due(),
            state=State.CLAIMED,
            phase=None,
            claim=6,
            claimed_by=MINE,
            claimed_at=NOW - 9,
            deadline_at=NOW + 9,
            losses=losses,
        )


RESULTS: list[Result] = [
    Succeeded(),
    retry(),
    retry(NOW),
    retry(NOW, charged=False),
    retry(None),
    Waiting(wakes=0),
    Waiting(wakes=4),
    Parked(reason="undecodable"),
    Cut(),
]
LOSSES = [
    Loss(),
    Loss(charged=False),
    Loss(at_most_once=True),
    Loss(charged=False, at_most_once=True),
]


def cases(work: Work) -> Iterator[Case]:
    """Yield everything that can be said to a row."""
    for verb in (Verb.WAKE, Verb.CANCEL, Verb.HOLD, Verb.REPLAY):
        yield Case(verb=verb, work=work, now=NOW)
    for loss in LOSSES:
        yield Case(verb=Verb.LOSE, work=work, loss=loss, now=NOW)
    claims = {claim for claim in (work.claim, 1) if 0 < claim <= work.claim}
    for claim, node in product(sorted(claims), (MINE, OTHER)):
        yield Case(verb=Verb.RELEASE, work=work, claim=claim, node=node, now=NOW)
        for result, earlier in product(RESULTS, evidence(work, claim, node)):
            kept = (True, False) if isinstance(result, Succeeded) else (True,)
            for late_success in kept:
                yield Case(
                    verb=Verb.SETTLE,
                    work=work,
                    claim=claim,
                    node=node,
                    said=said(result, claim=claim, node=node, work=work),
                    earlier=earlier,
                    late_success=late_success,
                    now=NOW,
                )


def evidence(work: Work, claim: int, node: NodeId) -> list[Attempt | None]:
    """Return the attempts that this claim may have left: none, lost, or answered."""
    if claim == work.claim and work.state is State.CLAIMED:
        return [None]
    lost = lost_attempt(claim=claim, node=work.claimed_by or node)
    if claim == work.claim and work.claimed_by is not None:
        return [lost]
    lost = lost_attempt(claim=claim, node=node)
    return [
        None,
        lost,
        replace(lost, late_at=NOW - 1, late_outcome=AttemptOutcome.FAILED),
        replace(lost, outcome=AttemptOutcome.FAILED),
        replace(lost, node=NodeId(9)),
    ]


def decided(case: Case) -> Change:
    attempt = AttemptId("atmpt_lost")
    match case.verb:
        case Verb.WAKE:
            return transitions.wake(case.work, case.now)
        case Verb.CANCEL:
            return transitions.cancel(case.work, "by an operator", case.now)
        case Verb.HOLD:
            return transitions.hold(case.work, "held", attempt, case.now)
        case Verb.REPLAY:
            return transitions.replay(case.work, 1, case.now)[0]
        case Verb.LOSE:
            assert case.loss is not None
            return transitions.lose(case.work, case.loss, attempt, case.now)
        case Verb.RELEASE:
            assert case.node is not None
            return transitions.release(case.work, case.claim, case.node, case.now)
        case _:
            assert isinstance(case.said, Settlement)
            return transitions.settle(
                case.work,
                case.said,
                case.earlier,
                case.now,
                late_success=case.late_success,
            )


@pytest.fixture(scope="module")
def everything() -> list[tuple[Case, Change]]:
    return [(case, decided(case)) for work in small_rows() for case in cases(work)]


def test_the_table_says_what_every_verb_does_to_every_small_row(
    everything: list[tuple[Case, Change]],
):
    fitted: set[int] = set()
    for case, change in everything:
        line = line_of(case)
        found = UNCHANGED if change.work is None else place(change.work)
        assert found == line.after, (case, line)
        fitted.add(TABLE.index(line))
    assert len(everything) > 5_000
    unseen = [
        line
        for at, line in enumerate(TABLE)
        if at not in fitted and line.verb not in IN_SQL
    ]
    assert unseen == [], "no row ever does this: take the line out"


def test_whatever_a_verb_does_to_a_sound_row_leaves_a_sound_row(
    everything: list[tuple[Case, Change]],
):
    for case, change in everything:
        if change.work is not None:
            assert broken(change.work) == [], (case, change.work)
            assert change.work.claim == case.work.claim, "only a claim raises it"


def test_only_the_holder_of_the_newest_claim_changes_a_row_but_for_a_late_success(
    everything: list[tuple[Case, Change]],
):
    late = CONDITIONS["first late success of a lost claim since the last replay"]
    for case, change in everything:
        if case.verb in {Verb.SETTLE, Verb.RELEASE} and change.work is not None:
            assert CONDITIONS["holds the claim"](case) or late(case), case


@pytest.mark.parametrize("policy", OrderPolicy)
def test_a_head_is_passed_exactly_when_its_row_is_over_for_its_line(
    policy: OrderPolicy,
):
    order = Order(policy=policy)
    skips = {State.DEAD, State.PARKED} if policy is OrderPolicy.SKIP else set[State]()
    for work in small_rows():
        if work.state is not State.CLAIMED:
            continue
        for result in RESULTS:
            assert work.claimed_by is not None
            answer = said(result, claim=work.claim, node=work.claimed_by)
            change = transitions.settle(
                work, answer, None, NOW, late_success=True, order=order
            )
            assert change.work is not None
            over = {State.SUCCEEDED, State.CANCELLED} | skips
            assert change.passes_head == (change.work.state in over)
        for loss in LOSSES:
            change = transitions.lose(
                work, loss, AttemptId("atmpt_1"), NOW, order=order
            )
            assert change.work is not None
            over = {State.SUCCEEDED, State.CANCELLED} | skips
            assert change.passes_head == (change.work.state in over)


def test_every_condition_of_the_table_has_a_meaning():
    words = {word for line in TABLE if line.verb not in IN_SQL for word in line.when}
    assert words == CONDITIONS.keys()


def test_a_row_in_no_line_of_the_table_is_an_error():
    with pytest.raises(LookupError, match="submit"):
        line_of(Case(verb=Verb.SUBMIT, work=due()))


def test_the_diagram_draws_every_change_of_state():
    drawn = diagram().splitlines()
    assert drawn[0] == "stateDiagram-v2"
    assert "    [*] --> ready: submit" in drawn
    assert "    [*] --> claimed: submit" in drawn
    assert "    ready --> claimed: claim" in drawn
    assert "    claimed --> ready: settle, release, lose" in drawn
    assert "    parked --> ready: replay" in drawn
    assert not any(line.startswith("    succeeded --> claimed") for line in drawn)


def test_the_page_holds_each_line_once():
    lines = page().splitlines()
    rows = [line for line in lines if line.startswith("| ") and "| verb |" not in line]
    assert len(rows) == len(TABLE)
    assert any("| claimed or lost |" in line for line in rows)
    assert HELD not in {line.before for line in TABLE if line.verb in IN_SQL}
