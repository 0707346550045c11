"""What an endpoint keeps sealed: its signing secrets and its custom headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import BadRequest, ValidationFailed
from tenure.ids import Prefix, TenantId, id_floor
from tenure.limits import SECRET_GRACE_MAX_SECONDS
from tenure.outbox import tables
from tenure.outbox.headers import split_sensitive, validate_headers
from tenure.outbox.ledger import rows
from tenure.outbox.ledger.applications import bump_config, find_application
from tenure.outbox.ledger.endpoints import endpoint_row, lock_endpoint
from tenure.outbox.model import (
    EndpointHeaders,
    EndpointStats,
    SecretRotation,
    Written,
)
from tenure.outbox.rules import check_rotation_key
from tenure.outbox.secrets import dump_secrets, load_secrets

if TYPE_CHECKING:
    from tenure.outbox.keyring import KeyRing
    from tenure.store.tx import Tx

_T: Final = tables.endpoint


def endpoint_secret(
    tx: Tx, tenant: TenantId, app_ref: str, ref: str, *, ring: KeyRing
) -> str:
    """Return what a receiver verifies with: `whsec_…`, or the public `whpk_…`."""
    app = find_application(tx, tenant, app_ref)
    stored = endpoint_row(tx, tenant, app.id, ref)
    return load_secrets(ring.open(stored.secrets)).current.public_text()


def rotate_endpoint_secret(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    rotation: SecretRotation,
    *,
    ring: KeyRing,
) -> Written[None]:
    """Sign with another secret from now on, and with the former one for the grace.

    Raises LimitReached when too many former ones still sign.
    """
    if not 0 <= rotation.grace_seconds <= SECRET_GRACE_MAX_SECONDS:
        raise ValidationFailed.at(
            "body",
            "gracePeriodSeconds",
            msg=f"a grace period is 0 to {SECRET_GRACE_MAX_SECONDS} s",
        )
    key = check_rotation_key(rotation.key)
    app = find_application(tx, tenant, app_ref)
    stored = lock_endpoint(tx, tenant, app.id, ref)
    rotated = load_secrets(ring.open(stored.secrets)).rotate(
        key, grace_seconds=rotation.grace_seconds, now=tx.now
    )
    _change(tx, stored, secrets=ring.seal(dump_secrets(rotated)))
    return Written(value=None, created=False)


def endpoint_headers(
    tx: Tx, tenant: TenantId, app_ref: str, ref: str, *, ring: KeyRing
) -> EndpointHeaders:
    """Return the custom headers; sensitive ones by name only."""
    app = find_application(tx, tenant, app_ref)
    stored = endpoint_row(tx, tenant, app.id, ref)
    shown, sensitive = split_sensitive(tuple(_opened(stored, ring).items()))
    return EndpointHeaders(headers=shown, sensitive=sensitive)


def put_endpoint_headers(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    headers: Mapping[str, str],
    *,
    ring: KeyRing,
) -> None:
    """Replace all custom headers; raises ValidationFailed."""
    validate_headers(headers)
    app = find_application(tx, tenant, app_ref)
    stored = lock_endpoint(tx, tenant, app.id, ref)
    _change(tx, stored, headers=_sealed(headers, ring))


def patch_endpoint_headers(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    headers: Mapping[str, str | None],
    *,
    delete: Sequence[str] = (),
    ring: KeyRing,
) -> None:
    """Set some headers and delete others (None, or named in `delete`).

    Names to delete are matched by their letter case, as stored.
    """
    app = find_application(tx, tenant, app_ref)
    stored = lock_endpoint(tx, tenant, app.id, ref)
    merged = _opened(stored, ring)
    for name in (*delete, *(name for name, value in headers.items() if value is None)):
        merged.pop(name, None)
    merged |= {name: value for name, value in headers.items() if value is not None}
    validate_headers(merged)
    _change(tx, stored, headers=_sealed(merged, ring))


def endpoint_stats(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    *,
    since: int,
    until: int,
) -> EndpointStats:
    """Count the attempts of a window, and its messages that still wait or run.

    Raises BadRequest when the window ends before it begins.
    """
    if until < since:
        raise BadRequest("`until` is before `since`")
    app = find_application(tx, tenant, app_ref)
    stored = endpoint_row(tx, tenant, app.id, ref)
    ended = tx.all(
        "SELECT outcome, count(*) AS n FROM attempt"
        " WHERE lane = :lane AND id >= :low AND id < :high GROUP BY outcome",
        {
            "lane": stored.lane,
            "low": id_floor(Prefix.ATTEMPT, since),
            "high": id_floor(Prefix.ATTEMPT, until),
        },
    )
    counts = {row.outcome: row.n for row in ended}
    success = counts.pop("succeeded", 0)
    waiting = tx.all(
        "SELECT w.state, count(*) AS n FROM delivery d JOIN work w ON w.id = d.work"
        " WHERE d.endpoint = :endpoint AND d.message >= :low AND d.message < :high"
        " AND w.state IN ('ready', 'claimed') GROUP BY w.state",
        {
            "endpoint": stored.id,
            "low": id_floor(Prefix.MESSAGE, since),
            "high": id_floor(Prefix.MESSAGE, until),
        },
    )
    open_now = {row.state: row.n for row in waiting}
    return EndpointStats(
        success=success,
        pending=open_now.get("ready", 0),
        sending=open_now.get("claimed", 0),
        fail=sum(counts.values()),
    )


def _opened(stored: sa.Row[Any], ring: KeyRing) -> dict[str, str]:
    if stored.headers is None:
        return {}
    return rows.text_map(ring.open(stored.headers))


def _sealed(headers: Mapping[str, str], ring: KeyRing) -> bytes | None:
    return ring.seal(rows.dump(dict(headers)).encode()) if headers else None


def _change(tx: Tx, stored: sa.Row[Any], **values: Any) -> None:
    tx.run(
        sa.update(_T).where(_T.c.id == stored.id).values(updated_at=tx.now, **values)
    )
    bump_config(tx, stored.app)
