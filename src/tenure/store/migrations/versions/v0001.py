"""The kernel's tables: work, lanes, attempts, nodes, ordered queues, settings."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0001_kernel"
down_revision: Final = None
phase: Final = "pre"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _work()
    _attempt()
    _lane_group()
    _lane()
    _order_head()
    _order_line()
    _node()
    _setting()
    if op.get_bind().dialect.name == "postgresql":
        # A fixed share of a growing history would vacuum the due index ever later.
        op.execute(
            "ALTER TABLE work SET (autovacuum_vacuum_scale_factor = 0.03,"
            " autovacuum_vacuum_insert_scale_factor = 0.05)",
        )


def _work() -> None:
    op.create_table(
        "work",
        sa.Column("id", _ID, nullable=False),
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("subject", _ID, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column(
            "priority",
            sa.SmallInteger(),
            server_default=sa.text("2"),
            nullable=False,
        ),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("claim", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("claimed_by", sa.BigInteger(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "alone",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "failures",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "releases",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("first_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "replay_claim",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("success_claim", sa.Integer(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=True),
        sa.Column("wakes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "trigger",
            sa.SmallInteger(),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state = 'ready') = (phase IS NOT NULL)",
            name=op.f("ck_work_phase"),
        ),
        sa.CheckConstraint(
            "phase IS NULL OR (phase = 'asleep') = (due_at IS NULL)",
            name=op.f("ck_work_asleep"),
        ),
        sa.CheckConstraint(
            "state <> 'claimed' OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL AND deadline_at IS NOT NULL AND claim > 0)",
            name=op.f("ck_work_claimed"),
        ),
        sa.CheckConstraint(
            "state IN ('ready','claimed','succeeded','dead','cancelled','parked')",
            name=op.f("ck_work_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work")),
    )
    op.create_index(
        "ix_work_claimed",
        "work",
        ["lane", "claimed_by"],
        unique=False,
        postgresql_where=sa.text("state = 'claimed'"),
        sqlite_where=sa.text("state = 'claimed'"),
    )
    op.create_index(
        "ix_work_due",
        "work",
        ["lane", "priority", "due_at"],
        unique=False,
        postgresql_where=sa.text("phase = 'due'"),
        sqlite_where=sa.text("phase = 'due'"),
    )
    op.create_index(
        "ix_work_later",
        "work",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("phase = 'later'"),
        sqlite_where=sa.text("phase = 'later'"),
    )


def _attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("work", _ID, nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("node", sa.BigInteger(), nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "trigger",
            sa.SmallInteger(),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("state_after", sa.Text(), nullable=False),
        sa.Column("next_due_at", sa.BigInteger(), nullable=True),
        sa.Column("late_at", sa.BigInteger(), nullable=True),
        sa.Column("late_outcome", sa.Text(), nullable=True),
        sa.Column("late_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("work", "claim", name=op.f("pk_attempt")),
    )
    op.create_index("ix_attempt_lane_id", "attempt", ["lane", "id"], unique=False)


def _lane_group() -> None:
    op.create_table(
        "lane_group",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column(
            "next_lane",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lane_group")),
        sqlite_autoincrement=True,
    )


def _lane() -> None:
    op.create_table(
        "lane",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("subject", _ID, nullable=False),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=True),
        sa.Column("rate_per_second", sa.Integer(), nullable=True),
        sa.Column("tat", sa.BigInteger(), nullable=True),
        sa.Column(
            "ordered",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column(
            "order_policy",
            sa.Text(),
            server_default=sa.text("'block'"),
            nullable=False,
        ),
        sa.Column("skip_after", sa.Integer(), nullable=True),
        sa.Column("breaker_until", sa.BigInteger(), nullable=True),
        sa.Column(
            "half_open",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column(
            "at_most_once",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column(
            "version",
            sa.BigInteger(),
            server_default=sa.text("1"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "order_policy IN ('block','skip')",
            name=op.f("ck_lane_order_policy"),
        ),
        sa.CheckConstraint(
            "state IN ('open','paused','blocked','deleted')",
            name=op.f("ck_lane_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lane")),
    )
    op.create_index(
        "ix_lane_deleted",
        "lane",
        ["id"],
        unique=False,
        postgresql_where=sa.text("state = 'deleted'"),
        sqlite_where=sa.text("state = 'deleted'"),
    )


def _order_head() -> None:
    op.create_table(
        "order_head",
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column("order_key", _ID, nullable=False),
        sa.Column("next_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("lane", "order_key", name=op.f("pk_order_head")),
    )


def _order_line() -> None:
    op.create_table(
        "order_line",
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column("order_key", _ID, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("work", _ID, nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "lane",
            "order_key",
            "sequence",
            name=op.f("pk_order_line"),
        ),
    )


def _node() -> None:
    op.create_table(
        "node",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("serves", sa.Text(), nullable=False),
        sa.Column("lock_path", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("beat", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("beat_at", sa.BigInteger(), nullable=False),
        sa.Column("tick", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tick_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("closed_why", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('open','draining','closed')",
            name=op.f("ck_node_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sqlite_autoincrement=True,
    )


def _setting() -> None:
    op.create_table(
        "setting",
        sa.Column("name", _ID, nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_setting")),
    )
