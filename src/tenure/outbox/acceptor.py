"""The loop that accepts: callers who come together share one commit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from tenure.clock import SystemClock
from tenure.errors import TenureError
from tenure.ids import new_message_id
from tenure.limits import DRAIN_SETTLE_SECONDS, EXPRESSION_ROUNDS_MAX
from tenure.outbox.cel import Evaluator, verdict_of
from tenure.outbox.judging import SchemaJudge
from tenure.outbox.ledger import remembering
from tenure.outbox.ledger.accepting import (
    AcceptItem,
    Answer,
    Batch,
    Undecided,
    accept_batch,
    facts_of_new,
)
from tenure.outbox.model import Accepted
from tenure.outbox.routes import Routes
from tenure.store.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.clock import Clock
    from tenure.ids import MessageId, TenantId
    from tenure.outbox.cel import Verdict
    from tenure.outbox.model import Idempotency, Message, NewMessage, OutboxSettings
    from tenure.store.backend import Backend
    from tenure.store.claims import Claimed
    from tenure.store.tx import Tx
    from tenure.work.births import Births
    from tenure.work.kinds import Loaded


R = TypeVar("R")
_EMPTY: Final = Batch(answers=(), routes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The worker loop of this process, as far as acceptance knows it.

    `remember` makes of a claim and its message what a load would make of them, None
    when that takes the database.
    """

    births: Births
    remember: Callable[[Claimed, Message], Loaded | None]


Accept: TypeAlias = "Callable[[Sequence[AcceptItem]], Batch]"
"""Accepts messages in the transaction that it was made for."""


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
        "evaluator",
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
        self.evaluator: Final = Evaluator()
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
        await self.evaluator.aclose()

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
        for _ in range(EXPRESSION_ROUNDS_MAX):
            if not isinstance(answer, Undecided):
                break
            found = await self.ask(
                item.id, message, answer.expressions, whose=f"{tenant} {app_ref}"
            )
            item = msgspec.structs.replace(item, verdicts={**item.verdicts, **found})
            answer = await self._batcher.put_nowait(item)
        if isinstance(answer, TenureError):
            raise answer
        return answer

    async def ask(
        self,
        id_: MessageId,
        message: NewMessage,
        expressions: Sequence[str],
        *,
        whose: str,
    ) -> dict[str, Verdict]:
        """Return what filters say that may take long, by their text.

        `whose`: tenant and application, as `Evaluator.evaluate` takes it.
        """
        facts, size = facts_of_new(id_, message), len(message.body)
        return {
            text: verdict_of(
                await self.evaluator.evaluate(text, facts, size, whose=whose)
            )
            for text in expressions
        }

    async def _answered(self, tenant: TenantId, used: Idempotency | None) -> bool:
        """Tell whether the key's first use was accepted, by a former rule."""
        if used is None:
            return False
        return await self._backend.read(
            partial(remembering.is_held, tenant=tenant, key=used.key)
        )

    async def _accept_all(self, items: list[AcceptItem]) -> list[Answer]:
        def run(tx: Tx, accept: Accept) -> list[Answer]:
            del tx
            return list(accept(items).answers)

        return await self.within(run, len(items), retry=len(items) == 1)

    async def within(
        self, fn: Callable[[Tx, Accept], R], most: int, *, retry: bool
    ) -> R:
        """Run a transaction that accepts up to `most` messages among other things.

        `fn` gets a function that accepts a batch in that transaction, to be called once
        at most, and may run again as `Backend.write` says.
        """
        sender = self.sender
        offered = None if sender is None else sender.births.offer(most)
        birth = None if offered is None else offered.birth

        def run(tx: Tx) -> tuple[R, Batch, float, int]:
            at, now_us, batch = self._monotonic(), tx.now, _EMPTY

            def accept(items: Sequence[AcceptItem]) -> Batch:
                nonlocal batch
                batch = accept_batch(
                    tx, items, routes=self._routes, settings=self._settings, birth=birth
                )
                return batch

            return fn(tx, accept), batch, at, now_us

        try:
            result, batch, at, now_us = await self._backend.write(run, retry=retry)
        except BaseException:
            if sender is not None and offered is not None:
                sender.births.withdraw(offered)
            raise
        if sender is not None and offered is not None:
            born = [claimed for claimed, _ in batch.born]
            jobs = [sender.remember(*each) for each in batch.born]
            sender.births.take(offered, born, jobs, at=at, now_us=now_us)
        self._routes.keep(batch.routes)
        # What was born here is being sent; the rest is for a claim to find.
        matched = sum(map(_matched, batch.answers))
        if matched > len(batch.born):
            self._committed()
        return result
