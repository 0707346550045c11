"""What Tenure offers for an endpoint beyond the Svix API: a frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """What Tenure offers for an endpoint beyond the Svix API (`tenure` in bodies).

    `timeout_seconds` is the total deadline of one attempt (1-60, None = the
    deployment's). `retry_seconds` are the delays before each attempt, the first one
    included (None = the default schedule). `retry_statuses` are 3xx and 4xx statuses
    that are retried although they are final by default. `allow_networks` are CIDR
    blocks reachable although they are not public; admin keys only. `at_most_once`
    settles a lost attempt dead instead of sending again. `svix_headers` sends `svix-*`
    beside `webhook-*`.

    `kind` says what an attempt does: `http`, or one of the kinds of
    `tenure.outbox.carriers`. `filter` and `transform` are CEL expressions over a
    message (`tenure.outbox.cel`). Of a relayed receipt, `drop_headers` are the
    names that are not passed on (None = the default list), `relay_query` appends its
    query, and the method `same` repeats its method. `archive_days` is how long an
    archive keeps (None = for ever).
    """

    timeout_seconds: float | None = None
    method: str = "POST"
    retry_seconds: tuple[float, ...] | None = None
    retry_statuses: tuple[int, ...] = ()
    insecure: bool = False
    allow_networks: tuple[str, ...] = ()
    at_most_once: bool = False
    svix_headers: bool = False
    kind: str = "http"
    filter: str | None = None
    transform: str | None = None
    drop_headers: tuple[str, ...] | None = None
    relay_query: bool = False
    archive_days: int | None = None
