"""Reminders: what is told relative to an instant of the user's own records.

A reminder is a job whose windows look through a source, page by page, and make a run for
each record that an offset matches today. That a record is told once is the key of its
row: (job, offset and matched local day, record). A date that is moved matches another
day, and so is told again; looking twice, or on two nodes at once, changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tenure.errors import ConfigInvalid, ValidationFailed
from tenure.limits import JOB_ARGS_BYTES, REMINDER_PAGE_ROWS
from tenure.schedules.calendar.stepping import zone_of
from tenure.schedules.ledger.reminding import Reminded, remind

if TYPE_CHECKING:
    from tenure.ids import JobId
    from tenure.schedules.model import Definition
    from tenure.store.backend import Backend

__all__ = ["Due", "Match", "Record", "Source", "calling", "scan"]

Record: TypeAlias = "tuple[str, datetime, Mapping[str, Any]]"
"""A record's id, the instant that offsets count from, and what the function is given."""
Source: TypeAlias = (
    "Callable[[str, int], Iterable[Record] | Awaitable[Iterable[Record]]]"
)
"""Called with the id after which to go on ("" first) and how many records to return at
most; returns them in the order of their ids, fewer only at the end."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One reminder: which record, its instant, and the offset that matched.

    `day` is the matched local day. `offset` is None for what is due within a span.
    """

    record: str
    at: datetime
    offset: timedelta | None
    day: date
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which records are told today: by offsets, or within a span from now on."""

    source: Source
    offsets_us: tuple[int, ...]
    within_us: int | None
    zone: str
    where: Callable[[Mapping[str, Any]], bool] | None = None

    def scopes(
        self, at: datetime, now: datetime, since: date
    ) -> list[tuple[str, int | None, date]]:
        """Return (scope, offset, local day) of each reminder that a record is due for.

        A day that nobody looked on is made up for on the next one, but never one before
        the reminder existed (`since`).
        """
        zone = zone_of(self.zone)
        today = now.astimezone(zone).date()
        if self.within_us is not None:
            day = at.astimezone(zone).date()
            soon = now <= at <= now + timedelta(microseconds=self.within_us)
            return [(f"within:{day}", None, day)] if soon else []
        found: list[tuple[str, int | None, date]] = []
        for offset in self.offsets_us:
            day = (at.astimezone(zone) + timedelta(microseconds=offset)).date()
            if day >= since and today - day in _LOOKED:
                found.append((f"{offset}:{day}", offset, day))
        return found


_LOOKED: Final = (timedelta(0), timedelta(days=1))
"""How old a matched day may be: today's, and yesterday's that was missed."""


def calling(call: Callable[[Due], Any]) -> Callable[..., Any]:
    """Return the function that a reminder's run calls, with what it is stored with."""

    def due(
        record: str, instant: datetime, offset_us: int | None, day: date, data: Any
    ) -> Due:
        offset = None if offset_us is None else timedelta(microseconds=offset_us)
        return Due(record=record, at=instant, offset=offset, day=day, data=data)

    if inspect.iscoroutinefunction(call):

        async def later(
            record: str, instant: datetime, offset_us: int | None, day: date, data: Any
        ) -> Any:
            return await call(due(record, instant, offset_us, day, data))

        return later

    def now(
        record: str, instant: datetime, offset_us: int | None, day: date, data: Any
    ) -> Any:
        return call(due(record, instant, offset_us, day, data))

    return now


async def scan(
    match: Match, backend: Backend, job: JobId, body: Definition, created_at: int
) -> int:
    """Look through the whole source once; return how many reminders are new.

    Each page is one transaction. Raises ConfigInvalid for a source whose ids do not
    rise, for else later records could starve.
    """
    after, made = "", 0
    since = _moment(created_at).astimezone(zone_of(match.zone)).date()
    while True:
        page = await _page(match.source, after)
        now = await backend.read(lambda tx: tx.now)
        matched = [
            reminded
            for record in page
            for reminded in _matched(match, record, _moment(now), since)
        ]
        if matched:
            made += await backend.write(
                partial(remind, job=job, body=body, matched=matched)
            )
        if len(page) < REMINDER_PAGE_ROWS:
            return made
        last = page[-1][0]
        if last <= after:
            raise ConfigInvalid(
                f"the source of reminder {body.coordinate} returned {last!r} after"
                f" {after!r}: return records by their ids, those above the first"
                " argument only"
            )
        after = last


async def _page(source: Source, after: str) -> Sequence[Record]:
    found = source(after, REMINDER_PAGE_ROWS)
    return list(await found if isinstance(found, Awaitable) else found)


def _matched(
    match: Match, record: Record, now: datetime, since: date
) -> Iterable[Reminded]:
    id_, at, data = record
    if at.utcoffset() is None:
        raise ValidationFailed.at(
            "source", id_, msg="its instant has no zone: give an aware datetime"
        )
    scopes = match.scopes(at, now, since)
    if not scopes or (match.where is not None and not match.where(data)):
        return
    for scope, offset, day in scopes:
        args = msgspec.json.encode(
            {
                "record": id_,
                "instant": at,
                "offset_us": offset,
                "day": day,
                "data": data,
            }
        )
        if len(args) > JOB_ARGS_BYTES:
            raise ValidationFailed.at(
                "source", id_, msg=f"its data has more than {JOB_ARGS_BYTES} bytes"
            )
        yield Reminded(record=id_, scope=scope, args=args)


def _moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)
