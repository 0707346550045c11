"""Whether this database is the one it claims to be, or a copy of it.

A restored dump and a copied file carry the rows of the original, and would send again
what the original sends. So the database keeps what it was told and what it could see of
itself when it was first used; a difference means *copy* until an operator adopts it.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    not be read then is not compared. Nothing is written on a mismatch.
    """
    found = _look(tx, deployment)
    raw = claim_setting(tx, _NAME, msgspec.json.encode(found))
    return _verdict(msgspec.json.decode(raw, type=Identity), found)


def compare_identity(tx: Tx, deployment: str) -> Verdict | None:
    """As `check_identity`, writing nothing; None for a database never used yet."""
    raw = read_setting(tx, _NAME)
    if raw is None:
        return None
    stored = msgspec.json.decode(raw, type=Identity)
    return _verdict(stored, _look(tx, deployment))


def _verdict(stored: Identity, found: Identity) -> Verdict:
    for what, was, now in (
        ("deployment", stored.deployment, found.deployment),
        ("system identifier", stored.system, found.system),
        ("database name", stored.database, found.database),
    ):
        if was is not None and now is not None and was != now:
            reason = f"the {what} was {was!r} and is {now!r}"
            return Mismatch(stored=stored, found=found, reason=reason)
    return Matches(identity=stored)


def adopt_identity(tx: Tx, deployment: str) -> Identity:
    """Say that the database, copy or not, is this deployment's from now on."""
    found = _look(tx, deployment)
    write_setting(tx, _NAME, msgspec.json.encode(found))
    return found


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
        deployment=deployment, system=system, database=database, born=token()
    )
