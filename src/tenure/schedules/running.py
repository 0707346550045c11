"""The kind `job`: a claimed run's function is called, and its answer becomes a result.

A function that is asynchronous runs on the loop and is cancelled at its timeout, or when
its claim was lost or cancelled. One that is not runs in a thread, which nothing can
stop: its answer is not looked at then, and its place stays taken until it returns.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.clock import US
from tenure.errors import TenureError
from tenure.ids import JobId, RunId, TenantId, jitter
from tenure.kernel import commands
from tenure.limits import (
    JOB_ATTEMPTS,
    JOB_ERROR_BYTES,
    JOB_THREADS,
    REASON_MAX,
)
from tenure.outbox.carriers.functions import Retry, Stop
from tenure.outbox.carriers.threads import NotBegunError, Threads
from tenure.schedules import lines
from tenure.schedules.ledger.outcomes import Said, effects, evidence
from tenure.schedules.ledger.runs import KIND
from tenure.schedules.model import (
    Definition,
    Degraded,
    Outcome,
    Skipped,
    Snooze,
)
from tenure.schedules.reminders import scan
from tenure.work.kinds import Prepared, Ran

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tenure.clock import Clock
    from tenure.schedules.declaring import Declared
    from tenure.store.backend import Backend
    from tenure.store.claims import Claimed, Effect, Settled
    from tenure.store.tx import AnyRow, Tx
    from tenure.work.kinds import Guard, Loaded

__all__ = ["JobKind", "RunContext", "current_run"]

_NO_CODE_SECONDS: Final = 5.0  # a shared lane's row whose code is on another node
_RUNS: Final = (
    "SELECT r.id, r.job, r.origin, r.window_at, r.args, r.scope, r.record, j.code,"
    " j.body, j.package, j.name, j.created_at FROM {asked} JOIN job_run r ON r.id = b.id"
    " JOIN job j ON j.id = r.job"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a function may ask of the run that it is called for.

    `claim` rises with every attempt: an outside store that remembers the highest it saw
    can refuse a stale one. `cancelled` tells a function in a thread that nobody waits.
    """

    run: RunId
    tenant: TenantId
    job: str
    claim: int
    attempt: int
    origin: str
    window: datetime | None
    deadline: datetime
    guard: Guard
    ended: asyncio.Event

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is over for everybody but this function."""
        return self.ended.is_set()


_CURRENT: Final[ContextVar[RunContext | None]] = ContextVar("tenure_run", default=None)


def current_run() -> RunContext | None:
    """Return the run that this code is called for; None outside of one."""
    return _CURRENT.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One claimed run with what it needs."""

    run: RunId
    job: JobId
    code: JobId
    coordinate: str
    origin: str
    window_at: int | None
    args: bytes | None
    scope: str | None
    created_at: int
    body: Definition


