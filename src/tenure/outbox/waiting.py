"""Why a row stands where it stands: pure rules over the row and what is around it.

Nothing waits without a reason, so `why_waits` answers for every row: a stable code, a
sentence, the rule that says so, and the instant of what happens next if it is known.
`CODES` is the whole list, in the order in which it is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenure.clock import US, to_rfc3339
from tenure.kernel.states import State
from tenure.limits import (
    EXPLAIN_AHEAD_MAX,
    RATE_AHEAD_SECONDS,
    SHORT_DEADLINE_SECONDS,
    SLOW_AFTER_SECONDS,
    SUSPECT_LOSSES,
)
from tenure.store.claims import CERTAIN
from tenure.store.claims.parking import HELD
from tenure.store.nodes import is_heard

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CODES",
    "NORMAL",
    "SENDING_OFF",
    "Standing",
    "Surroundings",
    "Waits",
    "why_waits",
]

SENDING_OFF: Final = "off by deployment policy"
_RATE_AHEAD_US: Final = round(RATE_AHEAD_SECONDS * US)
_SLOW_US: Final = round(SLOW_AFTER_SECONDS * US)
_SHORT_US: Final = round((SHORT_DEADLINE_SECONDS + RATE_AHEAD_SECONDS) * US)

CODES: Final = {
    "in_flight": "claimed: the node, since when, and its deadline",
    "alone": "claimed by a node that runs nothing else beside it, as a suspect",
    "holder_silent": "claimed by a node that nobody hears",
    "holder_closed": "claimed by a node that was closed; its deadline is waited for",
    "cancelling": "claimed, and a cancel was requested",
    "off": "nothing is sent: by policy, or because the database looks like a copy",
    "deleted": "its endpoint was deleted",
    "paused": "its endpoint is disabled or paused",
    "blocked": "its endpoint's settings are at fault",
    "breaker": "its endpoint's breaker is open until an instant",
    "head_of_line": "an earlier row of its order has not ended: which, and how it stands",
    "asleep": "until it is woken",
    "not_due": "until an exact instant",
    "no_capable_node": "no open node that is heard serves what its lane needs",
    "no_room": "as many run as the lane allows: how many of how many",
    "probing": "its endpoint is tried with one request after a breaker",
    "rate": "its endpoint's rate allows the next start at an instant",
    "suspect": "it was lost with its holders twice, and waits to run alone",
    "slow_lane": "attempts of its endpoint take long, so it gets fewer places",
    "node_full": "every capable node has as many claims as it has slots",
    "behind": "rows of its endpoint that came before it: how many",
    "due": "nothing holds it up: a node with a free place takes it",
    "succeeded": "done",
    "dead": "given up",
    "cancelled": "cancelled",
    "held": "held since a restored copy was adopted",
    "parked": "a fault of this row alone waits for an operator",
}
"""Every code of an explanation, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Why a row is where it is: a stable code, a sentence, the rule, the next instant."""

    code: str
    why: str
    rule: str
    next_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the deployment says: why nothing is sent, and the slots of its nodes."""

    off: str | None = None
    slots: int | None = None


NORMAL: Final = Standing()
"""A deployment that sends, of which nothing else is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a row's waiting depends on beside the row and its lane.

    `holder` is the name of the node that claimed it, `holder_beat_at` when that was
    last heard; `capable_beat_at` is the newest beat of an open node that serves the
    lane, None when there is none; `running` counts the lane's live claims, of which the
    oldest began at `running_since`; `least_held` is how many claims the capable node
    with the fewest has; `ahead` counts due rows of the lane before this one, to a bound;
    `front` describes who is in front of its line.
    """

    now: int
    holder: str | None
    capable_beat_at: int | None
    running: int
    holder_beat_at: int | None = None
    holder_state: str | None = None
    holder_why: str | None = None
    running_since: int | None = None
    least_held: int = 0
    ahead: int = 0
    front: str | None = None
    standing: Standing = NORMAL
    disabled_why: str | None = None


