"""Sources: made, found, changed, their secrets rotated, deleted.

Every change raises the source's version, which each accept reads in its own transaction:
so a change holds for every request that commits after it, on any node.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tenure.clock import US
from tenure.config import masked_url
from tenure.errors import (
    Conflict,
    LimitReached,
    NotFound,
    ValidationFailed,
    WrongKeyRing,
)
from tenure.ids import AppId, Prefix, SourceId, TenantId, new_source_id
from tenure.inbox import tables
from tenure.inbox.model import (
    Pull,
    Source,
    SourceIn,
    SourcePatch,
    SourceSettings,
    Verification,
)
from tenure.inbox.opened import LiveSecret, Opened
from tenure.inbox.rules import check_parts, is_guarded, new_path
from tenure.limits import SOURCE_SECRETS_MAX, SOURCES_MAX
from tenure.outbox.ledger import paging, rows
from tenure.outbox.ledger.applications import create_application, find_application
from tenure.outbox.model import ApplicationIn, Order, Page, PageIn, Written
from tenure.outbox.rules import check_page, findable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.outbox.keyring import KeyRing
    from tenure.store.tx import Tx

__all__ = [
    "create_source",
    "delete_source",
    "find_by_path",
    "find_source",
    "list_sources",
    "opened_source",
    "patch_source",
    "pulling_sources",
    "put_source",
    "remove_secret",
    "rotate_secret",
]

_T: Final = tables.source
_SETTINGS: Final = msgspec.json.Decoder(SourceSettings)
_VERIFICATION: Final = msgspec.json.Decoder(Verification)
_SECRETS: Final = msgspec.json.Decoder(tuple[tuple[str, int | None], ...])
_PULL: Final = msgspec.json.Decoder(Pull)


# --- Finding -----------------------------------------------------------------------------


def find_source(tx: Tx, tenant: TenantId, ref: str, *, ring: KeyRing) -> Source:
    """Return the source of this id or uid; raises NotFound."""
    return _as_source(_row(tx, tenant, ref), ring, tx.now)


def list_sources(
    tx: Tx, tenant: TenantId, page: PageIn, *, ring: KeyRing, app: str | None = None
) -> Page[Source]:
    """Return one page of the tenant's sources, by default oldest first."""
    cursor = check_page(page, paging.valid_id(Prefix.SOURCE))
    stmt = sa.select(_T).where(_T.c.tenant == tenant, _T.c.deleted_at.is_(None))
    if app is not None:
        stmt = stmt.where(_T.c.app == app)
    fetched = paging.fetch(
        tx,
        stmt,
        _T.c.id,
        cursor,
        limit=page.limit,
        descending=page.order is Order.DESCENDING,
    )
    return paging.page_of(
        fetched, lambda row: _as_source(row, ring, tx.now), lambda row: row.id
    )


def find_by_path(tx: Tx, path: str, *, ring: KeyRing) -> Opened | None:
    """Return the source that a URL's last part names, None for nobody's.

    The id of a source names it too, unless nothing is verified there.
    """
    by_id = path.startswith(f"{Prefix.SOURCE}_")
    row = tx.first(
        sa.select(_T).where(
            (_T.c.id if by_id else _T.c.path) == path, _T.c.deleted_at.is_(None)
        )
    )
    if row is None:
        return None
    opened = _opened(row, ring)
    if by_id and row.path != path and not is_guarded(opened.verification):
        return None
    return opened


def opened_source(tx: Tx, id_: SourceId, *, ring: KeyRing) -> Opened | None:
    """Return the source of this id, None when it is deleted."""
    row = tx.first(sa.select(_T).where(_T.c.id == id_, _T.c.deleted_at.is_(None)))
    return None if row is None else _opened(row, ring)


def pulling_sources(tx: Tx) -> list[tuple[SourceId, int]]:
    """Return (id, version) of every source that pulls and is not disabled."""
    found = tx.all(
        "SELECT id, version FROM source WHERE pull IS NOT NULL"
        " AND deleted_at IS NULL AND NOT disabled ORDER BY id"
    )
    return [(SourceId(row.id), row.version) for row in found]