class JobKind:
    """Runs the jobs of this process. `known` maps a job's id to what was declared."""

    __slots__ = ("_backend", "_clock", "_threads", "known")

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend: Final = backend
        self._clock: Final = clock
        self._threads: Final = Threads(JOB_THREADS, name="job")
        lines.install()
        self.known: Mapping[JobId, Declared] = {}

    @property
    def name(self) -> str:
        """The kind of its rows."""
        return KIND

    @property
    def needs(self) -> str:
        """Nothing that a lane could ask for: its lanes need jobs, by their ids."""
        return "job:"

    @property
    def late_success(self) -> bool:
        """An attempt that lost its claim says nothing any more."""
        return False

    def close(self) -> None:
        """Take no more threads; what runs ends by itself."""
        self._threads.close()

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Loaded]:
        """Read the runs of a batch of claims with their jobs."""
        ids = sorted({each.work.subject for each in claims})
        asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in ids])
        found = {row.id: row for row in tx.all(_RUNS.format(asked=asked), params)}
        return [_prepare(each, found.get(each.work.subject)) for each in claims]

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        """Call the function once; see `Kind`."""
        job: _Job = prepared.job
        declared = self.known.get(job.code)
        if declared is None:
            return _later(guard, _NO_CODE_SECONDS, "its code is on another node")
        if declared.match is not None and job.scope is None:
            scanning = partial(
                scan, declared.match, self._backend, job.job, job.body, job.created_at
            )
            declared = replace(declared, call=_async(scanning), match=None)
            job = replace(job, args=None)
        try:
            kwargs = {} if job.args is None else declared.parameters.decode(job.args)
        except TenureError as error:
            return Ran(result=commands.Parked(reason=_short(f"arguments: {error}")))
        context = self._context(prepared.claimed, job, guard)
        token = _CURRENT.set(context)
        try:
            with lines.capture() as kept:
                outcome, error = await self._call(declared, kwargs, context)
        finally:
            context.ended.set()
            _CURRENT.reset(token)
        if outcome is None:
            return Ran(result=commands.Cut(), released=True)
        return self._judged(prepared.claimed, job, guard, outcome, error, kept)

    def _context(self, claimed: Claimed, job: _Job, guard: Guard) -> RunContext:
        left = guard.deadline - self._clock.monotonic()
        ends = guard.instant() + round(left * US)
        return RunContext(
            run=job.run,
            tenant=claimed.work.tenant,
            job=job.coordinate,
            claim=claimed.work.claim,
            attempt=claimed.number,
            origin=job.origin,
            window=None if job.window_at is None else _datetime(job.window_at),
            deadline=_datetime(ends),
            guard=guard,
            ended=asyncio.Event(),
        )

    async def _call(
        self, declared: Declared, kwargs: dict[str, Any], context: RunContext
    ) -> tuple[Any, BaseException | None]:
        """Return what it answered, or an outcome and the error; None: nothing begun."""
        bound = asyncio.timeout(context.guard.deadline - self._clock.monotonic())
        try:
            async with bound:
                if inspect.iscoroutinefunction(declared.call):
                    if not context.guard.may_begin():
                        return None, None
                    answer = await declared.call(**kwargs)
                else:
                    call = partial(declared.call, **kwargs)
                    answer = await self._threads.run(call, context.guard.may_begin)
        except NotBegunError:
            return None, None
        except TimeoutError as error:
            return (Outcome.TIMED_OUT if bound.expired() else Outcome.FAILED), error
        except (Retry, Stop) as asked:
            return asked, None
        except Exception as error:  # noqa: BLE001 - the function's own
            return Outcome.FAILED, error
        if not isinstance(answer, Degraded | Skipped | Snooze):
            answer = Outcome.SUCCEEDED
        return answer, None

    def _judged(
        self,
        claimed: Claimed,
        job: _Job,
        guard: Guard,
        outcome: Any,
        error: BaseException | None,
        kept: lines.Lines,
    ) -> Ran:
        """Make the result of what the function answered."""
        word, reason = str(outcome), None
        result: commands.Result = commands.Succeeded()
        match outcome:
            case Degraded(reason=reason):
                word = Outcome.DEGRADED
            case Skipped(reason=reason):
                word = Outcome.SKIPPED
            case Snooze():
                word, reason = "snoozed", outcome.reason
                result = _wait(guard, outcome.until, outcome.reason)
            case Retry():
                word, reason = "snoozed", str(outcome)
                result = _wait(guard, outcome.after, str(outcome))
            case Stop():
                word, reason = Outcome.FAILED, str(outcome) or "stopped by the function"
                result = _failed(None, reason)
            case Outcome.FAILED | Outcome.TIMED_OUT:
                reason = _reason(outcome, error, job.body)
                result = _failed(self._retry_at(claimed, job, guard), reason)
            case _:
                pass
        said = Said(
            run=job.run,
            outcome=str(word),
            reason=None if reason is None else _short(reason),
            error=_trace(error) if outcome == Outcome.FAILED else None,
            logs=kept.lines(),
            dropped=kept.dropped,
        )
        if isinstance(result, commands.Succeeded):
            result = commands.Succeeded(reason=said.reason)
        return Ran(result=result, evidence=said)

    def _retry_at(self, claimed: Claimed, job: _Job, guard: Guard) -> int | None:
        """Return when to try again: exponential, with full jitter; None for never."""
        settings = job.body.settings
        once = job.window_at is not None
        attempts = settings.attempts or (1 if once else JOB_ATTEMPTS)
        tries = claimed.work.tries + 1
        if tries >= attempts:
            return None
        mean = settings.backoff_seconds * 2.0 ** min(tries - 1, 60)
        most = min(2 * mean, settings.backoff_max_seconds)
        return guard.instant() + round(jitter(0.0, most) * US)

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Keep what each attempt said and logged."""
        return evidence(items)

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Write down runs that are over, their windows and counters."""
        return effects(items)


def _async(call: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    """Return a coroutine function of nothing: what a window of a reminder calls."""

    async def looked() -> None:
        await call()

    return looked


def _prepare(claimed: Claimed, row: AnyRow | None) -> Loaded:
    if row is None:
        return commands.Parked(reason="the run was removed")
    try:
        body = msgspec.json.decode(row.body, type=Definition)
    except msgspec.MsgspecError as error:
        return commands.Parked(reason=_short(f"definition cannot be read: {error}"))
    job = _Job(
        run=RunId(row.id),
        job=JobId(row.job),
        code=JobId(row.code),
        coordinate=f"{row.package or '?'}:{row.name}",
        origin=row.origin,
        window_at=row.window_at,
        args=bytes(row.args),
        scope=row.scope,
        created_at=row.created_at,
        body=body,
    )
    return Prepared(claimed=claimed, job=job)


def _failed(retry_at: int | None, reason: str) -> commands.Failed:
    return commands.Failed(
        retry_at=retry_at, charged=True, counts_try=True, reason=_short(reason)
    )


def _wait(
    guard: Guard, until: datetime | timedelta | float, why: str
) -> commands.Failed:
    match until:
        case datetime():
            at = round(until.astimezone(UTC).timestamp() * US)
        case timedelta():
            at = guard.instant() + round(until.total_seconds() * US)
        case _:
            at = guard.instant() + round(until * US)
    return commands.Failed(
        retry_at=at, charged=False, counts_try=False, reason=_short(why)
    )


def _later(guard: Guard, seconds: float, why: str) -> Ran:
    return Ran(result=_wait(guard, seconds, why))


def _reason(outcome: Outcome, error: BaseException | None, body: Definition) -> str:
    if outcome is Outcome.TIMED_OUT:
        return f"timed out after {body.settings.timeout_seconds:g} s"
    return f"{type(error).__name__}: {error}" if error is not None else "failed"


def _trace(error: BaseException | None) -> str | None:
    if error is None:
        return None
    text = "".join(traceback.format_exception(error))
    return text.encode(errors="replace")[-JOB_ERROR_BYTES:].decode(errors="ignore")


def _short(text: str) -> str:
    return text if len(text) <= REASON_MAX else text[: REASON_MAX - 1] + "…"


def _datetime(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
