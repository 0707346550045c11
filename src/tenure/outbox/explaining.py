"""Explain: why each endpoint got a message or not, and why a delivery waits now.

Facts are read in one snapshot, each at a bounded cost; the sentence is chosen by the
pure rules of `waiting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import AttemptId, EndpointId, Prefix, TenantId, WorkId
from tenure.kernel.states import State
from tenure.limits import EXPLAIN_AHEAD_MAX
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
from tenure.outbox.waiting import (
    NORMAL,
    SENDING_OFF,
    Standing,
    Surroundings,
    Waits,
    why_waits,
)
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


def standing(*, sending: bool, slots: int | None = None) -> Standing:
    """Return what a deployment says that sends, or does not, by its own policy."""
    return Standing(off=None if sending else SENDING_OFF, slots=slots)


def explain(
    tx: Tx,
    tenant: TenantId,
    ref: str,
    *,
    standing: Standing = NORMAL,
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
        deliveries=_deliveries(tx, message, work, standing),
        unmatched=() if work is not None else _unmatched(tx, message),
    )


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
            _L.c.rate_per_second,
            _L.c.tat,
            _L.c.half_open,
            _L.c.needs,
            _E.c.id.label("endpoint"),
            _E.c.url,
            _E.c.userinfo.is_not(None).label("has_userinfo"),
            _E.c.disabled,
            _E.c.disabled_why,
            holder.c.name.label("holder"),
            holder.c.beat_at.label("holder_beat_at"),
            holder.c.state.label("holder_state"),
            holder.c.closed_why.label("holder_why"),
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
    tx: Tx, message: str, work: str | None, standing: Standing
) -> tuple[ExplainedDelivery, ...]:
    found = _standing(tx, message, work)
    attempts = _attempts(tx, [row.id for row in found])
    return tuple(
        _explained(row, why_waits(row, about), attempts.get(row.id, ()))
        for row, about in zip(found, surroundings(tx, found, standing), strict=True)
    )


def _explained(
    row: Any, waits: Waits, attempts: Sequence[ExplainedAttempt]
) -> ExplainedDelivery:
    return ExplainedDelivery(
        work=WorkId(row.id),
        endpoint=EndpointId(row.endpoint),
        url=shown_url(row.url, userinfo=row.has_userinfo),
        state=row.state,
        code=waits.code,
        why=waits.why,
        rule=waits.rule,
        next_at=waits.next_at,
        attempts=attempts,
    )


def surroundings(tx: Tx, rows: Sequence[Any], standing: Standing) -> list[Surroundings]:
    """Read what stands around work rows, each with the facts of `_standing`."""
    ready = [row for row in rows if row.state == State.READY]
    nodes = _nodes(tx)
    held = _held(tx) if ready else {}
    running = _running(tx, {row.lane for row in ready})
    about: list[Surroundings] = []
    for row in rows:
        capable = [node for node in nodes if row.needs in node.serves.split()]
        heard = [node for node in capable if is_heard(node.beat_at, tx.now)]
        count, since = running.get(row.lane, (0, None))
        due = row.state == State.READY and row.phase == "due"
        asleep = row.state == State.READY and row.phase == "asleep"
        about.append(
            Surroundings(
                now=tx.now,
                holder=row.holder,
                holder_beat_at=row.holder_beat_at,
                holder_state=row.holder_state,
                holder_why=row.holder_why,
                capable_beat_at=max((node.beat_at for node in capable), default=None),
                running=count,
                running_since=since,
                least_held=min((held.get(node.id, 0) for node in heard), default=0),
                ahead=_ahead(tx, row) if due else 0,
                front=_front(tx, row) if asleep and row.order_key else None,
                standing=standing,
                disabled_why=row.disabled_why if row.disabled else None,
            )
        )
    return about


def _nodes(tx: Tx) -> Sequence[Any]:
    """Return open nodes: what each serves, and when it was last heard."""
    n = schema.node
    return tx.all(sa.select(n.c.id, n.c.serves, n.c.beat_at).where(n.c.state == "open"))


def _held(tx: Tx) -> dict[int, int]:
    """Return how many claims each node has; as many rows as the fleet has slots."""
    found = tx.all(
        "SELECT w.claimed_by, count(*) FROM work w WHERE w.state = 'claimed'"
        " GROUP BY w.claimed_by"
    )
    return {row[0]: row[1] for row in found}


def _running(tx: Tx, lanes: set[int]) -> dict[int, tuple[int, int | None]]:
    """Return of each lane how many claims live, and since when the oldest does."""
    if not lanes:
        return {}
    stmt = (
        sa.select(
            _W.c.lane,
            sa.func.count().label("n"),
            sa.func.min(_W.c.claimed_at).label("since"),
        )
        .where(
            _W.c.state == sa.literal_column("'claimed'"), _W.c.lane.in_(sorted(lanes))
        )
        .group_by(_W.c.lane)
    )
    return {row.lane: (row.n, row.since) for row in tx.all(stmt)}


def _ahead(tx: Tx, row: Any) -> int:
    """Count the due rows of its lane that go before a row, up to a bound."""
    ahead: int = tx.scalar(
        "SELECT count(*) FROM (SELECT 1 FROM work w WHERE w.lane = :lane"
        " AND w.phase = 'due' AND (w.priority, w.due_at) < (:priority, :due_at)"
        " LIMIT :most) x",
        {
            "lane": row.lane,
            "priority": row.priority,
            "due_at": row.due_at,
            "most": EXPLAIN_AHEAD_MAX + 1,
        },
    )
    return ahead


def _front(tx: Tx, row: Any) -> str | None:
    """Describe who is in front of a row's line; None when it is the row itself."""
    found = tx.first(
        "SELECT w.id, w.state, w.reason, d.message FROM order_line o"
        " JOIN work w ON w.id = o.work LEFT JOIN delivery d ON d.work = w.id"
        " WHERE o.lane = :lane AND o.order_key = :key ORDER BY o.sequence LIMIT 1",
        {"lane": row.lane, "key": row.order_key},
    )
    if found is None or found.id == row.id:
        return None
    reason = f": {found.reason}" if found.reason and found.state != "ready" else ""
    return f"{found.message or found.id} ({found.id}, {found.state}{reason})"


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