# --- Writing -----------------------------------------------------------------------------


def create_source(
    tx: Tx, tenant: TenantId, given: SourceIn, *, ring: KeyRing
) -> Written[Source]:
    """Create a source, and its application where it names none.

    Raises ValidationFailed, NotFound for an unknown application, Conflict when the uid
    is taken, LimitReached.
    """
    _check(given, given.secrets)
    count = tx.scalar(
        "SELECT count(*) FROM source WHERE tenant = :tenant AND deleted_at IS NULL",
        {"tenant": tenant},
    )
    if count >= SOURCES_MAX:
        raise LimitReached(f"a tenant has at most {SOURCES_MAX} sources")
    if given.uid is not None and _found(tx, tenant, given.uid) is not None:
        raise _taken(given.uid)
    id_ = new_source_id()
    app = (
        create_application(tx, tenant, ApplicationIn(name=given.name)).value.id
        if given.app is None
        else find_application(tx, tenant, given.app).id
    )
    row = {
        "id": id_,
        "tenant": tenant,
        "app": app,
        "path": _path(tx, id_, given),
        "secrets": _seal_secrets([(text, None) for text in given.secrets], ring),
        "created_at": tx.now,
        **_values(given, ring, tx.now),
    }
    if not tx.insert(_T, [row], on_conflict="nothing"):
        raise _taken(given.uid or "")
    return Written(value=find_source(tx, tenant, id_, ring=ring), created=True)


def put_source(
    tx: Tx, tenant: TenantId, ref: str, given: SourceIn, *, ring: KeyRing
) -> Written[Source]:
    """Put a source in the place of the one named, or create it.

    The application and the secrets stay as stored.
    """
    stored = _locked(tx, tenant, ref)
    if stored is None:
        return create_source(tx, tenant, given, ring=ring)
    given = replace(given, pull=_kept_pull(given.pull, stored, ring))
    return Written(value=_write(tx, stored, given, None, ring), created=False)


def patch_source(
    tx: Tx, tenant: TenantId, ref: str, patch: SourcePatch, *, ring: KeyRing
) -> Source:
    """Change some fields of a source; new secrets take the place of all others."""
    stored = _locked(tx, tenant, ref)
    if stored is None:
        raise _unknown(ref)
    given = SourceIn(
        name=_or(patch.name, stored.name),
        uid=_or(patch.uid, stored.uid),
        verification=_or(patch.verification, _VERIFICATION.decode(stored.verification)),
        settings=_or(patch.settings, _SETTINGS.decode(stored.settings)),
        pull=_kept_pull(_or(patch.pull, _pull(stored, ring)), stored, ring),
        metadata=_or(patch.metadata, rows.text_map(stored.metadata)) or {},
        disabled=_or(patch.disabled, stored.disabled),
    )
    secrets = None if patch.secrets is msgspec.UNSET else patch.secrets
    return _write(tx, stored, given, secrets, ring)


def rotate_secret(
    tx: Tx,
    tenant: TenantId,
    ref: str,
    secret: str,
    *,
    grace_seconds: float,
    ring: KeyRing,
) -> Source:
    """Believe another secret from now on, and the former ones for a grace period."""
    stored = _locked(tx, tenant, ref)
    if stored is None:
        raise _unknown(ref)
    until = tx.now + round(grace_seconds * US)
    kept = [
        (text, until if ends is None else min(ends, until))
        for text, ends in _secrets(stored, ring)
        if text != secret and (ends is None or ends > tx.now)
    ]
    kept = [(secret, None), *(each for each in kept if each[1] > tx.now)]
    if len(kept) > SOURCE_SECRETS_MAX:
        raise LimitReached(
            f"a source has at most {SOURCE_SECRETS_MAX} secrets at once: let some end"
        )
    return _write_secrets(tx, stored, kept, ring)


