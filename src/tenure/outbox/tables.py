"""The outbox's tables: who sends, where to, what, by which work row, what came back.

Theory. A message, its bytes, one `delivery` with its work row for each endpoint that it
matched, one `unmatched` row with the reasons for the others, and the idempotency record are inserted
in one commit. `delivery` is insert-only and carries the UNIQUE (message, endpoint), so
the kernel's `work` needs no index for it. Payloads lie apart from messages and
exchanges apart from attempts, so that lists and retention never touch bodies.

Structured small values (channels, headers, settings) are JSON text written by us. Sealed
columns hold bytes of the key ring. Instants and ids are as in `tenure.store.schema`.
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
    text,
)

from tenure.store.schema import Id, instant, metadata

application = Table(
    "application",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("uid", Id),
    Column("name", Text, nullable=False),
    Column("throttle_rate", Integer),
    Column("metadata", Text, nullable=False, server_default=text("'{}'")),
    Column("lane_group", BigInteger, nullable=False),
    Column("config_version", BigInteger, nullable=False, server_default=text("1")),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("deleted_at"),
    Column("history_days", Integer),
    Column("payload_days", Integer),
    Column("response_days", Integer),
    PrimaryKeyConstraint("id"),
)
"""`config_version` rises with every change to one of its endpoints: the key under which
a node caches the application's route table. `…_days` say how long it keeps what is over;
NULL is the deployment's."""
Index("ix_application_tenant_id", application.c.tenant, application.c.id)
Index(
    "uq_application_tenant_uid",
    application.c.tenant,
    application.c.uid,
    unique=True,
    postgresql_where=text("deleted_at IS NULL"),
    sqlite_where=text("deleted_at IS NULL"),
)

