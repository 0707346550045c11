"""The kind of work that sends a message to an endpoint.

Theory. A claim names the version of the endpoint's lane; its configuration (URL, opened
secrets, bounds) is remembered under that version and read again when it rose, so every
attempt uses what was last saved, and the exchange keeps what was used. What cannot be
tried is parked with the reason; nothing is ever sent unsigned.

Instants that the store will compare are asked of the guard, which counts by the
database's clock: a node whose own clock is wrong retries at the right time all the same.
The signature's timestamp is this node's wall clock, because receivers compare it with
theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from operator import attrgetter
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
import sqlalchemy as sa

from tenure.clock import US, Clock
from tenure.errors import WrongKeyRing
from tenure.ids import jitter
from tenure.kernel import commands
from tenure.kernel.states import State
from tenure.limits import ENDPOINT_CONFIGS_MAX, REASON_MAX
from tenure.outbox import outcome, tables
from tenure.outbox.carriers.archive import keep
from tenure.outbox.carriers.http import request_of
from tenure.outbox.carriers.model import (
    Archived,
    Carried,
    Carrier,
    Job,
    Target,
    Untriable,
)
from tenure.outbox.carriers.naming import (
    CHAT,
    HANDLER,
    HTTP,
    SLACK,
    check_kind,
    parse_coordinate,
)
from tenure.outbox.headers import mask_headers
from tenure.outbox.http.model import (
    Cause,
    Failure,
    Policy,
    Request,
    Response,
    Timings,
)
from tenure.outbox.http.url import parse_url
from tenure.outbox.ledger import rows
from tenure.outbox.ledger.endpoints import KIND
from tenure.outbox.model import Message, OutboxSettings, Trigger
from tenure.outbox.relayed import load
from tenure.outbox.rules import deadline_us, retry_policy, shown_url
from tenure.outbox.secrets import load_secrets
from tenure.store.claims import Effect, Insert, Settled, Write
from tenure.work.kinds import Guard, Loaded, Prepared, Ran

if TYPE_CHECKING:
    from tenure.outbox.http.model import HeaderLines, Network, Transport
    from tenure.outbox.keyring import KeyRing
    from tenure.store.claims import Claimed
    from tenure.store.tx import Tx

_MESSAGES: Final = (
    "SELECT m.id, m.app, m.tenant, m.event_type, m.created_at, m.headers,"
    " m.content_type, m.expires_at, m.relay, p.body FROM {asked}"
    " JOIN message m ON m.id = b.id LEFT JOIN payload p ON p.message = m.id"
)
_SOON: Final = 0.25  # seconds of a deadline that starting late may cost unnoticed


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What went over the wire, as it is stored, and whether the endpoint is gone.

    An attempt that was no request has no address, no status and no headers.
    """

    url: str
    method: str
    address: str | None
    tls_version: str | None
    status_code: int | None
    cause: str | None
    phase: str | None
    detail: str | None
    request_headers: bytes
    response_headers: bytes | None
    response_body: bytes | None
    truncated: bool
    duration_us: int
    timings: str
    lane_version: int
    gone: bool = False
    archived: Archived | None = None


