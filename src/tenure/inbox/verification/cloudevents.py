"""CloudEvents over HTTP: binary, structured and batch modes, and who may send.

A batch is cut into its events as the bytes that were sent: nothing is written anew.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from tenure.inbox.arrivals import Arrival
from tenure.inbox.verification.model import (
    Event,
    Handshake,
    Refusal,
    RefusalReason,
    Verified,
)
from tenure.inbox.verification.naming import DEFAULT_TYPE, event_type_of
from tenure.limits import RECEIPT_EVENTS_MAX

__all__ = ["BATCH", "STRUCTURED", "permitted", "read"]

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
_VERSIONS: Final = frozenset({"1.0", "0.3"})


class _Attributes(msgspec.Struct, frozen=True):
    specversion: str
    type: str
    source: str
    id: str


_ONE: Final = msgspec.json.Decoder(_Attributes)
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def permitted(arrival: Arrival) -> Handshake | Refusal:
    """Answer the abuse protection's question whether somebody may send here."""
    origin = arrival.first("webhook-request-origin")
    if origin is None:
        return Refusal(
            reason=RefusalReason.MISSING_HEADER,
            detail="webhook-request-origin is missing",
            status=400,
        )
    headers = {"webhook-allowed-origin": origin, "allow": "POST"}
    asked = arrival.first("webhook-request-rate")
    if asked is not None:
        headers["webhook-allowed-rate"] = (
            asked if asked.isascii() and asked.isdigit() else "*"
        )
    return Handshake(status=200, headers=headers)


def read(arrival: Arrival, nonce: bytes | None) -> Verified | Refusal:
    """Return the event or the events of a request, by the mode of its content type."""
    kind = (arrival.first("content-type") or "").partition(";")[0].strip().lower()
    try:
        if kind == BATCH:
            return _batch(arrival, nonce)
        if kind == STRUCTURED:
            return _single(_ONE.decode(arrival.body), nonce)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return _unreadable(f"not a CloudEvent: {error}")
    found: list[str | None] = []
    for name in ("specversion", "type", "source", "id"):
        values = arrival.all(f"ce-{name}")
        if len(values) > 1:
            return _unreadable(f"ce-{name} is there {len(values)} times")
        # A header holds what does not fit it percent-encoded, as UTF-8.
        found.append(unquote(values[0].strip('"')) if values else None)
    if not all(found):
        return Refusal(
            reason=RefusalReason.MISSING_HEADER,
            detail="ce-specversion, ce-type, ce-source or ce-id is missing, and the"
            " content type names no other mode",
            status=400,
        )
    return _single(_Attributes(*(each or "" for each in found)), nonce)


def _single(event: _Attributes, nonce: bytes | None) -> Verified | Refusal:
    fault = _fault(event)
    if fault is not None:
        return _unreadable(fault)
    return Verified(event_type=event_type_of(event.type), key=_key(event), nonce=nonce)


def _batch(arrival: Arrival, nonce: bytes | None) -> Verified | Refusal:
    raws = _MANY.decode(arrival.body)
    if len(raws) > RECEIPT_EVENTS_MAX:
        return _unreadable(f"more than {RECEIPT_EVENTS_MAX} events in one batch")
    events: list[Event] = []
    for at, raw in enumerate(raws):
        event = _ONE.decode(raw)
        fault = _fault(event)
        if fault is not None:
            return _unreadable(f"event {at}: {fault}")
        events.append(
            Event(
                body=bytes(raw).strip(),
                content_type=STRUCTURED,
                event_type=event_type_of(event.type),
                key=_key(event),
            )
        )
    types = {event.event_type for event in events}
    return Verified(
        event_type=types.pop() if len(types) == 1 else DEFAULT_TYPE,
        nonce=nonce,
        events=tuple(events),
    )


def _fault(event: _Attributes) -> str | None:
    if event.specversion not in _VERSIONS:
        return f"specversion {event.specversion[:20]!r} is not known here"
    if not (event.type and event.source and event.id):
        return "type, source and id must not be empty"
    return None


def _key(event: _Attributes) -> str:
    # Source and id together name an event; no other pair gives this text.
    return f"{len(event.source)}:{event.source}{event.id}"


def _unreadable(detail: str) -> Refusal:
    return Refusal(reason=RefusalReason.MALFORMED, detail=detail[:300], status=400)
