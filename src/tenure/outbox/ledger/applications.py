"""Applications: made, found, changed and deleted.

Deleting marks the row and every lane of it; the open work of those lanes is cancelled
in bounded batches, the first here, the rest by `deleting`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tenure.errors import Conflict, NotFound
from tenure.ids import Prefix, TenantId, new_app_id
from tenure.outbox import tables
from tenure.outbox.ledger import paging, rows
from tenure.outbox.model import (
    Application,
    ApplicationIn,
    ApplicationPatch,
    Order,
    Page,
    PageIn,
    Written,
)
from tenure.outbox.rules import (
    check_application,
    check_page,
    findable,
    patched_application,
)
from tenure.store import lanes

if TYPE_CHECKING:
    from tenure.store.tx import Tx

_T: Final = tables.application


def create_application(
    tx: Tx, tenant: TenantId, given: ApplicationIn, *, get_if_exists: bool = False
) -> Written[Application]:
    """Create an application, or with `get_if_exists` return the one of this uid.

    Raises Conflict when the uid is taken. Two at once: one is created, whatever the
    other asked for is answered from it.
    """
    check_application(given)
    if given.uid is not None:
        found = _find(tx, tenant, _T.c.uid == given.uid)
        if found is not None:
            return _existing(found, given.uid, get_if_exists=get_if_exists)
    row: dict[str, Any] = {
        "id": new_app_id(),
        "tenant": tenant,
        "lane_group": lanes.add_group(tx, tenant),
        "config_version": 1,
        "created_at": tx.now,
        **_values(given, tx.now),
    }
    if not tx.insert(_T, [row], on_conflict="nothing"):
        found = _find(tx, tenant, _T.c.uid == given.uid)
        if found is None or given.uid is None:
            raise Conflict("the application could not be created; try again")
        return _existing(found, given.uid, get_if_exists=get_if_exists)
    return Written(value=find_application(tx, tenant, row["id"]), created=True)


def find_application(tx: Tx, tenant: TenantId, ref: str) -> Application:
    """Return the application of this id or uid; raises NotFound."""
    found = _find(tx, tenant, _by_ref(ref)) if findable(ref) else None
    if found is None:
        raise NotFound(f"application {ref[:100]!r} was not found")
    return rows.as_application(found)


def list_applications(tx: Tx, tenant: TenantId, page: PageIn) -> Page[Application]:
    """Return one page of the tenant's applications, by default oldest first."""
    cursor = check_page(page, paging.valid_id(Prefix.APP))
    fetched = paging.fetch(
        tx,
        sa.select(_T).where(_T.c.tenant == tenant, _T.c.deleted_at.is_(None)),
        _T.c.id,
        cursor,
        limit=page.limit,
        descending=page.order is Order.DESCENDING,
    )
    return paging.page_of(fetched, rows.as_application, lambda row: row.id)


def put_application(
    tx: Tx, tenant: TenantId, ref: str, given: ApplicationIn
) -> Written[Application]:
    """Put an application in the place of the one named, or create it.

    As in the Svix API the path's value is not stored: a created one gets a new id and
    the body's uid.
    """
    check_application(given)
    stored = _locked(tx, tenant, ref)
    if stored is None:
        return create_application(tx, tenant, given)
    return Written(value=_write(tx, stored, given), created=False)


def patch_application(
    tx: Tx, tenant: TenantId, ref: str, patch: ApplicationPatch
) -> Application:
    """Change some fields; raises NotFound, Conflict or ValidationFailed."""
    stored = _locked(tx, tenant, ref)
    if stored is None:
        raise NotFound(f"application {ref[:100]!r} was not found")
    return _write(tx, stored, check_application(patched_application(stored, patch)))


def bump_config(tx: Tx, app: str) -> None:
    """Raise the version under which nodes cache the application's route table.

    Takes the application's row lock: what follows in the transaction is alone among
    changes to its endpoints. Raises NotFound when it was deleted meanwhile.
    """
    touched = tx.run(
        "UPDATE application SET config_version = config_version + 1"
        " WHERE id = :app AND deleted_at IS NULL",
        {"app": app},
    )
    if not touched:
        raise NotFound(f"application {app!r} was not found")


def mark_application_deleted(tx: Tx, app: Application) -> bool:
    """Mark the row; False when somebody else did. The uid is free again."""
    return bool(
        tx.run(
            "UPDATE application SET deleted_at = :now, updated_at = :now,"
            " config_version = config_version + 1"
            " WHERE id = :id AND deleted_at IS NULL",
            {"id": app.id, "now": tx.now},
        )
    )


def _by_ref(ref: str) -> sa.ColumnElement[bool]:
    # A uid cannot start with the prefix of ids, so one of the two is meant.
    return (_T.c.id if ref.startswith(f"{Prefix.APP}_") else _T.c.uid) == ref


def _find(
    tx: Tx, tenant: TenantId, condition: sa.ColumnElement[bool], *, lock: bool = False
) -> sa.Row[Any] | None:
    stmt = sa.select(_T).where(
        _T.c.tenant == tenant, _T.c.deleted_at.is_(None), condition
    )
    return tx.first(stmt.with_for_update(key_share=True) if lock else stmt)


def _locked(tx: Tx, tenant: TenantId, ref: str) -> Application | None:
    found = _find(tx, tenant, _by_ref(ref), lock=True) if findable(ref) else None
    return None if found is None else rows.as_application(found)


def _existing(
    found: sa.Row[Any], uid: str, *, get_if_exists: bool
) -> Written[Application]:
    if not get_if_exists:
        raise Conflict(f"an application with the uid {uid!r} exists", uid=uid)
    return Written(value=rows.as_application(found), created=False)


def _values(given: ApplicationIn, now: int) -> dict[str, Any]:
    kept: dict[str, Any] = {} if given.kept is None else asdict(given.kept)
    return {
        "uid": given.uid,
        "name": given.name,
        "throttle_rate": given.throttle_rate,
        "metadata": rows.dump(dict(given.metadata)),
        "updated_at": now,
        **kept,
    }


def _write(tx: Tx, stored: Application, given: ApplicationIn) -> Application:
    change = sa.update(_T).where(_T.c.id == stored.id).values(_values(given, tx.now))
    try:
        with tx.savepoint():
            tx.run(change)
    except IntegrityError:
        raise Conflict(
            f"an application with the uid {given.uid!r} exists", uid=given.uid
        ) from None
    return find_application(tx, stored.tenant, stored.id)