def remove_secret(
    tx: Tx, tenant: TenantId, ref: str, at: int, *, ring: KeyRing
) -> Source:
    """Stop to believe one of the live secrets, counted from 0, the newest first."""
    stored = _locked(tx, tenant, ref)
    if stored is None:
        raise _unknown(ref)
    live = [
        each for each in _secrets(stored, ring) if each[1] is None or each[1] > tx.now
    ]
    if not 0 <= at < len(live):
        raise NotFound(f"the source has no secret {at}")
    del live[at]
    return _write_secrets(tx, stored, live, ring)


def delete_source(tx: Tx, tenant: TenantId, ref: str, *, ring: KeyRing) -> None:
    """Delete a source: nothing arrives there any more, and its secrets are gone.

    What it accepted belongs to its application and is delivered. Raises NotFound.
    """
    if not findable(ref):
        raise _unknown(ref)
    changed = tx.run(
        "UPDATE source SET deleted_at = :now, updated_at = :now,"
        " version = version + 1, path = id, secrets = :none, pull = NULL"
        " WHERE tenant = :tenant AND deleted_at IS NULL AND (id = :ref OR uid = :ref)",
        {
            "now": tx.now,
            "tenant": tenant,
            "ref": ref,
            "none": _seal_secrets((), ring),
        },
    )
    if not changed:
        raise _unknown(ref)


# --- Rows --------------------------------------------------------------------------------


def _found(tx: Tx, tenant: TenantId, ref: str, *, lock: bool = False) -> Any | None:
    if not findable(ref):
        return None
    by_id = ref.startswith(f"{Prefix.SOURCE}_")
    stmt = sa.select(_T).where(
        _T.c.tenant == tenant,
        (_T.c.id if by_id else _T.c.uid) == ref,
        _T.c.deleted_at.is_(None),
    )
    if lock and tx.dialect == "postgresql":
        stmt = stmt.with_for_update(key_share=True)
    return tx.first(stmt)


def _row(tx: Tx, tenant: TenantId, ref: str) -> Any:
    found = _found(tx, tenant, ref)
    if found is None:
        raise _unknown(ref)
    return found


def _locked(tx: Tx, tenant: TenantId, ref: str) -> Any | None:
    return _found(tx, tenant, ref, lock=True)


def _unknown(ref: str) -> NotFound:
    return NotFound(f"source {ref[:100]!r} was not found")


def _taken(uid: str) -> Conflict:
    return Conflict(f"a source with the uid {uid!r} exists", uid=uid)


def _check(given: SourceIn, secrets: Sequence[str] | None) -> None:
    check_parts(
        name=given.name,
        uid=given.uid,
        verification=given.verification,
        secrets=secrets,
        settings=given.settings,
        pull=given.pull,
        metadata=dict(given.metadata),
    )


def _path(tx: Tx, id_: SourceId, given: SourceIn) -> str:
    """Return what URLs name it by: a uid that nobody else's path is, or its id."""
    if not is_guarded(given.verification):
        return new_path()
    if given.uid is None:
        return id_
    taken = tx.first("SELECT 1 FROM source WHERE path = :path", {"path": given.uid})
    return id_ if taken is not None else given.uid


def _values(given: SourceIn, ring: KeyRing, now: int) -> dict[str, Any]:
    pull = None if given.pull is None else ring.seal(msgspec.json.encode(given.pull))
    return {
        "uid": given.uid,
        "name": given.name,
        "verification": rows.dump(given.verification),
        "settings": rows.dump(asdict(given.settings)),
        "pull": pull,
        "metadata": rows.dump(dict(given.metadata)),
        "disabled": given.disabled,
        "updated_at": now,
    }


def _write(
    tx: Tx,
    stored: Any,
    given: SourceIn,
    secrets: Sequence[str] | None,
    ring: KeyRing,
) -> Source:
    live = [
        text for text, ends in _secrets(stored, ring) if ends is None or ends > tx.now
    ]
    _check(given, live if secrets is None else secrets)
    if given.uid is not None and given.uid != stored.uid:
        other = _found(tx, TenantId(stored.tenant), given.uid)
        if other is not None and other.id != stored.id:
            raise _taken(given.uid)
    values = _values(given, ring, tx.now)
    if secrets is not None:
        values["secrets"] = _seal_secrets([(text, None) for text in secrets], ring)
    was = is_guarded(_VERIFICATION.decode(stored.verification))
    if was != is_guarded(given.verification) or (was and given.uid != stored.uid):
        values["path"] = _path(tx, SourceId(stored.id), given)
    return _update(tx, stored, values, ring)


