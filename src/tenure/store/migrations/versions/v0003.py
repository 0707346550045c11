"""Retention: chores that one node does, how long applications keep, tasks."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0003_retention"
down_revision: Final = "0002_outbox"
phase: Final = "pre"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables; add columns that nodes of the release before leave empty."""
    op.create_table(
        "chore",
        sa.Column("name", _ID, nullable=False),
        sa.Column("holder", sa.BigInteger(), nullable=True),
        sa.Column("held_until", sa.BigInteger(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("place", _ID, server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_chore")),
    )
    op.create_table(
        "task",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("app", _ID, nullable=False),
        sa.Column("place", _ID, server_default=sa.text("''"), nullable=False),
        sa.Column("done", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
    )
    op.create_index("ix_task_tenant_id", "task", ["tenant", "id"], unique=False)
    op.create_index(
        "ix_task_running",
        "task",
        ["id"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NULL"),
        sqlite_where=sa.text("finished_at IS NULL"),
    )
    for name in ("history_days", "payload_days", "response_days"):
        op.add_column("application", sa.Column(name, sa.Integer(), nullable=True))
    op.add_column("node", sa.Column("revision", sa.Text(), nullable=True))
