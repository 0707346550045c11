"""Endpoints of the kind `log`: each message is one line of the node that takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.outbox.carriers.answers import Stopwatch
from tenure.outbox.carriers.showing import content_type, logged_body
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.outbox.carriers.model import Carried, Job
    from tenure.telemetry.events import Events
    from tenure.work.kinds import Guard


class LogCarrier:
    """Tells `Event.MESSAGE_LOGGED`; a line that cannot be written fails nothing."""

    __slots__ = ("_clock", "_events")

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events: Final = events
        self._clock: Final = clock

    async def carry(self, job: Job, guard: Guard, number: int) -> Carried:
        """See `Carrier`."""
        watch = Stopwatch(self._clock, "LOG")
        if not guard.may_begin():
            return watch.fenced()
        self._events.tell(
            Event.MESSAGE_LOGGED,
            endpoint=job.target.endpoint,
            message=job.message,
            event_type=job.event_type,
            receipt=None if job.relay is None else job.relay.receipt,
            content_type=content_type(job),
            size=len(job.body),
            body=logged_body(job),
            number=number,
        )
        return watch.done()
