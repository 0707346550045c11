"""Endpoints of the kinds `http` and `slack`: what is asked of the HTTP client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tenure.errors import InvariantViolated
from tenure.outbox.carriers.naming import SLACK
from tenure.outbox.carriers.relaying import relay_headers, relay_method, relay_url
from tenure.outbox.carriers.showing import JSON, chat_text
from tenure.outbox.headers import build_headers, merge_headers
from tenure.outbox.http.model import Request
from tenure.outbox.signing import signature_header

if TYPE_CHECKING:
    from tenure.outbox.carriers.model import Job
    from tenure.outbox.headers import WirePairs
    from tenure.outbox.http.url import Url

__all__ = ["request_of"]

_SLACK_TYPE: Final = (b"content-type", b"application/json; charset=utf-8")


def request_of(
    job: Job,
    *,
    number: int,
    now: int,
    timestamp: int,
    user_agent: str,
    svix_headers: bool,
) -> Request:
    """Return the request of one attempt.

    `now` (µs, the database's clock) says which secrets are live, `timestamp` (s, this
    node's) is what is signed. Raises ValueError for what cannot be sent.
    """
    target = job.target
    if target.url is None:
        raise InvariantViolated(f"an endpoint of kind {target.kind} has no URL to dial")
    if target.kind == SLACK:
        return _slack(job, target.url, user_agent)
    signatures = signature_header(
        target.secrets.live(now), job.message, timestamp, job.body
    )
    svix = target.settings.svix_headers or svix_headers
    custom = merge_headers(target.headers, job.headers)
    if job.relay is None:
        url = target.url
        headers: WirePairs = build_headers(
            message_id=job.message,
            timestamp=timestamp,
            signatures=signatures,
            attempt_number=number,
            content_type=job.content_type or JSON,
            custom=custom,
            user_agent=user_agent,
            svix_headers=svix,
            userinfo=target.userinfo,
        )
    else:
        wants_query = target.settings.relay_query
        url = relay_url(target.url, job.relay) if wants_query else target.url
        headers = relay_headers(
            job.relay,
            message_id=job.message,
            timestamp=timestamp,
            signatures=signatures,
            attempt_number=number,
            content_type=job.content_type,
            custom=custom,
            drop=target.settings.drop_headers,
            user_agent=user_agent,
            svix_headers=svix,
            userinfo=target.userinfo,
        )
    return Request(
        method=relay_method(target.settings.method, job.relay),
        url=url,
        headers=headers,
        body=job.body,
    )


def _slack(job: Job, url: Url, user_agent: str) -> Request:
    agent = (b"user-agent", user_agent.encode("latin-1"))
    return Request(
        method="POST",
        url=url,
        headers=(_SLACK_TYPE, agent),
        body=msgspec.json.encode({"text": chat_text(job)}),
    )
