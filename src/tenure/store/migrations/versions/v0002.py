"""The outbox: applications, endpoints, event types, messages, deliveries, exchanges."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0002_outbox"
down_revision: Final = "0001_kernel"
phase: Final = "pre"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    _application()
    _endpoint()
    _event_type()
    _message()
    _payload()
    _delivery()
    _unmatched()
    _exchange()
    _idempotency()
    _api_key()


def _application() -> None:
    op.create_table(
        "application",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("uid", _ID, nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("throttle_rate", sa.Integer(), nullable=True),
        sa.Column(
            "metadata",
            sa.Text(),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("lane_group", sa.BigInteger(), nullable=False),
        sa.Column(
            "config_version",
            sa.BigInteger(),
            server_default=sa.text("1"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_application")),
    )
    op.create_index(
        "ix_application_tenant_id",
        "application",
        ["tenant", "id"],
        unique=False,
    )
    op.create_index(
        "uq_application_tenant_uid",
        "application",
        ["tenant", "uid"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
        sqlite_where=sa.text("deleted_at IS NULL"),
    )


def _endpoint() -> None:
    op.create_table(
        "endpoint",
        sa.Column("id", _ID, nullable=False),
        sa.Column("app", _ID, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("uid", _ID, nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column(
            "description",
            sa.Text(),
            server_default=sa.text("''"),
            nullable=False,
        ),
        sa.Column(
            "disabled",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column("disabled_why", sa.Text(), nullable=True),
        sa.Column("throttle_rate", sa.Integer(), nullable=True),
        sa.Column("event_types", sa.Text(), nullable=True),
        sa.Column("channels", sa.Text(), nullable=True),
        sa.Column(
            "metadata",
            sa.Text(),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("headers", sa.LargeBinary(), nullable=True),
        sa.Column("secrets", sa.LargeBinary(), nullable=False),
        sa.Column("userinfo", sa.LargeBinary(), nullable=True),
        sa.Column(
            "settings",
            sa.Text(),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column(
            "svix_version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("cleared_to", _ID, server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint")),
    )
    op.create_index("ix_endpoint_app_id", "endpoint", ["app", "id"], unique=False)
    op.create_index("ix_endpoint_lane", "endpoint", ["lane"], unique=True)
    op.create_index(
        "ix_endpoint_uncleared",
        "endpoint",
        ["id"],
        unique=False,
        postgresql_where=sa.text("deleted_at IS NOT NULL AND cleared_to <> '~'"),
        sqlite_where=sa.text("deleted_at IS NOT NULL AND cleared_to <> '~'"),
    )
    op.create_index(
        "uq_endpoint_app_uid",
        "endpoint",
        ["app", "uid"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
        sqlite_where=sa.text("deleted_at IS NULL"),
    )


def _event_type() -> None:
    op.create_table(
        "event_type",
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("name", _ID, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column(
            "archived",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column(
            "deprecated",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column("schemas", sa.Text(), nullable=True),
        sa.Column("feature_flags", sa.Text(), nullable=True),
        sa.Column("group_name", sa.Text(), nullable=True),
        sa.Column(
            "schema_check",
            sa.Text(),
            server_default=sa.text("'off'"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_event_type")),
    )


def _message() -> None:
    op.create_table(
        "message",
        sa.Column("id", _ID, nullable=False),
        sa.Column("app", _ID, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("event_id", _ID, nullable=True),
        sa.Column("event_type", _ID, nullable=False),
        sa.Column("channels", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("deliver_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message")),
    )
    op.create_index("ix_message_app_id", "message", ["app", "id"], unique=False)
    op.create_index(
        "uq_message_app_event_id",
        "message",
        ["app", "event_id"],
        unique=True,
        postgresql_where=sa.text("event_id IS NOT NULL"),
        sqlite_where=sa.text("event_id IS NOT NULL"),
    )


def _payload() -> None:
    op.create_table(
        "payload",
        sa.Column("message", _ID, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("expunged_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(body IS NULL) = (expunged_at IS NOT NULL)",
            name=op.f("ck_payload_expunged"),
        ),
        sa.PrimaryKeyConstraint("message", name=op.f("pk_payload")),
    )
    op.create_index(
        "ix_payload_expires_at",
        "payload",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("expunged_at IS NULL"),
        sqlite_where=sa.text("expunged_at IS NULL"),
    )


def _delivery() -> None:
    op.create_table(
        "delivery",
        sa.Column("message", _ID, nullable=False),
        sa.Column("endpoint", _ID, nullable=False),
        sa.Column("work", _ID, nullable=False),
        sa.Column("app", _ID, nullable=False),
        sa.Column("lane", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("message", "endpoint", name=op.f("pk_delivery")),
    )
    op.create_index(
        "ix_delivery_endpoint_message",
        "delivery",
        ["endpoint", "message"],
        unique=False,
    )
    op.create_index("ix_delivery_work", "delivery", ["work"], unique=True)


def _unmatched() -> None:
    op.create_table(
        "unmatched",
        sa.Column("message", _ID, nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("message", name=op.f("pk_unmatched")),
    )


def _exchange() -> None:
    op.create_table(
        "exchange",
        sa.Column("work", _ID, nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("tls_version", sa.Text(), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("request_headers", sa.LargeBinary(), nullable=True),
        sa.Column("response_headers", sa.LargeBinary(), nullable=True),
        sa.Column("response_body", sa.LargeBinary(), nullable=True),
        sa.Column(
            "truncated",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
        ),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("timings", sa.Text(), nullable=True),
        sa.Column("expunged_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("work", "claim", name=op.f("pk_exchange")),
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("key", _ID, nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("subject", _ID, nullable=True),
        sa.Column("status", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(
        "ix_idempotency_expires_at",
        "idempotency",
        ["expires_at"],
        unique=False,
    )


def _api_key() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant", _ID, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("app", _ID, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "scope IN ('read','write','admin')",
            name=op.f("ck_api_key_scope"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
    )
    op.create_index("ix_api_key_tenant_id", "api_key", ["tenant", "id"], unique=False)
    op.create_index("uq_api_key_hash", "api_key", ["hash"], unique=True)
