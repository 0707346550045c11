"""The only door to ids and to randomness.

An id is a TypeID: a prefix that says what it names, ``_``, and 26 characters of
Crockford base32 that hold a UUIDv7. Ids of one process rise in the order in which they
were made, so they sort by time as text (byte order) in every database. Nothing else in
Tenure calls `random`, `secrets` or `uuid`; a lint rule keeps that.
"""

import os
import re
import secrets
from enum import StrEnum
from random import Random
from typing import Final, NewType

from uuid_utils import uuid7

__all__ = [
    "AppId",
    "AttemptId",
    "EndpointId",
    "EventTypeName",
    "JobId",
    "KeyId",
    "LaneId",
    "MessageId",
    "NodeId",
    "Prefix",
    "Random",
    "ReceiptId",
    "RunId",
    "SourceId",
    "TaskId",
    "TenantId",
    "WorkId",
    "id_floor",
    "id_instant",
    "is_id",
    "jitter",
    "new_app_id",
    "new_attempt_id",
    "new_endpoint_id",
    "new_id",
    "new_job_id",
    "new_key_id",
    "new_message_id",
    "new_receipt_id",
    "new_run_id",
    "new_source_id",
    "new_task_id",
    "new_tenant_id",
    "new_work_id",
    "random_bytes",
    "seeded",
    "token",
]

AppId = NewType("AppId", str)
AttemptId = NewType("AttemptId", str)
EndpointId = NewType("EndpointId", str)
EventTypeName = NewType("EventTypeName", str)
JobId = NewType("JobId", str)
KeyId = NewType("KeyId", str)
LaneId = NewType("LaneId", int)
MessageId = NewType("MessageId", str)
NodeId = NewType("NodeId", int)
ReceiptId = NewType("ReceiptId", str)
RunId = NewType("RunId", str)
SourceId = NewType("SourceId", str)
TaskId = NewType("TaskId", str)
TenantId = NewType("TenantId", str)
WorkId = NewType("WorkId", str)


class Prefix(StrEnum):
    """What an id names. The outbound ones are those of the Svix API."""

    APP = "app"
    ATTEMPT = "atmpt"
    ENDPOINT = "ep"
    JOB = "job"
    KEY = "key"
    MESSAGE = "msg"
    RECEIPT = "rcpt"
    REFUSED = "rfsd"
    RUN = "run"
    SOURCE = "src"
    TASK = "qtask"
    TENANT = "org"
    WORK = "wrk"


_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_SUFFIX_LENGTH: Final = 26
# Two characters (10 bits) at a time: 13 look-ups encode the 130 bits of a suffix.
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
# int(text, 32) reads 0-9a-v; this maps Crockford's alphabet onto it.
_TO_INT32: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_LETTERS: Final = frozenset(_ALPHABET)
_ID: Final = re.compile(f".+_[0-7][{_ALPHABET}]{{25}}", re.DOTALL)
_LOW_80: Final = (1 << 80) - 1
_MS_MAX: Final = (1 << 48) - 1
# Version 7 and the RFC variant with every random bit zero.
_FLOOR_BITS: Final = (0x7 << 76) | (0b10 << 62)
# Spreads load and hides nothing: a call of the system for every delivery would only cost.
_SPREAD: Final = Random()
os.register_at_fork(after_in_child=_SPREAD.seed)


def _encode(n: int) -> str:
    pairs = _PAIRS
    return (
        pairs[n >> 120]
        + pairs[n >> 110 & 1023]
        + pairs[n >> 100 & 1023]
        + pairs[n >> 90 & 1023]
        + pairs[n >> 80 & 1023]
        + pairs[n >> 70 & 1023]
        + pairs[n >> 60 & 1023]
        + pairs[n >> 50 & 1023]
        + pairs[n >> 40 & 1023]
        + pairs[n >> 30 & 1023]
        + pairs[n >> 20 & 1023]
        + pairs[n >> 10 & 1023]
        + pairs[n & 1023]
    )


def new_id(prefix: str, *, at_us: int | None = None) -> str:
    """Return a fresh id, higher than every id that this process made before.

    With ``at_us`` (microseconds since the epoch) the id carries that instant instead of
    the system's, and ids of one millisecond have no order among themselves.
    """
    n = uuid7().int
    if at_us is not None:
        n = _milliseconds(at_us) << 80 | n & _LOW_80
    return f"{prefix}_{_encode(n)}"


