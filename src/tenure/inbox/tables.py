"""The inbox's tables: where webhooks arrive, what arrived, what was refused and why.

Theory. A `receipt`, the `receipt_key` rows that make it the only one of its event, and
the messages it becomes (with their bytes, header lines and work) are inserted in one
commit; the answer follows it. So a sender who saw no 2xx finds nothing used up, and one
who saw it finds the work. A receipt's bytes are its message's payload; only a request
that became several messages keeps its own in `receipt_body`.

Refusals are for people: counted by reason, the newest few of each source kept whole.
Instants and ids are as in `tenure.store.schema`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
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

source = Table(
    "source",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("uid", Id),
    Column("name", Text, nullable=False),
    Column("path", Id, nullable=False),
    Column("verification", Text, nullable=False),
    Column("settings", Text, nullable=False, server_default=text("'{}'")),
    Column("secrets", LargeBinary, nullable=False),
    Column("pull", LargeBinary),
    Column("metadata", Text, nullable=False, server_default=text("'{}'")),
    Column("disabled", Boolean, nullable=False, server_default=text("false")),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    Column("next_at", BigInteger, nullable=False, server_default=text("0")),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("deleted_at"),
    PrimaryKeyConstraint("id"),
)
"""`path` is what a URL names; nobody can guess it where nothing is verified. `secrets`
and `pull` (a broker's address with its password) are sealed. `version` rises with every
change: the key under which a node remembers it, asked again by every accept. `next_at`
is the rate limit's own instant (GCRA, µs), written for sources that have one."""
Index("ix_source_tenant_id", source.c.tenant, source.c.id)
Index("ix_source_app", source.c.app)
Index("uq_source_path", source.c.path, unique=True)
Index(
    "uq_source_tenant_uid",
    source.c.tenant,
    source.c.uid,
    unique=True,
    postgresql_where=text("deleted_at IS NULL"),
    sqlite_where=text("deleted_at IS NULL"),
)

receipt = Table(
    "receipt",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("source", Id, nullable=False),
    Column("app", Id, nullable=False),
    Column("message", Id),
    Column("messages", Integer, nullable=False),
    Column("event_type", Id, nullable=False),
    Column("event_id", Text),
    Column("method", Text, nullable=False),
    Column("address", Text),
    Column("size", BigInteger, nullable=False),
    Column("place", BigInteger, nullable=False),
    instant("received_at", nullable=False),
    PrimaryKeyConstraint("id"),
)
"""One accepted request. `message` is the message it became, NULL when it became
`messages` of them, or none. `place` orders receipts by their commit: it never falls, and
below the horizon (`tenure.inbox.ledger.places`) nothing is added to it any more."""
Index("ix_receipt_source_id", receipt.c.source, receipt.c.id)
Index("ix_receipt_tenant_id", receipt.c.tenant, receipt.c.id)
Index("ix_receipt_place", receipt.c.place)
Index("ix_receipt_message", receipt.c.message)

receipt_part = Table(
    "receipt_part",
    metadata,
    Column("receipt", Id, nullable=False),
    Column("position", Integer, nullable=False),
    Column("message", Id, nullable=False),
    PrimaryKeyConstraint("receipt", "position"),
)
"""The messages of a receipt that became several, in their order in the request."""

receipt_body = Table(
    "receipt_body",
    metadata,
    Column("receipt", Id, nullable=False),
    Column("relay", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("receipt"),
)
"""The request of a receipt that did not become exactly one message."""

receipt_key = Table(
    "receipt_key",
    metadata,
    Column("source", Id, nullable=False),
    Column("key", Id, nullable=False),
    Column("receipt", Id, nullable=False),
    instant("expires_at", nullable=False),
    PrimaryKeyConstraint("source", "key"),
)
"""What must not arrive twice at a source: `k:` and a provider's event id, `n:` and a
signed request's nonce. Written in the receipt's own commit, so never used up by a request
that was not stored."""
Index("ix_receipt_key_expires_at", receipt_key.c.expires_at)

refused = Table(
    "refused",
    metadata,
    Column("id", Id, nullable=False),
    Column("tenant", Id, nullable=False),
    Column("source", Id, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("method", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("address", Text),
    Column("headers", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    instant("received_at", nullable=False),
    PrimaryKeyConstraint("id"),
)
"""The newest refused requests of each source: for people, never handed on. The body is
cut to a bound, credentials in the header lines are masked."""
Index("ix_refused_source_id", refused.c.source, refused.c.id)

refusal_count = Table(
    "refusal_count",
    metadata,
    Column("source", Id, nullable=False),
    Column("reason", Id, nullable=False),
    Column("count", BigInteger, nullable=False),
    instant("last_at", nullable=False),
    PrimaryKeyConstraint("source", "reason"),
)

listener = Table(
    "listener",
    metadata,
    Column("tenant", Id, nullable=False),
    Column("name", Id, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("receipt", Id, nullable=False),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    PrimaryKeyConstraint("tenant", "name"),
)
"""How far somebody who listens by a name has got: everything up to and including this
receipt of this place was taken."""
