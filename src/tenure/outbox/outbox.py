"""The outbox as the engine, the API and the command line call it.

Every method takes the tenant first, runs as one transaction (accepts share theirs) and
answers frozen values. An `idempotency` makes the call repeatable: the same key with the
same request returns the stored answer, in the same commit as what it did.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.clock import US, Clock
from tenure.ids import KeyId, TenantId
from tenure.outbox import explaining
from tenure.outbox.acceptor import Acceptor
from tenure.outbox.door import Door
from tenure.outbox.ledger import (
    applications,
    attempts,
    credentials,
    deleting,
    endpoints,
    eventtypes,
    keys,
    messages,
    resending,
)
from tenure.outbox.ledger.sweeping import sweep
from tenure.outbox.model import (
    Accepted,
    ApiKey,
    Application,
    ApplicationIn,
    ApplicationPatch,
    Attempt,
    AttemptedDestination,
    AttemptedMessage,
    AttemptFilter,
    Caller,
    Endpoint,
    EndpointHeaders,
    EndpointIn,
    EndpointPatch,
    EndpointStats,
    EventType,
    EventTypeIn,
    EventTypePatch,
    Explanation,
    Idempotency,
    Message,
    MessageFilter,
    NewApiKey,
    NewMessage,
    OutboxSettings,
    Page,
    PageIn,
    Resent,
    Scope,
    SecretRotation,
    Written,
)

if TYPE_CHECKING:
    from tenure.outbox.keyring import KeyRing
    from tenure.store.backend import Backend

DEFAULT_TENANT: Final = TenantId("default")
"""Whose data it is in a database that was never divided; the bootstrap key's tenant."""

_FIRST_PAGE: Final = PageIn()
_EVERY_MESSAGE: Final = MessageFilter()
_EVERY_ATTEMPT: Final = AttemptFilter()