def why_waits(row: Any, about: Surroundings) -> Waits:
    """Return why a work row stands where it stands; `row` has its and its lane's facts."""
    state = State(row.state)
    match state:
        case State.CLAIMED:
            return _in_flight(row, about)
        case State.READY:
            return next(
                found for rule in _RULES if (found := rule(row, about)) is not None
            )
        case State.SUCCEEDED:
            return Waits(
                code="succeeded",
                why=row.reason or "the receiver took it",
                rule="2xx succeeds",
            )
        case State.DEAD:
            return Waits(
                code="dead",
                why=row.reason or "it failed for good",
                rule="a final answer, or a budget that ran out; resend starts over",
            )
        case State.CANCELLED:
            return Waits(
                code="cancelled",
                why=row.reason or "cancelled",
                rule="cancelled work never goes out; resend starts over",
            )
        case State.PARKED:
            return _parked(row)


def _parked(row: Any) -> Waits:
    if row.reason == HELD:
        return Waits(
            code="held",
            why=row.reason,
            rule="what waited in a copy goes out or is cancelled when an operator says",
        )
    return Waits(
        code="parked",
        why=row.reason or "parked",
        rule="a fault of this row alone waits for an operator; resend tries again",
    )


def _in_flight(row: Any, about: Surroundings) -> Waits:
    holder = about.holder or f"node {row.claimed_by}"
    cancelling = row.cancel_requested_at is not None
    asked = "; a cancel was requested" if cancelling else ""
    since = to_rfc3339(row.claimed_at)
    beat_at = about.holder_beat_at
    if about.holder_state == "closed":
        return _holder_closed(row, about, holder, asked)
    if beat_at is not None and not is_heard(beat_at, about.now):
        return Waits(
            code="holder_silent",
            why=f"{holder} claimed it at {since} and has not been"
            f" heard for {_seconds(about.now - beat_at)}{asked}",
            rule="another node takes it back once the silent one is closed",
        )
    alone = ", with nothing beside it" if row.alone else ""
    return Waits(
        code="alone" if row.alone else "cancelling" if cancelling else "in_flight",
        why=f"in flight on {holder} since {since}{alone}, until"
        f" {to_rfc3339(row.deadline_at)} at the latest{asked}",
        rule="ends by its deadline, or is taken back once its node is not open",
        next_at=row.deadline_at,
    )


def _holder_closed(row: Any, about: Surroundings, holder: str, asked: str) -> Waits:
    """A request that may be on the wire is not sent again before its deadline."""
    waits = (
        about.holder_why != CERTAIN
        and row.deadline_at - row.claimed_at <= _SHORT_US
        and row.deadline_at > about.now
    )
    return Waits(
        code="holder_closed",
        why=f"{holder} claimed it at {to_rfc3339(row.claimed_at)} and was closed"
        f" ({about.holder_why or 'closed'}){asked}",
        rule="taken back after its deadline: an answer may still be under way"
        if waits
        else "the next beat of any node takes it back",
        next_at=row.deadline_at if waits else about.now,
    )


# --- rules for ready rows, in their order -------------------------------------------------


def _lane_holds(row: Any, about: Surroundings) -> Waits | None:
    """Return why the whole lane stands still, None when it does not."""
    if about.standing.off is not None:
        return Waits(
            code="off",
            why=about.standing.off,
            rule="work is accepted and kept while nothing is sent"
            " (TENURE_SENDING=off, or a copy until `tenure adopt`)",
        )
    match row.lane_state:
        case "paused":
            why = about.disabled_why
            reason = f"the endpoint is disabled ({why})" if why else row.lane_reason
            return Waits(
                code="paused",
                why=reason or "the endpoint is paused",
                rule="its backlog is kept and goes out once it is enabled",
            )
        case "blocked":
            return Waits(
                code="blocked",
                why=row.lane_reason or "the endpoint is blocked",
                rule="saving the setting at fault opens it again",
            )
        case "deleted":
            return Waits(
                code="deleted",
                why="the endpoint was deleted",
                rule="its open work is cancelled shortly",
            )
        case _:
            pass
    if row.breaker_until is not None and row.breaker_until > about.now:
        return Waits(
            code="breaker",
            why=f"the breaker is open until {to_rfc3339(row.breaker_until)}",
            rule="a failing endpoint is probed again then",
            next_at=row.breaker_until,
        )
    return None


def _asleep(row: Any, about: Surroundings) -> Waits | None:
    if row.phase != "asleep":
        return None
    if row.order_key is not None:
        front = about.front or "an earlier message of its order"
        return Waits(
            code="head_of_line",
            why=f"{front} has not ended and is in front of it",
            rule="an ordered endpoint sends one after the other",
        )
    return Waits(
        code="asleep",
        why=row.reason or "asleep until it is woken",
        rule="a wake makes it due",
    )


