"""What must be true of every row, as named predicates.

Asserts, property tests and the check of a live database use the same list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.kernel.states import TERMINAL, Phase, State, Work

Predicate = Callable[[Work], bool]


def _implies(when: bool, then: bool) -> bool:  # noqa: FBT001 - a connective
    return then or not when


INVARIANTS: Final[dict[str, Predicate]] = {
    "a ready row has a phase, no other row has": lambda w: (
        (w.state is State.READY) == (w.phase is not None)
    ),
    "an asleep row has no due instant, another ready row has": lambda w: _implies(
        w.state is State.READY, (w.phase is Phase.ASLEEP) == (w.due_at is None)
    ),
    "a claimed row names holder, start and deadline": lambda w: _implies(
        w.state is State.CLAIMED,
        w.claimed_by is not None
        and w.claimed_at is not None
        and w.deadline_at is not None
        and w.claim > 0,
    ),
    "a row that a holder ended has no holder": lambda w: _implies(
        w.state in {State.SUCCEEDED, State.CANCELLED}, w.claimed_by is None
    ),
    "a row has an end instant exactly when it does not go on by itself": lambda w: (
        (w.settled_at is not None) == (w.state in TERMINAL or w.state is State.PARKED)
    ),
    "no evidence is newer than the claim": lambda w: (
        w.replay_claim <= w.claim
        and (w.success_claim is None or w.replay_claim < w.success_claim < w.claim)
    ),
    "counters never exceed the claims": lambda w: (
        0 <= w.releases <= w.claim
        and 0 <= w.tries <= w.claim
        and 0 <= w.failures <= w.claim
        and 0 <= w.losses <= w.claim
    ),
    "a parked or dead row has a reason": lambda w: _implies(
        w.state in {State.PARKED, State.DEAD}, bool(w.reason)
    ),
    "only a claimed row runs alone": lambda w: _implies(
        w.alone, w.state is State.CLAIMED
    ),
    "only a claimed row keeps an earlier success": lambda w: _implies(
        w.success_claim is not None,
        w.state is State.CLAIMED or w.state in TERMINAL,
    ),
    "only a claimed row waits for a cancel": lambda w: _implies(
        w.cancel_requested_at is not None,
        w.state is State.CLAIMED or w.state in TERMINAL,
    ),
}


def broken(work: Work) -> list[str]:
    """Return the names of the invariants that this row breaks, in the order above."""
    return [name for name, holds in INVARIANTS.items() if not holds(work)]
