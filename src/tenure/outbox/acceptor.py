"""The loop that accepts: callers who come together share one commit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.clock import SystemClock
from tenure.errors import TenureError
from tenure.ids import new_message_id
from tenure.limits import DRAIN_SETTLE_SECONDS
from tenure.outbox.judging import SchemaJudge
from tenure.outbox.ledger import remembering
from tenure.outbox.ledger.accepting import AcceptItem, Answer, Batch, accept_batch
from tenure.outbox.model import Accepted
from tenure.outbox.routes import Routes
from tenure.store.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.ids import TenantId
    from tenure.outbox.model import Idempotency, Message, NewMessage, OutboxSettings
    from tenure.store.backend import Backend
    from tenure.store.claims import Birth, Claimed
    from tenure.store.tx import Tx
    from tenure.work.births import Births
    from tenure.work.kinds import Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The worker loop of this process, as far as acceptance knows it.

    `remember` makes of a claim and its message what a load would make of them, None
    when that takes the database.
    """

    births: Births
    remember: Callable[[Claimed, Message], Loaded | None]


def _matched(answer: Answer) -> int:
    return answer.matched if isinstance(answer, Accepted) else 0


class Acceptor:
    """Group commit of messages, and the route tables that this node remembers.

    `committed` is called after each commit: it may have made work due here.
    """

    __slots__ = (
        "_backend",
        "_batcher",
        "_clock",
        "_committed",
        "_monotonic",
        "_routes",
        "_settings",
        "judge",
        "sender",
    )

    def __init__(
        self,
        backend: Backend,
        settings: OutboxSettings,
        committed: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._backend: Final = backend
        self._settings: Final = settings
        self._committed: Final = committed
        # An id carries the instant of its making, so a clock that is set sets it too.
        self._clock: Final = None if isinstance(clock, SystemClock) else clock
        self._routes: Final = Routes()
        self._monotonic: Final = clock.monotonic
        self.judge: Final = SchemaJudge(backend, clock)
        self.sender: Sender | None = None
        """Who sends here what is accepted here, without a claim in between."""
        self._batcher: Final[Batcher[AcceptItem, Answer]] = Batcher(
            self._accept_all,
            key=lambda item: f"{item.tenant} {item.app_ref} {item.id}",
            size=lambda item: len(item.message.body),
        )

    def start(self) -> None:
        """Begin to accept messages on this event loop."""
        self._batcher.start()

    async def aclose(self) -> None:
        """Accept nothing more; return when what waits is committed, or refused.

        Callers whose commit a hung database has not answered in time get Draining.
        """
        await self._batcher.aclose(DRAIN_SETTLE_SECONDS)

    async def accept(
        self,
        tenant: TenantId,
        app_ref: str,
        message: NewMessage,
        idempotency: Idempotency | None,
    ) -> Accepted:
        """Return the answer to one message, after its commit; raises its refusal."""
        if len(message.body) <= self._settings.payload_max_bytes:
            misfit = await self.judge.misfit(tenant, message)
            if misfit is not None and not await self._answered(tenant, idempotency):
                raise misfit
        at = None if self._clock is None else self._clock.wall_us()
        item = AcceptItem(
            tenant=tenant,
            app_ref=app_ref,
            message=message,
            id=new_message_id(at_us=at),
            idempotency=idempotency,
        )
        answer = await self._batcher.put_nowait(item)
        if isinstance(answer, TenureError):
            raise answer
        return answer

    async def _answered(self, tenant: TenantId, used: Idempotency | None) -> bool:
        """Tell whether the key's first use was accepted, by a former rule."""
        if used is None:
            return False
        return await self._backend.read(
            partial(remembering.is_held, tenant=tenant, key=used.key)
        )

    async def _accept_all(self, items: list[AcceptItem]) -> list[Answer]:
        sender = self.sender
        offered = None if sender is None else sender.births.offer(len(items))
        if sender is None or offered is None:
            batch, *_ = await self._commit(items, None)
        else:
            try:
                batch, at, now_us = await self._commit(items, offered.birth)
            except BaseException:
                sender.births.withdraw(offered)
                raise
            born = [claimed for claimed, _ in batch.born]
            jobs = [sender.remember(*each) for each in batch.born]
            sender.births.take(offered, born, jobs, at=at, now_us=now_us)
        self._routes.keep(batch.routes)
        # What was born here is being sent; the rest is for a claim to find.
        if not batch.born or len(batch.born) < sum(map(_matched, batch.answers)):
            self._committed()
        return list(batch.answers)

    async def _commit(
        self, items: list[AcceptItem], birth: Birth | None
    ) -> tuple[Batch, float, int]:
        """Return the batch, and when (monotonic) its transaction read which instant."""

        def accept(tx: Tx) -> tuple[Batch, float, int]:
            at, now_us = self._monotonic(), tx.now
            batch = accept_batch(
                tx, items, routes=self._routes, settings=self._settings, birth=birth
            )
            return batch, at, now_us

        return await self._backend.write(accept, retry=len(items) == 1)
