"""Explain: why each endpoint got a message or not, and why a delivery waits now.

Facts are read in one snapshot; the sentence is chosen by pure rules over the work row,
its lane, the nodes and the endpoint. Each answer names a stable code, the instant at
which something happens next if there is one, and the rule that says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from tenure.clock import US, to_rfc3339
from tenure.errors import NotFound
from tenure.ids import AttemptId, EndpointId, Prefix, TenantId, WorkId
from tenure.kernel.states import State
from tenure.outbox import tables
from tenure.outbox.ledger import messages
from tenure.outbox.ledger.applications import find_application
from tenure.outbox.model import (
    ExplainedAttempt,
    ExplainedDelivery,
    Explanation,
    Unmatched,
)
from tenure.outbox.rules import findable, shown_url
from tenure.store import schema
from tenure.store.nodes import is_heard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

_D: Final = tables.delivery
_E: Final = tables.endpoint
_L: Final = schema.lane
_W: Final = schema.work
_A: Final = schema.attempt
_X: Final = tables.exchange

_UNMATCHED: Final = {
    "event_type": "the endpoint does not listen to this event type",
    "channel": "the endpoint listens to other channels only",
    "disabled": "the endpoint was disabled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Why a row is where it is: a stable code, a sentence, the rule, the next instant."""

    code: str
    why: str
    rule: str
    next_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a row's waiting depends on beside the row and its lane.

    `holder` is the name of the node that claimed it, `holder_beat_at` when that was
    last heard; `capable_beat_at` is the newest beat of an open node that serves the
    lane, None when there is none; `running` counts the lane's live claims.
    """

    now: int
    holder: str | None
    capable_beat_at: int | None
    running: int
    holder_beat_at: int | None = None
    sending: bool = True
    disabled_why: str | None = None


def explain(
    tx: Tx,
    tenant: TenantId,
    ref: str,
    *,
    sending: bool = True,
    app_ref: str | None = None,
) -> Explanation:
    """Explain a message (`msg_…`) or one work row (`wrk_…`).

    `app_ref` narrows to one application, for a caller that may see no other. Raises
    NotFound.
    """
    app = None if app_ref is None else find_application(tx, tenant, app_ref).id
    if not findable(ref):
        raise _unknown(ref)
    work = None
    message = ref
    if ref.startswith(f"{Prefix.WORK}_"):
        work = ref
        found = tx.scalar(sa.select(_D.c.message).where(_D.c.work == ref))
        if found is None:
            raise _unknown(ref)
        message = found
    known = messages.messages_by_id(tx, [message]).get(message)
    if known is None or known.tenant != tenant or app not in {None, known.app}:
        raise _unknown(ref)
    return Explanation(
        message=known,
        deliveries=_deliveries(tx, message, work, sending=sending),
        unmatched=() if work is not None else _unmatched(tx, message),
    )


def why_waits(row: Any, about: Surroundings) -> Waits:
    """Return why a work row stands where it stands; `row` has its and its lane's facts."""
    state = State(row.state)
    match state:
        case State.CLAIMED:
            return _in_flight(row, about)
        case State.READY:
            return _ready(row, about)
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
            return Waits(
                code="parked",
                why=row.reason or "parked",
                rule="a fault of this row alone waits for an operator; resend tries again",
            )


def _in_flight(row: Any, about: Surroundings) -> Waits:
    holder = about.holder or f"node {row.claimed_by}"
    asked = "; a cancel was requested" if row.cancel_requested_at is not None else ""
    beat_at = about.holder_beat_at
    if beat_at is not None and not is_heard(beat_at, about.now):
        return Waits(
            code="holder_silent",
            why=f"{holder} claimed it at {to_rfc3339(row.claimed_at)} and has not been"
            f" heard for {_seconds(about.now - beat_at)}{asked}",
            rule="another node takes it back once the silent one is closed",
        )
    return Waits(
        code="in_flight",
        why=f"in flight on {holder} since {to_rfc3339(row.claimed_at)}{asked}",
        rule="ends by its deadline, or is taken back once its node is not open",
        next_at=row.deadline_at,
    )


def _ready(row: Any, about: Surroundings) -> Waits:
    lane = _lane_holds(row, about)
    if lane is not None:
        return lane
    if row.phase == "asleep":
        return _asleep(row)
    if row.due_at > about.now:
        since = f" after: {row.reason}" if row.reason else ""
        return Waits(
            code="not_due",
            why=f"not due before {to_rfc3339(row.due_at)}{since}",
            rule="the retry schedule, Retry-After, or the sender's deliverAt",
            next_at=row.due_at,
        )
    beat_at = about.capable_beat_at
    if beat_at is None or not is_heard(beat_at, about.now):
        why = f"no open node serves {row.needs!r}"
        if beat_at is not None:
            silent = _seconds(about.now - beat_at)
            why = f"no node that serves {row.needs!r} has been heard for {silent}"
        return Waits(
            code="no_capable_node",
            why=why,
            rule="a lane waits untouched until a node can serve it",
        )
    if row.concurrency is not None and about.running >= row.concurrency:
        return Waits(
            code="no_room",
            why=f"{about.running} of {row.concurrency} places of the endpoint are taken",
            rule="concurrency is exact over the fleet",
        )
    return Waits(
        code="due",
        why="due now; a node with a free place takes it",
        rule="nodes look at least once a second; a slow endpoint gets fewer places",
        next_at=about.now,
    )


def _seconds(span_us: int) -> str:
    return f"{span_us // US} s"


def _asleep(row: Any) -> Waits:
    if row.order_key is not None:
        return Waits(
            code="head_of_line",
            why="an earlier message of its order has not ended",
            rule="an ordered endpoint sends one after the other",
        )
    return Waits(
        code="asleep",
        why=row.reason or "asleep until it is woken",
        rule="a wake makes it due",
    )


