"""Sources as a node remembers them: opened secrets, a compiled check, parsed networks.

A source belongs to one version. Every accept asks the database for that version again in
its own transaction, so what is remembered may be old but is never acted on when it is;
and nobody is refused by something old: a refusal is told only after a look at the
database that began later than the request arrived.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from tenure.errors import ValidationFailed
from tenure.inbox.arrivals import is_within
from tenure.inbox.ledger.sources import find_by_path
from tenure.inbox.locating import Locator, parse_locator
from tenure.inbox.verification import Check, compile_check
from tenure.limits import SOURCE_CONFIGS_MAX
from tenure.spawn import Tasks

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from tenure.clock import Clock
    from tenure.inbox.opened import Opened
    from tenure.outbox.keyring import KeyRing
    from tenure.store.backend import Backend

__all__ = ["Known", "Ready"]

_NEVER: Final = 1 << 62


@dataclass(slots=True, kw_only=True, eq=False)
class Ready:
    """One version of a source, ready to judge requests.

    `check` None: it cannot, for the reason of `broken`. `until` (µs) is when the next
    of its secrets ends. `limited_until` (monotonic) is what the database last said of
    its rate.
    """

    opened: Opened
    check: Check | None
    broken: str | None
    networks: tuple[IPv4Network | IPv6Network, ...]
    dedupe: Locator | None
    event_type: Locator | None
    until: int
    limited_until: float = field(default=0.0)

    def admits(self, address: str | None) -> bool:
        """Tell whether a client of this address may send here."""
        return not self.networks or is_within(address, self.networks)


class Known:
    """The sources that a node remembers by their paths. For one event loop."""

    def __init__(self, backend: Backend, ring: KeyRing, clock: Clock) -> None:
        self._backend: Final = backend
        self._ring: Final = ring
        self._clock: Final = clock
        self._tasks: Final = Tasks(lambda *_: None)  # callers are told
        self._by_path: Final[OrderedDict[str, Ready]] = OrderedDict()
        self._reading: Final[dict[str, asyncio.Task[Ready | None]]] = {}
        self._next: Final[dict[str, asyncio.Task[Ready | None]]] = {}

    async def aclose(self) -> None:
        """Ask the database nothing more."""
        await self._tasks.cancel()

    async def find(self, path: str) -> Ready | None:
        """Return the source of a path, from memory where it is there."""
        ready = self._by_path.get(path)
        if ready is None:
            return await self.refresh(path)
        self._by_path.move_to_end(path)
        if ready.until <= self._clock.wall_us():
            ready = self._keep(path, self._made(ready.opened))
        return ready

    async def refresh(self, path: str) -> Ready | None:
        """Return the source as the database has it at some instant from now on.

        Callers who come while a look is under way share the next one: however many
        ask, one asks the database.
        """
        running = self._reading.get(path)
        if running is None:
            return await asyncio.shield(self._look(path))
        task = self._next.get(path)
        if task is None:
            task = self._tasks.start(self._after(path, running), name="inbox.known")
            self._next[path] = task
        return await asyncio.shield(task)

    async def _after(
        self, path: str, running: asyncio.Task[Ready | None]
    ) -> Ready | None:
        await asyncio.wait((running,))
        del self._next[path]
        return await asyncio.shield(self._look(path))

    def _look(self, path: str) -> asyncio.Task[Ready | None]:
        running = self._reading.get(path)
        if running is not None:
            return running
        task = self._tasks.start(self._read(path), name="inbox.known")
        self._reading[path] = task
        return task

    async def _read(self, path: str) -> Ready | None:
        try:
            opened = await self._backend.read(
                lambda tx: find_by_path(tx, path, ring=self._ring)
            )
        finally:
            del self._reading[path]
        if opened is None:
            self._by_path.pop(path, None)
            return None
        known = self._by_path.get(path)
        if known is not None and known.opened.version == opened.version:
            return known
        return self._keep(path, self._made(opened))

    def _keep(self, path: str, ready: Ready) -> Ready:
        self._by_path[path] = ready
        self._by_path.move_to_end(path)
        while len(self._by_path) > SOURCE_CONFIGS_MAX:
            self._by_path.popitem(last=False)
        return ready

    def _made(self, opened: Opened) -> Ready:
        now, settings = self._clock.wall_us(), opened.settings
        live = [
            each
            for each in opened.secrets
            if each.expires_at is None or each.expires_at > now
        ]
        check: Check | None = None
        broken = opened.broken
        if broken is None:
            try:
                check = compile_check(
                    opened.verification,
                    [each.secret for each in live],
                    public_url=settings.public_url,
                )
            except ValidationFailed as error:
                broken = str(error)
        return Ready(
            opened=opened,
            check=check,
            broken=broken,
            networks=tuple(ip_network(text) for text in settings.networks),
            dedupe=_locator(settings.dedupe_key),
            event_type=_locator(settings.event_type, fixed=True),
            until=min(
                (each.expires_at for each in live if each.expires_at is not None),
                default=_NEVER,
            ),
        )


def _locator(text: str | None, *, fixed: bool = False) -> Locator | None:
    return None if text is None else parse_locator(text, fixed=fixed)
