"""Results on their way into the database: kept until they are written, whatever happens.

A result is never dropped, never recorded as anything else, and never the reason to do
the work again. Results share transactions. A row whose result the database refuses by
itself is tried alone, then without the kind's evidence, then parked without its effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tenure.errors import Draining, QueueFull, Unavailable
from tenure.ids import jitter
from tenure.kernel.commands import Answer, Parked, Settlement
from tenure.store.batching import Batcher
from tenure.store.claims import settle
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.clock import Clock
    from tenure.store.backend import Backend
    from tenure.store.claims import Effect, KindSql, Settled
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events
    from tenure.work.kinds import Kinds

__all__ = ["Settler"]

RETRY_MIN_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 2.0
"""Between two tries while the database is away: soon enough after its return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bare:
    """A kind without its evidence, and without its effects when even they fail."""

    kind: KindSql
    with_effects: bool

    @property
    def late_success(self) -> bool:
        return self.kind.late_success

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        del items
        return ()

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        return self.kind.effects(items) if self.with_effects else ()


class Settler:
    """Writes the results of one node. `start` it, `settle` with it, `aclose` it."""

    __slots__ = ("_backend", "_batcher", "_clock", "_events", "_kinds")

    def __init__(
        self, backend: Backend, kinds: Kinds, *, clock: Clock, events: Events
    ) -> None:
        self._backend: Final = backend
        self._kinds: Final[Mapping[str, KindSql]] = dict(kinds)
        self._clock: Final = clock
        self._events: Final = events
        self._batcher: Final = Batcher[Settlement, Answer](
            self._together, key=lambda said: said.work
        )

    def start(self) -> None:
        """Begin to write on the current event loop."""
        self._batcher.start()

    async def aclose(self, seconds: float | None = None) -> None:
        """Write what waits and return, after `seconds` at the latest."""
        await self._batcher.aclose(seconds)

    async def _together(self, items: list[Settlement]) -> list[Answer]:
        def together(tx: Tx) -> list[Answer]:
            return settle(tx, items, self._kinds)

        # Halved, not tried again: one locked row must not hold up the others' results.
        return await self._backend.write(together, retry=len(items) == 1)

    async def _alone(self, said: Settlement, kinds: Mapping[str, KindSql]) -> Answer:
        def alone(tx: Tx) -> Answer:
            return settle(tx, [said], kinds)[0]

        return await self._backend.write(alone)

    async def settle(self, said: Settlement) -> Answer:
        """Return what became of a result, once it is committed.

        Waits for as long as the database is away; ends only with an answer or with the
        caller's cancellation. Asking again with the same result changes nothing.
        """
        stage, pause, told = 0, RETRY_MIN_SECONDS, False
        while True:
            try:
                return await self._try(said, stage)
            except (Unavailable, QueueFull, Draining) as error:
                if not told:
                    self._tell(Event.RESULT_WAITS, said, why=str(error))
                    told = True
            except Exception as error:  # noqa: BLE001 - the row's own; kept with less
                self._tell(Event.RESULT_REFUSED, said, error=error, stage=stage)
                stage = min(stage + 1, 3)
                if stage < 3:
                    continue
            await self._clock.sleep(jitter(pause / 2, pause))
            pause = min(pause * 2, RETRY_MAX_SECONDS)

    async def _try(self, said: Settlement, stage: int) -> Answer:
        match stage:
            case 0:
                return await self._batcher.put(said)
            case 1:
                return await self._alone(said, self._kinds)
            case 2:
                return await self._alone(said, self._bare(with_effects=True))
            case _:
                parked = Parked(reason="effects failed")
                return await self._alone(
                    replace(said, result=parked), self._bare(with_effects=False)
                )

    def _bare(self, *, with_effects: bool) -> Mapping[str, KindSql]:
        return {
            name: _Bare(kind=kind, with_effects=with_effects)
            for name, kind in self._kinds.items()
        }

    def _tell(
        self,
        event: Event,
        said: Settlement,
        *,
        error: BaseException | None = None,
        **fields: object,
    ) -> None:
        self._events.tell(
            event,
            error=error,
            work=said.work,
            claim=said.claim,
            lane=said.lane,
            node=said.node,
            **fields,
        )
