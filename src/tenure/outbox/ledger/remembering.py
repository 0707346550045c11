"""Idempotency keys: what a key was used for, in the same commit as what it did.

A key belongs to a tenant. It is bound to one operation and one body by a fingerprint;
another use of it is refused until it expires. Two at once meet on the row: the second
waits for the first one's commit and then reads its answer. Errors are not kept, because
the transaction that would keep them is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tenure.clock import US
from tenure.errors import IdempotencyKeyReused
from tenure.ids import TenantId
from tenure.outbox import tables
from tenure.outbox.model import Idempotency, Written
from tenure.outbox.rules import check_idempotency_key, fingerprint

if TYPE_CHECKING:
    from tenure.store.tx import Tx

T = TypeVar("T")

_COLUMNS: Final = "tenant, key, body_hash, subject, status, answer, expires_at"
_CREATED: Final = 201
_CHANGED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use of a key: `mark` is the fingerprint of operation and body.

    `subject` is the id that the use makes, if it makes one that is known before.
    """

    tenant: TenantId
    key: str
    mark: str
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is remembered of a key; `ours` = this very use wrote it."""

    mark: str
    subject: str | None
    status: int
    answer: bytes | None
    ours: bool


def use_of(
    tenant: TenantId, given: Idempotency, operation: str, subject: str | None = None
) -> Use:
    """Return the use of a key by an operation; raises ValidationFailed for a bad key."""
    key = check_idempotency_key(given.key)
    mark = fingerprint(operation, given.body_hash)
    return Use(tenant=tenant, key=key, mark=mark, subject=subject)


def reserve(
    tx: Tx, uses: Sequence[Use], *, keep_seconds: float
) -> dict[tuple[TenantId, str], Held]:
    """Write down each use whose key is free; return what every key stands for now.

    Keys are distinct. They are taken in their order, which is the lock order. A key
    that expired is free.
    """
    expires_at = tx.now + round(keep_seconds * US)
    ordered = sorted(uses, key=lambda use: (use.tenant, use.key))
    fresh = tx.insert(
        tables.idempotency,
        [_row(use, tx.now, expires_at) for use in ordered],
        on_conflict="nothing",
    )
    if fresh == len(ordered):
        return {(use.tenant, use.key): _ours(use) for use in ordered}
    found = _read(tx, ordered)
    answers: dict[tuple[TenantId, str], Held] = {}
    for use in ordered:
        row = found.get((use.tenant, use.key))
        if row is None or (row.expires_at <= tx.now and not _own(row, use)):
            row = _take_over(tx, use, expires_at)
        answers[use.tenant, use.key] = (
            _ours(use)
            if row is None
            else Held(
                mark=row.body_hash,
                subject=row.subject,
                status=row.status,
                answer=row.answer,
                ours=_own(row, use),
            )
        )
    return answers


def forget(tx: Tx, uses: Sequence[Use]) -> None:
    """Free keys whose use came to nothing in this transaction."""
    for use in uses:
        tx.run(
            "DELETE FROM idempotency WHERE tenant = :tenant AND key = :key"
            " AND body_hash = :mark",
            {"tenant": use.tenant, "key": use.key, "mark": use.mark},
        )


def once(
    tx: Tx,
    tenant: TenantId,
    given: Idempotency | None,
    operation: str,
    do: Callable[[], Written[T]],
    kind: Any,
    *,
    keep_seconds: float,
) -> Written[T]:
    """Do it, or return the stored answer of the call that used this key before.

    `operation` names what is done to what; `kind` is the type of the answer. Raises
    IdempotencyKeyReused when the key came with something else.
    """
    if given is None:
        return do()
    use = use_of(tenant, given, operation)
    held = reserve(tx, [use], keep_seconds=keep_seconds)[tenant, use.key]
    if not held.ours:
        check_same(held, use)
        value: T = msgspec.json.decode(held.answer or b"null", type=kind)
        return Written(value=value, created=held.status == _CREATED, replayed=True)
    written = do()
    tx.run(
        "UPDATE idempotency SET status = :status, answer = :answer"
        " WHERE tenant = :tenant AND key = :key",
        {
            "tenant": tenant,
            "key": use.key,
            "status": _CREATED if written.created else _CHANGED,
            "answer": msgspec.json.encode(written.value),
        },
    )
    return written


def check_same(held: Held, use: Use) -> None:
    """Raise IdempotencyKeyReused unless the key was used for the same."""
    if held.mark != use.mark:
        raise IdempotencyKeyReused(
            f"the Idempotency-Key {use.key!r} was used with another request;"
            " send a new key, or the same request again",
            key=use.key,
        )


def is_held(tx: Tx, tenant: TenantId, key: str) -> bool:
    """Tell whether a key was used and still counts."""
    found = tx.first(
        "SELECT 1 FROM idempotency WHERE tenant = :tenant AND key = :key"
        " AND expires_at > :now",
        {"tenant": tenant, "key": key, "now": tx.now},
    )
    return found is not None


def expire(tx: Tx, limit: int) -> int:
    """Remove up to `limit` keys past their time; return how many."""
    return tx.run(
        "DELETE FROM idempotency WHERE (tenant, key) IN (SELECT tenant, key"
        " FROM idempotency WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)",
        {"now": tx.now, "limit": limit},
    )


def _read(tx: Tx, uses: Sequence[Use]) -> dict[tuple[str, str], Any]:
    fragment, params = tx.rows(
        "k", {"tenant": "text", "key": "text"}, [(use.tenant, use.key) for use in uses]
    )
    columns = ", ".join(f"i.{name}" for name in _COLUMNS.split(", "))
    found = tx.all(
        f"SELECT {columns} FROM {fragment}"
        " JOIN idempotency i ON i.tenant = k.tenant AND i.key = k.key",
        params,
    )
    return {(row.tenant, row.key): row for row in found}


def _take_over(tx: Tx, use: Use, expires_at: int) -> Any | None:
    """Put this use in the place of an expired one; return who came first, if so."""
    tx.run(
        "DELETE FROM idempotency WHERE tenant = :tenant AND key = :key"
        " AND expires_at <= :now",
        {"tenant": use.tenant, "key": use.key, "now": tx.now},
    )
    row = _row(use, tx.now, expires_at)
    if tx.insert(tables.idempotency, [row], on_conflict="nothing"):
        return None
    return _read(tx, [use]).get((use.tenant, use.key))


def _row(use: Use, now: int, expires_at: int) -> dict[str, Any]:
    return {
        "tenant": use.tenant,
        "key": use.key,
        "body_hash": use.mark,
        "subject": use.subject,
        "created_at": now,
        "expires_at": expires_at,
    }


def _own(row: Any, use: Use) -> bool:
    return use.subject is not None and row.subject == use.subject


def _ours(use: Use) -> Held:
    return Held(mark=use.mark, subject=use.subject, status=0, answer=None, ours=True)
