"""The words of the kernel as types: a work row, an attempt, and their states.

Rows are `msgspec.Struct`: as immutable as frozen dataclasses, and made ten times faster,
which matters where every delivery makes several.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tenure.ids import AttemptId, LaneId, NodeId, TenantId, WorkId


class State(StrEnum):
    """What a work row is; literal in SQL, so a value is never renamed."""

    READY = "ready"
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    PARKED = "parked"


class Phase(StrEnum):
    """Which of the three kinds of ready a row is, as decided by the database's clock."""

    DUE = "due"
    LATER = "later"
    ASLEEP = "asleep"


TERMINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
"""States in which nothing more happens unless an operator replays the row."""


class AttemptOutcome(StrEnum):
    """What came of one claim, as far as is known when its row is written."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RESET = "reset"
    WAITING = "waiting"
    PARKED = "parked"
    CUT = "cut"
    LOST = "lost"


class OrderPolicy(StrEnum):
    """What a dead or parked head of an ordered lane does to the rows behind it."""

    BLOCK = "block"
    SKIP = "skip"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One row that says something must happen.

    Invariants, each checked by `tenure.kernel.invariants`:

    - `claim` only grows, by one at every claim; it is never reset.
    - `claimed_by` is set while the row is claimed, and stays set when the claim is
      lost, until somebody else claims, the holder answers, or an operator decides.
    - `due_at` is None exactly while the row is asleep or not ready.
    - `replay_claim <= claim` and `success_claim < claim`.
    """

    id: WorkId
    lane: LaneId
    kind: str
    tenant: TenantId
    subject: str
    state: State
    phase: Phase | None
    priority: int
    due_at: int | None
    claim: int
    claimed_by: NodeId | None
    claimed_at: int | None
    deadline_at: int | None
    alone: bool
    tries: int
    failures: int
    losses: int
    releases: int
    first_attempt_at: int | None
    replay_claim: int
    success_claim: int | None
    cancel_requested_at: int | None
    order_key: str | None
    sequence: int | None
    wakes: int
    trigger: int
    reason: str | None
    created_at: int
    settled_at: int | None

    @property
    def number(self) -> int:
        """The attempt number of the newest claim: claims that were not released."""
        return self.claim - self.releases

    @property
    def lost(self) -> bool:
        """True while the newest claim is lost and its holder may still answer."""
        return self.claimed_by is not None and self.state is not State.CLAIMED


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of one claim. `late_*` are filled at most once, the rest never."""

    id: AttemptId
    work: WorkId
    claim: int
    node: NodeId
    tenant: TenantId
    lane: LaneId
    kind: str
    trigger: int
    number: int
    begun_at: int | None
    ended_at: int
    outcome: AttemptOutcome
    reason: str | None
    state_after: State
    next_due_at: int | None
    late_at: int | None = None
    late_outcome: AttemptOutcome | None = None
    late_reason: str | None = None
