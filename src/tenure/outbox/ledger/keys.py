"""API keys: 256 random bits of which only the SHA-256 is stored.

A hash without salt or stretching is right here: nobody can guess the input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import NotFound, ValidationFailed
from tenure.ids import AppId, KeyId, Prefix, TenantId, new_key_id, token
from tenure.limits import API_KEY_BYTES
from tenure.outbox import fields, tables
from tenure.outbox.ledger import paging
from tenure.outbox.ledger.applications import find_application
from tenure.outbox.model import (
    ApiKey,
    Caller,
    NewApiKey,
    Order,
    Page,
    PageIn,
    Scope,
)
from tenure.outbox.rules import check_page, findable

if TYPE_CHECKING:
    from tenure.store.tx import Tx

_T: Final = tables.api_key
TOKEN_PREFIX: Final = "tnr_"  # noqa: S105 -- how every token begins; scanners look for it


def hash_token(text: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def create_key(
    tx: Tx,
    tenant: TenantId,
    *,
    name: str,
    scope: Scope,
    app_ref: str | None = None,
    expires_at: int | None = None,
) -> NewApiKey:
    """Make a key and return its token, this once.

    Raises NotFound for an unknown application, ValidationFailed for an admin key that
    is limited to one application or has a bad name.
    """
    try:
        fields.check_name(name)
    except ValueError as error:
        raise ValidationFailed.at("body", "name", msg=str(error)) from None
    if app_ref is not None and scope is Scope.ADMIN:
        raise ValidationFailed.at(
            "body", "scope", msg="an admin key is for the whole tenant"
        )
    app = None if app_ref is None else find_application(tx, tenant, app_ref).id
    text = TOKEN_PREFIX + token(API_KEY_BYTES)
    key = new_key_id()
    row = {
        "id": key,
        "tenant": tenant,
        "hash": hash_token(text),
        "name": name,
        "scope": str(scope),
        "app": app,
        "created_at": tx.now,
        "expires_at": expires_at,
    }
    tx.insert(_T, [row])
    return NewApiKey(key=find_key(tx, tenant, key), token=text)


def find_key(tx: Tx, tenant: TenantId, key: str) -> ApiKey:
    """Return the key of this id; raises NotFound."""
    stmt = sa.select(_T).where(_T.c.tenant == tenant, _T.c.id == key)
    found = tx.first(stmt) if findable(key) else None
    if found is None:
        raise NotFound(f"API key {key[:100]!r} was not found")
    return _as_key(found)


def list_keys(tx: Tx, tenant: TenantId, page: PageIn) -> Page[ApiKey]:
    """Return one page of the tenant's keys, by default oldest first, revoked included."""
    cursor = check_page(page, paging.valid_id(Prefix.KEY))
    fetched = paging.fetch(
        tx,
        sa.select(_T).where(_T.c.tenant == tenant),
        _T.c.id,
        cursor,
        limit=page.limit,
        descending=page.order is Order.DESCENDING,
    )
    return paging.page_of(fetched, _as_key, lambda row: row.id)


def revoke_key(tx: Tx, tenant: TenantId, key: str) -> ApiKey:
    """Revoke a key for good; a second time changes nothing. Raises NotFound."""
    find_key(tx, tenant, key)
    tx.run(
        sa.update(_T)
        .where(_T.c.tenant == tenant, _T.c.id == key, _T.c.revoked_at.is_(None))
        .values(revoked_at=tx.now)
    )
    return find_key(tx, tenant, key)


def caller_of(tx: Tx, hashed: str) -> Caller | None:
    """Return who holds the token of this hash; None when it is unknown or over."""
    found = tx.first(
        sa.select(_T).where(
            _T.c.hash == hashed,
            _T.c.revoked_at.is_(None),
            sa.or_(_T.c.expires_at.is_(None), _T.c.expires_at > tx.now),
        )
    )
    if found is None:
        return None
    return Caller(
        tenant=TenantId(found.tenant),
        scope=Scope(found.scope),
        app=None if found.app is None else AppId(found.app),
        key=KeyId(found.id),
    )


def note_used(tx: Tx, keys: Collection[KeyId]) -> None:
    """Write down that these keys were used by now."""
    if keys:
        tx.run(
            sa.update(_T).where(_T.c.id.in_(sorted(keys))).values(last_used_at=tx.now)
        )


def _as_key(row: sa.Row[Any]) -> ApiKey:
    return ApiKey(
        id=KeyId(row.id),
        tenant=TenantId(row.tenant),
        name=row.name,
        scope=Scope(row.scope),
        app=None if row.app is None else AppId(row.app),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
