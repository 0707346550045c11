"""Event types of a tenant: a catalogue; deleting archives, expunging removes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import EventTypeExists, NotFound, ValidationFailed
from tenure.ids import TenantId
from tenure.outbox import fields, tables
from tenure.outbox.ledger import paging, rows
from tenure.outbox.model import (
    EventType,
    EventTypeIn,
    EventTypePatch,
    Page,
    PageIn,
    SchemaCheck,
    Written,
)
from tenure.outbox.rules import (
    check_event_type,
    check_page,
    findable,
    patched_event_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

_T: Final = tables.event_type


def create_event_type(
    tx: Tx, tenant: TenantId, given: EventTypeIn
) -> Written[EventType]:
    """Create an event type; an archived one is revived and overwritten.

    Raises EventTypeExists when a live one has the name.
    """
    given = check_event_type(given)
    values = _values(given, tx.now)
    row = {"tenant": tenant, "name": given.name, "created_at": tx.now, **values}
    if not tx.insert(_T, [row], on_conflict="nothing"):
        revived = tx.run(
            sa.update(_T)
            .where(
                _T.c.tenant == tenant, _T.c.name == given.name, _T.c.archived.is_(True)
            )
            .values(values)
        )
        if not revived:
            raise EventTypeExists(f"the event type {given.name!r} exists")
    return Written(value=find_event_type(tx, tenant, given.name), created=True)


def find_event_type(
    tx: Tx, tenant: TenantId, name: str, *, lock: bool = False
) -> EventType:
    """Return the event type, archived or not; raises NotFound."""
    stmt = sa.select(_T).where(_T.c.tenant == tenant, _T.c.name == name)
    if lock:
        stmt = stmt.with_for_update()
    found = tx.first(stmt) if findable(name) else None
    if found is None:
        raise NotFound(f"event type {name[:100]!r} was not found")
    return rows.as_event_type(found)


def schema_in_force(
    tx: Tx, tenant: TenantId, name: str
) -> tuple[SchemaCheck, object | None]:
    """Return what an event type asks of payloads: its highest version, or None.

    An unknown or archived event type asks nothing.
    """
    off = (SchemaCheck.OFF, None)
    if not findable(name):
        return off
    try:
        found = find_event_type(tx, tenant, name)
    except NotFound:
        return off
    if found.archived or found.schema_check is SchemaCheck.OFF or not found.schemas:
        return off
    return found.schema_check, found.schemas[max(found.schemas, key=_version)]


def _version(name: str) -> tuple[bool, int, str]:
    """Order versions as people count them: 9, 10, and words after numbers."""
    number = name.isdigit()
    return not number, int(name) if number else 0, name


def list_event_types(
    tx: Tx, tenant: TenantId, page: PageIn, *, include_archived: bool = False
) -> Page[EventType]:
    """Return one page by name, ascending whatever order is asked for."""
    cursor = check_page(page, fields.check_event_type)
    stmt = sa.select(_T).where(_T.c.tenant == tenant)
    if not include_archived:
        stmt = stmt.where(_T.c.archived.is_(False))
    fetched = paging.fetch(
        tx, stmt, _T.c.name, cursor, limit=page.limit, descending=False
    )
    return paging.page_of(fetched, rows.as_event_type, lambda row: row.name)


def put_event_type(
    tx: Tx, tenant: TenantId, name: str, given: EventTypeIn
) -> Written[EventType]:
    """Put an event type in the place of the one named, or create it by that name."""
    if given.name != name:
        raise ValidationFailed.at("body", "name", msg="the path names another one")
    given = check_event_type(given)
    values = _values(given, tx.now)
    row = {"tenant": tenant, "name": name, "created_at": tx.now, **values}
    created = tx.insert(_T, [row], on_conflict="nothing") == 1
    if not created:
        tx.run(_update(tenant, name).values(values))
    return Written(value=find_event_type(tx, tenant, name), created=created)


def patch_event_type(
    tx: Tx, tenant: TenantId, name: str, patch: EventTypePatch
) -> EventType:
    """Change some fields; raises NotFound or ValidationFailed."""
    stored = find_event_type(tx, tenant, name, lock=True)
    changed = check_event_type(patched_event_type(stored, patch))
    tx.run(_update(tenant, name).values(_values(changed, tx.now)))
    return find_event_type(tx, tenant, name)


def delete_event_type(
    tx: Tx, tenant: TenantId, name: str, *, expunge: bool = False
) -> None:
    """Archive the event type, or remove its row; raises NotFound when there is none.

    Endpoints keep it in their filters.
    """
    touched = findable(name) and tx.run(
        sa.delete(_T).where(_T.c.tenant == tenant, _T.c.name == name)
        if expunge
        else _update(tenant, name).values(archived=True, updated_at=tx.now)
    )
    if not touched:
        raise NotFound(f"event type {name[:100]!r} was not found")


def check_event_types_exist(
    tx: Tx, tenant: TenantId, names: Sequence[str] | None
) -> None:
    """Raise ValidationFailed naming those that are unknown or archived."""
    if not names:
        return
    known = set(
        tx.execute(
            sa.select(_T.c.name).where(
                _T.c.tenant == tenant, _T.c.name.in_(names), _T.c.archived.is_(False)
            )
        ).scalars()
    )
    missing = sorted(set(names) - known)
    if missing:
        raise ValidationFailed.at(
            "body",
            "eventTypes",
            msg=f"no such event types: {', '.join(missing)}",
        )


def _update(tenant: TenantId, name: str) -> sa.Update:
    return sa.update(_T).where(_T.c.tenant == tenant, _T.c.name == name)


def _values(given: EventTypeIn, now: int) -> dict[str, Any]:
    kept = given.schema_check
    return {
        "description": given.description,
        "archived": given.archived,
        "deprecated": given.deprecated,
        "schemas": None if given.schemas is None else rows.dump(dict(given.schemas)),
        "feature_flags": rows.dump_set(given.feature_flags),
        "group_name": given.group_name,
        "updated_at": now,
        **({} if kept is None else {"schema_check": str(kept)}),
    }
