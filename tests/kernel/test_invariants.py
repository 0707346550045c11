from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.kernel.invariants import INVARIANTS, broken
from tenure.kernel.states import Phase, State, Work
from tests.kernel.works import MINE, NOW, asleep, claimed, due, ended, later

SOUND = [
    due(),
    later(),
    asleep(),
    claimed(),
    claimed(alone=True, success_claim=1, cancel_requested_at=NOW),
    due(claim=3, claimed_by=MINE),
    *(ended(s) for s in State if s not in {State.READY, State.CLAIMED}),
]

BROKEN: dict[str, list[Work]] = {
    "a ready row has a phase, no other row has": [
        replace(due(), phase=None),
        replace(claimed(), phase=Phase.DUE),
    ],
    "an asleep row has no due instant, another ready row has": [
        replace(asleep(), due_at=NOW),
        replace(due(), due_at=None),
        replace(later(), due_at=None),
    ],
    "a claimed row names holder, start and deadline": [
        replace(claimed(), claimed_by=None),
        replace(claimed(), claimed_at=None),
        replace(claimed(), deadline_at=None),
        replace(claimed(), claim=0),
    ],
    "a row that a holder ended has no holder": [
        replace(ended(State.SUCCEEDED), claimed_by=MINE),
        replace(ended(State.CANCELLED), claimed_by=MINE),
    ],
    "a row has an end instant exactly when it does not go on by itself": [
        replace(ended(State.DEAD), settled_at=None),
        replace(ended(State.PARKED), settled_at=None),
        replace(due(), settled_at=NOW),
    ],
    "no evidence is newer than the claim": [
        replace(claimed(), replay_claim=4),
        replace(claimed(), success_claim=3),
        replace(claimed(), success_claim=1, replay_claim=1),
    ],
    "counters never exceed the claims": [
        replace(claimed(), releases=4),
        replace(claimed(), tries=4),
        replace(claimed(), failures=4),
        replace(claimed(), losses=4),
        replace(claimed(), losses=-1),
    ],
    "a parked or dead row has a reason": [
        replace(ended(State.PARKED), reason=None),
        replace(ended(State.DEAD), reason=""),
    ],
    "only a claimed row runs alone": [replace(due(), alone=True)],
    "only a claimed row keeps an earlier success": [
        replace(due(), claim=3, success_claim=1),
    ],
    "only a claimed row waits for a cancel": [
        replace(due(), cancel_requested_at=NOW),
    ],
}


@pytest.mark.parametrize("work", SOUND, ids=lambda w: f"{w.state} {w.phase}")
def test_sound_rows_break_nothing(work: Work):
    assert broken(work) == []


@pytest.mark.parametrize("name", INVARIANTS)
def test_each_invariant_sees_its_own_fault(name: str):
    for work in BROKEN[name]:
        assert name in broken(work)


def test_the_names_of_broken_invariants_come_in_their_order():
    work = replace(due(), phase=None, alone=True)
    names = broken(work)
    assert names == [name for name in INVARIANTS if name in names]
    assert len(names) >= 2
