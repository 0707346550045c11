"""Accepting messages: many callers' messages in one commit, each with its own answer.

Theory. One transaction (1) reads the applications, and the endpoints of those whose
route table is stale; (2) takes the idempotency keys in their order; (3) inserts the
messages in the order of (application, event id), leaving out those whose event id is
taken; (4) inserts payloads, deliveries, work rows and the reasons for the rest. Keys and
event ids are taken by inserting, and what was there is read by a *later* statement, which
sees what others committed meanwhile.

What one item is refused for is a value in its place: it fails no neighbour. Items of one
batch that use the same key or event id go in rounds, one after the other, so a round
never has to judge its own rows. The same batch run again (its COMMIT went unanswered)
finds its messages there by their ids and answers as the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import sqlalchemy as sa

from tenure.clock import US
from tenure.errors import Conflict, InvariantViolated, NotFound, TenureError
from tenure.ids import (
    MessageId,
    Prefix,
    TenantId,
    id_instant,
    new_work_id,
)
from tenure.limits import ACCEPT_ROUNDS_MAX, DAY_SECONDS, REASON_MAX
from tenure.outbox import tables
from tenure.outbox.cel import Verdict, evaluate, facts_of, is_short, verdict_of
from tenure.outbox.filters import EndpointFilter, MatchReason, matches
from tenure.outbox.ledger import remembering, rows
from tenure.outbox.ledger.applications import create_application
from tenure.outbox.ledger.endpoints import KIND
from tenure.outbox.ledger.messages import messages_by_id
from tenure.outbox.model import (
    Accepted,
    Application,
    Idempotency,
    Message,
    NewMessage,
    OutboxSettings,
)
from tenure.outbox.routes import Route, RouteTable
from tenure.outbox.rules import check_inline, check_message, due_at, findable
from tenure.store import claims

if TYPE_CHECKING:
    from tenure.outbox.routes import Routes
    from tenure.store.tx import Tx


_MESSAGE: Final = (
    "id",
    "app",
    "tenant",
    "event_type",
    "created_at",
    "event_id",
    "channels",
    "tags",
    "headers",
    "content_type",
    "deliver_at",
    "expires_at",
    "relay",
)
_RARE: Final = 5
"""Where the columns begin that most messages leave NULL."""
_NONE_RARE: Final = (None,) * (len(_MESSAGE) - _RARE)
_DELIVERY: Final = ("message", "endpoint", "work", "app", "lane", "created_at")


class AcceptItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message to accept. `id` exists before the first try, so tries are the same."""

    tenant: TenantId
    app_ref: str
    message: NewMessage
    id: MessageId
    idempotency: Idempotency | None = None
    verdicts: Mapping[str, Verdict] = msgspec.field(default_factory=dict[str, Verdict])
    """What filters said that may take long, by their text."""


class Undecided(TenureError):
    """Filters must be asked outside of a transaction before this can be accepted."""

    def __init__(self, message: MessageId, expressions: Sequence[str]) -> None:
        super().__init__("filters are to be asked first")
        self.of: Final = message
        self.expressions: Final = tuple(expressions)


