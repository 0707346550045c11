"""Bodies of the routes of jobs and runs: what may be said of one, and what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from pydantic import Field, JsonValue

from tenure import limits
from tenure.clock import to_rfc3339
from tenure.naming.coordinates import ENV, check_name
from tenure.schedules.calendar.model import decode, encode
from tenure.schedules.model import Definition
from tenure.schedules.options import check_settings, schedule_of
from tenure.server.schemas import Out
from tenure.server.wire import In

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.schedules.calendar.stepping import Upcoming
    from tenure.schedules.ledger.reading import PackageView, Planned, RunAttempt
    from tenure.schedules.model import Job, Run, Window
    from tenure.server.shapes import Json

Duration = Annotated[str, Field(max_length=40)]
Instant = Annotated[str, Field(max_length=60)]
Note = Annotated[str, Field(max_length=2000)]
Args = dict[str, JsonValue]


class ScheduleIn(In):
    """When a job fires: one of `cron`, `every`, `at` and `instants`."""

    cron: Annotated[str, Field(max_length=200)] | None = None
    every: Duration | None = None
    at: Instant | None = None
    instants: Annotated[list[Instant], Field(max_length=1000)] | None = None
    anchor: Instant | None = None
    zone: Annotated[str, Field(max_length=100)] | None = None
    gap: Literal["shift", "skip", "run-at-resume"] | None = None
    overlap_hour: Literal["first", "second", "both"] | None = None
    jitter: Duration | None = None
    catch_up: Literal["none", "latest", "all"] | None = None
    catch_up_max_age: Duration | None = None

    def encoded(self, now_at: int) -> str:
        """Return it as a definition holds it. Raises ValueError."""
        given = self.model_dump(exclude_none=True, by_alias=False)
        schedule, rest = schedule_of(given, {}, now_at=now_at)  # pyright: ignore[reportArgumentType]
        assert not rest, "every member is about the schedule"
        if schedule is None:
            raise ValueError("give cron, every, at or instants")
        return encode(schedule)


class JobSettingsIn(In):
    """How runs of a job are made; what is left out keeps its default."""

    overlap: Literal["skip", "queue", "cancel-other", "allow"] | None = None
    queue_max: int | None = None
    timeout: Duration | None = None
    attempts: int | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    group: Annotated[str, Field(max_length=100)] | None = None
    concurrency: int | None = None
    rate_per_second: int | None = None
    priority: int | None = None
    pause_on_failure: int | None = None

    def given(self) -> dict[str, Any]:
        """Return the members that were given."""
        return self.model_dump(exclude_none=True, by_alias=False)


class JobIn(In):
    """A job made at run time: a schedule that calls the function of another job."""

    name: Annotated[str, Field(max_length=100)]
    calls: Annotated[str, Field(max_length=210)]
    schedule: ScheduleIn | None = None
    settings: JobSettingsIn = Field(default_factory=JobSettingsIn)
    args: Args = Field(default_factory=dict)
    doc: Annotated[str, Field(max_length=500)] = ""

    def definition(self, now_at: int) -> Definition:
        """Return the definition that is meant. Raises ValueError."""
        schedule = None if self.schedule is None else self.schedule.encoded(now_at)
        return Definition(
            package=ENV,
            name=check_name(self.name),
            schedule=schedule,
            settings=check_settings(
                self.settings.given(), scheduled=schedule is not None
            ),
            args=msgspec.json.encode(self.args, order="deterministic").decode(),
            doc=self.doc,
        )


class JobPatch(In):
    """Changes laid over what code says of a job; null takes one back."""

    schedule: ScheduleIn | None = None
    settings: JobSettingsIn | None = None
    args: Args | None = None

    def overrides(self, now_at: int) -> dict[str, Any]:
        """Return what is laid over the definition. Raises ValueError."""
        laid: dict[str, Any] = {}
        if "schedule" in self.model_fields_set:
            laid["schedule"] = (
                None if self.schedule is None else self.schedule.encoded(now_at)
            )
        if "args" in self.model_fields_set:
            laid["args"] = (
                None
                if self.args is None
                else msgspec.json.encode(self.args, order="deterministic").decode()
            )
        if self.settings is not None:
            settings = check_settings(self.settings.given(), scheduled=True)
            laid["settings"] = {
                name: value
                for name, value in msgspec.to_builtins(settings).items()
                if name in _named(self.settings)
            } | dict.fromkeys(_taken_back(self.settings))
        elif "settings" in self.model_fields_set:
            laid["settings"] = None
        return laid


_SECONDS = {"timeout", "backoff", "backoff_max"}


def _named(settings: JobSettingsIn) -> set[str]:
    return {f"{n}_seconds" if n in _SECONDS else n for n in settings.given()}


def _taken_back(settings: JobSettingsIn) -> set[str]:
    nulls = settings.model_fields_set - settings.given().keys()
    return {f"{n}_seconds" if n in _SECONDS else n for n in nulls}


class PauseIn(In):
    """Why a job is paused."""

    note: Note | None = None


class TriggerJobIn(In):
    """A run outside of the schedule; without `args` those of the schedule."""

    args: Args | None = None
    note: Note | None = None


class SubmitIn(In):
    """A run of a job: now, at an instant, or after a delay."""

    args: Args = Field(default_factory=dict)
    at: Instant | None = None
    delay: Duration | None = None
    key: Annotated[str, Field(min_length=1, max_length=limits.UID_MAX)] | None = None
    priority: int | None = None


class BackfillIn(In):
    """A range of instants of the schedule, both ends included."""

    since: Instant
    until: Instant
    note: Note | None = None


class ReplayRunIn(In):
    """Whether a run that has succeeded is done again all the same."""

    force: bool = False
    note: Note | None = None


class JobOut(Out):
    """A job as stored."""

    id: str
    coordinate: str
    package: str | None
    name: str
    key: str | None
    state: str
    calls: str
    schedule: dict[str, JsonValue] | None
    settings: dict[str, JsonValue]
    args: dict[str, JsonValue]
    doc: str
    formerly: list[str]
    overridden: bool
    next_at: str | None
    due_at: str | None
    fired_to: str | None
    paused_at: str | None
    paused_by: str | None
    paused_note: str | None
    counts: dict[str, int]
    last_outcome: str | None
    last_ended_at: str | None
    created_at: str
    version: int


class InstantOut(Out):
    """One instant to come."""

    at: str
    local: str
    note: str | None


class WindowOut(Out):
    """One planned firing; a skipped range is one of them."""

    job_id: str
    at: str
    mark: str
    state: str
    run_id: str | None
    reason: str | None
    until: str | None
    windows: int
    settled_at: str | None


class RunOut(Out):
    """One run of a job."""

    id: str
    job_id: str
    job: str
    work_id: str
    state: str
    reason: str | None
    origin: str
    window: str | None
    args: dict[str, JsonValue]
    key: str | None
    actor: str | None
    note: str | None
    attempts: int
    work_state: str | None
    due_at: str | None
    created_at: str
    ended_at: str | None


class RunAttemptOut(Out):
    """One attempt of a run with the lines that it logged."""

    claim: int
    number: int
    node: int
    outcome: str
    reason: str | None
    begun_at: str | None
    ended_at: str
    next_at: str | None
    error: str | None
    logs: list[str]
    dropped: int


class RunDetailOut(RunOut):
    """A run with its attempts."""

    why: str | None
    rule: str | None
    next_at: str | None
    tries: list[RunAttemptOut]


class RunsOut(Out):
    """The runs that were made."""

    run_ids: list[str]


class PackageOut(Out):
    """Who contributes jobs."""

    name: str
    installed: bool
    jobs: int
    seen_at: str
    uninstalled_at: str | None


class InstantsOut(Out):
    """Instants to come, in their order."""

    data: list[InstantOut]


class WindowsOut(Out):
    """Windows, the newest first."""

    data: list[WindowOut]


class PackagesOut(Out):
    """Packages by name."""

    data: list[PackageOut]


class UninstalledOut(Out):
    """How many jobs the package had."""

    jobs: int


def when(at: int | None) -> str | None:
    """Return an instant as the API shows it."""
    return None if at is None else to_rfc3339(at)


def job_out(job: Job) -> Json:
    """Return a job as the API shows it."""
    body = job.definition
    schedule: Any = None if body.schedule is None else described(body.schedule)
    return {
        "id": job.id,
        "coordinate": job.coordinate,
        "package": job.package,
        "name": job.name,
        "key": job.key,
        "state": job.state,
        "calls": job.code,
        "schedule": schedule,
        "settings": msgspec.to_builtins(body.settings),
        "args": msgspec.json.decode(body.args),
        "doc": body.doc,
        "formerly": list(body.formerly),
        "overridden": job.overridden,
        "nextAt": when(job.nominal_at),
        "dueAt": when(job.due_at),
        "firedTo": when(job.fired_to),
        "pausedAt": when(job.paused_at),
        "pausedBy": job.paused_by,
        "pausedNote": job.paused_note,
        "counts": dict(job.counts),
        "lastOutcome": job.last_outcome,
        "lastEndedAt": when(job.last_ended_at),
        "createdAt": to_rfc3339(job.created_at),
        "version": job.version,
    }


def described(schedule: str) -> Any:
    """Return a stored schedule as plain JSON values. Raises ValueError."""
    return msgspec.to_builtins(decode(schedule))


def instant_out(each: Upcoming) -> Json:
    """Return an instant to come."""
    return {"at": to_rfc3339(each.at), "local": each.local, "note": each.note}


def window_out(window: Window) -> Json:
    """Return a window as the API shows it."""
    return {
        "jobId": window.job,
        "at": to_rfc3339(window.at),
        "mark": window.mark,
        "state": window.state,
        "runId": window.run,
        "reason": window.reason,
        "until": when(window.until_at),
        "windows": window.windows,
        "settledAt": when(window.settled_at),
    }


def run_out(run: Run) -> Json:
    """Return a run as the API shows it."""
    return {
        "id": run.id,
        "jobId": run.job,
        "job": run.coordinate,
        "workId": run.work,
        "state": run.state,
        "reason": run.reason,
        "origin": run.origin,
        "window": when(run.window_at),
        "args": msgspec.json.decode(run.args),
        "key": run.key,
        "actor": run.actor,
        "note": run.note,
        "attempts": run.attempts,
        "workState": run.work_state,
        "dueAt": when(run.due_at),
        "createdAt": to_rfc3339(run.created_at),
        "endedAt": when(run.ended_at),
    }


def attempt_out(attempt: RunAttempt) -> Json:
    """Return an attempt of a run."""
    return {
        "claim": attempt.claim,
        "number": attempt.number,
        "node": attempt.node,
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "begunAt": when(attempt.begun_at),
        "endedAt": to_rfc3339(attempt.ended_at),
        "nextAt": when(attempt.next_due_at),
        "error": attempt.error,
        "logs": list(attempt.logs),
        "dropped": attempt.dropped,
    }


def package_out(package: PackageView) -> Json:
    """Return a package."""
    return {
        "name": package.name,
        "installed": package.installed,
        "jobs": package.jobs,
        "seenAt": to_rfc3339(package.seen_at),
        "uninstalledAt": when(package.uninstalled_at),
    }


def plan_out(plan: Planned) -> Mapping[str, Any]:
    """Return what a start would change."""
    return {
        "added": list(plan.added),
        "changed": list(plan.changed),
        "renamed": [{"from": was, "to": now} for was, now in plan.renamed],
        "orphaned": list(plan.orphaned),
        "same": list(plan.same),
    }