def _lane_holds(row: Any, about: Surroundings) -> Waits | None:
    """Return why the whole lane stands still, None when it does not."""
    if not about.sending:
        return Waits(
            code="off",
            why="off by deployment policy",
            rule="TENURE_SENDING=off: work is accepted and kept",
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


def _standing(tx: Tx, message: str, work: str | None) -> Sequence[Any]:
    """Return each delivery's work row with what stands around it."""
    holder = schema.node
    stmt = (
        sa.select(
            *_W.c,
            _L.c.state.label("lane_state"),
            _L.c.reason.label("lane_reason"),
            _L.c.breaker_until,
            _L.c.concurrency,
            _L.c.needs,
            _E.c.id.label("endpoint"),
            _E.c.url,
            _E.c.userinfo.is_not(None).label("has_userinfo"),
            _E.c.disabled,
            _E.c.disabled_why,
            holder.c.name.label("holder"),
            holder.c.beat_at.label("holder_beat_at"),
        )
        .select_from(
            _D.join(_W, _W.c.id == _D.c.work)
            .join(_L, _L.c.id == _W.c.lane)
            .join(_E, _E.c.id == _D.c.endpoint)
            .outerjoin(holder, holder.c.id == _W.c.claimed_by)
        )
        .where(_D.c.message == message)
        .order_by(_D.c.endpoint)
    )
    if work is not None:
        stmt = stmt.where(_D.c.work == work)
    return tx.all(stmt)


def _deliveries(
    tx: Tx, message: str, work: str | None, *, sending: bool
) -> tuple[ExplainedDelivery, ...]:
    found = _standing(tx, message, work)
    attempts = _attempts(tx, [row.id for row in found])
    capable = _capable(tx)
    running = _running(tx, {row.lane for row in found if row.concurrency is not None})
    explained: list[ExplainedDelivery] = []
    for row in found:
        waits = why_waits(
            row,
            Surroundings(
                now=tx.now,
                holder=row.holder,
                holder_beat_at=row.holder_beat_at,
                capable_beat_at=max(
                    (beat_at for serves, beat_at in capable if row.needs in serves),
                    default=None,
                ),
                running=running.get(row.lane, 0),
                sending=sending,
                disabled_why=row.disabled_why if row.disabled else None,
            ),
        )
        explained.append(
            ExplainedDelivery(
                work=WorkId(row.id),
                endpoint=EndpointId(row.endpoint),
                url=shown_url(row.url, userinfo=row.has_userinfo),
                state=row.state,
                code=waits.code,
                why=waits.why,
                rule=waits.rule,
                next_at=waits.next_at,
                attempts=attempts.get(row.id, ()),
            )
        )
    return tuple(explained)


def _capable(tx: Tx) -> list[tuple[frozenset[str], int]]:
    """Return what each open node serves, and when it was last heard."""
    n = schema.node
    stmt = sa.select(n.c.serves, n.c.beat_at).where(n.c.state == "open")
    return [(frozenset(row.serves.split()), row.beat_at) for row in tx.all(stmt)]


def _running(tx: Tx, lanes: set[int]) -> dict[int, int]:
    if not lanes:
        return {}
    stmt = (
        sa.select(_W.c.lane, sa.func.count().label("n"))
        .where(_W.c.state == "claimed", _W.c.lane.in_(sorted(lanes)))
        .group_by(_W.c.lane)
    )
    return {row.lane: row.n for row in tx.all(stmt)}


def _attempts(tx: Tx, works: Sequence[str]) -> dict[str, list[ExplainedAttempt]]:
    found: dict[str, list[ExplainedAttempt]] = {}
    stmt = (
        sa.select(*_A.c, _X.c.status_code, _X.c.cause)
        .select_from(
            _A.outerjoin(_X, sa.and_(_X.c.work == _A.c.work, _X.c.claim == _A.c.claim))
        )
        .where(_A.c.work.in_(works))
        .order_by(_A.c.work, _A.c.claim)
    )
    for row in tx.all(stmt):
        found.setdefault(row.work, []).append(
            ExplainedAttempt(
                id=AttemptId(row.id),
                number=row.number,
                ended_at=row.ended_at,
                outcome=row.outcome,
                reason=row.reason,
                status_code=row.status_code,
                cause=row.cause,
                next_due_at=row.next_due_at,
                late_outcome=row.late_outcome,
            )
        )
    return found


def _unmatched(tx: Tx, message: str) -> tuple[Unmatched, ...]:
    stored = tx.scalar(
        sa.select(tables.unmatched.c.reasons).where(
            tables.unmatched.c.message == message
        )
    )
    if stored is None:
        return ()
    reasons = msgspec.json.decode(stored, type=dict[str, str])
    if not reasons:
        return (
            Unmatched(
                endpoint=None, url=None, reason="the application had no endpoint"
            ),
        )
    urls = {
        row.id: shown_url(row.url, userinfo=row.has_userinfo)
        for row in tx.all(
            sa.select(
                _E.c.id, _E.c.url, _E.c.userinfo.is_not(None).label("has_userinfo")
            ).where(_E.c.id.in_(sorted(reasons)))
        )
    }
    return tuple(
        Unmatched(
            endpoint=EndpointId(endpoint),
            url=urls.get(endpoint),
            reason=_UNMATCHED.get(reason, reason),
        )
        for endpoint, reason in sorted(reasons.items())
    )


def _unknown(ref: str) -> NotFound:
    return NotFound(f"{ref[:100]!r} is no message and no work row of this tenant")
