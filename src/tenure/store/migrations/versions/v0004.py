"""Inbox: sources, receipts, refusals; what a message tells of its arrival; archives."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0004_inbox"
down_revision: Final = "0003_retention"
phase: Final = "pre"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_LIVE: Final = sa.text("deleted_at IS NULL")
_DATED: Final = sa.text("expires_at IS NOT NULL")


def upgrade() -> None:
    """Create the tables; add a column that nodes of the release before leave empty."""
    op.add_column("message", sa.Column("relay", sa.Text(), nullable=True))
    _archive()
    _sources()
    _receipts()
    _refusals()


def _column(name: str, kind: Any = None, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _ID if kind is None else kind, nullable=null)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def _archive() -> None:
    op.create_table(
        "archived",
        _column("endpoint"),
        _column("message"),
        _column("work"),
        _column("app"),
        _column("tenant"),
        _column("event_type"),
        _column("content_type", sa.Text(), null=True),
        _column("headers", sa.LargeBinary(), null=True),
        _column("body", sa.LargeBinary()),
        _column("archived_at", sa.BigInteger()),
        _column("expires_at", sa.BigInteger(), null=True),
        _key("archived", "endpoint", "message"),
    )
    op.create_index(
        "ix_archived_expires_at",
        "archived",
        ["expires_at"],
        unique=False,
        postgresql_where=_DATED,
        sqlite_where=_DATED,
    )


def _sources() -> None:
    op.create_table(
        "source",
        _column("id"),
        _column("tenant"),
        _column("app"),
        _column("uid", null=True),
        _column("name", sa.Text()),
        _column("path"),
        _column("verification", sa.Text()),
        sa.Column(
            "settings", sa.Text(), server_default=sa.text("'{}'"), nullable=False
        ),
        _column("secrets", sa.LargeBinary()),
        _column("pull", sa.LargeBinary(), null=True),
        sa.Column(
            "metadata", sa.Text(), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "disabled", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column(
            "version", sa.BigInteger(), server_default=sa.text("1"), nullable=False
        ),
        sa.Column(
            "next_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        _column("created_at", sa.BigInteger()),
        _column("updated_at", sa.BigInteger()),
        _column("deleted_at", sa.BigInteger(), null=True),
        _key("source", "id"),
    )
    op.create_index("ix_source_tenant_id", "source", ["tenant", "id"], unique=False)
    op.create_index("ix_source_app", "source", ["app"], unique=False)
    op.create_index("uq_source_path", "source", ["path"], unique=True)
    op.create_index(
        "uq_source_tenant_uid",
        "source",
        ["tenant", "uid"],
        unique=True,
        postgresql_where=_LIVE,
        sqlite_where=_LIVE,
    )
    op.create_table(
        "listener",
        _column("tenant"),
        _column("name"),
        _column("place", sa.BigInteger()),
        _column("receipt"),
        _column("created_at", sa.BigInteger()),
        _column("updated_at", sa.BigInteger()),
        _key("listener", "tenant", "name"),
    )


def _receipts() -> None:
    op.create_table(
        "receipt",
        _column("id"),
        _column("tenant"),
        _column("source"),
        _column("app"),
        _column("message", null=True),
        _column("messages", sa.Integer()),
        _column("event_type"),
        _column("event_id", sa.Text(), null=True),
        _column("method", sa.Text()),
        _column("address", sa.Text(), null=True),
        _column("size", sa.BigInteger()),
        _column("place", sa.BigInteger()),
        _column("received_at", sa.BigInteger()),
        _key("receipt", "id"),
    )
    op.create_index("ix_receipt_source_id", "receipt", ["source", "id"], unique=False)
    op.create_index("ix_receipt_tenant_id", "receipt", ["tenant", "id"], unique=False)
    op.create_index("ix_receipt_place", "receipt", ["place"], unique=False)
    op.create_index("ix_receipt_message", "receipt", ["message"], unique=False)
    op.create_table(
        "receipt_part",
        _column("receipt"),
        _column("position", sa.Integer()),
        _column("message"),
        _key("receipt_part", "receipt", "position"),
    )
    op.create_table(
        "receipt_body",
        _column("receipt"),
        _column("relay", sa.Text()),
        _column("body", sa.LargeBinary()),
        _key("receipt_body", "receipt"),
    )
    op.create_table(
        "receipt_key",
        _column("source"),
        _column("key"),
        _column("receipt"),
        _column("expires_at", sa.BigInteger()),
        _key("receipt_key", "source", "key"),
    )
    op.create_index(
        "ix_receipt_key_expires_at", "receipt_key", ["expires_at"], unique=False
    )


def _refusals() -> None:
    op.create_table(
        "refused",
        _column("id"),
        _column("tenant"),
        _column("source"),
        _column("reason", sa.Text()),
        _column("detail", sa.Text()),
        _column("status", sa.Integer()),
        _column("method", sa.Text()),
        _column("query", sa.Text()),
        _column("address", sa.Text(), null=True),
        _column("headers", sa.LargeBinary()),
        _column("body", sa.LargeBinary()),
        _column("size", sa.BigInteger()),
        _column("received_at", sa.BigInteger()),
        _key("refused", "id"),
    )
    op.create_index("ix_refused_source_id", "refused", ["source", "id"], unique=False)
    op.create_table(
        "refusal_count",
        _column("source"),
        _column("reason"),
        _column("count", sa.BigInteger()),
        _column("last_at", sa.BigInteger()),
        _key("refusal_count", "source", "reason"),
    )
