"""The HTTP/1.1 client that sends: one request, once, under one deadline.

`HttpTransport` is the transport; requests, policies and outcomes are plain values; the
address rule and the URL reader are used at save as well as at dial.
"""

from tenure.outbox.http.addresses import check_address
from tenure.outbox.http.client import HttpTransport
from tenure.outbox.http.model import (
    Cause,
    Failure,
    Phase,
    Policy,
    Request,
    Response,
    Timings,
    Transport,
)
from tenure.outbox.http.resolver import Answer, CachingResolver, DnsResolver, Resolver
from tenure.outbox.http.url import Url, parse_url

__all__ = [
    "Answer",
    "CachingResolver",
    "Cause",
    "DnsResolver",
    "Failure",
    "HttpTransport",
    "Phase",
    "Policy",
    "Request",
    "Resolver",
    "Response",
    "Timings",
    "Transport",
    "Url",
    "check_address",
    "parse_url",
]