class Outbox:
    """Accepts messages and keeps what they need; sends nothing itself.

    `accepted` is called after a commit that may have made work due in this process.
    Call `start` on the loop that will use it, `aclose` at the end.
    """

    def __init__(
        self,
        backend: Backend,
        settings: OutboxSettings,
        ring: KeyRing,
        clock: Clock,
        *,
        bootstrap_key: str | None = None,
        sending: bool = True,
        accepted: Callable[[], None] | None = None,
    ) -> None:
        self._settings: Final = settings
        self._ring: Final = ring
        self._clock: Final = clock
        self.standing = explaining.standing(sending=sending)
        self._accepted: Final = accepted
        self._used_keys: Final[set[KeyId]] = set()
        self._bootstrap: Final = (
            None if bootstrap_key is None else keys.hash_token(bootstrap_key)
        )
        self._door: Final = Door(backend, keep_seconds=settings.idempotency_seconds)
        self.acceptor: Final = Acceptor(backend, settings, self._wake, clock)

    def start(self) -> None:
        """Begin to accept messages on this event loop."""
        self.acceptor.start()

    async def aclose(self) -> None:
        """Accept nothing more; return when everything accepted is committed."""
        await self.acceptor.aclose()

    async def sweep(self) -> int:
        """Run one periodic pass (`ledger.sweeping`); return the rows it touched."""
        used = frozenset(self._used_keys)
        touched = await self._door.write(sweep, used)
        self._used_keys.difference_update(used)
        return touched

    async def accept(
        self,
        tenant: TenantId,
        app_ref: str,
        message: NewMessage,
        *,
        idempotency: Idempotency | None = None,
    ) -> Accepted:
        """Accept a message; return after the commit that holds it and all its work.

        Raises NotFound, ValidationFailed, PayloadTooLarge, Conflict (the event id was
        used), IdempotencyKeyReused, QueueFull, Draining or DatabaseUnavailable.
        """
        return await self.acceptor.accept(tenant, app_ref, message, idempotency)

    async def get_message(
        self, tenant: TenantId, app_ref: str, ref: str, *, with_content: bool = True
    ) -> Message:
        """Return a message by its id or event id."""
        return await self._door.read(
            messages.find_message, tenant, app_ref, ref, with_content=with_content
        )

    async def list_messages(
        self,
        tenant: TenantId,
        app_ref: str,
        page: PageIn = _FIRST_PAGE,
        wanted: MessageFilter = _EVERY_MESSAGE,
    ) -> Page[Message]:
        """Return one page of messages, newest first."""
        return await self._door.read(
            messages.list_messages, tenant, app_ref, page, wanted
        )

    async def expunge_message(self, tenant: TenantId, app_ref: str, ref: str) -> None:
        """Remove a message's payload and end what has not been sent."""
        await self._door.write(messages.expunge_message, tenant, app_ref, ref)

    async def resend(
        self,
        tenant: TenantId,
        app_ref: str,
        message_ref: str,
        endpoint_ref: str,
        *,
        idempotency: Idempotency | None = None,
    ) -> Resent:
        """Send a message to an endpoint again, whatever it matched."""
        do = partial(
            resending.resend,
            tenant=tenant,
            app_ref=app_ref,
            message_ref=message_ref,
            endpoint_ref=endpoint_ref,
        )
        written = await self._door.once(
            tenant,
            idempotency,
            f"resend:{app_ref}:{message_ref}:{endpoint_ref}",
            do,
            Resent,
        )
        self._wake()
        return written.value

    async def explain(
        self, tenant: TenantId, ref: str, *, app_ref: str | None = None
    ) -> Explanation:
        """Say of a message or work row why it went where it went, and why it waits."""
        return await self._door.read(
            explaining.explain, tenant, ref, standing=self.standing, app_ref=app_ref
        )

    async def create_application(
        self,
        tenant: TenantId,
        given: ApplicationIn,
        *,
        get_if_exists: bool = False,
        idempotency: Idempotency | None = None,
    ) -> Written[Application]:
        """Create an application, or with `get_if_exists` return the one of its uid."""
        do = partial(
            applications.create_application,
            tenant=tenant,
            given=given,
            get_if_exists=get_if_exists,
        )
        operation = f"application.create:{get_if_exists}"
        return await self._door.once(tenant, idempotency, operation, do, Application)

    async def get_application(self, tenant: TenantId, ref: str) -> Application:
        """Return an application by its id or uid."""
        return await self._door.read(applications.find_application, tenant, ref)

    async def list_applications(
        self, tenant: TenantId, page: PageIn = _FIRST_PAGE
    ) -> Page[Application]:
        """Return one page of applications."""
        return await self._door.read(applications.list_applications, tenant, page)

    async def update_application(
        self, tenant: TenantId, ref: str, given: ApplicationIn
    ) -> Written[Application]:
        """Put an application in the place of the one named, or create it."""
        return await self._door.write(applications.put_application, tenant, ref, given)

    async def patch_application(
        self, tenant: TenantId, ref: str, patch: ApplicationPatch
    ) -> Application:
        """Change some fields of an application."""
        return await self._door.write(
            applications.patch_application, tenant, ref, patch
        )

    async def delete_application(self, tenant: TenantId, ref: str) -> None:
        """Delete an application with its endpoints; open work is cancelled."""
        await self._door.write(deleting.delete_application, tenant, ref)

    async def create_endpoint(
        self,
        tenant: TenantId,
        app_ref: str,
        given: EndpointIn,
        *,
        operator: bool = True,
        idempotency: Idempotency | None = None,
    ) -> Written[Endpoint]:
        """Create an endpoint; `operator=False` may not open networks to it."""
        do = partial(
            endpoints.create_endpoint,
            tenant=tenant,
            app_ref=app_ref,
            given=given,
            ring=self._ring,
            settings=self._settings,
            operator=operator,
        )
        operation = f"endpoint.create:{app_ref}"
        return await self._door.once(tenant, idempotency, operation, do, Endpoint)

    async def get_endpoint(self, tenant: TenantId, app_ref: str, ref: str) -> Endpoint:
        """Return an endpoint by its id or uid."""
        return await self._door.read(endpoints.get_endpoint, tenant, app_ref, ref)

    async def list_endpoints(
        self, tenant: TenantId, app_ref: str, page: PageIn = _FIRST_PAGE
    ) -> Page[Endpoint]:
        """Return one page of an application's endpoints."""
        return await self._door.read(endpoints.list_endpoints, tenant, app_ref, page)

    async def update_endpoint(
        self,
        tenant: TenantId,
        app_ref: str,
        ref: str,
        given: EndpointIn,
        *,
        operator: bool = True,
    ) -> Written[Endpoint]:
        """Put an endpoint in the place of the one named, or create it."""
        changed = await self._door.write(
            endpoints.put_endpoint,
            tenant,
            app_ref,
            ref,
            given,
            ring=self._ring,
            settings=self._settings,
            operator=operator,
        )
        self._wake()
        return changed

    async def patch_endpoint(
        self,
        tenant: TenantId,
        app_ref: str,
        ref: str,
        patch: EndpointPatch,
        *,
        operator: bool = True,
    ) -> Endpoint:
        """Change some fields of an endpoint."""
        changed = await self._door.write(
            endpoints.patch_endpoint,
            tenant,
            app_ref,
            ref,
            patch,
            ring=self._ring,
            settings=self._settings,
            operator=operator,
        )
        self._wake()
        return changed

    async def delete_endpoint(self, tenant: TenantId, app_ref: str, ref: str) -> None:
        """Delete an endpoint; open work is cancelled, history stays."""
        await self._door.write(deleting.delete_endpoint, tenant, app_ref, ref)

    async def endpoint_secret(self, tenant: TenantId, app_ref: str, ref: str) -> str:
        """Return what a receiver verifies with."""
        return await self._door.read(
            credentials.endpoint_secret, tenant, app_ref, ref, ring=self._ring
        )

    async def rotate_endpoint_secret(
        self,
        tenant: TenantId,
        app_ref: str,
        ref: str,
        rotation: SecretRotation,
        *,
        idempotency: Idempotency | None = None,
    ) -> None:
        """Sign with another secret, and with the former one for a grace period."""
        do = partial(
            credentials.rotate_endpoint_secret,
            tenant=tenant,
            app_ref=app_ref,
            ref=ref,
            rotation=rotation,
            ring=self._ring,
        )
        await self._door.once(
            tenant, idempotency, f"secret.rotate:{app_ref}:{ref}", do, None
        )

    async def endpoint_headers(
        self, tenant: TenantId, app_ref: str, ref: str
    ) -> EndpointHeaders:
        """Return an endpoint's custom headers, sensitive ones by name only."""
        return await self._door.read(
            credentials.endpoint_headers, tenant, app_ref, ref, ring=self._ring
        )

    async def put_endpoint_headers(
        self, tenant: TenantId, app_ref: str, ref: str, headers: Mapping[str, str]
    ) -> None:
        """Replace an endpoint's custom headers."""
        await self._door.write(
            credentials.put_endpoint_headers,
            tenant,
            app_ref,
            ref,
            headers,
            ring=self._ring,
        )

    async def patch_endpoint_headers(
        self,
        tenant: TenantId,
        app_ref: str,
        ref: str,
        headers: Mapping[str, str | None],
        *,
        delete: Sequence[str] = (),
    ) -> None:
        """Set some of an endpoint's headers; None, or a name in `delete`, removes."""
        await self._door.write(
            credentials.patch_endpoint_headers,
            tenant,
            app_ref,
            ref,
            headers,
            delete=delete,
            ring=self._ring,
        )

    async def endpoint_stats(
        self,
        tenant: TenantId,
        app_ref: str,
        ref: str,
        *,
        since: int | None = None,
        until: int | None = None,
    ) -> EndpointStats:
        """Count an endpoint's attempts in [since, until); default: the last 28 days."""
        end = self._clock.wall_us() if until is None else until
        start = end - 28 * 86_400 * US if since is None else since
        return await self._door.read(
            credentials.endpoint_stats,
            tenant,
            app_ref,
            ref,
            since=start,
            until=end,
        )

    async def create_event_type(
        self,
        tenant: TenantId,
        given: EventTypeIn,
        *,
        idempotency: Idempotency | None = None,
    ) -> Written[EventType]:
        """Create an event type; an archived one is revived."""
        do = partial(eventtypes.create_event_type, tenant=tenant, given=given)
        made = await self._door.once(
            tenant, idempotency, "event_type.create", do, EventType
        )
        return self.acceptor.judge.changed(made)

    async def get_event_type(self, tenant: TenantId, name: str) -> EventType:
        """Return an event type, archived or not."""
        return await self._door.read(eventtypes.find_event_type, tenant, name)

    async def list_event_types(
        self,
        tenant: TenantId,
        page: PageIn = _FIRST_PAGE,
        *,
        include_archived: bool = False,
    ) -> Page[EventType]:
        """Return one page of event types by name."""
        return await self._door.read(
            eventtypes.list_event_types,
            tenant,
            page,
            include_archived=include_archived,
        )

    async def update_event_type(
        self, tenant: TenantId, name: str, given: EventTypeIn
    ) -> Written[EventType]:
        """Put an event type in the place of the one named, or create it."""
        return self.acceptor.judge.changed(
            await self._door.write(eventtypes.put_event_type, tenant, name, given)
        )

    async def patch_event_type(
        self, tenant: TenantId, name: str, patch: EventTypePatch
    ) -> EventType:
        """Change some fields of an event type."""
        return self.acceptor.judge.changed(
            await self._door.write(eventtypes.patch_event_type, tenant, name, patch)
        )

    async def delete_event_type(
        self, tenant: TenantId, name: str, *, expunge: bool = False
    ) -> None:
        """Archive an event type; `expunge` removes it."""
        return self.acceptor.judge.changed(
            await self._door.write(
                eventtypes.delete_event_type, tenant, name, expunge=expunge
            )
        )

    async def list_attempts_by_endpoint(
        self,
        tenant: TenantId,
        app_ref: str,
        endpoint_ref: str,
        page: PageIn = _FIRST_PAGE,
        wanted: AttemptFilter = _EVERY_ATTEMPT,
    ) -> Page[Attempt]:
        """Return one page of an endpoint's attempts, newest first."""
        return await self._door.read(
            attempts.list_attempts_by_endpoint,
            tenant,
            app_ref,
            endpoint_ref,
            page,
            wanted,
        )

    async def list_attempts_by_message(
        self,
        tenant: TenantId,
        app_ref: str,
        message_ref: str,
        page: PageIn = _FIRST_PAGE,
        wanted: AttemptFilter = _EVERY_ATTEMPT,
    ) -> Page[Attempt]:
        """Return one page of a message's attempts, newest first."""
        return await self._door.read(
            attempts.list_attempts_by_message,
            tenant,
            app_ref,
            message_ref,
            page,
            wanted,
        )

    async def list_attempted_messages(
        self,
        tenant: TenantId,
        app_ref: str,
        endpoint_ref: str,
        page: PageIn = _FIRST_PAGE,
        wanted: AttemptFilter = _EVERY_ATTEMPT,
    ) -> Page[AttemptedMessage]:
        """Return one page of the messages that an endpoint got or waits for."""
        return await self._door.read(
            attempts.list_attempted_messages,
            tenant,
            app_ref,
            endpoint_ref,
            page,
            wanted,
        )

    async def list_attempted_destinations(
        self,
        tenant: TenantId,
        app_ref: str,
        message_ref: str,
        page: PageIn = _FIRST_PAGE,
    ) -> Page[AttemptedDestination]:
        """Return one page of the endpoints that a message is for."""
        return await self._door.read(
            attempts.list_attempted_destinations, tenant, app_ref, message_ref, page
        )

    async def get_attempt(
        self, tenant: TenantId, app_ref: str, message_ref: str, attempt: str
    ) -> Attempt:
        """Return one attempt with its response."""
        return await self._door.read(
            attempts.find_attempt, tenant, app_ref, message_ref, attempt
        )

    async def expunge_attempt(
        self, tenant: TenantId, app_ref: str, message_ref: str, attempt: str
    ) -> None:
        """Remove what the receiver answered in one attempt."""
        await self._door.write(
            attempts.expunge_attempt, tenant, app_ref, message_ref, attempt
        )

    async def create_api_key(
        self,
        tenant: TenantId,
        *,
        name: str,
        scope: Scope,
        app_ref: str | None = None,
        expires_at: int | None = None,
    ) -> NewApiKey:
        """Make a key; its token is in the answer, and nowhere else ever again."""
        return await self._door.write(
            keys.create_key,
            tenant,
            name=name,
            scope=scope,
            app_ref=app_ref,
            expires_at=expires_at,
        )

    async def list_api_keys(
        self, tenant: TenantId, page: PageIn = _FIRST_PAGE
    ) -> Page[ApiKey]:
        """Return one page of the tenant's keys, revoked ones included."""
        return await self._door.read(keys.list_keys, tenant, page)

    async def revoke_api_key(self, tenant: TenantId, key: str) -> ApiKey:
        """Revoke a key for good."""
        return await self._door.write(keys.revoke_key, tenant, key)

    async def verify_api_key(self, token: str) -> Caller | None:
        """Return who holds the token, None for an unknown, expired or revoked one.

        Asks the database every time; whoever remembers the answer bounds how long.
        """
        hashed = keys.hash_token(token)
        if self._bootstrap is not None and hmac.compare_digest(hashed, self._bootstrap):
            return Caller(tenant=DEFAULT_TENANT, scope=Scope.ADMIN)
        caller = await self._door.read(keys.caller_of, hashed)
        if caller is not None and caller.key is not None:
            self._used_keys.add(caller.key)
        return caller

    def _wake(self) -> None:
        if self._accepted is not None:
            self._accepted()
