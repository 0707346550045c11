"""A kind whose attempts are measured: one more look at each result, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.kernel.commands import Cut, Failed, Parked, Succeeded, Waiting
from tenure.outbox.exchanges import Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.kernel.commands import Result
    from tenure.store.claims import Claimed, Effect, Settled
    from tenure.store.tx import Tx
    from tenure.telemetry.metrics import Metrics
    from tenure.work.kinds import Guard, Kind, Loaded, Prepared, Ran

__all__ = ["MeasuredKind"]


class MeasuredKind:
    """Passes everything on, and counts attempts as they end."""

    __slots__ = ("_clock", "_kind", "_metrics")

    def __init__(self, kind: Kind, metrics: Metrics, clock: Clock) -> None:
        self._kind: Final = kind
        self._metrics: Final = metrics
        self._clock: Final = clock

    @property
    def name(self) -> str:
        """See `Kind`."""
        return self._kind.name

    @property
    def needs(self) -> str:
        """See `Kind`."""
        return self._kind.needs

    @property
    def late_success(self) -> bool:
        """See `Kind`."""
        return self._kind.late_success

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Loaded]:
        """See `Kind`; what can never run is counted as parked."""
        loaded = self._kind.load(tx, claims)
        for answer in loaded:
            if isinstance(answer, Parked):
                self._metrics.parked(answer.reason)
        return loaded

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        """See `Kind`."""
        started = self._clock.monotonic()
        ran = await self._kind.run(prepared, guard)
        if ran.released:
            self._metrics.released()
            return ran
        self._metrics.attempted(
            self._kind.name,
            outcome_of(ran.result),
            cause_of(ran.evidence),
            self._clock.monotonic() - started,
        )
        match ran.result:
            case Succeeded():
                claimed = prepared.claimed
                age = guard.instant() - claimed.work.created_at
                self._metrics.delivered(claimed.number, age / US)
            case Parked(reason=reason):
                self._metrics.parked(reason)
            case _:
                pass
        return ran

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """See `Kind`."""
        return self._kind.evidence(items)

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """See `Kind`."""
        return self._kind.effects(items)


def outcome_of(result: Result) -> str:
    """Return what came of an attempt, in the words of the attempt's row."""
    match result:
        case Succeeded():
            return "succeeded"
        case Failed(retry_at=None):
            return "dead"
        case Failed(charged=False, counts_try=False):
            return "reset"
        case Failed():
            return "failed"
        case Waiting():
            return "waiting"
        case Parked():
            return "parked"
        case Cut():
            return "cut"


def cause_of(evidence: object) -> str:
    """Return why: the class of the status, or the cause of a failure without one."""
    if not isinstance(evidence, Exchange):
        return "none"
    if evidence.status_code is not None:
        return f"{evidence.status_code // 100}xx"
    return evidence.cause or "none"
