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

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
import sqlalchemy as sa

from tenure.clock import US, Clock
from tenure.errors import Unavailable, WrongKeyRing
from tenure.ids import jitter
from tenure.kernel import commands
from tenure.limits import ENDPOINT_CONFIGS_MAX, REASON_MAX
from tenure.outbox import outcome, tables
from tenure.outbox.carriers.http import request_of
from tenure.outbox.carriers.model import (
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
from tenure.outbox.cel import Evaluator, facts_of
from tenure.outbox.exchanges import (
    Blocked,
    effects,
    evidence,
    exchange_of,
    unsent,
)
from tenure.outbox.http.model import (
    Cause,
    Failure,
    Policy,
    Request,
    Response,
)
from tenure.outbox.http.url import parse_url
from tenure.outbox.ledger import rows
from tenure.outbox.ledger.endpoints import KIND
from tenure.outbox.model import Message, OutboxSettings, Trigger
from tenure.outbox.relayed import load
from tenure.outbox.rules import deadline_us, retry_policy, shown_url
from tenure.outbox.secrets import load_secrets
from tenure.store.claims import Effect, Settled
from tenure.work.kinds import Guard, Loaded, Prepared, Ran

if TYPE_CHECKING:
    from tenure.outbox.http.model import HeaderLines, Network, Transport
    from tenure.outbox.keyring import KeyRing
    from tenure.outbox.relayed import Relay
    from tenure.store.claims import Claimed
    from tenure.store.tx import Tx

_MESSAGES: Final = (
    "SELECT m.id, m.app, m.tenant, m.event_type, m.created_at, m.headers,"
    " m.content_type, m.expires_at, m.relay, p.body FROM {asked}"
    " JOIN message m ON m.id = b.id LEFT JOIN payload p ON p.message = m.id"
)
_AGAIN_SECONDS: Final = 5.0  # after a transform that could not be asked
_SOON: Final = 0.25  # seconds of a deadline that starting late may cost unnoticed


class Delivery:
    """Sends messages; one object for all lanes of a node.

    `carriers` carry by the kind of the endpoint what the transport does not.
    """

    __slots__ = (
        "_carriers",
        "_clock",
        "_evaluator",
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
        evaluator: Evaluator | None = None,
    ) -> None:
        self._evaluator: Final = evaluator or Evaluator()
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
        if job.target.settings.transform is not None:
            changed = await self._transformed(claimed, job, now)
            if isinstance(changed, Ran):
                return changed
            job = changed
            left = guard.deadline - self._clock.monotonic()
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
            result=result,
            evidence=exchange_of(claimed, job, request, answer, gone=gone),
        )

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Keep each exchange beside its attempt."""
        return evidence(items)

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Disable endpoints that are gone, stop those at fault, fill archives."""
        return effects(items)

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

    async def _transformed(self, claimed: Claimed, job: Job, now: int) -> Job | Ran:
        """Return the job with the body that the endpoint's transform makes of it.

        A message that it fails on is parked; a transform that ran past its bound
        blocks the lane until it is saved again, and the row waits, uncharged.
        """
        text = job.target.settings.transform or ""
        facts = facts_of(
            message=job.message,
            event_type=job.event_type,
            channels=(),
            headers=dict(job.headers),
            body=job.body,
            relay=job.relay,
        )
        try:
            outcome = await self._evaluator.evaluate(
                text,
                facts,
                len(job.body),
                whose=f"{claimed.work.lane} {claimed.lane_version}",
            )
        except Unavailable as error:
            return Ran(
                result=commands.Failed(
                    retry_at=now + round(_AGAIN_SECONDS * US),
                    charged=False,
                    counts_try=False,
                    reason=_short(f"transform: {error.message}"),
                )
            )
        if outcome.exceeded:
            reason = _short(f"transform: {outcome.fault}")
            return Ran(
                result=commands.Failed(
                    retry_at=now, charged=False, counts_try=False, reason=reason
                ),
                evidence=Blocked(lane_version=claimed.lane_version, reason=reason),
            )
        if outcome.fault is not None:
            return _parked(f"transform: {outcome.fault}")
        if not isinstance(outcome.value, dict | list):
            kind = type(outcome.value).__name__
            return _parked(f"transform: it gives {kind}, not an object or a list")
        try:
            # As the process writes it: what is JSON does not depend on where it ran.
            body = json.dumps(
                outcome.value,
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
            ).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return _parked(f"transform: not JSON: {error}")
        return msgspec.structs.replace(
            job,
            body=body,
            content_type="application/json",
            relay=_without_type(job.relay),
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
        return Ran(result=result, evidence=unsent(claimed, job, carried))

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


def _without_type(relay: Relay | None) -> Relay | None:
    """Return how it arrived without the content type of a body that is another now."""
    if relay is None:
        return None
    kept = tuple(line for line in relay.headers if line[0].lower() != "content-type")
    return msgspec.structs.replace(relay, headers=kept)


def _parked(reason: str) -> Ran:
    return Ran(result=commands.Parked(reason=_short(reason)))


def _dead(reason: str) -> commands.Failed:
    return commands.Failed(
        retry_at=None, charged=True, counts_try=True, reason=_short(reason)
    )


def _short(reason: str) -> str:
    return reason[:REASON_MAX]