class Delivery:
    """Sends messages; one object for all lanes of a node.

    `carriers` carry by the kind of the endpoint what the transport does not.
    """

    __slots__ = (
        "_carriers",
        "_clock",
        "_known",
        "_lock",
        "_ring",
        "_settings",
        "_transport",
        "_ua",
    )

    def __init__(
        self,
        *,
        transport: Transport,
        ring: KeyRing,
        settings: OutboxSettings,
        clock: Clock,
        user_agent: str,
        carriers: Mapping[str, Carrier] = MappingProxyType({}),
    ) -> None:
        self._carriers: Final = carriers
        self._transport: Final = transport
        self._ring: Final = ring
        self._settings: Final = settings
        self._clock: Final = clock
        self._ua: Final = user_agent
        self._known: Final[OrderedDict[int, tuple[int, Target | Untriable]]] = (
            OrderedDict()
        )
        self._lock: Final = Lock()

    @property
    def name(self) -> str:
        """The kind of its rows."""
        return KIND

    @property
    def needs(self) -> str:
        """What its lanes ask of a node."""
        return KIND

    @property
    def late_success(self) -> bool:
        """A receiver that has the message is never sent it again by us."""
        return True

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Loaded]:
        """Read messages, payloads and stale configurations of a batch of claims."""
        ids = sorted({each.work.subject for each in claims})
        asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in ids])
        found = {row.id: row for row in tx.all(_MESSAGES.format(asked=asked), params)}
        targets = self._targets(tx, claims)
        return [
            self._prepare(each, found.get(each.work.subject), targets[each.work.lane])
            for each in claims
        ]

    def remember(self, claimed: Claimed, message: Message) -> Loaded | None:
        """Make of an accepted message what `load` would read; None when it must."""
        with self._lock:
            known = self._known.get(claimed.work.lane)
        if known is None or known[0] != claimed.lane_version or message.body is None:
            return None
        target = known[1]
        if isinstance(target, Untriable):
            return None
        return Prepared(claimed=claimed, job=_job_of(claimed, message, target))

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        """Send once, and say what follows from the answer."""
        claimed, job = prepared.claimed, _job(prepared)
        left = guard.deadline - self._clock.monotonic()
        if left <= 0:
            return Ran(result=commands.Cut(), released=True)
        now = guard.instant()
        if job.expires_at is not None and job.expires_at <= now:
            return Ran(result=_dead("expired"))
        carrier = self._carriers.get(job.target.kind)
        if carrier is not None:
            return self._carried(
                claimed, job, await carrier.carry(job, guard, claimed.number), guard
            )
        try:
            request = self._request(claimed, job, now)
        except ValueError as error:
            return Ran(
                result=commands.Parked(reason=_short(f"cannot be sent: {error}"))
            )
        policy = job.target.policy
        if left < policy.deadline_seconds - _SOON:
            policy = replace(policy, deadline_seconds=left)
        answer = await self._transport.send(request, policy, guard.may_begin)
        match answer:
            case Failure(cause=Cause.FENCED):
                return Ran(result=commands.Cut(), released=True)
            case Failure(cause=Cause.CUT, began=False):
                return Ran(result=commands.Cut(), released=True)
            case Failure(cause=Cause.CUT):
                result: commands.Result = commands.Cut()
                gone = False
            case _:
                result, gone = self._judge(claimed, job, _answer(answer), guard)
        return Ran(
            result=result, evidence=_exchange(claimed, job, request, answer, gone=gone)
        )

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Keep each exchange beside its attempt."""
        kept = [
            (item, said)
            for item in items
            if item.attempt and isinstance(said := item.settlement.evidence, Exchange)
        ]
        if not kept:
            return ()
        rows = [
            (item.settlement.work, item.settlement.claim, *_stored(said))
            for item, said in kept
        ]
        return (Insert(table=tables.exchange, names=_EXCHANGE, rows=rows, ignore=True),)

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Disable endpoints that answered 410, unless they were changed meanwhile.

        What an archive took is inserted with its success.
        """
        archived = [
            (item.settlement.work, said.archived)
            for item in items
            if isinstance(said := item.settlement.evidence, Exchange)
            and said.archived is not None
            and item.after is not None
            and item.after.state is State.SUCCEEDED
        ]
        gone = {
            item.settlement.lane: said.lane_version
            for item in items
            if isinstance(said := item.settlement.evidence, Exchange) and said.gone
        }
        writes = tuple(
            write
            for lane, version in sorted(gone.items())
            for write in _disable_gone(lane, version)
        )
        return (*writes, keep(archived)) if archived else writes

    def _targets(
        self, tx: Tx, claims: Sequence[Claimed]
    ) -> Mapping[int, Target | Untriable]:
        wanted = {each.work.lane: each.lane_version for each in claims}
        targets: dict[int, Target | Untriable] = {}
        with self._lock:
            for lane, version in wanted.items():
                known = self._known.get(lane)
                if known is not None and known[0] == version:
                    self._known.move_to_end(lane)
                    targets[lane] = known[1]
        stale = sorted(wanted.keys() - targets.keys())
        if not stale:
            return targets
        t = tables.endpoint
        for row in tx.all(sa.select(t).where(t.c.lane.in_(stale))):
            targets[row.lane] = self._open(row)
        with self._lock:
            for lane in stale:
                target = targets.setdefault(
                    lane, Untriable(reason="the endpoint has no configuration")
                )
                self._known[lane] = (wanted[lane], target)
                self._known.move_to_end(lane)
            while len(self._known) > ENDPOINT_CONFIGS_MAX:
                self._known.popitem(last=False)
        return targets

    def _open(self, row: sa.Row[Any]) -> Target | Untriable:
        """Open one endpoint's secrets; a fault is a reason, never an error."""
        try:
            secrets = load_secrets(self._ring.open(row.secrets))
            headers = (
                ()
                if row.headers is None
                else tuple(rows.text_map(self._ring.open(row.headers)).items())
            )
            userinfo = (
                None if row.userinfo is None else self._ring.open(row.userinfo).decode()
            )
        except WrongKeyRing:
            return Untriable(reason="secret does not open with this key ring")
        except (ValueError, msgspec.MsgspecError):
            return Untriable(reason="secret cannot be read")
        try:
            settings = rows.settings_of(row.settings)
            networks: tuple[Network, ...] = tuple(
                ip_network(text) for text in settings.allow_networks
            )
            word = check_kind(settings.kind)
            sealed = word in {SLACK, CHAT}
            address = userinfo if word == SLACK else row.url
            return Target(
                endpoint=row.id,
                kind=word,
                url=parse_url(address or "") if word in {HTTP, SLACK} else None,
                shown_url=shown_url(row.url, userinfo=userinfo is not None),
                userinfo=None if sealed else userinfo,
                secret_url=userinfo if sealed else None,
                handler=parse_coordinate(settings.kind.partition(":")[2])
                if word == HANDLER
                else None,
                headers=headers,
                secrets=secrets,
                settings=settings,
                retries=retry_policy(settings, self._settings),
                policy=Policy(
                    deadline_seconds=deadline_us(settings, self._settings) / US,
                    allow_networks=(*self._settings.allow_networks, *networks),
                    verify_tls=not settings.insecure,
                ),
            )
        except (ValueError, msgspec.MsgspecError) as error:
            return Untriable(reason=_short(f"endpoint cannot be read: {error}"))

    def _prepare(
        self, claimed: Claimed, row: sa.Row[Any] | None, target: Target | Untriable
    ) -> Loaded:
        """Put message and target together; a fault of either parks this row alone."""
        if isinstance(target, Untriable):
            return commands.Parked(reason=target.reason)
        if row is None:
            return commands.Parked(reason="message was removed")
        if row.body is None:
            return commands.Parked(reason="payload expunged")
        scheduled = claimed.work.trigger == Trigger.SCHEDULED
        try:
            job = Job(
                message=row.id,
                app=row.app,
                tenant=row.tenant,
                event_type=row.event_type,
                created_at=row.created_at,
                body=row.body,
                content_type=row.content_type,
                headers=tuple(rows.text_map(row.headers).items()),
                expires_at=row.expires_at if scheduled else None,
                target=target,
                relay=None if row.relay is None else load(row.relay, self._ring.open),
            )
        except WrongKeyRing:
            return commands.Parked(reason="a header does not open with this key ring")
        except (ValueError, msgspec.MsgspecError) as error:
            return commands.Parked(reason=_short(f"undecodable: {error}"))
        return Prepared(claimed=claimed, job=job)

    def _request(self, claimed: Claimed, job: Job, now: int) -> Request:
        return request_of(
            job,
            number=claimed.number,
            now=now,
            timestamp=self._clock.wall_us() // US,
            user_agent=self._ua,
            svix_headers=self._settings.svix_headers,
        )

    def _carried(
        self, claimed: Claimed, job: Job, carried: Carried, guard: Guard
    ) -> Ran:
        """Say what follows from an attempt that was no request."""
        if not carried.began:
            return Ran(result=commands.Cut(), released=True)
        result, _ = self._judge(claimed, job, carried.answer, guard)
        if carried.final:
            result = _dead(carried.reason or "stopped")
        elif isinstance(result, commands.Failed) and carried.reason is not None:
            result = replace(result, reason=carried.reason)
        return Ran(result=result, evidence=_unsent(claimed, job, carried))

    def _judge(
        self, claimed: Claimed, job: Job, answer: outcome.Answer, guard: Guard
    ) -> tuple[commands.Result, bool]:
        """Return what becomes of the row, and whether the endpoint said it is gone."""
        now, work = guard.instant(), claimed.work
        verdict = outcome.decide(
            answer,
            job.target.retries,
            tries=work.tries,
            failures=work.failures,
            first_attempt_at=work.first_attempt_at or work.claimed_at or now,
            now=now,
            unit=jitter(0.0, 1.0),
        )
        match verdict:
            case outcome.Succeeded():
                return commands.Succeeded(), False
            case outcome.Dead(reason=reason, disable_endpoint=gone):
                return _dead(reason), gone
            case outcome.Exhausted(reason=reason):
                return _dead(f"exhausted: {reason}"), False
            case outcome.Retry():
                return (
                    commands.Failed(
                        retry_at=verdict.at,
                        charged=verdict.charged,
                        counts_try=verdict.counts_try,
                        reason=verdict.reason,
                    ),
                    False,
                )
            case _:
                assert_never(verdict)


