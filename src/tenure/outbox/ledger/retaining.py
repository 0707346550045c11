"""Retention: what is over and old enough goes, in steps, each a transaction.

Theory. Messages are walked application by application, along the key that lists them:
each application has its own cutoff, so a step reads only what it may remove and the few
that are old but not over. A message goes in one piece: when all of its deliveries are
over for long enough, everything that refers to it goes in the same transaction. Answers
of receivers go earlier; they are found along their own key, again and again, because
there is no index of what is over and none may be added to `work`.

Every instant is µs of the database's clock; ids carry the instant at which they were
made, and only ever make a row a candidate: its state decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.ids import Prefix, WorkId, id_floor
from tenure.kernel.states import TERMINAL
from tenure.limits import (
    DAY_SECONDS,
    RETENTION_APPLICATIONS,
    RETENTION_EXCHANGES,
    RETENTION_MESSAGES,
    RETENTION_ROWS,
)
from tenure.outbox.ledger.deleting import remove_applications, remove_endpoints
from tenure.outbox.ledger.messages import expire_payloads
from tenure.outbox.ledger.purging import purge_next, remove_tasks
from tenure.store import claims

if TYPE_CHECKING:
    from tenure.outbox.model import OutboxSettings
    from tenure.store.tx import Tx

DAY_US: Final = round(DAY_SECONDS * US)
OVER: Final = "state IN ('succeeded', 'dead', 'cancelled')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """For how long a deployment keeps what is over, in µs; applications may differ."""

    history_us: int
    response_us: int
    idempotency_us: int

    @classmethod
    def of(cls, settings: OutboxSettings) -> Keep:
        """Return what the settings of an outbox say."""
        return cls(
            history_us=round(settings.history_seconds * US),
            response_us=round(settings.response_seconds * US),
            idempotency_us=round(settings.idempotency_seconds * US),
        )

    def history_of(self, days: int | None) -> int:
        """Return how long an application keeps messages (µs).

        Never shorter than an idempotency key counts: its answer is the message.
        """
        own = self.history_us if days is None else days * DAY_US
        return max(own, self.idempotency_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did: rows that went, and where to go on; None = the pass is over."""

    removed: int
    place: str | None


Stepping = Callable[["Tx", str, Keep], Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    app: str
    message: str
    before: int


def remove_messages(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove messages whose deliveries are all over for as long as they are kept."""
    found, end = _candidates(tx, place, keep)
    gone = _remove(tx, found)
    return Step(removed=gone, place=end)


def _candidates(
    tx: Tx, place: str, keep: Keep
) -> tuple[Sequence[_Candidate], str | None]:
    """Return old messages in the order of (application, id), and where that ends."""
    at_app, _, at_message = place.partition(" ")
    apps = tx.all(
        "SELECT id, history_days FROM application WHERE id >= :app"
        " ORDER BY id LIMIT :limit",
        {"app": at_app, "limit": RETENTION_APPLICATIONS},
    )
    if not apps:
        return (), None
    cutoffs = {row.id: tx.now - keep.history_of(row.history_days) for row in apps}
    spans = [
        (id_, at_message if id_ == at_app else "", id_floor(Prefix.MESSAGE, cutoff))
        for id_, cutoff in cutoffs.items()
    ]
    found = _in_spans(tx, spans)
    del found[RETENTION_MESSAGES:]
    candidates = [
        _Candidate(app=app, message=message, before=cutoffs[app])
        for app, message in found
    ]
    if len(found) == RETENTION_MESSAGES:
        return candidates, f"{found[-1][0]} {found[-1][1]}"
    if len(apps) == RETENTION_APPLICATIONS:
        return candidates, f"{apps[-1].id} ~"
    return candidates, None


def _in_spans(tx: Tx, spans: Sequence[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Return (application, message) of each span (application, above, below)."""
    limit = {"limit": RETENTION_MESSAGES}
    found: list[tuple[str, str]] = []
    if tx.dialect == "postgresql":
        asked, params = tx.rows(
            "b", {"app": "text", "above": "text", "below": "text"}, spans
        )
        rows = tx.all(
            f"SELECT b.app, x.id FROM {asked} CROSS JOIN LATERAL ("
            " SELECT m.id FROM message m WHERE m.app = b.app AND m.id > b.above"
            " AND m.id < b.below ORDER BY m.id LIMIT :limit) x",
            {**params, **limit},
        )
        return sorted((row[0], row[1]) for row in rows)
    for app, above, below in spans:
        rows = tx.all(
            "SELECT id FROM message WHERE app = :app AND id > :above AND id < :below"
            " ORDER BY id LIMIT :limit",
            {"app": app, "above": above, "below": below, **limit},
        )
        found += [(app, row[0]) for row in rows]
        if len(found) >= RETENTION_MESSAGES:
            break
    return found


def _remove(tx: Tx, candidates: Sequence[_Candidate]) -> int:
    """Remove those of the candidates that are over in all their deliveries."""
    before = _lock_messages(tx, {each.message: each.before for each in candidates})
    if not before:
        return 0
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(before)])
    # A statement of its own: it sees deliveries that were added before the lock.
    rows = tx.all(
        "SELECT d.message, d.work, w.state, w.settled_at"
        f" FROM {asked} JOIN delivery d ON d.message = b.id"
        " JOIN work w ON w.id = d.work",
        params,
    )

    def old(settled_at: int | None, message: str) -> bool:
        return settled_at is not None and settled_at <= before[message]

    staying = {
        row.message
        for row in rows
        if row.state not in TERMINAL or not old(row.settled_at, row.message)
    }
    works = {
        WorkId(row.work): row.message for row in rows if row.message not in staying
    }
    ended = claims.lock_ended(tx, works.keys())
    staying |= {
        message
        for id_, message in works.items()
        if id_ not in ended or not old(ended[id_].settled_at, message)
    }
    gone = sorted(before.keys() - staying)
    _remove_whole(tx, gone, [id_ for id_, m in works.items() if m not in staying])
    return len(gone)