def is_id(text: str, prefix: str) -> bool:
    """Tell whether ``text`` is an id with this prefix, in its one canonical form."""
    head, suffix = text[: len(prefix)], text[len(prefix) + 1 :]
    return (
        head == prefix
        and text[len(prefix) : len(prefix) + 1] == "_"
        and len(suffix) == _SUFFIX_LENGTH
        and suffix[0] <= "7"
        and _LETTERS.issuperset(suffix)
    )


def id_instant(text: str) -> int:
    """Return when an id was made: microseconds since the epoch, to the millisecond.

    Raises ValueError when ``text`` is not an id.
    """
    if _ID.fullmatch(text) is None:
        msg = f"{text!r} is not an id"
        raise ValueError(msg)
    # Ten characters hold the two spare bits and the 48 of the time.
    time = text[-_SUFFIX_LENGTH : 10 - _SUFFIX_LENGTH]
    return int(time.translate(_TO_INT32), 32) * 1000


def id_floor(prefix: str, instant_us: int) -> str:
    """Return the lowest id of the millisecond that holds ``instant_us``.

    Every id made at that millisecond or later is at or above it; every earlier one is
    below. Instants before 1970 or after 10889 are moved to the nearest that an id can
    carry.
    """
    return f"{prefix}_{_encode(_milliseconds(instant_us) << 80 | _FLOOR_BITS)}"


def _milliseconds(instant_us: int) -> int:
    return min(max(instant_us // 1000, 0), _MS_MAX)


def new_app_id() -> AppId:
    """Return a fresh id for an application."""
    return AppId(new_id(Prefix.APP))


def new_attempt_id() -> AttemptId:
    """Return a fresh id for an attempt."""
    return AttemptId(new_id(Prefix.ATTEMPT))


def new_endpoint_id() -> EndpointId:
    """Return a fresh id for an endpoint."""
    return EndpointId(new_id(Prefix.ENDPOINT))


def new_job_id() -> JobId:
    """Return a fresh id for a job."""
    return JobId(new_id(Prefix.JOB))


def new_key_id() -> KeyId:
    """Return a fresh id for an API key."""
    return KeyId(new_id(Prefix.KEY))


def new_message_id(*, at_us: int | None = None) -> MessageId:
    """Return a fresh id for a message; `at_us` as in `new_id`."""
    return MessageId(new_id(Prefix.MESSAGE, at_us=at_us))


def new_receipt_id(*, at_us: int | None = None) -> ReceiptId:
    """Return a fresh id for a receipt; `at_us` as in `new_id`."""
    return ReceiptId(new_id(Prefix.RECEIPT, at_us=at_us))


def new_run_id() -> RunId:
    """Return a fresh id for a run of a job."""
    return RunId(new_id(Prefix.RUN))


def new_source_id() -> SourceId:
    """Return a fresh id for a source."""
    return SourceId(new_id(Prefix.SOURCE))


def new_task_id() -> TaskId:
    """Return a fresh id for a background task."""
    return TaskId(new_id(Prefix.TASK))


def new_tenant_id() -> TenantId:
    """Return a fresh id for a tenant."""
    return TenantId(new_id(Prefix.TENANT))


def new_work_id() -> WorkId:
    """Return a fresh id for a unit of work."""
    return WorkId(new_id(Prefix.WORK))


def token(nbytes: int = 32) -> str:
    """Return an unguessable URL-safe text made from ``nbytes`` random bytes."""
    return secrets.token_urlsafe(nbytes)


def random_bytes(nbytes: int) -> bytes:
    """Return ``nbytes`` unguessable bytes."""
    return os.urandom(nbytes)


def seeded(seed: int | str) -> Random:
    """Return a source of randomness that repeats itself: for tests and simulations."""
    return Random(seed)


def jitter(low: float, high: float, rng: Random | None = None) -> float:
    """Return a number evenly spread over ``low`` to ``high``.

    ``rng`` makes it repeatable; without one each process draws from its own numbers.
    """
    return (_SPREAD if rng is None else rng).uniform(low, high)
