"""Submit inside of a caller's own transaction: it commits, a message is there with it.

Theory. The caller's rows and the message, its payload and its work rows become visible
by one commit, the caller's; rolled back, nothing ever was. So nothing here commits, sets
or locks anything of the caller's, and two rules follow:

- Whatever goes wrong between the first row and the last (an error, a cancelled task)
  must not leave half of a message for the caller to commit: all is written below a
  savepoint, which is released or undone before the caller goes on. On SQLite a savepoint
  outside of a transaction would itself commit, so one is begun where none is.
- A hint that work is due may go out only when the commit has ended. A Session says when;
  a Connection says only when it begins to, so its hint goes out a moment later, twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

import msgspec
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from tenure.clock import US, SystemClock
from tenure.errors import (
    NotJoinable,
    SchemaOutOfRange,
    SchemaTooNew,
    TenureError,
    ValidationFailed,
)
from tenure.ids import MessageId, TenantId, new_message_id
from tenure.limits import (
    COMMIT_GRACE_SECONDS,
    EXPRESSION_ROUNDS_MAX,
    NOTIFY_EVERY_SECONDS,
)
from tenure.outbox.cel import Verdict, verdict_of
from tenure.outbox.cel.evaluating import evaluate_blocking
from tenure.outbox.judging import misfit_within
from tenure.outbox.ledger import remembering
from tenure.outbox.ledger.accepting import (
    AcceptItem,
    Undecided,
    accept_batch,
    facts_of_new,
)
from tenure.outbox.model import Accepted, Idempotency, NewMessage, OutboxSettings
from tenure.outbox.payload import check_object
from tenure.outbox.routes import Routes
from tenure.outbox.rules import (
    check_idempotency_key,
    check_message,
    message_hash,
)
from tenure.store.revisions import (
    KNOWN,
    NEEDED,
    NEWEST,
    VERSION_TABLE,
    is_served,
    revision_of,
)
from tenure.store.tx import Tx

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.outbox.routes import RouteTable

__all__ = ["AsyncJoinable", "Hint", "Joinable", "Submission", "Submitter"]

T = TypeVar("T")
Joinable: TypeAlias = "Session | scoped_session[Any] | Connection"
AsyncJoinable: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncConnection"
Hint: TypeAlias = Callable[[Engine, float], None]
"""Told after a commit that work may be due: of which engine, and in how many seconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES: Final = (
    "application",
    "delivery",
    "endpoint",
    "event_type",
    "idempotency",
    "job",
    "job_key",
    "job_run",
    "job_spelling",
    "message",
    "order_head",
    "order_line",
    "payload",
    "setting",
    "unmatched",
    "work",
)
"""What an accept or a submit reads or writes."""