def _job_of(claimed: Claimed, message: Message, target: Target) -> Job:
    """Return what is carried of a message in memory."""
    scheduled = claimed.work.trigger == Trigger.SCHEDULED
    return Job(
        message=message.id,
        app=message.app,
        tenant=message.tenant,
        event_type=message.event_type,
        created_at=message.created_at,
        body=message.body or b"",
        content_type=message.content_type,
        headers=tuple((message.headers or {}).items()),
        expires_at=message.expires_at if scheduled else None,
        target=target,
        relay=message.relay,
    )


def _job(prepared: Prepared) -> Job:
    job: Job = prepared.job
    return job


def _answer(answer: Response | Failure) -> outcome.Answer:
    if isinstance(answer, Failure):
        return outcome.Answer(
            cause=str(answer.cause),
            phase=str(answer.phase),
            reused=answer.reused,
            bytes_received=answer.bytes_received,
        )
    return outcome.Answer(
        status=answer.status,
        reused=answer.reused,
        bytes_received=True,
        retry_after=_header(answer.headers, b"retry-after"),
        date=_header(answer.headers, b"date"),
    )


def _header(lines: HeaderLines, name: bytes) -> bytes | None:
    return next((value for key, value in lines if key.lower() == name), None)


def _dead(reason: str) -> commands.Failed:
    return commands.Failed(
        retry_at=None, charged=True, counts_try=True, reason=_short(reason)
    )