def _lock_messages(tx: Tx, before: dict[str, int]) -> dict[str, int]:
    """Lock messages, so that nobody resends them meanwhile; pass over locked ones."""
    if not before or tx.dialect == "sqlite":
        return before
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(before)])
    rows = tx.all(
        f"SELECT m.id FROM {asked} JOIN message m ON m.id = b.id"
        " ORDER BY m.id FOR UPDATE OF m SKIP LOCKED",
        params,
    )
    return {row[0]: before[row[0]] for row in rows}


def _remove_whole(tx: Tx, messages: Sequence[str], works: Sequence[WorkId]) -> None:
    if not messages:
        return
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(works)])
    tx.run(f"DELETE FROM exchange WHERE work IN (SELECT b.id FROM {asked})", params)
    claims.remove(tx, works)
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in messages])
    for table, column in (
        ("delivery", "message"),
        ("unmatched", "message"),
        ("payload", "message"),
        ("message", "id"),
    ):
        tx.run(
            f"DELETE FROM {table} WHERE {column} IN (SELECT b.id FROM {asked})", params
        )


def empty_responses(tx: Tx, place: str, keep: Keep) -> Step:
    """Empty answers of receivers whose delivery is over for as long as they are kept."""
    high, _, above = place.partition(" ")
    if not high:
        least = tx.scalar("SELECT min(response_days) FROM application")
        kept = keep.response_us if least is None else least * DAY_US
        high = id_floor(Prefix.WORK, tx.now - min(kept, keep.response_us))
    span = {"above": above, "high": high, "limit": RETENTION_EXCHANGES}
    upto = tx.scalar(
        "SELECT max(x.work) FROM (SELECT work FROM exchange WHERE work > :above"
        " AND work < :high ORDER BY work LIMIT :limit) x",
        span,
    )
    if upto is None:
        return Step(removed=0, place=None)
    emptied = tx.run(
        "UPDATE exchange SET response_body = NULL, expunged_at = :now"
        " WHERE work > :above AND work <= :upto AND response_body IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM work w JOIN delivery d ON d.work = w.id"
        f" JOIN application a ON a.id = d.app WHERE w.id = exchange.work AND w.{OVER}"
        " AND w.settled_at <= CASE WHEN a.response_days IS NULL THEN :cutoff"
        f" ELSE :now - a.response_days * {DAY_US} END)",
        {
            "above": above,
            "upto": upto,
            "now": tx.now,
            "cutoff": tx.now - keep.response_us,
        },
    )
    return Step(removed=emptied, place=f"{high} {upto}")


def remove_nodes(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove nodes that were closed as long ago as history is kept and hold nothing."""
    del place
    gone = tx.run(
        "DELETE FROM node WHERE id IN (SELECT n.id FROM node n"
        " WHERE n.state = 'closed' AND n.closed_at <= :cutoff"
        " ORDER BY n.id LIMIT :limit)"
        " AND id NOT IN (SELECT w.claimed_by FROM work w WHERE w.state = 'claimed')",
        {"cutoff": tx.now - keep.history_us, "limit": RETENTION_ROWS},
    )
    return Step(removed=gone, place=None)


def purge_tasks(tx: Tx, place: str, keep: Keep) -> Step:
    """Go on with background tasks; forget those that ended when history does."""
    if not place:
        remove_tasks(tx, tx.now - keep.history_us)
    done = purge_next(tx, place)
    return Step(removed=done.count, place=done.place)


def empty_payloads(tx: Tx, place: str, keep: Keep) -> Step:
    """Empty payloads past their own time whose deliveries are over."""
    del keep
    emptied, after = expire_payloads(tx, place, RETENTION_ROWS)
    return Step(removed=emptied, place=after)


def forget_endpoints(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove endpoints deleted as long ago as history is kept that have none left."""
    gone, after = remove_endpoints(
        tx, place, tx.now - keep.history_us, limit=RETENTION_ROWS
    )
    return Step(removed=gone, place=after)


def forget_applications(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove applications deleted as long ago that nothing refers to any more."""
    gone, after = remove_applications(
        tx, place, tx.now - keep.history_us, limit=RETENTION_ROWS
    )
    return Step(removed=gone, place=after)


def remove_archived(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove what an endpoint archived for as long as it keeps; never what it keeps."""
    del place, keep
    gone = tx.run(
        "DELETE FROM archived WHERE (endpoint, message) IN (SELECT endpoint, message"
        " FROM archived WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)",
        {"now": tx.now, "limit": RETENTION_ROWS},
    )
    return Step(removed=gone, place="" if gone == RETENTION_ROWS else None)


STEPS: Final[dict[str, Stepping]] = {
    "messages": remove_messages,
    "responses": empty_responses,
    "payloads": empty_payloads,
    "archived": remove_archived,
    "nodes": remove_nodes,
    "tasks": purge_tasks,
    "endpoints": forget_endpoints,
    "applications": forget_applications,
}
"""Every chore of retention by its name."""
