"""Endpoints: each with a lane of its own, where its deliveries queue.

Theory. An endpoint's lane row is the lock of its configuration: whoever changes an
endpoint raises the lane's version first, then reads and writes the endpoint, and last
raises its application's `config_version`. That is the lock order of the whole store
(lane before slice rows), and it makes both caches exact: a claim names the lane's
version, an accepted message reads the application's.

A disabled endpoint keeps its lane, paused: what was accepted for it waits and goes out
once it is enabled again. A deleted one ends its open work with that reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tenure.errors import Conflict, Forbidden, NotFound, ValidationFailed
from tenure.ids import Prefix, TenantId, new_endpoint_id
from tenure.outbox import tables
from tenure.outbox.carriers.naming import HANDLER, OWN, check_kind
from tenure.outbox.http.url import parse_url
from tenure.outbox.ledger import paging, rows
from tenure.outbox.ledger.applications import (
    bump_config,
    find_application,
)
from tenure.outbox.ledger.eventtypes import check_event_types_exist
from tenure.outbox.model import (
    Application,
    Endpoint,
    EndpointIn,
    EndpointPatch,
    EndpointSettings,
    Order,
    OutboxSettings,
    Page,
    PageIn,
    Written,
)
from tenure.outbox.rules import (
    CheckedEndpoint,
    check_endpoint,
    check_page,
    deadline_us,
    findable,
    first_secret,
    lane_state,
    patched_endpoint,
)
from tenure.outbox.secrets import SecretSet, dump_secrets
from tenure.store import lanes

if TYPE_CHECKING:
    from tenure.outbox.keyring import KeyRing
    from tenure.store.tx import Tx

_T: Final = tables.endpoint
KIND: Final = "delivery"
"""The kind of work, and what a node must serve to do it."""
DELETED: Final = "endpoint deleted"


def create_endpoint(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    given: EndpointIn,
    *,
    ring: KeyRing,
    settings: OutboxSettings,
    operator: bool = False,
) -> Written[Endpoint]:
    """Create an endpoint with its lane and secret.

    Only an operator may open networks to it, or point it into the deployment. Raises
    NotFound, ValidationFailed, Forbidden, or Conflict when the uid is taken.
    """
    app = find_application(tx, tenant, app_ref)
    checked = check_endpoint(given, settings)
    wanted = _permitted(given.settings, EndpointSettings(), operator=operator)
    check_event_types_exist(tx, tenant, given.event_types)
    endpoint = new_endpoint_id()
    state, reason = lane_state(disabled=given.disabled)
    lane = lanes.add_lane(
        tx,
        group=app.lane_group,
        kind=KIND,
        tenant=tenant,
        subject=endpoint,
        needs=needs_of(wanted),
        deadline_us=deadline_us(wanted, settings),
        settings={
            "state": state,
            "reason": reason,
            "at_most_once": wanted.at_most_once,
        },
    )
    bump_config(tx, app.id)
    _check_room(tx, app, settings)
    secret = SecretSet(current=first_secret(given.secret, settings))
    row = {
        "id": endpoint,
        "app": app.id,
        "tenant": tenant,
        "lane": lane,
        "created_at": tx.now,
        "secrets": ring.seal(dump_secrets(secret)),
        "headers": _sealed_headers(given, ring),
        "userinfo": _sealed_secret(checked, None, ring),
        "disabled_why": "by request" if given.disabled else None,
        **_values(checked, wanted, tx.now),
    }
    if not tx.insert(_T, [row], on_conflict="nothing"):
        raise _uid_taken(given.uid)
    return Written(value=find_endpoint(tx, tenant, app.id, endpoint), created=True)


def find_endpoint(tx: Tx, tenant: TenantId, app: str, ref: str) -> Endpoint:
    """Return the endpoint of this id or uid in the application with this id."""
    return rows.as_endpoint(endpoint_row(tx, tenant, app, ref))


def get_endpoint(tx: Tx, tenant: TenantId, app_ref: str, ref: str) -> Endpoint:
    """Return the endpoint of this id or uid; raises NotFound."""
    app = find_application(tx, tenant, app_ref)
    return find_endpoint(tx, tenant, app.id, ref)


def endpoint_row(
    tx: Tx, tenant: TenantId, app: str, ref: str, *, deleted_too: bool = False
) -> sa.Row[Any]:
    """Return the endpoint's row, secrets sealed; raises NotFound."""
    by_id = ref.startswith(f"{Prefix.ENDPOINT}_")
    stmt = sa.select(_T).where(
        _T.c.tenant == tenant, _T.c.app == app, (_T.c.id if by_id else _T.c.uid) == ref
    )
    if not deleted_too:
        stmt = stmt.where(_T.c.deleted_at.is_(None))
    found = tx.first(stmt) if findable(ref) else None
    if found is None:
        raise NotFound(f"endpoint {ref[:100]!r} was not found")
    return found


