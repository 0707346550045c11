"""The words of schedules as types: what a job is told to be, and what a run is.

What is stored as JSON (`Definition`) is a frozen `msgspec.Struct` with one canonical
encoding, because its hash decides whether two releases say the same.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.ids import JobId, LaneId, RunId, TenantId, WorkId
from tenure.limits import JOB_TIMEOUT_SECONDS, QUEUE_RUNS_MAX
from tenure.naming.coordinates import Coordinate

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = [
    "DEFINITION_FORMAT",
    "OPEN",
    "Definition",
    "Degraded",
    "Job",
    "JobSettings",
    "NewRun",
    "Origin",
    "Outcome",
    "Overlap",
    "Run",
    "Skipped",
    "Snooze",
    "Window",
]

DEFINITION_FORMAT: Final = 1
"""How `Definition` is written; a node leaves jobs of a newer format to newer nodes."""
OPEN: Final = "open"
"""The state of a run or window whose work is not over."""


class Overlap(StrEnum):
    """What a window does that comes while a run of its job is open, on any node."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OTHER = "cancel-other"
    ALLOW = "allow"


class Outcome(StrEnum):
    """How a run, and its window, can end."""

    SUCCEEDED = "succeeded"
    DEGRADED = "degraded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    PARKED = "parked"
    SKIPPED = "skipped"


class Origin(StrEnum):
    """Why a run exists."""

    SCHEDULE = "schedule"
    SUBMIT = "submit"
    MANUAL = "manual"
    BACKFILL = "backfill"
    REPLAY = "replay"
    REMINDER = "reminder"


class Degraded(msgspec.Struct, frozen=True):
    """A job's answer: it did what it could. Never tried again, never a failure."""

    reason: str


class Skipped(msgspec.Struct, frozen=True):
    """A job's answer: there was nothing to do."""

    reason: str


class Snooze:
    """A job's answer: call it again later. Charges nothing.

    `until` is an aware datetime, or how long from now (timedelta or seconds).
    """

    __slots__ = ("reason", "until")

    def __init__(
        self, until: datetime | timedelta | float, reason: str = "snoozed"
    ) -> None:
        self.until: Final = until
        self.reason: Final = reason


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How runs of a job are made. Seconds are floats; None leaves the default."""

    overlap: Overlap = Overlap.SKIP
    queue_max: int = QUEUE_RUNS_MAX
    timeout_seconds: float = JOB_TIMEOUT_SECONDS
    attempts: int | None = None
    """Attempts of one run; unless given 1 for a window and 10 for what was submitted."""
    backoff_seconds: float = 5.0
    """Mean pause before the second attempt; it doubles, with full jitter."""
    backoff_max_seconds: float = 3600.0
    group: str | None = None
    """Shares a lane, and the limits below, with the jobs that name the same group."""
    concurrency: int | None = None
    rate_per_second: int | None = None
    priority: int = 2
    pause_on_failure: int | None = None
    """The job pauses itself after so many failed runs in a row."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a release says of a job, or an operator of one made at run time."""

    package: str
    name: str
    format: int = DEFINITION_FORMAT
    formerly: tuple[str, ...] = ()
    schedule: str | None = None
    """As `calendar.model.encode` writes it; None for a job that is submitted only."""
    settings: JobSettings = JobSettings()
    args: str = "{}"
    """JSON object: what a window's run is called with."""
    doc: str = ""
    reminder: str | None = None
    """What a reminder matches, as `reminders.matching` writes it."""

    @property
    def coordinate(self) -> Coordinate:
        """Who the job belongs to and how it is called there."""
        return Coordinate(package=self.package, name=self.name)

    def encode(self) -> str:
        """Return it as JSON, the same text for the same definition."""
        return msgspec.json.encode(self, order="deterministic").decode()

    def hash(self) -> str:
        """Return what tells two definitions apart: 64 hexadecimal digits."""
        return sha256(self.encode().encode()).hexdigest()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as stored, and as people see it. Instants are µs since the epoch."""

    id: JobId
    tenant: TenantId
    package: str | None
    name: str
    key: str | None
    code: JobId
    lane: LaneId
    definition: Definition
    state: str
    """active, paused, never (no instant will come), on demand (no schedule), orphaned
    (no open node has its code), uninstalled or deleted."""
    nominal_at: int | None
    due_at: int | None
    fired_to: int | None
    edited_at: int
    paused_at: int | None
    paused_by: str | None
    paused_note: str | None
    created_at: int
    version: int
    overridden: bool
    counts: dict[str, int]
    last_outcome: str | None
    last_ended_at: int | None

    @property
    def coordinate(self) -> str:
        """`package:name`; the package of an imported row is unknown and shown as ?."""
        return f"{self.package or '?'}:{self.name}"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One planned firing, or a range of skipped ones (`until_at`, `windows` of them)."""

    job: JobId
    at: int
    mark: str
    state: str
    run: RunId | None
    reason: str | None
    until_at: int | None
    windows: int
    created_at: int
    settled_at: int | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job with what its work says now."""

    id: RunId
    job: JobId
    tenant: TenantId
    work: WorkId
    state: str
    reason: str | None
    origin: str
    window_at: int | None
    mark: str
    scope: str | None
    record: str | None
    actor: str | None
    note: str | None
    args: bytes
    key: str | None
    created_at: int
    ended_at: int | None
    work_state: str | None = None
    due_at: int | None = None
    attempts: int = 0
    coordinate: str = ""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be submitted; `due_at` None is now. Ids are the caller's."""

    id: RunId
    work: WorkId
    job: JobId
    tenant: TenantId
    lane: LaneId
    origin: Origin
    args: bytes
    priority: int = 2
    due_at: int | None = None
    window_at: int | None = None
    mark: str = ""
    scope: str | None = None
    record: str | None = None
    actor: str | None = None
    note: str | None = None
    key: str | None = None
