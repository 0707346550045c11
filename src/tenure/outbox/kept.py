"""For how long an application keeps what is over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Days an application keeps what is over; None = the deployment's.

    `history_days` and `response_days` run from the end of the delivery, `payload_days`
    from the message's first due time.
    """

    history_days: int | None = None
    payload_days: int | None = None
    response_days: int | None = None
