"""The jobs that come with Tenure: what a schedule can do without anybody's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.errors import InvariantViolated, Refused
from tenure.ids import TenantId
from tenure.naming.coordinates import BUILTIN, Coordinate
from tenure.outbox.carriers.functions import Stop
from tenure.outbox.model import Idempotency, NewMessage
from tenure.schedules.declaring import Declared
from tenure.schedules.model import Definition, JobSettings, Overlap
from tenure.schedules.parameters import Parameters
from tenure.schedules.running import current_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.outbox.outbox import Outbox

__all__ = ["SEND", "builtin"]

SEND: Final = Coordinate(package=BUILTIN, name="send")
"""Sends a message to an application: what a job made at run time mostly calls."""


def builtin(outbox: Outbox) -> Mapping[Coordinate, Declared]:
    """Return the built-in jobs over an outbox."""

    async def send(application: str, event_type: str, payload: dict[str, Any]) -> None:
        """Send a message to an application, once for each run."""
        run = current_run()
        if run is None:
            raise InvariantViolated("builtin:send is called by its runs only")
        message = NewMessage(event_type=event_type, body=msgspec.json.encode(payload))
        # A second attempt of the run finds the first one's message.
        once = Idempotency(key=f"job-run:{run.run}", body_hash=run.run)
        try:
            await outbox.accept(
                TenantId(run.tenant), application, message, idempotency=once
            )
        except Refused as error:  # it would be refused again
            raise Stop(str(error)) from None

    definition = Definition(
        package=SEND.package,
        name=SEND.name,
        settings=JobSettings(overlap=Overlap.ALLOW),
        doc="Send a message to an application, once for each run.",
    )
    parameters = Parameters(send, str(SEND))
    return {
        SEND: Declared(definition=definition, call=send, parameters=parameters),
    }