endpoint = Table(
    "endpoint",
    metadata,
    Column("id", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("uid", Id),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=text("''")),
    Column("disabled", Boolean, nullable=False, server_default=text("false")),
    Column("disabled_why", Text),
    Column("throttle_rate", Integer),
    Column("event_types", Text),
    Column("channels", Text),
    Column("metadata", Text, nullable=False, server_default=text("'{}'")),
    Column("headers", LargeBinary),
    Column("secrets", LargeBinary, nullable=False),
    Column("userinfo", LargeBinary),
    Column("settings", Text, nullable=False, server_default=text("'{}'")),
    Column("lane", BigInteger, nullable=False),
    Column("svix_version", Integer, nullable=False, server_default=text("1")),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("deleted_at"),
    Column("cleared_to", Id, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("id"),
)
"""`url` is kept without user info, which lies sealed in `userinfo`; `headers` and
`secrets` are sealed too. The configuration's version is that of its lane."""
Index("ix_endpoint_app_id", endpoint.c.app, endpoint.c.id)
Index("ix_endpoint_lane", endpoint.c.lane, unique=True)
Index(
    "ix_endpoint_uncleared",
    endpoint.c.id,
    postgresql_where=text("deleted_at IS NOT NULL AND cleared_to <> '~'"),
    sqlite_where=text("deleted_at IS NOT NULL AND cleared_to <> '~'"),
)
Index(
    "uq_endpoint_app_uid",
    endpoint.c.app,
    endpoint.c.uid,
    unique=True,
    postgresql_where=text("deleted_at IS NULL"),
    sqlite_where=text("deleted_at IS NULL"),
)

event_type = Table(
    "event_type",
    metadata,
    Column("tenant", Id, nullable=False),
    Column("name", Id, nullable=False),
    Column("description", Text, nullable=False),
    Column("archived", Boolean, nullable=False, server_default=text("false")),
    Column("deprecated", Boolean, nullable=False, server_default=text("false")),
    Column("schemas", Text),
    Column("feature_flags", Text),
    Column("group_name", Text),
    Column("schema_check", Text, nullable=False, server_default=text("'off'")),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    PrimaryKeyConstraint("tenant", "name"),
)

message = Table(
    "message",
    metadata,
    Column("id", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("event_id", Id),
    Column("event_type", Id, nullable=False),
    Column("channels", Text),
    Column("tags", Text),
    Column("headers", Text),
    Column("content_type", Text),
    instant("deliver_at"),
    instant("expires_at"),
    instant("created_at", nullable=False),
    Column("relay", Text),
    PrimaryKeyConstraint("id"),
)
"""`relay` is how a message arrived that came as a webhook (`tenure.outbox.relayed`).
`content_type` is NULL for JSON. `expires_at` is the sender's own: past it nothing is
sent any more. `deliver_at` is when the first attempt was asked for."""
Index("ix_message_app_id", message.c.app, message.c.id)
Index(
    "uq_message_app_event_id",
    message.c.app,
    message.c.event_id,
    unique=True,
    postgresql_where=text("event_id IS NOT NULL"),
    sqlite_where=text("event_id IS NOT NULL"),
)

payload = Table(
    "payload",
    metadata,
    Column("message", Id, nullable=False),
    Column("body", LargeBinary),
    instant("expires_at", nullable=False),
    instant("expunged_at"),
    PrimaryKeyConstraint("message"),
    CheckConstraint("(body IS NULL) = (expunged_at IS NOT NULL)", name="expunged"),
)
"""The bytes exactly as given and as sent; NULL once expunged."""
Index(
    "ix_payload_expires_at",
    payload.c.expires_at,
    postgresql_where=text("expunged_at IS NULL"),
    sqlite_where=text("expunged_at IS NULL"),
)

delivery = Table(
    "delivery",
    metadata,
    Column("message", Id, nullable=False),
    Column("endpoint", Id, nullable=False),
    Column("work", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("lane", BigInteger, nullable=False),
    instant("created_at", nullable=False),
    PrimaryKeyConstraint("message", "endpoint"),
)
"""Which work row carries a message to an endpoint. Insert-only."""
Index("ix_delivery_work", delivery.c.work, unique=True)
Index("ix_delivery_endpoint_message", delivery.c.endpoint, delivery.c.message)

unmatched = Table(
    "unmatched",
    metadata,
    Column("message", Id, nullable=False),
    Column("reasons", Text, nullable=False),
    PrimaryKeyConstraint("message"),
)
"""Why a message made no work row for some endpoints: JSON of endpoint id → reason; empty
when the application had no endpoint at all. One row, so that a thousand filters cost a
message one insert. Insert-only; no row = every endpoint matched."""

exchange = Table(
    "exchange",
    metadata,
    Column("work", Id, nullable=False),
    Column("claim", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("address", Text),
    Column("tls_version", Text),
    Column("status_code", Integer),
    Column("cause", Text),
    Column("phase", Text),
    Column("detail", Text),
    Column("request_headers", LargeBinary),
    Column("response_headers", LargeBinary),
    Column("response_body", LargeBinary),
    Column("truncated", Boolean, nullable=False, server_default=text("false")),
    Column("duration_us", BigInteger, nullable=False),
    Column("timings", Text),
    instant("expunged_at"),
    PrimaryKeyConstraint("work", "claim"),
)
"""What went over the wire in one attempt: the address as it was then, header blocks as
JSON bytes (request values masked), the response's first bytes. `status_code` is NULL when
there was no HTTP answer; `cause` and `phase` then say why."""

archived = Table(
    "archived",
    metadata,
    Column("endpoint", Id, nullable=False),
    Column("message", Id, nullable=False),
    Column("work", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("event_type", Id, nullable=False),
    Column("content_type", Text),
    Column("headers", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    instant("archived_at", nullable=False),
    instant("expires_at"),
    PrimaryKeyConstraint("endpoint", "message"),
)
"""What an endpoint of the kind `archive` has taken, in the commit that settled it.
Insert-only; `expires_at` NULL keeps it for ever."""
Index(
    "ix_archived_expires_at",
    archived.c.expires_at,
    postgresql_where=text("expires_at IS NOT NULL"),
    sqlite_where=text("expires_at IS NOT NULL"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Id, nullable=False),
    Column("key", Id, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("subject", Id),
    Column("status", Integer, nullable=False, server_default=text("0")),
    Column("answer", LargeBinary),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    PrimaryKeyConstraint("tenant", "key"),
)
"""What a key was used for: the hash of operation and body, and the answer. A message's
answer is its id (`subject`); other creations keep their answer as bytes."""
Index("ix_idempotency_expires_at", idempotency.c.expires_at)

api_key = Table(
    "api_key",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("hash", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("app", Id),
    instant("created_at", nullable=False),
    instant("expires_at"),
    instant("last_used_at"),
    instant("revoked_at"),
    PrimaryKeyConstraint("id"),
    CheckConstraint("scope IN ('read','write','admin')", name="scope"),
)
"""A key is stored as the SHA-256 of its 256 random bits; the token is shown once."""
Index("uq_api_key_hash", api_key.c.hash, unique=True)
Index("ix_api_key_tenant_id", api_key.c.tenant, api_key.c.id)

task = Table(
    "task",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("kind", Text, nullable=False),
    Column("app", Id, nullable=False),
    Column("place", Id, nullable=False, server_default=text("''")),
    Column("done", BigInteger, nullable=False, server_default=text("0")),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("finished_at"),
    PrimaryKeyConstraint("id"),
)
"""A job in the background that an API call left behind: how far it got, in `done` rows
and at which key; running until `finished_at` is set."""
Index("ix_task_tenant_id", task.c.tenant, task.c.id)
Index(
    "ix_task_running",
    task.c.id,
    postgresql_where=text("finished_at IS NULL"),
    sqlite_where=text("finished_at IS NULL"),
)
