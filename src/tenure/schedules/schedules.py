"""Schedules as one object: what code submits to, and what operators ask of jobs.

Every method is one transaction. Jobs are named by id, `package:name`, or a bare name
that only one package has.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.clock import US
from tenure.errors import NotFound, ValidationFailed
from tenure.ids import JobId, LaneId, RunId, TenantId, new_run_id, new_work_id
from tenure.limits import JOB_ARGS_BYTES, SUBMIT_MANY_MAX
from tenure.outbox.waiting import NORMAL
from tenure.schedules.ledger import controls, explaining, jobs, reading, runs
from tenure.schedules.model import Definition, NewRun, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.naming.coordinates import Coordinate
    from tenure.outbox.joining import Submitter
    from tenure.outbox.waiting import Standing, Waits
    from tenure.schedules.declaring import Declared
    from tenure.schedules.ledger.reading import Upcoming
    from tenure.schedules.model import Job, Run, Window
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

__all__ = ["DEFAULT", "Schedules"]

DEFAULT: Final = TenantId("default")
"""Whose the jobs are that code declares."""
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Schedules:
    """Jobs of one database, as one process sees them.

    `committed` is called after a commit that may have made work due, `changed` after
    one that may have moved a due instant.
    """

    def __init__(
        self,
        backend: Backend,
        declared: Mapping[Coordinate, Declared],
        *,
        submitter: Submitter | None = None,
        committed: Callable[[], None] = lambda: None,
        changed: Callable[[], None] = lambda: None,
        standing: Callable[[], Standing] = lambda: NORMAL,
    ) -> None:
        self._backend: Final = backend
        self._declared: Final = declared
        self._submitter: Final = submitter
        self._committed: Final = committed
        self.standing: Final = standing
        self.changed: Callable[[], None] = changed

    # --- submitting ------------------------------------------------------------------

    async def submit_declared(
        self, coordinate: Coordinate, calls: Sequence[bytes], options: Mapping[str, Any]
    ) -> list[str]:
        """Submit one run of a declared job for each call; return the ids of the runs.

        All in one commit: the caller's own when `options` has ``into``.
        """
        into = options.get("into")
        make = partial(
            _make, name=coordinate, calls=calls, options=_timed(options, calls)
        )
        if into is not None:
            if self._submitter is None:
                raise NotFound("this process joins no transactions")
            return await self._submitter.join_async(into, make)
        found = await self._backend.write(make)
        self._committed()
        return found

    def submit_within(
        self,
        into: Any,
        coordinate: Coordinate,
        calls: Sequence[bytes],
        options: Mapping[str, Any],
    ) -> list[str]:
        """As `submit_declared` with ``into``, for a blocking session or connection."""
        if self._submitter is None:
            raise NotFound("this process joins no transactions")
        make = partial(
            _make, name=coordinate, calls=calls, options=_timed(options, calls)
        )
        return self._submitter.join(into, make)

    async def submit(
        self, tenant: TenantId, ref: str, args: Any, options: Mapping[str, Any]
    ) -> Run:
        """Submit a run of a named job, its arguments given as JSON values.

        They are checked against the function where this process has it.
        """
        call = msgspec.json.encode(args or {}, order="deterministic")

        def make(tx: Tx) -> Run:
            job = jobs.read(tx, tenant, jobs.find(tx, tenant, ref))
            self._check(tx, job.code, call)
            (run,) = _make_for(tx, job.id, [call], _timed(options, [call]))
            return runs.read(tx, tenant, run)

        made = await self._backend.write(make)
        self._committed()
        return made

    def _check(self, tx: Tx, code: JobId, call: bytes) -> None:
        """Refuse arguments that the function would refuse, where it is here."""
        declared = self._declared.get(jobs.body_of(jobs.fetch(tx, code)).coordinate)
        if declared is not None:
            declared.parameters.decode(call)

    # --- reading ---------------------------------------------------------------------

    async def list_jobs(self, tenant: TenantId, **narrow: Any) -> list[Job]:
        """Return one page of jobs; see `ledger.jobs.list_jobs`."""
        return await self._backend.read(
            partial(jobs.list_jobs, tenant=tenant, **narrow)
        )

    async def find_job(self, tenant: TenantId, ref: str, *, keys: bool = False) -> Job:
        """Return one job. Raises NotFound and NameAmbiguous."""
        return await self._backend.read(
            lambda tx: jobs.read(tx, tenant, jobs.find(tx, tenant, ref, keys=keys))
        )

    async def upcoming(self, tenant: TenantId, ref: str, count: int) -> list[Upcoming]:
        """Return the next instants of a job, with what a clock change does to them."""
        return await self._backend.read(
            lambda tx: reading.upcoming(tx, jobs.find(tx, tenant, ref), count)
        )

    async def list_windows(
        self, tenant: TenantId, ref: str, *, before: int | None = None, limit: int = 50
    ) -> list[Window]:
        """Return windows of a job, the newest first."""
        return await self._backend.read(
            lambda tx: reading.windows(
                tx, jobs.find(tx, tenant, ref), before=before, limit=limit
            )
        )

    async def list_runs(
        self,
        tenant: TenantId,
        *,
        job: str | None = None,
        state: str | None = None,
        before: str = "",
        limit: int = 50,
    ) -> list[Run]:
        """Return runs, the newest first, one page."""

        def read(tx: Tx) -> list[Run]:
            id_ = None if job is None else jobs.find(tx, tenant, job)
            return runs.list_runs(
                tx, tenant, job=id_, state=state, before=before, limit=limit
            )

        return await self._backend.read(read)

    async def find_run(self, tenant: TenantId, id_: str) -> Run:
        """Return one run. Raises NotFound."""
        return await self._backend.read(lambda tx: runs.read(tx, tenant, id_))

    async def explain(self, tenant: TenantId, id_: str) -> Waits | None:
        """Say why a run stands where it stands; None once its work is not kept."""

        def read(tx: Tx) -> Waits | None:
            run = runs.read(tx, tenant, id_)
            if run.work_state is None:
                return None
            return explaining.why(tx, run.work, self.standing())

        return await self._backend.read(read)

    async def attempts(self, tenant: TenantId, id_: str) -> list[reading.RunAttempt]:
        """Return the attempts of a run with their logs, the oldest first."""
        return await self._backend.read(
            lambda tx: reading.attempts(tx, runs.read(tx, tenant, id_))
        )

    async def packages(self, tenant: TenantId) -> list[reading.PackageView]:
        """Return every package that ever declared a job of the tenant."""
        return await self._backend.read(partial(reading.packages, tenant=tenant))

    async def plan(self) -> reading.Planned:
        """Return what this process's jobs would change in the catalogue."""
        definitions = {c: d.definition for c, d in self._declared.items()}
        return await self._backend.read(
            partial(reading.planned, tenant=DEFAULT, declared=definitions)
        )

    # --- operators -------------------------------------------------------------------

    async def pause(
        self, tenant: TenantId, ref: str, *, actor: str, note: str | None = None
    ) -> Job:
        """Fire and start nothing of a job until it is resumed."""
        return await self._change(
            tenant, ref, lambda tx, id_: controls.pause(tx, id_, actor=actor, note=note)
        )

    async def resume(self, tenant: TenantId, ref: str) -> Job:
        """Fire again; what was missed follows the catch-up rule."""
        return await self._change(tenant, ref, controls.resume)

    async def edit(self, tenant: TenantId, ref: str, overrides: dict[str, Any]) -> Job:
        """Lay changes over a job; None takes one back."""
        return await self._change(
            tenant, ref, lambda tx, id_: controls.edit(tx, id_, dict(overrides))
        )

    async def delete(self, tenant: TenantId, ref: str, *, actor: str) -> None:
        """Delete a job that was made at run time. Raises Conflict for another one."""
        await self._backend.write(
            lambda tx: controls.delete(tx, jobs.find(tx, tenant, ref), actor=actor)
        )

    async def create(self, tenant: TenantId, body: Definition, *, calls: str) -> Job:
        """Make a job at run time that calls the function of the job `calls`."""

        def make(tx: Tx) -> Job:
            code = jobs.find(tx, tenant, calls)
            self._check(tx, code, body.args.encode())
            return jobs.read(tx, tenant, controls.create(tx, tenant, body, calls=code))

        made = await self._backend.write(make)
        self.changed()
        return made

    async def trigger(
        self,
        tenant: TenantId,
        ref: str,
        *,
        actor: str,
        note: str | None = None,
        args: Any = None,
    ) -> Run:
        """Run a job now; the run says manual and who."""
        call = (
            None if args is None else msgspec.json.encode(args, order="deterministic")
        )

        def make(tx: Tx) -> Run:
            id_ = jobs.find(tx, tenant, ref)
            if call is not None:
                self._check(tx, jobs.read(tx, tenant, id_).code, call)
            run = controls.trigger(tx, id_, actor=actor, note=note, args=call)
            return runs.read(tx, tenant, run)

        made = await self._backend.write(make)
        self._committed()
        return made

    async def backfill(
        self,
        tenant: TenantId,
        ref: str,
        *,
        since: int,
        until: int,
        actor: str,
        note: str | None = None,
    ) -> list[RunId]:
        """Run every instant of the schedule between two instants (µs), both included."""
        made = await self._backend.write(
            lambda tx: controls.backfill(
                tx,
                jobs.find(tx, tenant, ref),
                since=since,
                until=until,
                actor=actor,
                note=note,
            )
        )
        self._committed()
        return made

    async def replay(
        self,
        tenant: TenantId,
        id_: str,
        *,
        actor: str,
        force: bool = False,
        note: str | None = None,
    ) -> Run:
        """Do a run again. Raises WindowSucceeded unless forced, and NotFound."""

        def again(tx: Tx) -> Run:
            run = controls.replay_run(
                tx, tenant, id_, force=force, actor=actor, note=note
            )
            return runs.read(tx, tenant, run)

        made = await self._backend.write(again)
        self._committed()
        return made

    async def cancel(self, tenant: TenantId, id_: str, *, actor: str) -> Run:
        """End a run: at once while it waits, soon when it goes on."""
        return await self._backend.write(
            lambda tx: controls.cancel_run(tx, tenant, id_, actor=actor)
        )

    async def uninstall(self, tenant: TenantId, package: str) -> int:
        """Say that a package is gone; return how many jobs it had."""
        return await self._backend.write(
            lambda tx: controls.uninstall(tx, tenant, package)
        )

    async def _change(
        self, tenant: TenantId, ref: str, act: Callable[[Tx, JobId], None]
    ) -> Job:
        def change(tx: Tx) -> Job:
            id_ = jobs.find(tx, tenant, ref)
            act(tx, id_)
            return jobs.read(tx, tenant, id_)

        changed = await self._backend.write(change)
        self.changed()
        self._committed()
        return changed