class Submission(TypedDict, total=False):
    """What may be said of a message beside its application, type and payload."""

    idempotency_key: str
    """A second submit with it in 24 h returns the first one's message."""
    event_id: str
    """The caller's own id of the event, once per application."""
    channels: Sequence[str]
    tags: Sequence[str]
    headers: Mapping[str, str]
    """Sent with the message; names that Tenure or HTTP uses are refused."""
    content_type: str
    """Of a payload given as bytes; application/json unless said."""
    deliver_at: datetime
    """Earliest instant of the first attempt, with a zone."""
    delay_seconds: float
    """The same counted from now; give at most one of the two."""
    expires_at: datetime
    """After this instant nothing is sent any more; with a zone."""
    tenant: str
    """Whose application it is; "default" unless said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    tenant: TenantId
    app_ref: str
    message: NewMessage
    once: Idempotency | None
    id: MessageId
    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])


class Submitter:
    """Accepts messages in transactions that callers began and will commit.

    Opens nothing: it needs no engine, no key ring and no node in its process. `hint` is
    told after commits. `clock` tells the time instead of the database and the system,
    for tests. Safe to use from several threads at once, each with a session of its own.
    """

    def __init__(
        self,
        settings: OutboxSettings | None = None,
        *,
        hint: Hint | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings: Final = settings or OutboxSettings()
        self._hint: Final = hint
        self._clock: Final = clock
        self._routes: Final = Routes()
        self._guard: Final = threading.Lock()
        self._looked_at: Final[weakref.WeakSet[Engine]] = weakref.WeakSet()
        self._uncommitted: Final[
            weakref.WeakKeyDictionary[Session | Connection, Engine]
        ] = weakref.WeakKeyDictionary()

    def submit(
        self,
        into: Joinable,
        application: str,
        event_type: str,
        payload: object,
        **more: Unpack[Submission],
    ) -> Accepted:
        """Write a message and its work into the caller's transaction.

        `application` is an id or uid; `payload` a JSON object (mapping, dataclass), or
        bytes that are sent exactly as given. Nothing is sent before the caller commits.

        Raises ValidationFailed, PayloadTooLarge, NotFound, Conflict (the event id was
        used), IdempotencyKeyReused, NotJoinable, SchemaOutOfRange, SchemaTooNew: the
        transaction is as before then, and usable. What the database raises is let
        through as SQLAlchemy raises it; a serialization failure, or a locked SQLite
        file, is the caller's to repeat, with the whole transaction.
        """
        given = self._read(application, event_type, payload, more)
        match into:
            case scoped_session():
                return self._submitted(into(), given)
            case Session() | Connection():
                return self._submitted(into, given)
            case _:
                raise NotJoinable(
                    f"a {type(into).__name__} is no transaction that can be joined:"
                    " give a Session or a Connection of SQLAlchemy"
                    " (`submit_async` takes AsyncSession and AsyncConnection)"
                )

    async def submit_async(
        self,
        into: AsyncJoinable,
        application: str,
        event_type: str,
        payload: object,
        **more: Unpack[Submission],
    ) -> Accepted:
        """As `submit`, for an AsyncSession or AsyncConnection."""
        given = self._read(application, event_type, payload, more)
        match into:
            case async_scoped_session():
                session = cast("AsyncSession", into())
                return await self._submitted_async(session, given)
            case AsyncSession() | AsyncConnection():
                return await self._submitted_async(into, given)
            case _:
                raise NotJoinable(
                    f"a {type(into).__name__} is no transaction that can be joined:"
                    " give an AsyncSession or an AsyncConnection of SQLAlchemy"
                    " (`submit` takes Session and Connection)"
                )

    def _submitted(self, into: Session | Connection, given: _Given) -> Accepted:
        for _ in range(EXPRESSION_ROUNDS_MAX):
            try:
                return self._submit(into, given)
            except Undecided as undecided:
                given = _decided(given, undecided)
        return self._submit(into, given)

    async def _submitted_async(
        self, into: AsyncSession | AsyncConnection, given: _Given
    ) -> Accepted:
        for _ in range(EXPRESSION_ROUNDS_MAX):
            try:
                return await into.run_sync(self._submit, given)
            except Undecided as undecided:
                given = await asyncio.to_thread(_decided, given, undecided)
        return await into.run_sync(self._submit, given)

    def _read(
        self, application: str, event_type: str, payload: object, more: Submission
    ) -> _Given:
        """Check everything that needs no database."""
        delay = more.get("delay_seconds")
        message = check_message(
            NewMessage(
                event_type=event_type,
                body=_body(payload),
                event_id=more.get("event_id"),
                content_type=more.get("content_type"),
                channels=more.get("channels"),
                tags=more.get("tags"),
                headers=more.get("headers"),
                deliver_at=_instant(more.get("deliver_at"), "deliverAt"),
                delay_us=None if delay is None else _delay_us(delay),
                expires_at=_instant(more.get("expires_at"), "expiresAt"),
            ),
            self._settings,
        )
        key = more.get("idempotency_key")
        once = None
        if key is not None:
            once = Idempotency(
                key=check_idempotency_key(key), body_hash=message_hash(message)
            )
        return _Given(
            tenant=TenantId(more.get("tenant", "default")),
            app_ref=application,
            message=message,
            once=once,
            id=new_message_id(
                at_us=None if self._clock is None else self._clock.wall_us()
            ),
        )

    def _submit(self, into: Session | Connection, given: _Given) -> Accepted:
        read: list[RouteTable] = []

        def accept(tx: Tx) -> Accepted:
            misfit = misfit_within(tx, given.tenant, given.message)
            if misfit is not None and not _answered(tx, given):
                raise misfit
            item = AcceptItem(
                tenant=given.tenant,
                app_ref=given.app_ref,
                message=given.message,
                id=given.id,
                idempotency=given.once,
                verdicts=given.verdicts,
            )
            batch = accept_batch(
                tx, [item], routes=self._routes, settings=self._settings
            )
            read.extend(batch.routes)
            (answer,) = batch.answers
            if isinstance(answer, TenureError):
                raise answer
            return answer

        answer = self._inside(into, accept)
        # The caller's transaction changes no endpoint, so what it read was committed.
        self._routes.keep(read)
        if not answer.replayed:
            self._await_commit(into)
        return answer

    def join(self, into: Joinable, make: Callable[[Tx], T]) -> T:
        """Let `make` write into the caller's transaction what becomes due at its commit.

        Raises NotJoinable, SchemaOutOfRange, SchemaTooNew and whatever `make` raises:
        the transaction is as before then, and usable.
        """
        match into:
            case scoped_session():
                return self._joined(into(), make)
            case Session() | Connection():
                return self._joined(into, make)
            case _:
                raise NotJoinable(
                    f"a {type(into).__name__} is no transaction that can be joined:"
                    " give a Session or a Connection of SQLAlchemy"
                )

    async def join_async(self, into: AsyncJoinable, make: Callable[[Tx], T]) -> T:
        """As `join`, for an AsyncSession or AsyncConnection."""
        match into:
            case async_scoped_session():
                session = cast("AsyncSession", into())
                return await session.run_sync(self._joined, make)
            case AsyncSession() | AsyncConnection():
                return await into.run_sync(self._joined, make)
            case _:
                raise NotJoinable(
                    f"a {type(into).__name__} is no transaction that can be joined:"
                    " give an AsyncSession or an AsyncConnection of SQLAlchemy"
                )

    def _joined(self, into: Session | Connection, make: Callable[[Tx], T]) -> T:
        made = self._inside(into, make)
        self._await_commit(into)
        return made

    def _inside(self, into: Session | Connection, make: Callable[[Tx], T]) -> T:
        """Run it below a savepoint, which whatever is raised undoes."""
        connection = into.connection() if isinstance(into, Session) else into
        if connection.dialect.name not in {"sqlite", "postgresql"}:
            raise NotJoinable(
                f"a connection to {connection.dialect.name} cannot hold a message: give"
                " one to the SQLite file or PostgreSQL database that Tenure's nodes use"
            )
        tx = Tx.within(connection, clock=self._clock or SystemClock())
        if self._clock is not None:
            tx.set_now(self._clock.wall_us())
        _stand_inside(connection)
        with tx.savepoint():  # undone by whatever is raised, a cancellation too
            self._look_at(tx)
            return make(tx)

    # --- is this the right database? -------------------------------------------------

    def _look_at(self, tx: Tx) -> None:
        """Refuse, once for each engine, a database that cannot hold a message."""
        engine = tx.conn.engine
        with self._guard:
            if engine in self._looked_at:
                return
        _refuse_foreign(tx)
        with self._guard:
            self._looked_at.add(engine)

    # --- the hint after the commit ---------------------------------------------------

    def _await_commit(self, into: Session | Connection) -> None:
        if self._hint is None:
            return
        engine = (into.connection() if isinstance(into, Session) else into).engine
        with self._guard:
            self._uncommitted[into] = engine
        if isinstance(into, Session):
            name, told = "after_commit", self._session_committed
        else:
            name, told = "commit", self._connection_commits
        if not event.contains(into, name, told):
            event.listen(into, name, told)

    def _session_committed(self, session: Session) -> None:
        if not session.in_nested_transaction():  # a savepoint's release commits nothing
            self._tell(session, (0.0,))

    def _connection_commits(self, connection: Connection) -> None:
        self._tell(connection, (COMMIT_GRACE_SECONDS, 2 * NOTIFY_EVERY_SECONDS))

    def _tell(self, committed: Session | Connection, seconds: Sequence[float]) -> None:
        with self._guard:
            engine = self._uncommitted.pop(committed, None)
        if engine is None or self._hint is None:
            return
        for after in seconds:
            # What was committed is done whatever a hint does; the poll finds it.
            with suppress(Exception):
                self._hint(engine, after)


def _refuse_foreign(tx: Tx) -> None:
    at = revision_of(tx)
    where = tx.conn.engine.url.render_as_string(hide_password=True)
    if at is None:
        raise NotJoinable(
            f"the database at {where} has no Tenure tables that this connection sees:"
            " give a session on the database that Tenure's nodes use (on PostgreSQL its"
            " schema has to be in the search_path), or start a node there once"
        )
    if not is_served(tx):
        if at not in KNOWN:
            raise SchemaTooNew(
                f"the database at {where} is at revision {at!r}, and this process knows"
                f" them up to {NEWEST!r} only: upgrade tenure here"
            )
        raise SchemaOutOfRange(
            f"the database at {where} is at revision {at!r}, and this process needs"
            f" {NEEDED!r}: start a node of this release there, or run `tenure migrate`"
        )
    if tx.dialect == "sqlite":
        return
    names, params = tx.rows("n", {"name": "text"}, [(name,) for name in _TABLES])
    schema = "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass({}))"
    theirs, ours = schema.format("n.name"), schema.format(f"'{VERSION_TABLE}'")
    hidden = tx.all(
        f"SELECT n.name FROM {names} WHERE {theirs} IS DISTINCT FROM {ours}"  # noqa: S608
        " ORDER BY n.name",
        params,
    )
    if hidden:
        raise NotJoinable(
            f"tables of another schema hide Tenure's at {where}:"
            f" {', '.join(row.name for row in hidden)}; put Tenure's schema before"
            " theirs in the search_path of this connection"
        )


def _stand_inside(connection: Connection) -> None:
    """Refuse a connection that commits each statement; on SQLite begin if need be."""
    raw = connection.connection
    sqlite = connection.dialect.name == "sqlite"
    if sqlite:
        if not connection.in_transaction():
            connection.begin()  # an engine may say BEGIN by itself now
        if getattr(raw.driver_connection, "in_transaction", True):
            return
    try:
        alone = connection.dialect.detect_autocommit_setting(
            cast("Any", raw.dbapi_connection)
        )
    except NotImplementedError:
        alone = False
    if alone:
        raise NotJoinable(
            "the connection is in AUTOCOMMIT mode, so there is no transaction to join:"
            " give one with another isolation level"
        )
    if sqlite:
        # The driver begins at the first INSERT only, and a savepoint before that
        # would be a transaction of its own.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _answered(tx: Tx, given: _Given) -> bool:
    """Tell whether the key's first use was accepted, by a former rule."""
    return given.once is not None and remembering.is_held(
        tx, given.tenant, given.once.key
    )


def _decided(given: _Given, undecided: Undecided) -> _Given:
    """Return it with what filters say that may take long; waits for them, bounded."""
    facts, size = facts_of_new(given.id, given.message), len(given.message.body)
    found = {
        text: verdict_of(evaluate_blocking(text, facts, size))
        for text in undecided.expressions
    }
    return replace(given, verdicts={**given.verdicts, **found})


def _body(payload: object) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    try:
        text = json.dumps(
            payload,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=msgspec.to_builtins,
        )
        return check_object(text.encode())
    except ValidationFailed:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationFailed.at(
            "body", "payload", msg=f"cannot be written as JSON: {error}"
        ) from None


def _instant(value: datetime | None, field: str) -> int | None:
    if value is None:
        return None
    if value.utcoffset() is None:
        raise ValidationFailed.at(
            "body", field, msg="has no time zone: give an aware datetime"
        )
    return (value - _EPOCH) // timedelta(microseconds=1)


def _delay_us(seconds: float) -> int:
    try:
        return round(seconds * US)
    except (ValueError, OverflowError):
        raise ValidationFailed.at(
            "body", "delaySeconds", msg="give a number of seconds"
        ) from None
