"""The kernel's tables: `work`, its lanes, who holds it, and what came of it.

Theory. `work` is one narrow table with its key and three *disjoint* partial indexes,
nothing else, ever: every row is in the key and in at most one of them, so a state change
costs one index entry and settled history is in no index that a claim reads. Rows due now
and rows due later are apart (`phase`), else a backlog of tomorrow is walked today.
Lists, UNIQUE rules and payloads live on the slices' own insert-only rows.

Instants are microseconds since the Unix epoch, UTC, in every `*_at` column. Ids are
TypeIDs as text, compared by bytes (`COLLATE "C"` on PostgreSQL). States are literals in
SQL, because partial indexes are matched by the text of their predicate.
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
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    },
)
"""Every table of Tenure; slices declare theirs on it in their own `tables.py`."""

Id = Text().with_variant(Text(collation="C"), "postgresql")
"""Column type of TypeIDs and of names that lists page by."""


def instant(name: str, *, nullable: bool = True) -> Column[int]:
    """A column of microseconds since the Unix epoch, UTC."""
    return Column(name, BigInteger, nullable=nullable)


def count(name: str) -> Column[int]:
    """A counter that starts at zero."""
    return Column(name, Integer, nullable=False, server_default=text("0"))


work = Table(
    "work",
    metadata,
    Column("id", Id, nullable=False),
    Column("lane", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("subject", Id, nullable=False),
    Column("state", Text, nullable=False),
    Column("phase", Text),
    Column("priority", SmallInteger, nullable=False, server_default=text("2")),
    instant("due_at"),
    Column("claim", Integer, nullable=False, server_default=text("0")),
    Column("claimed_by", BigInteger),
    instant("claimed_at"),
    instant("deadline_at"),
    Column("alone", Boolean, nullable=False, server_default=text("false")),
    count("tries"),
    count("failures"),
    count("losses"),
    count("releases"),
    instant("first_attempt_at"),
    count("replay_claim"),
    Column("success_claim", Integer),
    instant("cancel_requested_at"),
    Column("order_key", Text),
    Column("sequence", BigInteger),
    count("wakes"),
    Column("trigger", SmallInteger, nullable=False, server_default=text("0")),
    Column("reason", Text),
    instant("created_at", nullable=False),
    instant("settled_at"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(
        "state IN ('ready','claimed','succeeded','dead','cancelled','parked')",
        name="state",
    ),
    CheckConstraint("(state = 'ready') = (phase IS NOT NULL)", name="phase"),
    CheckConstraint(
        "phase IS NULL OR (phase = 'asleep') = (due_at IS NULL)",
        name="asleep",
    ),
    CheckConstraint(
        "state <> 'claimed' OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL"
        " AND deadline_at IS NOT NULL AND claim > 0)",
        name="claimed",
    ),
)
Index(
    "ix_work_due",
    work.c.lane,
    work.c.priority,
    work.c.due_at,
    postgresql_where=text("phase = 'due'"),
    sqlite_where=text("phase = 'due'"),
)
Index(
    "ix_work_later",
    work.c.due_at,
    postgresql_where=text("phase = 'later'"),
    sqlite_where=text("phase = 'later'"),
)
Index(
    "ix_work_claimed",
    work.c.lane,
    work.c.claimed_by,
    postgresql_where=text("state = 'claimed'"),
    sqlite_where=text("state = 'claimed'"),
)

attempt = Table(
    "attempt",
    metadata,
    Column("work", Id, nullable=False),
    Column("claim", Integer, nullable=False),
    Column("id", Id, nullable=False),
    Column("node", BigInteger, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("lane", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("trigger", SmallInteger, nullable=False, server_default=text("0")),
    Column("number", Integer, nullable=False),
    instant("begun_at"),
    instant("ended_at", nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("state_after", Text, nullable=False),
    instant("next_due_at"),
    instant("late_at"),
    Column("late_outcome", Text),
    Column("late_reason", Text),
    PrimaryKeyConstraint("work", "claim"),
)
Index("ix_attempt_lane_id", attempt.c.lane, attempt.c.id)

lane_group = Table(
    "lane_group",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), autoincrement=True),
    Column("tenant", Id, nullable=False),
    Column("next_lane", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("id"),
    sqlite_autoincrement=True,
)
"""One fair-share group: an application, or a tenant for lanes without one. A lane's id
is `group << 24 | n`, so the walk over due lanes can hop from group to group."""

lane = Table(
    "lane",
    metadata,
    Column("id", BigInteger, nullable=False, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("subject", Id, nullable=False),
    Column("needs", Text, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    Column("reason", Text),
    Column("deadline_us", BigInteger, nullable=False),
    Column("concurrency", Integer),
    Column("rate_per_second", Integer),
    instant("tat"),
    Column("ordered", Boolean, nullable=False, server_default=text("false")),
    Column("order_policy", Text, nullable=False, server_default=text("'block'")),
    Column("skip_after", Integer),
    instant("breaker_until"),
    Column("half_open", Boolean, nullable=False, server_default=text("false")),
    Column("at_most_once", Boolean, nullable=False, server_default=text("false")),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    instant("created_at", nullable=False),
    PrimaryKeyConstraint("id"),
    CheckConstraint("state IN ('open','paused','blocked','deleted')", name="state"),
    CheckConstraint("order_policy IN ('block','skip')", name="order_policy"),
)

Index(
    "ix_lane_deleted",
    lane.c.id,
    postgresql_where=text("state = 'deleted'"),
    sqlite_where=text("state = 'deleted'"),
)

order_head = Table(
    "order_head",
    metadata,
    Column("lane", BigInteger, nullable=False),
    Column("order_key", Id, nullable=False),
    Column("next_sequence", BigInteger, nullable=False),
    PrimaryKeyConstraint("lane", "order_key"),
)
"""The lock and the counter of one ordered queue."""

order_line = Table(
    "order_line",
    metadata,
    Column("lane", BigInteger, nullable=False),
    Column("order_key", Id, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("work", Id, nullable=False),
    instant("not_before"),
    PrimaryKeyConstraint("lane", "order_key", "sequence"),
)
"""Who stands in one ordered queue: the lowest sequence is the head and may be due."""

node = Table(
    "node",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), autoincrement=True),
    Column("name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("serves", Text, nullable=False),
    Column("lock_path", Text),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    Column("beat", BigInteger, nullable=False, server_default=text("0")),
    instant("beat_at", nullable=False),
    Column("tick", BigInteger, nullable=False, server_default=text("0")),
    instant("tick_at"),
    instant("started_at", nullable=False),
    instant("closed_at"),
    Column("closed_why", Text),
    Column("revision", Text),
    PrimaryKeyConstraint("id"),
    CheckConstraint("state IN ('open','draining','closed')", name="state"),
    sqlite_autoincrement=True,
)
"""One incarnation of a process. Its id is never reused; a restart is a new node.
`revision` is the newest schema that it understands; NULL is older than the column."""

chore = Table(
    "chore",
    metadata,
    Column("name", Id, nullable=False),
    Column("holder", BigInteger),
    instant("held_until"),
    instant("due_at", nullable=False),
    Column("place", Id, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("name"),
)
"""What one node at a time does for all: who has it until when, and how far it got."""

setting = Table(
    "setting",
    metadata,
    Column("name", Id, nullable=False),
    Column("value", LargeBinary, nullable=False),
    instant("updated_at", nullable=False),
    PrimaryKeyConstraint("name"),
)
"""What the database says of itself: identity, deployment, key ring check value."""
