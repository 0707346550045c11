"""Whether this database is the one it claims to be, or a copy of it.

A restored dump and a copied file carry the rows of the original, and would send again
what the original sends. So the database keeps what it was told and what it could see of
itself when it was first used; a difference means *copy* until an operator adopts it.

A SQLite file has no identifier of its own, and may be moved. It is a copy when the file
that it says it is still lies in its place and says the same. A copy on another machine
can be told by the name of the deployment only.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
from sqlalchemy.exc import DBAPIError

from tenure.ids import token
from tenure.store.schema import setting

if TYPE_CHECKING:
    from tenure.store.tx import Tx

__all__ = [
    "Identity",
    "Matches",
    "Mismatch",
    "adopt_identity",
    "check_identity",
    "claim_setting",
    "compare_identity",
    "read_setting",
    "write_setting",
]

_NAME: Final = "identity"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a database says of itself."""

    deployment: str
    """`TENURE_DEPLOYMENT`: what its operator calls it."""
    system: str | None
    """PostgreSQL's system identifier; None where it may not be read, or on SQLite."""
    database: str | None
    """PostgreSQL's name of the database; None on SQLite, where files may be moved."""
    born: str
    """Random, made at first use: tells two databases apart, not a copy from its source."""
    path: str | None = None
    """Where the SQLite file was when it was last opened; None on PostgreSQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The database is the one that was first used under this deployment's name."""

    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The database looks like a copy; `reason` says what differs."""

    stored: Identity
    found: Identity
    reason: str


Verdict: TypeAlias = Matches | Mismatch


def read_setting(tx: Tx, name: str) -> bytes | None:
    """Return what the database keeps under `name`; None when it keeps nothing."""
    value = tx.scalar("SELECT value FROM setting WHERE name = :name", {"name": name})
    return None if value is None else bytes(value)


def write_setting(tx: Tx, name: str, value: bytes) -> None:
    """Keep `value` under `name`, in place of what was there."""
    tx.run(
        "INSERT INTO setting (name, value, updated_at)"
        " VALUES (:name, :value, :now) ON CONFLICT (name)"
        " DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
        {"name": name, "value": value, "now": tx.now},
    )


def claim_setting(tx: Tx, name: str, value: bytes) -> bytes:
    """Keep `value` under `name` unless something is there; return what is kept."""
    row = {"name": name, "value": value, "updated_at": tx.now}
    tx.insert(setting, [row], on_conflict="nothing")
    return cast("bytes", read_setting(tx, name))


def check_identity(tx: Tx, deployment: str) -> Verdict:
    """Compare the database with what it said of itself at first use; store that then.

    A fact that cannot be read now (the system identifier needs a privilege) or could
    not be read then is not compared. Nothing is written on a mismatch; a SQLite file
    that was moved is known by its new place from then on.
    """
    found = _look(tx, deployment)
    raw = claim_setting(tx, _NAME, msgspec.json.encode(found))
    stored = msgspec.json.decode(raw, type=Identity)
    verdict = _verdict(stored, found)
    if isinstance(verdict, Mismatch) or found.path == stored.path:
        return verdict
    moved = msgspec.structs.replace(stored, path=found.path)
    write_setting(tx, _NAME, msgspec.json.encode(moved))
    return Matches(identity=moved)


def compare_identity(tx: Tx, deployment: str) -> Verdict | None:
    """As `check_identity`, writing nothing; None for a database never used yet."""
    raw = read_setting(tx, _NAME)
    if raw is None:
        return None
    stored = msgspec.json.decode(raw, type=Identity)
    return _verdict(stored, _look(tx, deployment))


def adopt_identity(tx: Tx, deployment: str) -> Identity:
    """Say that the database, copy or not, is this deployment's from now on."""
    found = _look(tx, deployment)
    write_setting(tx, _NAME, msgspec.json.encode(found))
    return found


def _verdict(stored: Identity, found: Identity) -> Verdict:
    reason = _difference(stored, found)
    if reason is not None:
        return Mismatch(stored=stored, found=found, reason=reason)
    return Matches(identity=stored)


def _difference(stored: Identity, found: Identity) -> str | None:
    for what, was, now in (
        ("deployment", stored.deployment, found.deployment),
        ("system identifier", stored.system, found.system),
        ("database name", stored.database, found.database),
    ):
        if was is not None and now is not None and was != now:
            return f"the {what} was {was!r} and is {now!r}"
    if found.path is not None and _is_copied(stored, found.path):
        return f"its file was copied from {stored.path}, which is still there"
    return None


def _is_copied(stored: Identity, path: str) -> bool:
    """Tell whether the file that the database says it is lies beside it, and lives."""
    if stored.path is None or stored.path == path or not Path(stored.path).exists():
        return False
    if Path(stored.path).samefile(path):
        return False
    try:
        source = f"{Path(stored.path).as_uri()}?mode=ro"
        with closing(sqlite3.connect(source, uri=True)) as other:
            row = other.execute(
                "SELECT value FROM setting WHERE name = ?", (_NAME,)
            ).fetchone()
        return row is not None and _born(row[0]) == stored.born
    except (sqlite3.Error, OSError, msgspec.MsgspecError):
        return False  # whatever lies there now, it is not the database it was


def _born(raw: bytes) -> str:
    return msgspec.json.decode(raw, type=Identity).born


def _look(tx: Tx, deployment: str) -> Identity:
    system: str | None = None
    database: str | None = None
    if tx.dialect == "postgresql":
        database = cast("str", tx.scalar("SELECT current_database()"))
        try:
            with tx.savepoint():
                seen = tx.scalar("SELECT system_identifier FROM pg_control_system()")
                system = str(seen)
        except DBAPIError as error:
            # Managed servers may keep this function to themselves.
            if getattr(error.orig, "sqlstate", None) != "42501":
                raise
    return Identity(
        deployment=deployment,
        system=system,
        database=database,
        born=token(),
        path=_file(tx) if tx.dialect == "sqlite" else None,
    )


def _file(tx: Tx) -> str:
    row = tx.first("SELECT file FROM pragma_database_list WHERE name = 'main'")
    assert row is not None
    return os.path.realpath(row.file)
