"""Schedules: packages, jobs and their spellings, definitions, windows, runs."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0005_schedules"
down_revision: Final = "0004_inbox"
phase: Final = "pre"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_DUE: Final = sa.text("due_at IS NOT NULL")
_OPEN: Final = sa.text("state = 'open'")
_STATES: Final = (
    "state IN ('open','succeeded','degraded','failed','timed_out','cancelled',"
    "'parked','skipped')"
)
_OUTCOMES: Final = (
    "succeeded",
    "degraded",
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
    "failing",
)


def upgrade() -> None:
    """Create the tables."""
    _jobs()
    _definitions()
    _windows()
    _runs()


def _column(
    name: str, kind: Any = None, *, null: bool = False, default: str | None = None
) -> sa.Column[Any]:
    return sa.Column(
        name,
        _ID if kind is None else kind,
        nullable=null,
        server_default=None if default is None else sa.text(default),
    )


def _instant(name: str, *, null: bool = True) -> sa.Column[Any]:
    return _column(name, sa.BigInteger(), null=null)


def _count(name: str) -> sa.Column[Any]:
    return _column(name, sa.Integer(), default="0")


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=op.f(f"uq_{table}_{'_'.join(columns)}"))


def _states(table: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(_STATES, name=op.f(f"ck_{table}_state"))


def _jobs() -> None:
    op.create_table(
        "package",
        _column("name"),
        _column("installed", sa.Boolean(), default="true"),
        _instant("seen_at", null=False),
        _instant("uninstalled_at"),
        _key("package", "name"),
    )
    op.create_table(
        "job",
        _column("id"),
        _column("tenant"),
        _column("package", null=True),
        _column("name"),
        _column("key", null=True),
        _column("code"),
        _column("lane", sa.BigInteger()),
        _column("definition", sa.Text(), null=True),
        _column("body", sa.Text(), default="'{}'"),
        _column("overrides", sa.Text(), default="'{}'"),
        _instant("nominal_at"),
        _instant("due_at"),
        _instant("fired_to"),
        _instant("edited_at", null=False),
        _instant("paused_at"),
        _column("paused_by", sa.Text(), null=True),
        _column("paused_note", sa.Text(), null=True),
        _instant("deleted_at"),
        _instant("created_at", null=False),
        _column("version", sa.BigInteger(), default="1"),
        _key("job", "id"),
        _unique("job", "tenant", "key"),
    )
    op.create_index(
        "ix_job_due_at",
        "job",
        ["due_at"],
        unique=False,
        postgresql_where=_DUE,
        sqlite_where=_DUE,
    )
    op.create_table(
        "job_spelling",
        _column("tenant"),
        _column("package"),
        _column("name"),
        _column("job"),
        _instant("since_at", null=False),
        _key("job_spelling", "tenant", "package", "name"),
    )
    op.create_table(
        "job_group",
        _column("tenant"),
        _column("name"),
        _column("lane", sa.BigInteger()),
        _key("job_group", "tenant", "name"),
    )
    op.create_table(
        "job_counter",
        _column("job"),
        *(_count(name) for name in _OUTCOMES),
        _column("last_outcome", sa.Text(), null=True),
        _instant("last_ended_at"),
        _key("job_counter", "job"),
    )


def _definitions() -> None:
    op.create_table(
        "job_definition",
        _column("job"),
        _column("hash", sa.Text()),
        _column("body", sa.Text()),
        _instant("first_seen_at", null=False),
        _key("job_definition", "job", "hash"),
    )
    op.create_table(
        "job_declared",
        _column("node", sa.BigInteger()),
        _column("job"),
        _column("hash", sa.Text()),
        _key("job_declared", "node", "job"),
    )
    op.create_index("ix_job_declared_job", "job_declared", ["job"], unique=False)


def _windows() -> None:
    op.create_table(
        "job_window",
        _column("job"),
        _instant("at", null=False),
        _column("mark", default="''"),
        _column("state", sa.Text()),
        _column("run", null=True),
        _column("reason", sa.Text(), null=True),
        _instant("until_at"),
        _column("windows", sa.BigInteger(), default="1"),
        _instant("created_at", null=False),
        _instant("settled_at"),
        _key("job_window", "job", "at", "mark"),
        _states("job_window"),
    )
    op.create_table(
        "job_reminder",
        _column("job"),
        _column("scope"),
        _column("record"),
        _column("state", sa.Text()),
        _column("run"),
        _instant("created_at", null=False),
        _instant("settled_at"),
        _key("job_reminder", "job", "scope", "record"),
    )


def _runs() -> None:
    op.create_table(
        "job_run",
        _column("id"),
        _column("job"),
        _column("tenant"),
        _column("work"),
        _column("state", sa.Text(), default="'open'"),
        _column("reason", sa.Text(), null=True),
        _column("origin", sa.Text()),
        _instant("window_at"),
        _column("mark", default="''"),
        _column("scope", null=True),
        _column("record", null=True),
        _column("actor", sa.Text(), null=True),
        _column("note", sa.Text(), null=True),
        _column("args", sa.LargeBinary()),
        _column("key", null=True),
        _instant("created_at", null=False),
        _instant("ended_at"),
        _key("job_run", "id"),
        _unique("job_run", "work"),
        _states("job_run"),
    )
    op.create_index("ix_job_run_job_id", "job_run", ["job", "id"], unique=False)
    op.create_index(
        "ix_job_run_open",
        "job_run",
        ["job", "id"],
        unique=False,
        postgresql_where=_OPEN,
        sqlite_where=_OPEN,
    )
    op.create_table(
        "job_key",
        _column("job"),
        _column("key"),
        _column("run"),
        _key("job_key", "job", "key"),
    )
    op.create_table(
        "job_attempt",
        _column("work"),
        _column("claim", sa.Integer()),
        _column("run"),
        _column("outcome", sa.Text()),
        _column("reason", sa.Text(), null=True),
        _column("error", sa.LargeBinary(), null=True),
        _column("logs", sa.LargeBinary(), null=True),
        _count("dropped"),
        _key("job_attempt", "work", "claim"),
    )
