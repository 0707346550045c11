"""What can be said to a work row: the results of an attempt, and the verbs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tenure.ids import AttemptId, LaneId, NodeId, WorkId
from tenure.kernel.states import OrderPolicy
from tenure.limits import SUSPECT_BACKOFF_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The side effect happened."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed; `retry_at` (µs) says when again, None says never.

    `charged` adds one to `failures` (the count budget); `counts_try` adds one to
    `tries` (which chooses the delay). A request on a reused connection that ended
    before any byte counts as neither (`reset`).
    """

    retry_at: int | None
    charged: bool
    counts_try: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Go to sleep until woken; due at once if `wakes` is no longer the row's count."""

    wakes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The row's own fault: it waits for an operator with this reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Begun and ended by the drain budget: kept, counted, uncharged, due at once."""

    reason: str = "cut at the drain budget"


Result = Succeeded | Failed | Waiting | Parked | Cut


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """One holder's answer for one claim; the credential is (work, claim, node)."""

    work: WorkId
    claim: int
    node: NodeId
    lane: LaneId
    kind: str
    order_key: str | None
    attempt: AttemptId
    begun_at: int | None
    ended_at: int
    result: Result
    evidence: object | None = None


class Answer(StrEnum):
    """What became of a settlement; a value, never an exception."""

    APPLIED = "applied"
    ALREADY = "already settled by you"
    LOST = "claim no longer held"
    LATE_KEPT = "late success kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The rule of an ordered lane; `skip_after` failures pass a head under `skip`."""

    policy: OrderPolicy = OrderPolicy.BLOCK
    skip_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Why a claim is lost. Outages and operators' closings are not `charged`.

    `backoff_us` is the pause after the second loss and every later one.
    """

    charged: bool = True
    backoff_us: int = round(SUSPECT_BACKOFF_SECONDS * 1_000_000)
    at_most_once: bool = False
    reason: str = "holder is not an open node"


class Replayed(StrEnum):
    """What a replay found."""

    READY = "ready"
    WOKEN = "woken"
    IN_LINE = "waiting behind the head of its line"
    IN_FLIGHT = "in flight"
