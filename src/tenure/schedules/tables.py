"""The tables of schedules: who a job is, when it fires, and what came of it.

Everything hangs on the job's id. Spellings lead to it and are never removed; windows and
runs name it, never a text that somebody may change.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tenure.store.schema import Id, count, instant, metadata

package = Table(
    "package",
    metadata,
    Column("name", Id, nullable=False),
    Column("installed", Boolean, nullable=False, server_default=text("true")),
    instant("seen_at", nullable=False),
    instant("uninstalled_at"),
    PrimaryKeyConstraint("name"),
)
"""Who contributes jobs. A package that was uninstalled keeps what it did."""

job = Table(
    "job",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("package", Id),
    Column("name", Id, nullable=False),
    Column("key", Id),
    Column("code", Id, nullable=False),
    Column("lane", BigInteger, nullable=False),
    Column("definition", Text),
    Column("body", Text, nullable=False, server_default=text("'{}'")),
    Column("overrides", Text, nullable=False, server_default=text("'{}'")),
    instant("nominal_at"),
    instant("due_at"),
    instant("fired_to"),
    instant("edited_at", nullable=False),
    instant("paused_at"),
    Column("paused_by", Text),
    Column("paused_note", Text),
    instant("deleted_at"),
    instant("created_at", nullable=False),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("tenant", "key"),
)
"""One job. `body` is what is in force: the current definition with an operator's
`overrides` laid over it. `code` is the job whose function runs: itself, or for one made
at run time the one it calls. `nominal_at` is the instant of the next window, `due_at`
when that fires, jitter included; both are NULL when nothing ever will. `package` is NULL
for a row that was imported without one."""
Index(
    "ix_job_due_at",
    job.c.due_at,
    postgresql_where=text("due_at IS NOT NULL"),
    sqlite_where=text("due_at IS NOT NULL"),
)

job_spelling = Table(
    "job_spelling",
    metadata,
    Column("tenant", Id, nullable=False),
    Column("package", Id, nullable=False),
    Column("name", Id, nullable=False),
    Column("job", Id, nullable=False),
    instant("since_at", nullable=False),
    PrimaryKeyConstraint("tenant", "package", "name"),
)
"""Every coordinate that ever was a job's. Rows are added, never changed or removed."""

job_definition = Table(
    "job_definition",
    metadata,
    Column("job", Id, nullable=False),
    Column("hash", Text, nullable=False),
    Column("body", Text, nullable=False),
    instant("first_seen_at", nullable=False),
    PrimaryKeyConstraint("job", "hash"),
)
"""What releases said of a job, by hash, with the instant when it was first said."""

job_declared = Table(
    "job_declared",
    metadata,
    Column("node", BigInteger, nullable=False),
    Column("job", Id, nullable=False),
    Column("hash", Text, nullable=False),
    PrimaryKeyConstraint("node", "job"),
)
"""Which definition a node has the code of. What counts are the rows of open nodes."""
Index("ix_job_declared_job", job_declared.c.job)

job_group = Table(
    "job_group",
    metadata,
    Column("tenant", Id, nullable=False),
    Column("name", Id, nullable=False),
    Column("lane", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant", "name"),
)
"""A lane that several jobs share, with its limits."""

job_counter = Table(
    "job_counter",
    metadata,
    Column("job", Id, nullable=False),
    count("succeeded"),
    count("degraded"),
    count("failed"),
    count("timed_out"),
    count("cancelled"),
    count("skipped"),
    count("failing"),
    Column("last_outcome", Text),
    instant("last_ended_at"),
    PrimaryKeyConstraint("job"),
)
"""How often runs ended how; `failing` counts failures since the last success."""

job_window = Table(
    "job_window",
    metadata,
    Column("job", Id, nullable=False),
    instant("at", nullable=False),
    Column("mark", Id, nullable=False, server_default=text("''")),
    Column("state", Text, nullable=False),
    Column("run", Id),
    Column("reason", Text),
    instant("until_at"),
    Column("windows", BigInteger, nullable=False, server_default=text("1")),
    instant("created_at", nullable=False),
    instant("settled_at"),
    PrimaryKeyConstraint("job", "at", "mark"),
    CheckConstraint(
        "state IN ('open','succeeded','degraded','failed','timed_out','cancelled',"
        "'parked','skipped')",
        name="state",
    ),
)
"""One planned firing: (job, instant) at most once. `mark` is empty but for backfills and
forced replays, which mint windows of their own. A range that was skipped is one row, from
`at` to `until_at`, standing for `windows` of them."""

job_reminder = Table(
    "job_reminder",
    metadata,
    Column("job", Id, nullable=False),
    Column("scope", Id, nullable=False),
    Column("record", Id, nullable=False),
    Column("state", Text, nullable=False),
    Column("run", Id, nullable=False),
    instant("created_at", nullable=False),
    instant("settled_at"),
    PrimaryKeyConstraint("job", "scope", "record"),
)
"""One reminder of one record: (job, offset and matched local day, record) once."""

job_run = Table(
    "job_run",
    metadata,
    Column("id", Id, nullable=False),
    Column("job", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("work", Id, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    Column("reason", Text),
    Column("origin", Text, nullable=False),
    instant("window_at"),
    Column("mark", Id, nullable=False, server_default=text("''")),
    Column("scope", Id),
    Column("record", Id),
    Column("actor", Text),
    Column("note", Text),
    Column("args", LargeBinary, nullable=False),
    Column("key", Id),
    instant("created_at", nullable=False),
    instant("ended_at"),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("work"),
    CheckConstraint(
        "state IN ('open','succeeded','degraded','failed','timed_out','cancelled',"
        "'parked','skipped')",
        name="state",
    ),
)
"""One run of a job, from its submit on; `args` are JSON as the function takes them."""
Index("ix_job_run_job_id", job_run.c.job, job_run.c.id)
Index(
    "ix_job_run_open",
    job_run.c.job,
    job_run.c.id,
    postgresql_where=text("state = 'open'"),
    sqlite_where=text("state = 'open'"),
)

job_key = Table(
    "job_key",
    metadata,
    Column("job", Id, nullable=False),
    Column("key", Id, nullable=False),
    Column("run", Id, nullable=False),
    PrimaryKeyConstraint("job", "key"),
)
"""The open run of a key: a second submit returns it."""

job_attempt = Table(
    "job_attempt",
    metadata,
    Column("work", Id, nullable=False),
    Column("claim", Integer, nullable=False),
    Column("run", Id, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("error", LargeBinary),
    Column("logs", LargeBinary),
    count("dropped"),
    PrimaryKeyConstraint("work", "claim"),
)
"""What an attempt of a run said: its outcome, the error, and the log lines it wrote."""