Answer: TypeAlias = "Accepted | TenureError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answers in the order of the items, and the route tables read on the way.

    Keep the tables only after the commit: they may show what only this transaction did.
    """

    answers: Sequence[Answer]
    routes: Sequence[RouteTable]
    born: Sequence[tuple[claims.Claimed, Message]] = ()
    """Claims of the node that offered to hold them, with their messages."""


@dataclass(slots=True, kw_only=True)
class _Case:
    """One item on its way through the rounds."""

    item: AcceptItem
    message: NewMessage
    answer: Answer | None = None
    app: Application | None = None
    created: bool = False  # the application came with this message
    use: remembering.Use | None = None
    matched: list[Route] = field(default_factory=list[Route])
    reasons: dict[str, str] | None = None
    made: Message | None = None


def accept_batch(
    tx: Tx,
    items: Sequence[AcceptItem],
    *,
    routes: Routes,
    settings: OutboxSettings,
    birth: claims.Birth | None = None,
) -> Batch:
    """Accept messages in this transaction; one answer for each, errors as values.

    With `birth`, deliveries that its node may send at once are born as its claims.
    Raises only what the database raises: then nothing of the batch may be committed.
    """
    cases = [_checked(item, settings) for item in items]
    found: dict[str, RouteTable] = {}
    born: list[tuple[claims.Claimed, Message]] = []
    _find_applications(tx, cases)
    waiting = [case for case in cases if case.answer is None]
    for _ in range(ACCEPT_ROUNDS_MAX):
        if not waiting:
            break
        now, waiting = _split_round(waiting)
        _route(tx, now, routes, found)
        # Messages of a later round would find the room that this one took.
        now = [case for case in now if case.answer is None]
        born += _round(tx, now, settings, None if born else birth)
    answers: list[Answer] = []
    for case in cases:
        if case.answer is None:
            raise InvariantViolated("a batch holds more equal keys than rounds")
        answers.append(case.answer)
    _drop_unused(tx, cases)
    return Batch(answers=answers, routes=tuple(found.values()), born=born)


def _checked(item: AcceptItem, settings: OutboxSettings) -> _Case:
    try:
        return _Case(item=item, message=check_message(item.message, settings))
    except TenureError as error:
        return _Case(item=item, message=item.message, answer=error)


def _find_applications(tx: Tx, cases: Sequence[_Case]) -> None:
    asked = {
        (case.item.tenant, case.item.app_ref) for case in cases if case.answer is None
    }
    wanted = {pair for pair in asked if findable(pair[1])}
    known: dict[tuple[str, str], Application] = {}
    t = tables.application
    prefix = f"{Prefix.APP}_"
    for column in (t.c.id, t.c.uid):
        refs = sorted(
            pair for pair in wanted if (column is t.c.id) == pair[1].startswith(prefix)
        )
        if not refs:
            continue
        fragment, params = tx.rows("w", {"tenant": "text", "ref": "text"}, refs)
        columns = ", ".join(f"a.{each.name}" for each in t.c)
        for row in tx.all(
            f"SELECT {columns}, w.ref FROM {fragment}"
            f" JOIN application a ON a.tenant = w.tenant AND a.{column.name} = w.ref"
            " AND a.deleted_at IS NULL",
            params,
        ):
            known[row.tenant, row.ref] = rows.as_application(row)
    for case in cases:
        if case.answer is None:
            ref = (case.item.tenant, case.item.app_ref)
            case.app = known.get(ref)
            if case.app is None:
                _make_inline(tx, case)
            if case.app is not None:
                known[ref] = case.app


def _make_inline(tx: Tx, case: _Case) -> None:
    """Create the application that came with its first message, or refuse."""
    given, ref = case.message.application, case.item.app_ref
    try:
        if given is None:
            raise NotFound(f"application {ref[:100]!r} was not found")
        made = create_application(
            tx, case.item.tenant, check_inline(given, ref), get_if_exists=True
        )
    except TenureError as error:
        case.answer = error
    else:
        case.app, case.created = made.value, made.created


def _drop_unused(tx: Tx, cases: Sequence[_Case]) -> None:
    """Leave no application behind whose every message was refused."""
    made = {_app(case).id for case in cases if case.created}
    used = {_app(case).id for case in cases if isinstance(case.answer, Accepted)}
    if made - used:
        t = tables.application
        tx.run(sa.delete(t).where(t.c.id.in_(sorted(made - used))))


def _split_round(cases: Sequence[_Case]) -> tuple[list[_Case], list[_Case]]:
    """Return (those that share no key and no event id, those that must wait)."""
    if len({case.item.id for case in cases}) == len(cases) and not any(
        case.item.idempotency is not None or case.message.event_id is not None
        for case in cases
    ):
        return list(cases), []
    now: list[_Case] = []
    later: list[_Case] = []
    taken: set[tuple[str, str, str]] = set()
    for case in cases:
        item, app = case.item, case.app
        marks: set[tuple[str, str, str]] = {("message", item.id, "")}
        if item.idempotency is not None:
            marks.add(("key", item.tenant, item.idempotency.key))
        if item.message.event_id is not None and app is not None:
            marks.add(("event", app.id, item.message.event_id))
        if taken.isdisjoint(marks):
            taken |= marks
            now.append(case)
        else:
            later.append(case)
    return now, later


def _route(
    tx: Tx, cases: Sequence[_Case], routes: Routes, found: dict[str, RouteTable]
) -> None:
    """Find each message's endpoints, reading the route tables that are stale."""
    stale: dict[str, Application] = {}
    for case in cases:
        app = _app(case)
        if app.id not in found:
            table = routes.get(app.id, app.config_version)
            if table is None:
                stale[app.id] = app
            else:
                found[app.id] = table
    if stale:
        for table in _load_routes(tx, stale):
            found[table.app] = table
    exceeded: dict[int, str] = {}
    for case in cases:
        _match(case, found[_app(case).id], exceeded)
    _block(tx, exceeded)


