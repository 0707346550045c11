"""One request at a source: judged, committed, then answered.

::

    path ─► source (memory) ─► method, network, rate ─► body ─► verification
         ─► group commit: source's version, rate, keys, messages with their work, receipt
         ─► 2xx

The answer follows the commit, never the other way round. What the commit finds changed
is judged again under what it is now; what is refused is told only after a fresh look at
the source (`tenure.inbox.known`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.clock import US, SystemClock
from tenure.errors import DatabaseUnavailable, NotFound, PayloadTooLarge, QueueFull
from tenure.ids import new_message_id, new_receipt_id
from tenure.inbox.ledger import receiving
from tenure.inbox.locating import locate
from tenure.inbox.refusing import RefusedRequest
from tenure.inbox.verification import Handshake, Refusal, Verified, event_type_of
from tenure.limits import (
    DEDUPE_KEY_MAX,
    DRAIN_SETTLE_SECONDS,
    EXPRESSION_ROUNDS_MAX,
    RECEIPT_RETRY_AFTER_SECONDS,
    RECEIPT_STALE_ROUNDS_MAX,
)
from tenure.outbox.headers import check_content_type
from tenure.outbox.ledger.accepting import Undecided
from tenure.outbox.model import NewMessage
from tenure.outbox.relayed import Relay, dump
from tenure.store.batching import Batcher
from tenure.store.contract import CommitUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tenure.clock import Clock
    from tenure.ids import ReceiptId
    from tenure.inbox.arrivals import Arrival
    from tenure.inbox.known import Known, Ready
    from tenure.inbox.refusing import Refuser
    from tenure.inbox.verification import Event
    from tenure.outbox.acceptor import Accept, Acceptor
    from tenure.outbox.keyring import KeyRing
    from tenure.store.tx import Tx

__all__ = ["Receiver", "Reply"]

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the sender is told."""

    status: int
    body: bytes = b""
    media_type: str | None = JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    receipt: ReceiptId | None = None
    """What was stored, now or before; None when nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """Why a request is not received, and what is answered."""

    status: int
    reason: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Receiver:
    """Receives requests for the sources of a database. For one event loop."""

    def __init__(
        self,
        known: Known,
        refuser: Refuser,
        acceptor: Acceptor,
        ring: KeyRing,
        clock: Clock,
        *,
        body_bytes_max: int,
    ) -> None:
        self._known: Final = known
        self._refuser: Final = refuser
        self._acceptor: Final = acceptor
        self._ring: Final = ring
        self._clock: Final = clock
        self._own_time: Final = not isinstance(clock, SystemClock)
        self._body_bytes_max: Final = body_bytes_max
        # Receipts being stored; True: a commit of it went unanswered.
        self._storing: Final[dict[ReceiptId, bool]] = {}
        self._batcher: Final[Batcher[receiving.Item, receiving.Answer]] = Batcher(
            self._commit,
            key=lambda item: f"{item.source} {item.receipt}",
            size=lambda item: item.size,
        )

    def start(self) -> None:
        """Begin to receive on this event loop."""
        self._batcher.start()

    async def aclose(self) -> None:
        """Receive nothing more; return when what waits is committed, or refused."""
        await self._batcher.aclose(DRAIN_SETTLE_SECONDS)

    async def receive(
        self, path: str, head: Arrival, read: Callable[[int], Awaitable[bytes]]
    ) -> Reply:
        """Answer one request; `read` reads its body up to a bound.

        Raises NotFound for a path that is no source's, DatabaseUnavailable, QueueFull
        or Draining when nothing was stored and the sender should come back, and what
        `read` raises.
        """
        ready = await self._known.find(path)
        arrival: Arrival | None = None
        for _ in range(RECEIPT_STALE_ROUNDS_MAX):
            if ready is None:
                raise NotFound("No source has this address")
            refused = self._unreceivable(ready, head)
            if refused is None:
                if arrival is None:
                    arrival = await self._read(ready, head, read)
                done = await self._judge(ready, arrival)
                if isinstance(done, Reply):
                    return done
                refused = done
            newer = await self._known.refresh(path)
            if refused is not None and newer is ready:
                return self._refuse(ready, arrival or head, refused)
            ready = newer
        raise DatabaseUnavailable(
            "the source is being changed: send this again",
            retry_after=RECEIPT_RETRY_AFTER_SECONDS,
        )

    async def take(self, path: str, arrival: Arrival, key: str | None) -> bool:
        """Receive what a source's broker brought, named `key` there.

        True when the broker may forget it: it is committed, or kept as a refusal. False
        when the source is not there or disabled. Raises Unavailable when it must come
        again.
        """
        ready = await self._known.find(path)
        for _ in range(RECEIPT_STALE_ROUNDS_MAX):
            if ready is None or ready.opened.disabled or ready.check is None:
                return False
            done = await self._judge(ready, arrival, key)
            if isinstance(done, Reply):
                return True
            newer = await self._known.refresh(path)
            if done is not None and newer is ready:
                if done.status == 429:
                    raise QueueFull(
                        "the source's rate is used up",
                        retry_after=float(done.headers["retry-after"]),
                    )
                self._note(ready, arrival, done)
                return True
            ready = newer
        raise DatabaseUnavailable("the source is being changed")

    # --- judging ---------------------------------------------------------------------

    def _unreceivable(self, ready: Ready, head: Arrival) -> _Refused | None:
        """Return what speaks against a request before its body is read."""
        opened, check = ready.opened, ready.check
        if opened.disabled:
            return _Refused(status=410, reason="disabled", detail="it is disabled")
        if check is None:
            why = f"it cannot verify anything: {ready.broken}"
            return _Refused(status=401, reason="no_secret", detail=why)
        allowed = (*opened.settings.methods, *check.methods)
        if head.method not in allowed:
            return _not_allowed(head.method, allowed)
        if not ready.admits(head.address):
            why = f"{head.address} is in none of its networks"
            return _Refused(status=403, reason="address", detail=why)
        wait = ready.limited_until - self._clock.monotonic()
        return None if wait <= 0 else _limited(wait)

    async def _read(
        self, ready: Ready, head: Arrival, read: Callable[[int], Awaitable[bytes]]
    ) -> Arrival:
        try:
            body = await read(self._bound(ready))
        except PayloadTooLarge as error:
            refused = _Refused(status=413, reason="too_large", detail=error.message)
            self._note(ready, head, refused)
            raise
        return msgspec.structs.replace(head, body=body)

    def _bound(self, ready: Ready) -> int:
        return ready.opened.settings.body_bytes_max or self._body_bytes_max

    async def _judge(
        self, ready: Ready, arrival: Arrival, key: str | None = None
    ) -> Reply | _Refused | None:
        """Return the answer, why it is refused, or None when the source has changed."""
        if ready.check is None:
            return None
        if len(arrival.body) > self._bound(ready):
            why = f"the body is larger than {self._bound(ready)} bytes"
            return _Refused(status=413, reason="too_large", detail=why)
        outcome = ready.check.verify(arrival, self._clock.wall_us())
        match outcome:
            case Handshake():
                return Reply(
                    status=outcome.status,
                    body=outcome.body,
                    media_type=None,
                    headers=outcome.headers,
                )
            case Refusal():
                return _Refused(
                    status=outcome.status,
                    reason=str(outcome.reason),
                    detail=outcome.detail,
                )
            case Verified() if arrival.method not in ready.opened.settings.methods:
                return _not_allowed(arrival.method, ready.opened.settings.methods)
            case Verified():
                item = self._item(ready, arrival, outcome, key)
                return self._told(ready, await self._store(item))

    def _told(self, ready: Ready, answer: receiving.Answer) -> Reply | _Refused | None:
        match answer:
            case receiving.Stored(receipt) | receiving.Repeated(receipt):
                return _accepted(ready, receipt)
            case receiving.Replayed():
                why = "its signature was accepted before, with another event id"
                return _Refused(status=401, reason="replayed", detail=why)
            case receiving.Limited(wait_us):
                ready.limited_until = self._clock.monotonic() + wait_us / US
                return _limited(wait_us / US)
            case receiving.Orphaned():
                why = "its application was deleted"
                return _Refused(status=410, reason="disabled", detail=why)
            case receiving.Stale():
                return None

    def _refuse(self, ready: Ready, arrival: Arrival, refused: _Refused) -> Reply:
        self._note(ready, arrival, refused)
        body = {"code": refused.reason, "detail": f"Refused: {refused.detail}"}
        return Reply(
            status=refused.status,
            body=msgspec.json.encode(body),
            headers=refused.headers,
        )

    def _note(self, ready: Ready, arrival: Arrival, refused: _Refused) -> None:
        check = ready.check
        self._refuser.note(
            RefusedRequest.of(
                arrival,
                tenant=ready.opened.tenant,
                source=ready.opened.id,
                reason=refused.reason,
                detail=refused.detail,
                status=refused.status,
                credentials=() if check is None else check.credential_headers,
                received_at=self._clock.wall_us(),
            )
        )

    # --- storing ---------------------------------------------------------------------

    def _item(
        self, ready: Ready, arrival: Arrival, verified: Verified, given: str | None
    ) -> receiving.Item:
        opened, settings = ready.opened, ready.opened.settings
        at = self._clock.wall_us() if self._own_time else None
        receipt = new_receipt_id(at_us=at)
        relay = self._relay(ready, arrival, receipt)
        events = verified.events
        named = None if ready.event_type is None else locate(ready.event_type, arrival)
        event_type = verified.event_type if named is None else event_type_of(named)
        key = verified.key if given is None else given
        if ready.dedupe is not None:
            key = locate(ready.dedupe, arrival)
        parts: tuple[receiving.Part, ...]
        if events is None:
            message = NewMessage(
                event_type=event_type,
                body=arrival.body,
                content_type=_content_type(arrival),
                relay=relay,
            )
            id_ = new_message_id(at_us=at)
            parts = (receiving.Part(id=id_, message=message, key=_short(key)),)
        else:
            parts = tuple(self._part(relay, event, at) for event in events)
        count = settings.rate_count
        return receiving.Item(
            receipt=receipt,
            source=opened.id,
            version=opened.version,
            tenant=opened.tenant,
            app=opened.app,
            parts=parts,
            nonce=None
            if verified.nonce is None
            else hashlib.sha256(verified.nonce).hexdigest(),
            keep_us=round(settings.dedupe_seconds * US),
            rate=None if count is None else (count, round(settings.rate_seconds * US)),
            event_type=event_type,
            event_id=_short(key),
            method=arrival.method,
            address=arrival.address,
            size=len(arrival.body),
            whole=None if events is None else (relay.stored, arrival.body),
        )

    def _part(self, relay: Relay, event: Event, at: int | None) -> receiving.Part:
        """Make of one event of a batch what it would be if it had come alone."""
        message = NewMessage(
            event_type=event.event_type,
            body=event.body,
            content_type=event.content_type,
            relay=relay,
        )
        id_ = new_message_id(at_us=at)
        return receiving.Part(id=id_, message=message, key=_short(event.key))

    def _relay(self, ready: Ready, arrival: Arrival, receipt: ReceiptId) -> Relay:
        relay = Relay(
            receipt=receipt,
            source=ready.opened.shown,
            method=arrival.method,
            query=arrival.query.decode("latin-1"),
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in arrival.headers
            ),
        )
        check = ready.check
        credentials = () if check is None else check.credential_headers
        return dump(relay, self._ring.seal, credentials)

    async def _store(self, item: receiving.Item) -> receiving.Answer:
        """Commit one request, after the filters were asked that may take long."""
        self._storing[item.receipt] = False
        try:
            return await self._put(item)
        finally:
            del self._storing[item.receipt]

    async def _put(self, item: receiving.Item) -> receiving.Answer:
        for _ in range(EXPRESSION_ROUNDS_MAX * (1 + len(item.parts))):
            try:
                return await self._batcher.put_nowait(item)
            except NotFound:
                return receiving.Orphaned()
            except Undecided as undecided:
                parts = [
                    await self._decided(item, part, undecided)
                    if part.id == undecided.of
                    else part
                    for part in item.parts
                ]
                item = msgspec.structs.replace(item, parts=tuple(parts))
        raise DatabaseUnavailable(
            "filters of this application change too fast: send this again"
        )

    async def _decided(
        self, item: receiving.Item, part: receiving.Part, undecided: Undecided
    ) -> receiving.Part:
        found = await self._acceptor.ask(
            part.id,
            part.message,
            undecided.expressions,
            whose=f"{item.tenant} {item.app}",
        )
        return msgspec.structs.replace(part, verdicts={**part.verdicts, **found})

    async def _commit(self, items: list[receiving.Item]) -> list[receiving.Answer]:
        ids = [item.receipt for item in items]
        unknown = [id_ for id_ in ids if self._storing.get(id_)]

        def run(tx: Tx, accept: Accept) -> list[receiving.Answer]:
            return receiving.receive_batch(tx, items, accept, unknown=unknown)

        most = sum(len(item.parts) for item in items)
        try:
            return await self._acceptor.within(run, most, retry=len(items) == 1)
        except CommitUnknown:
            # The batcher runs them again.
            self._storing.update({id_: True for id_ in ids if id_ in self._storing})
            raise


def _accepted(ready: Ready, receipt: ReceiptId) -> Reply:
    settings = ready.opened.settings
    headers = {**settings.response_headers, "tenure-receipt": receipt}
    if settings.response_body is None:
        body = msgspec.json.encode({"receipt": receipt})
        return Reply(
            status=settings.response_status, body=body, headers=headers, receipt=receipt
        )
    return Reply(
        status=settings.response_status,
        body=settings.response_body.encode(),
        media_type=None,
        headers=headers,
        receipt=receipt,
    )


def _not_allowed(method: str, allowed: tuple[str, ...]) -> _Refused:
    names = ", ".join(sorted(set(allowed)))
    return _Refused(
        status=405,
        reason="method",
        detail=f"{method[:20]} is not possible here; {names} is",
        headers={"allow": names},
    )


def _limited(seconds: float) -> _Refused:
    after = max(1, -int(-seconds // 1))
    return _Refused(
        status=429,
        reason="rate",
        detail=f"more requests than the source's limit; come back in {after} s",
        headers={"retry-after": str(after)},
    )


def _content_type(arrival: Arrival) -> str:
    """Return the request's own, or that of bytes nobody described in a usable way."""
    given = next((v for n, v in arrival.headers if n == b"content-type"), b"")
    try:
        return check_content_type(given.decode("latin-1"))
    except ValueError:
        return OCTETS


def _short(key: str | None) -> str | None:
    """Return a key that fits a column: a long one by its hash."""
    if key is None:
        return None
    if len(key) <= DEDUPE_KEY_MAX and key.isascii() and key.isprintable():
        return key
    digest = hashlib.sha256(key.encode(errors="surrogatepass"))
    return f"sha256:{digest.hexdigest()}"