def _timed(options: Mapping[str, Any], calls: Sequence[bytes]) -> dict[str, Any]:
    """Check what a submit is told beside the arguments. Raises ValidationFailed."""
    if len(calls) > SUBMIT_MANY_MAX:
        raise ValidationFailed.at(
            "body", "runs", msg=f"at most {SUBMIT_MANY_MAX} runs go into one commit"
        )
    large = next((len(call) for call in calls if len(call) > JOB_ARGS_BYTES), None)
    if large is not None:
        raise ValidationFailed.at(
            "body",
            "args",
            msg=f"{large} bytes are more than {JOB_ARGS_BYTES}: store them, give an id",
        )
    if options.get("at") is not None and options.get("delay") is not None:
        raise ValidationFailed.at("body", "at", msg="give `at` or `delay`, not both")
    priority = options.get("priority")
    if priority is not None and priority not in range(4):
        raise ValidationFailed.at("body", "priority", msg="give 0 (first) to 3 (last)")
    at, delay = options.get("at"), options.get("delay")
    if isinstance(at, datetime) and at.utcoffset() is None:
        raise ValidationFailed.at(
            "body", "at", msg="has no time zone: give an aware datetime"
        )
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if delay is not None and not 0 <= delay < 1e11:
        raise ValidationFailed.at("body", "delay", msg="give seconds from 0 on")
    return {
        "at": options.get("at_us")
        if at is None
        else (at - _EPOCH) // timedelta(microseconds=1),
        "delay_us": None if delay is None else round(delay * US),
        "priority": priority,
        "key": options.get("key"),
    }


def _make(
    tx: Tx, *, name: Coordinate, calls: Sequence[bytes], options: Mapping[str, Any]
) -> list[str]:
    return _make_for(tx, jobs.find(tx, DEFAULT, str(name)), calls, options)


def _make_for(
    tx: Tx, id_: JobId, calls: Sequence[bytes], options: Mapping[str, Any]
) -> list[str]:
    """Insert runs of a job; its row is read and not locked: a submit waits for nobody."""
    row = jobs.fetch(tx, id_)
    settings = jobs.body_of(row).settings
    due = options["at"]
    if options["delay_us"] is not None:
        due = tx.now + options["delay_us"]
    new = [
        NewRun(
            id=new_run_id(),
            work=new_work_id(),
            job=id_,
            tenant=row.tenant,
            lane=LaneId(row.lane),
            origin=Origin.SUBMIT,
            args=call,
            priority=settings.priority
            if options["priority"] is None
            else options["priority"],
            due_at=due,
            key=options["key"],
        )
        for call in calls
    ]
    if options["key"] is not None:
        return [runs.add_keyed(tx, run) for run in new]
    runs.add(tx, new)
    return [run.id for run in new]