def _match(case: _Case, table: RouteTable, exceeded: dict[int, str]) -> None:
    """Note which endpoints get the message, and the reason why the others do not.

    `exceeded` learns of lanes whose filter ran past its bound: they get the message,
    and wait.
    """
    reasons: dict[str, str] = {}
    asked = _Asked(case)
    event_type, channels = case.message.event_type, case.message.channels or ()
    for route in table.routes:
        found = matches(route.filter, event_type, channels)
        if not found.matched:
            reasons[route.endpoint] = found.reason
            continue
        if route.filter.expression is not None:
            verdict = asked.verdict(route.filter.expression)
            if not verdict.matched:
                reasons[route.endpoint] = verdict.reason or MatchReason.FILTER
                continue
            if verdict.exceeded:
                exceeded[route.lane] = f"filter: {verdict.reason}"
        case.matched.append(route)
    if asked.missing:
        case.answer = Undecided(case.item.id, asked.missing)
        case.matched.clear()
        return
    if reasons or not table.routes:
        case.reasons = reasons


class _Asked:
    """The verdicts of filters over one message; facts are gathered when needed."""

    __slots__ = ("_case", "_facts", "missing")

    def __init__(self, case: _Case) -> None:
        self._case: Final = case
        self._facts: dict[str, Any] | None = None
        self.missing: Final[list[str]] = []

    def verdict(self, text: str) -> Verdict:
        """Return what a filter says; what is not known yet is noted as missing."""
        known = self._case.item.verdicts.get(text)
        if known is not None:
            return known
        message = self._case.message
        if not is_short(text, len(message.body)):
            self.missing.append(text)
            return Verdict(matched=False)
        if self._facts is None:
            self._facts = facts_of_new(self._case.item.id, message)
        return verdict_of(evaluate(text, self._facts))


def facts_of_new(id_: MessageId, message: NewMessage) -> dict[str, Any]:
    """Return what filters see of a message that is to be accepted."""
    return facts_of(
        message=id_,
        event_type=message.event_type,
        channels=message.channels or (),
        headers=message.headers,
        body=message.body,
        relay=message.relay,
    )


def _block(tx: Tx, lanes: Mapping[int, str]) -> None:
    """Stop lanes by the fault of their own setting, until that is saved again."""
    for lane, reason in sorted(lanes.items()):
        tx.run(
            "UPDATE lane SET state = 'blocked', reason = :reason, version = version + 1"
            " WHERE id = :lane AND state = 'open'",
            {"lane": lane, "reason": reason[:REASON_MAX]},
        )


