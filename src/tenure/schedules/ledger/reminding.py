"""Reminders of records: one row for each, and the run that tells it, in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.ids import JobId, LaneId, new_run_id, new_work_id
from tenure.schedules.ledger import jobs, runs
from tenure.schedules.model import Definition, NewRun, Origin

if TYPE_CHECKING:
    from tenure.store.tx import ColumnType, Tx

__all__ = ["Reminded", "remind"]

_ROW: Final[Mapping[str, ColumnType]] = {
    "job": "text",
    "scope": "text",
    "record": "text",
    "run": "text",
}


class Reminded(msgspec.Struct, frozen=True, kw_only=True):
    """A record that an offset matches: `scope` names the offset and the local day."""

    record: str
    scope: str
    args: bytes


def remind(tx: Tx, *, job: JobId, body: Definition, matched: Sequence[Reminded]) -> int:
    """Make a run for each that was not told yet; return how many there were."""
    row = jobs.fetch(tx, job)
    new = {
        (each.scope, each.record): NewRun(
            id=new_run_id(),
            work=new_work_id(),
            job=job,
            tenant=row.tenant,
            lane=LaneId(row.lane),
            origin=Origin.REMINDER,
            args=each.args,
            priority=body.settings.priority,
            scope=each.scope,
            record=each.record,
        )
        for each in matched
    }
    asked, params = tx.rows(
        "b", _ROW, [(job, *key, run.id) for key, run in sorted(new.items())]
    )
    found = tx.all(
        "INSERT INTO job_reminder (job, scope, record, state, run, created_at)"
        " SELECT b.job, b.scope, b.record, 'open', b.run, CAST(:now AS bigint)"
        f" FROM {asked} WHERE true ON CONFLICT DO NOTHING RETURNING scope, record",
        {**params, "now": tx.now},
    )
    fresh = [new[found_row[0], found_row[1]] for found_row in found]
    runs.add(tx, fresh)
    return len(fresh)
