"""One attempt: wait for its start, run the kind's code, and make its result.

Whatever happens inside, one of two things comes out: a result to settle, or None, which
means that nothing was begun and the claim is given back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from tenure.clock import US
from tenure.kernel.commands import Cut, Failed, Parked, Settlement
from tenure.telemetry.events import Event
from tenure.work.held import Stop
from tenure.work.kinds import Ran

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.limits import Durations
    from tenure.store.backend import Backend
    from tenure.store.claims import Claimed
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events
    from tenure.work.held import Held
    from tenure.work.kinds import Kind, Kinds, Loaded, Prepared
    from tenure.work.pauses import Pauses

from tenure.errors import Unavailable
from tenure.work.pauses import Point

__all__ = ["Attempts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What it takes to run attempts; keeps nothing between them."""

    backend: Backend
    kinds: Kinds
    clock: Clock
    durations: Durations
    events: Events
    pauses: Pauses

    async def load(self, helds: Sequence[Held]) -> list[Loaded]:
        """Read what claims need, one read for all; one answer for each, in order.

        When the read fails, each claim is read alone, so that one bad row parks itself
        and no other. Raises Unavailable when the database is away.
        """
        try:
            return await self._read(helds)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - some row's fault: find out whose
            if len(helds) == 1:
                return [self._unloadable(helds[0], error)]
        answers: list[Loaded] = []
        for held in helds:
            answers += await self.load([held])
        return answers

    def load_claimed(
        self, tx: Tx, claimed: Sequence[Claimed]
    ) -> Sequence[Loaded] | None:
        """Read what claims need in their own transaction; None when a kind raised.

        A statement that fails fails the transaction with it, and so the claims.
        """
        try:
            return self._load(tx, claimed)
        except Exception:
            if tx.failure is not None:
                raise
            return None  # read again one by one: that finds out whose fault it is

    async def _read(self, helds: Sequence[Held]) -> list[Loaded]:
        claimed = [held.claimed for held in helds]
        return await self.backend.read(lambda tx: self._load(tx, claimed))

    def _load(self, tx: Tx, claimed: Sequence[Claimed]) -> list[Loaded]:
        by_kind: dict[str, list[Claimed]] = {}
        for each in claimed:
            by_kind.setdefault(each.work.kind, []).append(each)
        answers = {
            name: iter(self.kinds[name].load(tx, mine))
            for name, mine in by_kind.items()
            if name in self.kinds
        }
        return [
            next(answers[name])
            if (name := each.work.kind) in answers
            else Parked(reason=f"no kind of work is named {name!r} here")
            for each in claimed
        ]

    def _unloadable(self, held: Held, error: Exception) -> Parked:
        work, claim = held.key
        self.events.tell(Event.LOAD_FAILED, error=error, work=work, claim=claim)
        return Parked(reason=f"cannot be loaded: {type(error).__name__}")

    async def run(self, held: Held, loaded: Loaded) -> Ran | None:
        """Return the result of one attempt; None when the claim is to be given back.

        From its return on, the attempt cannot be ended from outside any more.
        """
        if isinstance(loaded, Parked):
            held.settling = True
            return Ran(result=loaded)
        kind = self.kinds[held.claimed.work.kind]
        held.entered = True
        try:
            ran = await self._inside(kind, held, loaded)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            asked = task is not None and task.cancelling() > 0
            if held.stopped is not None:
                if task is not None:
                    task.uncancel()
                ran = self._stopped(held, held.stopped)
            elif asked:
                raise
            else:  # of something that the kind waited for, not of this attempt
                self._tell(Event.ATTEMPT_FAILED_INSIDE, held, error)
                ran = self._failed(held, "failed inside: CancelledError")
        except Exception as error:  # noqa: BLE001 - a defect of the kind, not of the loop
            self._tell(Event.ATTEMPT_FAILED_INSIDE, held, error)
            ran = self._failed(held, f"failed inside: {type(error).__name__}")
        held.settling = True
        return ran

    async def _inside(self, kind: Kind, held: Held, prepared: Prepared) -> Ran | None:
        ahead = held.start - self.clock.monotonic()
        if ahead > 0 and held.stopped is None:
            await self.clock.sleep(ahead)
        await self.pauses.at(Point.LOADED, held=held)
        if held.stopped is not None or not held.fence.allows() or held.too_late():
            return None
        ran = await kind.run(prepared, held)
        if not ran.released:
            return ran
        if held.begun:
            self._tell(Event.ATTEMPT_FAILED_INSIDE, held, None)
            return self._failed(held, "released although it had begun")
        return None

    def _stopped(self, held: Held, why: Stop) -> Ran | None:
        match why:
            case Stop.OVERRAN:
                self._tell(Event.ATTEMPT_OVERRAN, held, None)
                return self._failed(held, str(why))
            case Stop.CUT | Stop.FENCED | Stop.GONE | Stop.CANCELLED:
                return Ran(result=Cut(reason=str(why))) if held.begun else None
            case _:
                assert_never(why)

    def _failed(self, held: Held, reason: str) -> Ran:
        """Return a failure that the kind did not judge: the default schedule holds."""
        delays: Final = self.durations.retry_seconds
        done = held.claimed.work.tries + 1
        retry_at = None
        if done < len(delays):
            retry_at = held.instant() + round(delays[done] * US)
        return Ran(
            result=Failed(
                retry_at=retry_at, charged=True, counts_try=True, reason=reason
            )
        )

    def settlement(self, held: Held, ran: Ran) -> Settlement:
        """Return what is written for a result."""
        row = held.claimed.work
        return Settlement(
            work=row.id,
            claim=row.claim,
            node=held.node,
            lane=row.lane,
            kind=row.kind,
            order_key=row.order_key,
            attempt=held.attempt,
            begun_at=held.begun_us,
            ended_at=held.instant(),
            result=ran.result,
            evidence=ran.evidence,
        )

    def _tell(self, event: Event, held: Held, error: BaseException | None) -> None:
        work, claim = held.key
        self.events.tell(
            event,
            error=error,
            work=work,
            claim=claim,
            lane=held.lane,
            node=held.node,
            kind=held.claimed.work.kind,
        )
