"""Checks of the database as a whole: schema, indexes, identity, keys, retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.doctor.model import About, Check, Grade, Scope, Suspect, Table
from tenure.errors import WrongKeyRing
from tenure.limits import DOCTOR_BACKLOG_SECONDS, DOCTOR_SUSPECTS_MAX
from tenure.outbox import tables
from tenure.store.identity import Mismatch, compare_identity, read_setting
from tenure.store.revisions import NEWEST, VERSION_TABLE

if TYPE_CHECKING:
    from tenure.store.tx import Tx

__all__ = ["CHECKS"]

ENDPOINT: Final = Table(name="endpoint", alias="t", keys=(("id", "text"),))
SEALED: Final = ("secrets", "headers", "userinfo")


def _revision(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    del scope, about
    at = tx.scalar(f"SELECT version_num FROM {VERSION_TABLE}")
    if at == NEWEST:
        return []
    return [Suspect(key=(VERSION_TABLE,), what=f"at {at}; this release has {NEWEST}")]


def _indexes(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Compare each table's indexes with those that this release declares."""
    del scope, about
    present: dict[str, set[str]] = {table: set() for table in _TABLES}
    suspects: list[Suspect] = []
    for table, name, valid in tx.all(_INDEXES[tx.dialect]):
        if table not in _TABLES:
            continue
        present[table].add(name)
        if not valid:
            what = f"{name} of {table} is not valid, so nothing uses it"
            suspects.append(Suspect(key=(table, name), what=what))
    suspects += [
        Suspect(key=(table, name), what=f"{table} has no index {name}")
        for table, declared in _TABLES.items()
        for name in sorted(declared - present[table])
    ]
    return suspects + [
        Suspect(
            key=("work", name),
            what=f"work has an index {name} that is not Tenure's: every claim and every"
            " settlement pays for it",
        )
        for name in sorted(present["work"] - _TABLES["work"])
    ]


_TABLES: Final = {
    table.name: {str(index.name) for index in table.indexes}
    for table in tables.message.metadata.tables.values()
}
_INDEXES: Final = {
    "sqlite": "SELECT tbl_name, name, 1 FROM sqlite_master"
    " WHERE type = 'index' AND sql IS NOT NULL",
    "postgresql": "SELECT t.relname, c.relname, i.indisvalid FROM pg_index i"
    " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid"
    " WHERE NOT i.indisprimary AND pg_table_is_visible(t.oid)",
}


def _identity(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    del scope
    if about.deployment is None:
        return []
    verdict = compare_identity(tx, about.deployment)
    if not isinstance(verdict, Mismatch):
        return []
    return [Suspect(key=("identity",), what=verdict.reason)]


def _ring(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    del scope
    if about.ring_fault is not None:
        return [Suspect(key=("key_ring",), what=about.ring_fault)]
    check = read_setting(tx, "key_ring")
    if about.ring is None or check is None or about.ring.opens(check):
        return []
    return [Suspect(key=("key_ring",), what="the key ring does not open the database")]


def _secrets(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Open what each live endpoint has sealed."""
    ring = about.ring
    if ring is None:
        return []
    columns = ", ".join(f"t.{name}" for name in SEALED)
    suspects: list[Suspect] = []
    for id_, *sealed in tx.all(
        f"SELECT t.id, {columns} FROM endpoint t WHERE {scope.where}"
        " AND t.deleted_at IS NULL",
        scope.params,
    ):
        shut = [
            name
            for name, value in zip(SEALED, sealed, strict=True)
            if value is not None and not _opens(ring, value)
        ]
        if shut:
            suspects.append(Suspect(key=(id_,), what=f"cannot open {', '.join(shut)}"))
    return suspects


def _opens(ring: Any, value: bytes) -> bool:
    try:
        ring.open(bytes(value))
    except WrongKeyRing:
        return False
    return True


def _backlog(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Look whether what has passed its time still lies there."""
    del scope
    params = {"behind": tx.now - about.scaled_us(DOCTOR_BACKLOG_SECONDS)}
    suspects: list[Suspect] = []
    for name, query in _BACKLOGS.items():
        since = tx.scalar(query, params)
        if since is not None:
            hours = (tx.now - since) // 3_600_000_000
            suspects.append(Suspect(key=(name,), what=f"{hours} h behind"))
    return suspects


_BACKLOGS: Final = {
    "payload": "SELECT p.expires_at FROM payload p WHERE p.expunged_at IS NULL"
    " AND p.expires_at < :behind ORDER BY p.expires_at LIMIT 1",
    "idempotency": "SELECT i.expires_at FROM idempotency i"
    " WHERE i.expires_at < :behind ORDER BY i.expires_at LIMIT 1",
    "endpoint": "SELECT min(t.deleted_at) FROM endpoint t"
    " WHERE t.deleted_at < :behind AND t.cleared_to <> '~'",
}


def _pinned(tx: Tx, scope: Scope, about: About) -> list[Suspect]:
    """Look for transactions that keep PostgreSQL from removing dead rows."""
    del scope
    if tx.dialect != "postgresql":
        return []
    found = tx.all(
        "SELECT pid, CAST(extract(epoch FROM clock_timestamp() - xact_start) AS bigint)"
        " FROM pg_stat_activity WHERE datname = current_database()"
        " AND xact_start IS NOT NULL AND backend_type = 'client backend'"
        " AND extract(epoch FROM clock_timestamp() - xact_start) > :most"
        " ORDER BY xact_start LIMIT :rows",
        {
            "most": about.durations.scaled(DOCTOR_BACKLOG_SECONDS),
            "rows": DOCTOR_SUSPECTS_MAX,
        },
    )
    return [
        Suspect(key=(pid,), what=f"a transaction is open for {seconds} s")
        for pid, seconds in found
    ]


CHECKS: Final = (
    Check(
        code="schema.revision",
        invariant="the schema is at this release's revision",
        todo="`tenure migrate plan` says what is missing, `tenure migrate apply` does it",
        find=_revision,
        grade=Grade.ATTENTION,
    ),
    Check(
        code="schema.indexes",
        invariant="every index is there and valid, and `work` has no other",
        todo="make it again as `tenure migrate` does, or drop what is not Tenure's",
        find=_indexes,
    ),
    Check(
        code="deployment.identity",
        invariant="this database is the one that this deployment used first",
        todo="nothing is sent from a copy: `tenure adopt` says that it is meant",
        find=_identity,
        grade=Grade.ATTENTION,
    ),
    Check(
        code="deployment.ring",
        invariant="the key ring opens the database",
        todo="give the ring that it was used with (TENURE_SECRET_KEYS)",
        find=_ring,
    ),
    Check(
        code="endpoint.secrets",
        invariant="the key ring opens every endpoint's secrets",
        todo="add the missing key to TENURE_SECRET_KEYS, or rotate the secret",
        find=_secrets,
        table=ENDPOINT,
    ),
    Check(
        code="retention.backlog",
        invariant="what has passed its time is removed within the hour",
        todo="a running node removes it: is one open, and does its log say"
        " `housekeeping failed`?",
        find=_backlog,
        grade=Grade.ATTENTION,
    ),
    Check(
        code="database.pinned",
        invariant="no transaction is open for an hour",
        todo="end that session: while it is open, dead rows pile up and claims get slow",
        find=_pinned,
        grade=Grade.ATTENTION,
    ),
)