def _not_due(row: Any, about: Surroundings) -> Waits | None:
    if row.due_at <= about.now:
        return None
    since = f" after: {row.reason}" if row.reason else ""
    return Waits(
        code="not_due",
        why=f"not due before {to_rfc3339(row.due_at)}{since}",
        rule="the retry schedule, Retry-After, or the sender's deliverAt",
        next_at=row.due_at,
    )


def _no_node(row: Any, about: Surroundings) -> Waits | None:
    beat_at = about.capable_beat_at
    if beat_at is not None and is_heard(beat_at, about.now):
        return None
    why = f"no open node serves {row.needs!r}"
    if beat_at is not None:
        silent = _seconds(about.now - beat_at)
        why = f"no node that serves {row.needs!r} has been heard for {silent}"
    return Waits(
        code="no_capable_node",
        why=why,
        rule="a lane waits untouched until a node can serve it",
    )


def _no_room(row: Any, about: Surroundings) -> Waits | None:
    if row.half_open and about.running > 0:
        return Waits(
            code="probing",
            why="one request tries whether the endpoint is well again",
            rule="after a breaker one attempt runs, then all of them",
        )
    if row.concurrency is not None and about.running >= row.concurrency:
        return Waits(
            code="no_room",
            why=f"{about.running} of {row.concurrency} places of the endpoint are taken",
            rule="concurrency is exact over the fleet",
        )
    return None


def _rate(row: Any, about: Surroundings) -> Waits | None:
    if row.rate_per_second is None:
        return None
    if row.rate_per_second <= 0:
        return Waits(
            code="rate",
            why="the endpoint's rate is 0 per second",
            rule="a rate of zero lets nothing start",
        )
    if row.tat is None or row.tat <= about.now + _RATE_AHEAD_US:
        return None
    return Waits(
        code="rate",
        why=f"{row.rate_per_second} per second: the next start is at"
        f" {to_rfc3339(row.tat)}",
        rule="a rate is exact over the fleet, evenly spaced",
        next_at=row.tat,
    )


def _suspect(row: Any, about: Surroundings) -> Waits | None:
    if row.losses < SUSPECT_LOSSES:
        return None
    return Waits(
        code="suspect",
        why=f"its holders died {row.losses} times, so it runs with nothing beside it",
        rule="a node lets what is in flight finish first, then tries it alone",
        next_at=about.now,
    )


def _slow(row: Any, about: Surroundings) -> Waits | None:
    del row
    since = about.running_since
    if since is None or about.now - since <= _SLOW_US:
        return None
    return Waits(
        code="slow_lane",
        why=f"{about.running} attempts of the endpoint run, the oldest for"
        f" {_seconds(about.now - since)}{_ahead(about)}",
        rule="slow endpoints together hold at most half of a node's slots",
    )


def _full(row: Any, about: Surroundings) -> Waits | None:
    del row
    slots = about.standing.slots
    if slots is None or about.least_held < slots:
        return None
    return Waits(
        code="node_full",
        why=f"every node that could take it has its {slots} slots full{_ahead(about)}",
        rule="a node runs as many attempts at once as it has slots",
    )


def _behind(row: Any, about: Surroundings) -> Waits | None:
    del row
    if not about.ahead:
        return None
    return Waits(
        code="behind",
        why=f"due now{_ahead(about)}",
        rule="an endpoint's rows go by priority and by the instant they are due",
        next_at=about.now,
    )


def _due(row: Any, about: Surroundings) -> Waits:
    del row
    return Waits(
        code="due",
        why="due now; a node with a free place takes it",
        rule="nodes look at least once a second; a slow endpoint gets fewer places",
        next_at=about.now,
    )


_RULES: Final[tuple[Callable[[Any, Surroundings], Waits | None], ...]] = (
    _lane_holds,
    _asleep,
    _not_due,
    _no_node,
    _no_room,
    _rate,
    _suspect,
    _slow,
    _full,
    _behind,
    _due,
)


def _ahead(about: Surroundings) -> str:
    if not about.ahead:
        return ""
    bound = "more than " if about.ahead > EXPLAIN_AHEAD_MAX else ""
    count = min(about.ahead, EXPLAIN_AHEAD_MAX)
    return f"; {bound}{count} rows of the endpoint are before it"


def _seconds(span_us: int) -> str:
    return f"{span_us // US} s"