def list_endpoints(
    tx: Tx, tenant: TenantId, app_ref: str, page: PageIn
) -> Page[Endpoint]:
    """Return one page of an application's endpoints, by default newest first."""
    app = find_application(tx, tenant, app_ref)
    cursor = check_page(page, paging.valid_id(Prefix.ENDPOINT))
    fetched = paging.fetch(
        tx,
        sa.select(_T).where(
            _T.c.tenant == tenant, _T.c.app == app.id, _T.c.deleted_at.is_(None)
        ),
        _T.c.id,
        cursor,
        limit=page.limit,
        descending=page.order is not Order.ASCENDING,
    )
    return paging.page_of(fetched, rows.as_endpoint, lambda row: row.id)


def put_endpoint(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    given: EndpointIn,
    *,
    ring: KeyRing,
    settings: OutboxSettings,
    operator: bool = False,
) -> Written[Endpoint]:
    """Put an endpoint in the place of the one named, or create it.

    Secret and headers of an existing one stay.
    """
    app = find_application(tx, tenant, app_ref)
    try:
        stored = lock_endpoint(tx, tenant, app.id, ref)
    except NotFound:
        return create_endpoint(
            tx, tenant, app.id, given, ring=ring, settings=settings, operator=operator
        )
    changed = _write(tx, stored, given, ring, settings, operator=operator)
    return Written(value=changed, created=False)


def patch_endpoint(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    ref: str,
    patch: EndpointPatch,
    *,
    ring: KeyRing,
    settings: OutboxSettings,
    operator: bool = False,
) -> Endpoint:
    """Change some fields; raises NotFound, Conflict, Forbidden or ValidationFailed."""
    app = find_application(tx, tenant, app_ref)
    stored = lock_endpoint(tx, tenant, app.id, ref)
    given = patched_endpoint(rows.as_endpoint(stored), patch)
    return _write(tx, stored, given, ring, settings, operator=operator)


def lock_endpoint(tx: Tx, tenant: TenantId, app: str, ref: str) -> sa.Row[Any]:
    """Take the endpoint's lane and return the row as it is under that lock.

    The lane's version rises: nodes read the configuration again.
    """
    lane = endpoint_row(tx, tenant, app, ref).lane
    lanes.change_lane(tx, lane)
    return endpoint_row(tx, tenant, app, ref)


def set_disabled(tx: Tx, stored: sa.Row[Any], *, disabled: bool, why: str) -> None:
    """Pause or open the lane of a locked endpoint and say why."""
    if stored.disabled == disabled:
        return
    state, reason = lane_state(disabled=disabled)
    lanes.change_lane(tx, stored.lane, state=state, reason=reason)
    tx.run(
        sa.update(_T)
        .where(_T.c.id == stored.id)
        .values(disabled=disabled, disabled_why=why if disabled else None)
    )