def _load_routes(tx: Tx, apps: Mapping[str, Application]) -> list[RouteTable]:
    t = tables.endpoint
    by_app: dict[str, list[Route]] = {id_: [] for id_ in apps}
    for row in tx.all(
        sa.select(
            t.c.id, t.c.app, t.c.lane, t.c.event_types, t.c.channels, t.c.settings
        )
        .where(t.c.app.in_(list(apps)), t.c.deleted_at.is_(None))
        .order_by(t.c.app, t.c.id)
    ):
        types, channels = rows.texts(row.event_types), rows.texts(row.channels)
        # A disabled endpoint is no reason: its lane is paused and keeps the backlog.
        wanted = EndpointFilter(
            event_types=None if types is None else frozenset(types),
            channels=None if channels is None else frozenset(channels),
            expression=rows.filter_of(row.settings),
        )
        by_app[row.app].append(Route(endpoint=row.id, lane=row.lane, filter=wanted))
    return [
        RouteTable(app=app.id, version=app.config_version, routes=tuple(by_app[id_]))
        for id_, app in apps.items()
    ]


def _round(
    tx: Tx,
    cases: Sequence[_Case],
    settings: OutboxSettings,
    birth: claims.Birth | None,
) -> list[tuple[claims.Claimed, Message]]:
    fresh = _take_keys(tx, cases, settings)
    if not fresh:
        return []
    ordered = sorted(
        fresh, key=lambda c: (_app(c).id, c.message.event_id or "", c.item.id)
    )
    messages = [_message_row(_message(case)) for case in ordered]
    plain = all(record[_RARE:] == _NONE_RARE for record in messages)
    if plain:
        messages = [record[:_RARE] for record in messages]
    inserted = tx.insert_records(
        tables.message,
        _MESSAGE[:_RARE] if plain else _MESSAGE,
        messages,
        on_conflict="nothing",
    )
    if inserted < len(ordered):
        ordered = _refuse_taken(tx, ordered)
    born = _insert_rest(tx, ordered, settings, birth)
    for case in ordered:
        case.answer = Accepted(message=_message(case), matched=len(case.matched))
    if not born:
        return []
    messages = {case.item.id: _message(case) for case in ordered}
    return [(each, messages[MessageId(each.work.subject)]) for each in born]


def _take_keys(tx: Tx, cases: Sequence[_Case], settings: OutboxSettings) -> list[_Case]:
    """Reserve the keys; answer those that were used before. Return the others."""
    for case in cases:
        item = case.item
        if item.idempotency is not None:
            try:
                case.use = remembering.use_of(
                    item.tenant,
                    item.idempotency,
                    f"message.create:{_app(case).id}",
                    item.id,
                )
            except TenureError as error:
                case.answer = error
    uses = [case.use for case in cases if case.use is not None]
    if not uses:
        return [case for case in cases if case.answer is None]
    held = remembering.reserve(tx, uses, keep_seconds=settings.idempotency_seconds)
    replayed: list[tuple[_Case, str]] = []
    for case in cases:
        if case.use is None:
            continue
        was = held[case.use.tenant, case.use.key]
        if was.ours:
            continue
        try:
            remembering.check_same(was, case.use)
        except TenureError as error:
            case.answer = error
        else:
            replayed.append((case, was.subject or ""))
    _answer_stored(tx, replayed, replayed=True)
    return [case for case in cases if case.answer is None]


def _refuse_taken(tx: Tx, cases: Sequence[_Case]) -> list[_Case]:
    """Answer messages that were not inserted; return those that were.

    One that is there with its payload was committed by an earlier run of this batch.
    """
    m, p = tables.message, tables.payload
    there = {
        row.id: row.done
        for row in tx.all(
            sa.select(m.c.id, p.c.message.is_not(None).label("done"))
            .select_from(m.outerjoin(p, p.c.message == m.c.id))
            .where(m.c.id.in_([case.item.id for case in cases]))
        )
    }
    _answer_stored(
        tx, [(case, case.item.id) for case in cases if there.get(case.item.id)]
    )
    refused: list[remembering.Use] = []
    for case in cases:
        if case.item.id not in there:
            event_id = case.message.event_id
            case.answer = Conflict(
                f"a message with the eventId {event_id!r} exists in this application",
                event_id=event_id,
            )
            if case.use is not None:
                refused.append(case.use)
    remembering.forget(tx, refused)
    return [case for case in cases if case.answer is None]


