"""Checks of schedules: who a job is, its windows, and the runs that they stand for."""

from __future__ import annotations

from typing import Final

from tenure.doctor.model import Table
from tenure.doctor.pages import sql_check
from tenure.doctor.work import DEFECT

__all__ = ["CHECKS"]

JOB: Final = Table(name="job", alias="j", keys=(("id", "text"),))
SPELLING: Final = Table(
    name="job_spelling",
    alias="s",
    keys=(("tenant", "text"), ("package", "text"), ("name", "text")),
)
WINDOW: Final = Table(
    name="job_window",
    alias="x",
    keys=(("job", "text"), ("at", "bigint"), ("mark", "text")),
)
RUN: Final = Table(name="job_run", alias="r", keys=(("id", "text"),))

CHECKS: Final = (
    sql_check(
        "job.lane",
        JOB,
        "a job has a lane, and a next window exactly when something is due",
        """
        SELECT j.id, j.lane FROM job j WHERE {scope} AND j.package IS NOT NULL
        AND (NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = j.lane)
          OR (j.due_at IS NOT NULL AND j.nominal_at IS NULL)
          OR (j.due_at IS NOT NULL AND j.paused_at IS NOT NULL)
          OR (j.due_at IS NOT NULL AND j.deleted_at IS NOT NULL))
        """,
        what="lane {0}",
        todo=DEFECT,
    ),
    sql_check(
        "job.fired_to",
        JOB,
        "no window that a schedule minted is newer than what its job remembers",
        """
        SELECT j.id, j.fired_to FROM job j WHERE {scope} AND j.package IS NOT NULL
        AND EXISTS (SELECT 1 FROM job_window w WHERE w.job = j.id AND w.mark = ''
          AND w.at > coalesce(j.fired_to, w.at - 1))
        """,
        what="remembers {0}, and a window is newer",
        todo=DEFECT,
    ),
    sql_check(
        "job.spelling",
        SPELLING,
        "a spelling leads to a job of its tenant",
        """
        SELECT s.tenant, s.package, s.name, s.job FROM job_spelling s WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = s.job AND j.tenant = s.tenant)
        """,
        what="leads to {0}, which is not there",
        todo=DEFECT,
    ),
    sql_check(
        "job_window.run",
        WINDOW,
        "an open window has a run that is open",
        """
        SELECT x.job, x.at, x.mark, x.state FROM job_window x WHERE {scope}
        AND x.state = 'open' AND NOT EXISTS
          (SELECT 1 FROM job_run r WHERE r.id = x.run AND r.state = 'open')
        """,
        what="is {0}",
        todo=DEFECT,
    ),
    sql_check(
        "job_run.work",
        RUN,
        "a run that is open has its work, of its own job's tenant",
        """
        SELECT r.id, r.work FROM job_run r WHERE {scope} AND r.state = 'open'
        AND NOT EXISTS (SELECT 1 FROM work w WHERE w.id = r.work AND w.kind = 'job'
          AND w.tenant = r.tenant AND w.subject = r.id)
        """,
        what="its work is {0}",
        todo=DEFECT,
    ),
    sql_check(
        "job_run.outcome",
        RUN,
        "a run is over when its work is, and says how",
        """
        SELECT r.id, r.state, w.state FROM job_run r JOIN work w ON w.id = r.work
        WHERE {scope} AND (r.state <> 'open' AND w.state IN ('ready', 'claimed')
          OR r.state IN ('succeeded', 'degraded') AND w.state <> 'succeeded')
        """,
        what="says {0}, and its work {1}",
        todo=DEFECT,
    ),
)
