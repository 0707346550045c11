"""What an attempt leaves behind: its exchange, and what else its answer changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.kernel.states import State
from tenure.outbox import tables
from tenure.outbox.carriers.archive import keep
from tenure.outbox.carriers.model import Archived, Carried, Job
from tenure.outbox.headers import mask_headers
from tenure.outbox.http.model import Failure, Request, Response, Timings
from tenure.outbox.ledger import rows
from tenure.store.claims import Effect, Insert, Settled, Write

if TYPE_CHECKING:
    from tenure.store.claims import Claimed

__all__ = ["Blocked", "Exchange", "effects", "evidence", "exchange_of", "unsent"]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What went over the wire, as it is stored, and whether the endpoint is gone.

    An attempt that was no request has no address, no status and no headers.
    """

    url: str
    method: str
    address: str | None
    tls_version: str | None
    status_code: int | None
    cause: str | None
    phase: str | None
    detail: str | None
    request_headers: bytes
    response_headers: bytes | None
    response_body: bytes | None
    truncated: bool
    duration_us: int
    timings: str
    lane_version: int
    gone: bool = False
    archived: Archived | None = None


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's own setting is at fault: its lane stops until that is saved."""

    lane_version: int
    reason: str

    @property
    def params(self) -> dict[str, object]:
        """What `_BLOCKED` asks for beside the lane."""
        return {"version": self.lane_version, "reason": self.reason}


_BLOCKED: Final = (
    "UPDATE lane SET state = 'blocked', reason = :reason, version = version + 1"
    " WHERE id = :lane AND version = :version AND state = 'open'"
)


def evidence(items: Sequence[Settled]) -> Sequence[Effect]:
    """Keep each exchange beside its attempt."""
    kept = [
        (item, said)
        for item in items
        if item.attempt and isinstance(said := item.settlement.evidence, Exchange)
    ]
    if not kept:
        return ()
    rows = [
        (item.settlement.work, item.settlement.claim, *_stored(said))
        for item, said in kept
    ]
    return (Insert(table=tables.exchange, names=_EXCHANGE, rows=rows, ignore=True),)


def effects(items: Sequence[Settled]) -> Sequence[Effect]:
    """Disable endpoints that answered 410, unless they were changed meanwhile.

    What an archive took is inserted with its success.
    """
    archived = [
        (item.settlement.work, said.archived)
        for item in items
        if isinstance(said := item.settlement.evidence, Exchange)
        and said.archived is not None
        and item.after is not None
        and item.after.state is State.SUCCEEDED
    ]
    gone = {
        item.settlement.lane: said.lane_version
        for item in items
        if isinstance(said := item.settlement.evidence, Exchange) and said.gone
    }
    writes = tuple(
        write
        for lane, version in sorted(gone.items())
        for write in _disable_gone(lane, version)
    )
    blocked = {
        item.settlement.lane: said
        for item in items
        if isinstance(said := item.settlement.evidence, Blocked)
    }
    writes += tuple(
        Write(stmt=_BLOCKED, params={"lane": lane, **said.params})
        for lane, said in sorted(blocked.items())
    )
    return (*writes, keep(archived)) if archived else writes


def exchange_of(
    claimed: Claimed,
    job: Job,
    request: Request,
    answer: Response | Failure,
    *,
    gone: bool,
) -> Exchange:
    """Return what is kept of a request and its answer."""
    response = answer if isinstance(answer, Response) else None
    failure = answer if isinstance(answer, Failure) else None
    timings = answer.timings
    return Exchange(
        url=job.target.shown_url,
        method=request.method,
        address=answer.address,
        tls_version=response.tls_version if response else None,
        status_code=response.status if response else None,
        cause=str(failure.cause) if failure else None,
        phase=str(failure.phase) if failure else None,
        detail=failure.detail if failure else None,
        request_headers=rows.dump_pairs(mask_headers(request.headers)),
        response_headers=rows.dump_pairs(response.headers) if response else None,
        response_body=response.body if response else None,
        truncated=response.truncated if response else False,
        duration_us=timings.total,
        timings=rows.dump(timings),
        lane_version=claimed.lane_version,
        gone=gone,
    )


def unsent(claimed: Claimed, job: Job, carried: Carried) -> Exchange:
    """Return the exchange of an attempt that was no request."""
    answer = carried.answer
    total = carried.duration_us
    timings = Timings(dns=None, connect=None, tls=None, first_byte=None, total=total)
    return Exchange(
        url=job.target.shown_url,
        method=carried.method,
        address=None,
        tls_version=None,
        status_code=None,
        cause=answer.cause or ("later" if answer.retry_after is not None else None),
        phase=answer.phase,
        detail=carried.reason,
        request_headers=rows.dump_pairs(()),
        response_headers=None,
        response_body=None,
        truncated=False,
        duration_us=total,
        timings=rows.dump(timings),
        lane_version=claimed.lane_version,
        archived=carried.archived,
    )


_STORED: Final = tuple(
    column.name
    for column in tables.exchange.c
    if column.name not in {"work", "claim", "expunged_at"}
)


_EXCHANGE: Final = ("work", "claim", *_STORED)
_stored: Final[Callable[[Exchange], tuple[Any, ...]]] = attrgetter(*_STORED)


def _disable_gone(lane: int, version: int) -> tuple[Write, ...]:
    """Pause the lane that was claimed at this version, then mark what belongs to it.

    A lane whose version rose was changed since the request went out: the 410 spoke of a
    configuration that is no more.
    """
    params = {"lane": lane, "version": version}
    return tuple(Write(stmt=stmt, params=params) for stmt in _GONE)


_GONE: Final = (
    (
        "UPDATE lane SET state = 'paused', reason = 'disabled: gone',"
        " version = version + 1"
        " WHERE id = :lane AND version = :version AND state = 'open'"
    ),
    (
        "UPDATE endpoint SET disabled = true, disabled_why = 'gone'"
        " WHERE lane = :lane AND NOT disabled AND EXISTS"
        " (SELECT 1 FROM lane l WHERE l.id = :lane AND l.version = :version + 1"
        "  AND l.state = 'paused')"
    ),
    (
        "UPDATE application SET config_version = config_version + 1"
        " WHERE id = (SELECT app FROM endpoint WHERE lane = :lane) AND EXISTS"
        " (SELECT 1 FROM lane l WHERE l.id = :lane AND l.version = :version + 1"
        "  AND l.state = 'paused')"
    ),
)
"""Pause the lane, mark the endpoint, let route tables be read again."""