def _write_secrets(
    tx: Tx, stored: Any, secrets: Sequence[tuple[str, int | None]], ring: KeyRing
) -> Source:
    given = SourceIn(
        name=stored.name,
        uid=stored.uid,
        verification=_VERIFICATION.decode(stored.verification),
        settings=_SETTINGS.decode(stored.settings),
        metadata=rows.text_map(stored.metadata),
    )
    try:
        _check(given, [text for text, _ in secrets])
    except ValidationFailed as error:
        raise ValidationFailed(
            [replace(item, loc=("body", *item.loc[1:])) for item in error.items]
        ) from None
    values = {"secrets": _seal_secrets(secrets, ring), "updated_at": tx.now}
    return _update(tx, stored, values, ring)


def _update(tx: Tx, stored: Any, values: dict[str, Any], ring: KeyRing) -> Source:
    values["version"] = stored.version + 1
    try:
        with tx.savepoint():
            tx.run(sa.update(_T).where(_T.c.id == stored.id).values(**values))
    except IntegrityError:
        raise _taken(values.get("uid") or stored.uid or "") from None
    return find_source(tx, TenantId(stored.tenant), stored.id, ring=ring)


def _seal_secrets(secrets: Sequence[tuple[str, int | None]], ring: KeyRing) -> bytes:
    return ring.seal(msgspec.json.encode(secrets))


def _secrets(row: Any, ring: KeyRing) -> tuple[tuple[str, int | None], ...]:
    return _SECRETS.decode(ring.open(row.secrets))


def _pull(row: Any, ring: KeyRing) -> Pull | None:
    return None if row.pull is None else _PULL.decode(ring.open(row.pull))


def _kept_pull(given: Pull | None, row: Any, ring: KeyRing) -> Pull | None:
    """Return what is to be stored: the mask of a read keeps the stored password."""
    was = _pull(row, ring)
    if given is None or was is None or given.url != masked_url(was.url):
        return given
    return msgspec.structs.replace(given, url=was.url)


def _opened(row: Any, ring: KeyRing) -> Opened:
    broken: str | None = None
    secrets: tuple[tuple[str, int | None], ...] = ()
    pull: Pull | None = None
    try:
        secrets, pull = _secrets(row, ring), _pull(row, ring)
    except WrongKeyRing:
        broken = "its secrets do not open with this key ring"
    except msgspec.MsgspecError:
        broken = "its secrets cannot be read"
    return Opened(
        id=SourceId(row.id),
        tenant=TenantId(row.tenant),
        app=AppId(row.app),
        uid=row.uid,
        path=row.path,
        version=row.version,
        disabled=row.disabled,
        verification=_VERIFICATION.decode(row.verification),
        settings=_SETTINGS.decode(row.settings),
        secrets=tuple(
            LiveSecret(secret=text, expires_at=ends) for text, ends in secrets
        ),
        pull=pull,
        broken=broken,
    )


def _as_source(row: Any, ring: KeyRing, now: int) -> Source:
    opened = _opened(row, ring)
    pull = opened.pull
    if pull is not None:
        pull = msgspec.structs.replace(pull, url=masked_url(pull.url))
    return Source(
        id=opened.id,
        tenant=opened.tenant,
        app=opened.app,
        uid=opened.uid,
        name=row.name,
        path=opened.path,
        verification=opened.verification,
        secret_count=sum(
            each.expires_at is None or each.expires_at > now for each in opened.secrets
        ),
        settings=opened.settings,
        pull=pull,
        metadata=rows.text_map(row.metadata),
        disabled=opened.disabled,
        version=opened.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        deleted_at=row.deleted_at,
    )


def _or(given: Any, stored: Any) -> Any:
    return stored if given is msgspec.UNSET else given
