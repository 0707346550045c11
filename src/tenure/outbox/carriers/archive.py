"""Endpoints of the kind `archive`: the settling transaction itself keeps the message.

Nothing is written while the attempt runs. The row is an effect of its settlement, so it
exists exactly when the delivery succeeded, once for each endpoint and message.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.clock import US
from tenure.limits import DAY_SECONDS
from tenure.outbox import tables
from tenure.outbox.carriers.answers import Stopwatch
from tenure.outbox.carriers.model import Archived
from tenure.outbox.ledger import rows
from tenure.outbox.relayed import shown
from tenure.store.claims import Insert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.ids import WorkId
    from tenure.outbox.carriers.model import Carried, Job
    from tenure.work.kinds import Guard

_FIELDS: Final = Archived.__struct_fields__
_VALUES: Final[Callable[[Archived], tuple[Any, ...]]] = attrgetter(*_FIELDS)
_DAY_US: Final = round(DAY_SECONDS * US)


class ArchiveCarrier:
    """Answers with the row that the settlement is to insert."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock

    async def carry(self, job: Job, guard: Guard, number: int) -> Carried:
        """See `Carrier`."""
        del number
        watch = Stopwatch(self._clock, "ARCHIVE")
        if not guard.may_begin():
            return watch.fenced()
        now, days = guard.instant(), job.target.settings.archive_days
        kept = Archived(
            endpoint=job.target.endpoint,
            message=job.message,
            app=job.app,
            tenant=job.tenant,
            event_type=job.event_type,
            content_type=job.content_type,
            headers=_headers(job),
            body=job.body,
            archived_at=now,
            expires_at=None if days is None else now + days * _DAY_US,
        )
        return msgspec.structs.replace(watch.done(), archived=kept)


def keep(found: Sequence[tuple[WorkId, Archived]]) -> Insert:
    """Return the insert of what was archived; what is there already stays."""
    return Insert(
        table=tables.archived,
        names=("work", *_FIELDS),
        rows=[(work, *_VALUES(each)) for work, each in found],
        ignore=True,
    )


def _headers(job: Job) -> bytes:
    """Return the message's headers, or the receipt's; what is sealed there is masked.

    Which header is a credential is the source's to say, so its stored text is read.
    """
    pairs = job.headers if job.relay is None else shown(job.relay.stored).headers
    return rows.dump_pairs(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs
    )
