"""The inbox as the engine, the API and the command line call it.

Every method takes the tenant first, runs as one transaction (receipts share theirs) and
answers frozen values. `receive` alone takes no tenant: a path belongs to one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.errors import NotFound
from tenure.inbox.arrivals import Arrival
from tenure.inbox.known import Known
from tenure.inbox.ledger import listening, reading, sources
from tenure.inbox.model import (
    Receipt,
    ReceiptDetail,
    ReceiptFilter,
    Refusals,
    Source,
    SourceIn,
    SourcePatch,
)
from tenure.inbox.pulling.puller import Puller
from tenure.inbox.receiver import Receiver, Reply
from tenure.inbox.refusing import Refuser
from tenure.inbox.samples import sample
from tenure.outbox.door import Door
from tenure.outbox.model import Idempotency, Page, PageIn, Resent, Written
from tenure.spawn import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenure.clock import Clock
    from tenure.ids import TenantId
    from tenure.inbox.ledger.listening import Cursor
    from tenure.outbox.keyring import KeyRing
    from tenure.outbox.outbox import Outbox
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events

__all__ = ["Inbox"]

_FIRST_PAGE: Final = PageIn()
_EVERY_RECEIPT: Final = ReceiptFilter()


class Inbox:
    """Receives webhooks and keeps what people ask about them.

    Call `start` on the loop that will use it, `aclose` at the end, before the outbox's.
    """

    def __init__(
        self,
        backend: Backend,
        outbox: Outbox,
        ring: KeyRing,
        clock: Clock,
        events: Events,
        *,
        body_bytes_max: int,
        keep_seconds: float,
        wake: Callable[[], None] | None = None,
        pulls: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ring: Final = ring
        self._clock: Final = clock
        self._door: Final = Door(backend, keep_seconds=keep_seconds)
        self._wake: Final = wake
        self._known: Final = Known(backend, ring, clock)
        self._refuser: Final = Refuser(backend, clock, events)
        self._pulls: Final = Tasks()
        self.receiver: Final = Receiver(
            self._known,
            self._refuser,
            outbox.acceptor,
            ring,
            clock,
            body_bytes_max=body_bytes_max,
        )
        self.puller: Final = Puller(backend, self.receiver, ring, clock, events, pulls)

    def start(self, *, pulls: bool = False) -> None:
        """Begin to receive on this event loop; `pulls`: from brokers too."""
        self.receiver.start()
        self._refuser.start()
        if pulls:
            self._pulls.start(self.puller.run(), name="inbox.puller")

    async def aclose(self) -> None:
        """Receive nothing more; return when everything received is committed."""
        await self._pulls.cancel()
        await self.receiver.aclose()
        await self._refuser.aclose()
        await self._known.aclose()

    async def receive(
        self, path: str, head: Arrival, read: Callable[[int], Awaitable[bytes]]
    ) -> Reply:
        """Answer one request; see `Receiver.receive`."""
        return await self.receiver.receive(path, head, read)

    # --- sources ---------------------------------------------------------------------

    async def create_source(
        self,
        tenant: TenantId,
        given: SourceIn,
        *,
        idempotency: Idempotency | None = None,
    ) -> Written[Source]:
        """Create a source, and its application where it names none."""
        do = partial(sources.create_source, tenant=tenant, given=given, ring=self._ring)
        return await self._door.once(tenant, idempotency, "source.create", do, Source)

    async def get_source(self, tenant: TenantId, ref: str) -> Source:
        """Return a source by its id or uid."""
        return await self._door.read(sources.find_source, tenant, ref, ring=self._ring)

    async def list_sources(
        self,
        tenant: TenantId,
        page: PageIn = _FIRST_PAGE,
        *,
        app: str | None = None,
    ) -> Page[Source]:
        """Return one page of sources; `app` (an id) narrows it to an application's."""
        return await self._door.read(
            sources.list_sources, tenant, page, ring=self._ring, app=app
        )

    async def update_source(
        self, tenant: TenantId, ref: str, given: SourceIn
    ) -> Written[Source]:
        """Put a source in the place of the one named, or create it."""
        return await self._door.write(
            sources.put_source, tenant, ref, given, ring=self._ring
        )

    async def patch_source(
        self, tenant: TenantId, ref: str, patch: SourcePatch
    ) -> Source:
        """Change some fields of a source."""
        return await self._door.write(
            sources.patch_source, tenant, ref, patch, ring=self._ring
        )

    async def rotate_source_secret(
        self,
        tenant: TenantId,
        ref: str,
        secret: str,
        *,
        grace_seconds: float,
        idempotency: Idempotency | None = None,
    ) -> Source:
        """Believe another secret, and the former ones for a grace period."""

        def do(tx: Tx) -> Written[Source]:
            done = sources.rotate_secret(
                tx, tenant, ref, secret, grace_seconds=grace_seconds, ring=self._ring
            )
            return Written(value=done, created=False)

        operation = f"source.rotate:{ref}"
        written = await self._door.once(tenant, idempotency, operation, do, Source)
        return written.value

    async def remove_source_secret(self, tenant: TenantId, ref: str, at: int) -> Source:
        """Stop to believe one of the live secrets, counted from 0, newest first."""
        return await self._door.write(
            sources.remove_secret, tenant, ref, at, ring=self._ring
        )

    async def delete_source(self, tenant: TenantId, ref: str) -> None:
        """Delete a source; what it accepted is delivered all the same."""
        await self._door.write(sources.delete_source, tenant, ref, ring=self._ring)

    async def trigger(self, tenant: TenantId, ref: str, event: str) -> Reply:
        """Let a signed sample of an event arrive at a source, as its provider signs.

        Raises NotFound, and BadRequest where the source's secrets only verify.
        """
        source = await self.get_source(tenant, ref)
        opened = await self._door.read(
            sources.opened_source, source.id, ring=self._ring
        )
        if opened is None:
            raise NotFound(f"source {ref[:100]!r} was not found")
        url = opened.settings.public_url or f"http://localhost/in/{opened.path}"
        made = sample(
            opened.verification.preset,
            event,
            opened.secrets[0].secret if opened.secrets else "",
            url=url,
            now_us=self._clock.wall_us(),
            options=opened.verification.options,
        )
        arrival = Arrival(
            method="POST",
            url=url,
            query=made.query.encode(),
            headers=tuple(
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in made.headers.items()
            ),
            body=b"",
            address=None,
        )

        async def read(most: int) -> bytes:
            del most
            return made.body

        return await self.receive(opened.path, arrival, read)

    # --- receipts --------------------------------------------------------------------

    async def list_receipts(
        self,
        tenant: TenantId,
        page: PageIn = _FIRST_PAGE,
        wanted: ReceiptFilter = _EVERY_RECEIPT,
    ) -> Page[Receipt]:
        """Return one page of receipts, newest first."""
        return await self._door.read(reading.list_receipts, tenant, page, wanted)

    async def get_receipt(self, tenant: TenantId, ref: str) -> ReceiptDetail:
        """Return a receipt with its header lines, bytes and messages."""
        return await self._door.read(reading.find_receipt, tenant, ref)

    async def replay_receipt(
        self,
        tenant: TenantId,
        ref: str,
        *,
        endpoint: str | None = None,
        idempotency: Idempotency | None = None,
    ) -> list[Resent]:
        """Hand on a receipt's messages again."""

        def do(tx: Tx) -> Written[list[Resent]]:
            done = reading.replay_receipt(tx, tenant, ref, endpoint=endpoint)
            return Written(value=done, created=False)

        operation = f"receipt.replay:{ref}:{endpoint}"
        written = await self._door.once(
            tenant, idempotency, operation, do, list[Resent]
        )
        if self._wake is not None:
            self._wake()
        return written.value

    async def refusals(self, tenant: TenantId, ref: str) -> Refusals:
        """Return what a source refused: counts by reason, the newest whole."""
        await self._refuser.flush()
        return await self._door.read(reading.refusals, tenant, ref)

    # --- listening -------------------------------------------------------------------

    async def cursor(self, text: str | None = None) -> Cursor:
        """Return the cursor of this text; without one, that of who begins now."""
        if text is None:
            return await self._door.read(listening.cursor_now)
        return await self._door.read(listening.read_cursor, text)

    async def listen(
        self,
        tenant: TenantId,
        cursor: Cursor,
        *,
        source: str | None = None,
        limit: int,
    ) -> list[ReceiptDetail]:
        """Return the receipts after a cursor whole, in the order of their commits."""

        def run(tx: Tx) -> list[ReceiptDetail]:
            found = listening.next_receipts(
                tx, tenant, cursor, source=source, limit=limit
            )
            return [reading.find_receipt(tx, tenant, each.id) for each in found]

        return await self._door.read(run)

    async def listener(self, tenant: TenantId, name: str) -> Cursor:
        """Return how far a named listener got. Raises NotFound."""
        return await self._door.read(listening.find_cursor, tenant, name)

    async def keep_listener(self, tenant: TenantId, name: str, cursor: str) -> Cursor:
        """Remember how far a named listener has got."""
        return await self._door.write(listening.keep_cursor, tenant, name, cursor)