def _write(
    tx: Tx,
    stored: sa.Row[Any],
    given: EndpointIn,
    ring: KeyRing,
    settings: OutboxSettings,
    *,
    operator: bool,
) -> Endpoint:
    former = rows.settings_of(stored.settings)
    # Absent settings stay, so the URL is judged by the networks that they allow.
    checked = check_endpoint(
        replace(given, settings=given.settings or former), settings
    )
    wanted = _permitted(given.settings, former, operator=operator)
    if wanted.allow_networks and not operator and not _same_place(checked, stored.url):
        raise Forbidden(
            "networks are open to this endpoint: only an admin key of the whole tenant"
            " may point it to another host or port"
        )
    if tuple(given.event_types or ()) != (rows.texts(stored.event_types) or ()):
        check_event_types_exist(tx, stored.tenant, given.event_types)
    lanes.change_lane(
        tx,
        stored.lane,
        deadline_us=deadline_us(wanted, settings),
        at_most_once=wanted.at_most_once,
        needs=needs_of(wanted),
    )
    lanes.unblock_lane(tx, stored.lane)
    set_disabled(tx, stored, disabled=given.disabled, why="by request")
    change = (
        sa.update(_T)
        .where(_T.c.id == stored.id)
        .values(
            userinfo=_sealed_secret(checked, stored, ring),
            **_values(checked, wanted, tx.now),
        )
    )
    try:
        with tx.savepoint():
            tx.run(change)
    except IntegrityError:
        raise _uid_taken(given.uid) from None
    bump_config(tx, stored.app)
    return find_endpoint(tx, stored.tenant, stored.app, stored.id)


def _values(
    checked: CheckedEndpoint, wanted: EndpointSettings, now: int
) -> dict[str, Any]:
    given = checked.given
    return {
        "uid": given.uid,
        "url": given.url,
        "description": given.description,
        "disabled": given.disabled,
        "throttle_rate": given.throttle_rate,
        "event_types": rows.dump_set(given.event_types),
        "channels": rows.dump_set(given.channels),
        "metadata": rows.dump(dict(given.metadata)),
        "settings": rows.dump(wanted),
        "svix_version": given.svix_version,
        "updated_at": now,
    }


def _permitted(
    given: EndpointSettings | None, stored: EndpointSettings, *, operator: bool
) -> EndpointSettings:
    if given is None:
        return stored
    if given.allow_networks != stored.allow_networks and not operator:
        raise Forbidden(
            "only an admin key of the whole tenant may open networks to an endpoint"
        )
    word = check_kind(given.kind)
    if word in OWN and given.kind != stored.kind and not operator:
        raise Forbidden(
            f"only an admin key of the whole tenant may make an endpoint of kind {word}"
        )
    return given


def _same_place(checked: CheckedEndpoint, stored: str) -> bool:
    url = checked.place.url
    if not stored.startswith("http") or url is None:
        return checked.place.text == stored
    was = parse_url(stored)
    return checked.place.text.startswith("http") and (url.host, url.port) == (
        was.host,
        was.port,
    )


def _sealed_headers(given: EndpointIn, ring: KeyRing) -> bytes | None:
    if not given.headers:
        return None
    return ring.seal(rows.dump(dict(given.headers)).encode())


def _sealed_secret(
    checked: CheckedEndpoint, stored: sa.Row[Any] | None, ring: KeyRing
) -> bytes | None:
    """Return what is secret of the address: the mask of a read keeps what is stored.

    Of a chat service it is the whole address, so the mask means something only beside
    the same text.
    """
    place = checked.place
    if not place.kept:
        return None if not place.secret else ring.seal(place.secret.encode())
    was = "" if stored is None else stored.url
    if place.url is None and was != place.text:
        raise ValidationFailed.at(
            "body", "url", msg="the mask stands for no stored address: give the address"
        )
    # What is sealed of another kind must never go out as this one's user info.
    if stored is None or (place.url is not None and not was.startswith("http")):
        return None
    return stored.userinfo


def needs_of(wanted: EndpointSettings) -> str:
    """Return what the lane of such an endpoint asks of a node."""
    return wanted.kind if check_kind(wanted.kind) == HANDLER else KIND


def _check_room(tx: Tx, app: Application, settings: OutboxSettings) -> None:
    count: int = tx.scalar(
        sa.select(sa.func.count())
        .select_from(_T)
        .where(_T.c.app == app.id, _T.c.deleted_at.is_(None))
    )
    if count >= settings.endpoints_max:
        raise ValidationFailed.at(
            "body",
            msg=f"an application has at most {settings.endpoints_max} endpoints",
            type="value_error.limit_reached",
        )


def _uid_taken(uid: str | None) -> Conflict:
    return Conflict(f"an endpoint with the uid {uid!r} exists", uid=uid)