def _answer_stored(
    tx: Tx, cases: Sequence[tuple[_Case, str]], *, replayed: bool = False
) -> None:
    if not cases:
        return
    ids = sorted({id_ for _, id_ in cases})
    d = tables.delivery
    stored = messages_by_id(tx, ids)
    counts = {
        row.message: row.n
        for row in tx.all(
            sa.select(d.c.message, sa.func.count().label("n"))
            .where(d.c.message.in_(ids))
            .group_by(d.c.message)
        )
    }
    for case, id_ in cases:
        message = stored.get(id_)
        case.answer = (
            NotFound("the message that this Idempotency-Key made was removed")
            if message is None
            else Accepted(
                message=message, matched=counts.get(id_, 0), replayed=replayed
            )
        )


def _insert_rest(
    tx: Tx,
    cases: Sequence[_Case],
    settings: OutboxSettings,
    birth: claims.Birth | None,
) -> list[claims.Claimed]:
    payloads: list[tuple[Any, ...]] = []
    deliveries: list[tuple[Any, ...]] = []
    unmatched: list[tuple[str, str]] = []
    work: list[claims.NewWork] = []
    now = tx.now
    for case in cases:
        item, message = case.item, case.message
        days = _app(case).kept.payload_days
        by_app = settings.retention_seconds if days is None else days * DAY_SECONDS
        kept = message.retention_seconds or by_app
        due = due_at(message, now)
        payloads.append((item.id, message.body, max(now, due or 0) + round(kept * US)))
        if case.reasons is not None:
            unmatched.append((item.id, rows.dump(case.reasons)))
        for route in case.matched:
            id_ = new_work_id()
            app, lane = _app(case).id, route.lane
            deliveries.append((item.id, route.endpoint, id_, app, lane, now))
            work.append(
                claims.NewWork(
                    id=id_,
                    lane=lane,
                    kind=KIND,
                    tenant=item.tenant,
                    subject=item.id,
                    due_at=due,
                )
            )
    tx.insert_records(tables.payload, ("message", "body", "expires_at"), payloads)
    tx.insert_records(tables.delivery, _DELIVERY, deliveries)
    tx.insert_records(tables.unmatched, ("message", "reasons"), unmatched)
    return claims.submit(tx, work, birth=birth)


def _message_row(message: Message) -> tuple[Any, ...]:
    """Return the values of `_MESSAGE`."""
    return (
        message.id,
        message.app,
        message.tenant,
        message.event_type,
        message.created_at,
        message.event_id,
        rows.dump_set(message.channels),
        rows.dump_set(message.tags),
        None if message.headers is None else rows.dump(message.headers),
        message.content_type,
        message.deliver_at,
        message.expires_at,
        None if message.relay is None else message.relay.stored,
    )


def _message(case: _Case) -> Message:
    if case.made is None:
        case.made = _made(case)
    return case.made


def _made(case: _Case) -> Message:
    given, id_ = case.message, case.item.id
    created_at = id_instant(id_)
    return Message(
        id=id_,
        app=_app(case).id,
        tenant=case.item.tenant,
        event_id=given.event_id,
        event_type=given.event_type,
        channels=None if given.channels is None else tuple(given.channels),
        tags=None if given.tags is None else tuple(given.tags),
        headers=None if given.headers is None else dict(given.headers),
        content_type=given.content_type,
        deliver_at=due_at(given, created_at),
        expires_at=given.expires_at,
        created_at=created_at,
        body=given.body,
        relay=given.relay,
    )


def _app(case: _Case) -> Application:
    if case.app is None:
        raise InvariantViolated("a message without an application was not refused")
    return case.app