def _short(reason: str) -> str:
    return reason[:REASON_MAX]


def _exchange(
    claimed: Claimed,
    job: Job,
    request: Request,
    answer: Response | Failure,
    *,
    gone: bool,
) -> Exchange:
    response = answer if isinstance(answer, Response) else None
    failure = answer if isinstance(answer, Failure) else None
    timings = answer.timings
    return Exchange(
        url=job.target.shown_url,
        method=request.method,
        address=answer.address,
        tls_version=response.tls_version if response else None,
        status_code=response.status if response else None,
        cause=str(failure.cause) if failure else None,
        phase=str(failure.phase) if failure else None,
        detail=failure.detail if failure else None,
        request_headers=rows.dump_pairs(mask_headers(request.headers)),
        response_headers=rows.dump_pairs(response.headers) if response else None,
        response_body=response.body if response else None,
        truncated=response.truncated if response else False,
        duration_us=timings.total,
        timings=rows.dump(timings),
        lane_version=claimed.lane_version,
        gone=gone,
    )


def _unsent(claimed: Claimed, job: Job, carried: Carried) -> Exchange:
    """Return the exchange of an attempt that was no request."""
    answer = carried.answer
    total = carried.duration_us
    timings = Timings(dns=None, connect=None, tls=None, first_byte=None, total=total)
    return Exchange(
        url=job.target.shown_url,
        method=carried.method,
        address=None,
        tls_version=None,
        status_code=None,
        cause=answer.cause or ("later" if answer.retry_after is not None else None),
        phase=answer.phase,
        detail=carried.reason,
        request_headers=rows.dump_pairs(()),
        response_headers=None,
        response_body=None,
        truncated=False,
        duration_us=total,
        timings=rows.dump(timings),
        lane_version=claimed.lane_version,
        archived=carried.archived,
    )


_STORED: Final = tuple(
    column.name
    for column in tables.exchange.c
    if column.name not in {"work", "claim", "expunged_at"}
)


_EXCHANGE: Final = ("work", "claim", *_STORED)
_stored: Final[Callable[[Exchange], tuple[Any, ...]]] = attrgetter(*_STORED)


def _disable_gone(lane: int, version: int) -> tuple[Write, ...]:
    """Pause the lane that was claimed at this version, then mark what belongs to it.

    A lane whose version rose was changed since the request went out: the 410 spoke of a
    configuration that is no more.
    """
    params = {"lane": lane, "version": version}
    return tuple(Write(stmt=stmt, params=params) for stmt in _GONE)


_GONE: Final = (
    (
        "UPDATE lane SET state = 'paused', reason = 'disabled: gone',"
        " version = version + 1"
        " WHERE id = :lane AND version = :version AND state = 'open'"
    ),
    (
        "UPDATE endpoint SET disabled = true, disabled_why = 'gone'"
        " WHERE lane = :lane AND NOT disabled AND EXISTS"
        " (SELECT 1 FROM lane l WHERE l.id = :lane AND l.version = :version + 1"
        "  AND l.state = 'paused')"
    ),
    (
        "UPDATE application SET config_version = config_version + 1"
        " WHERE id = (SELECT app FROM endpoint WHERE lane = :lane) AND EXISTS"
        " (SELECT 1 FROM lane l WHERE l.id = :lane AND l.version = :version + 1"
        "  AND l.state = 'paused')"
    ),
)
"""Pause the lane, mark the endpoint, let route tables be read again."""
