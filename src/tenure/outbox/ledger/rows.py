"""Rows of the outbox as its frozen values, and small values as JSON text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.ids import (
    AppId,
    EndpointId,
    EventTypeName,
    LaneId,
    MessageId,
    TenantId,
)
from tenure.outbox.model import (
    Application,
    Endpoint,
    EndpointSettings,
    EventType,
    Kept,
    Message,
    SchemaCheck,
)
from tenure.outbox.rules import shown_url

if TYPE_CHECKING:
    import sqlalchemy as sa

    from tenure.store.tx import Tx

_TEXTS: Final = msgspec.json.Decoder(tuple[str, ...])
_MAP: Final = msgspec.json.Decoder(dict[str, str])
_OBJECT: Final = msgspec.json.Decoder(dict[str, object])
_SETTINGS: Final = msgspec.json.Decoder(EndpointSettings)
_PAIRS: Final = msgspec.json.Decoder(tuple[tuple[str, str], ...])


def dump(value: object) -> str:
    """Return a small value as compact JSON text."""
    return msgspec.json.encode(value).decode()


def dump_set(values: Iterable[str] | None) -> str | None:
    """Return names as a JSON array; None stays None."""
    return None if values is None else dump(list(values))


def texts(stored: str | None) -> tuple[str, ...] | None:
    """Read what `dump_set` wrote."""
    return None if stored is None else _TEXTS.decode(stored)


def text_map(stored: str | bytes | None) -> dict[str, str]:
    """Read a JSON object of strings; nothing stored is an empty one."""
    return {} if stored is None else _MAP.decode(stored)


def settings_of(stored: str) -> EndpointSettings:
    """Read an endpoint's own settings."""
    return _SETTINGS.decode(stored)


def filter_of(stored: str) -> str | None:
    """Return the CEL filter of an endpoint's settings, without reading the rest."""
    if '"filter":"' not in stored:
        return None
    return settings_of(stored).filter


def dump_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return header lines as JSON bytes; latin-1, which loses no byte."""
    return msgspec.json.encode(
        [[name.decode("latin-1"), value.decode("latin-1")] for name, value in pairs]
    )


def pairs_of(stored: bytes | None) -> tuple[tuple[str, str], ...]:
    """Read what `dump_pairs` wrote."""
    return () if stored is None else _PAIRS.decode(stored)


def as_application(row: sa.Row[Any]) -> Application:
    """Build an application from its row."""
    return Application(
        id=AppId(row.id),
        tenant=TenantId(row.tenant),
        uid=row.uid,
        name=row.name,
        throttle_rate=row.throttle_rate,
        metadata=text_map(row.metadata),
        lane_group=row.lane_group,
        config_version=row.config_version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        kept=Kept(
            history_days=row.history_days,
            payload_days=row.payload_days,
            response_days=row.response_days,
        ),
    )


def as_endpoint(row: sa.Row[Any]) -> Endpoint:
    """Build an endpoint from its row; user info is masked."""
    return Endpoint(
        id=EndpointId(row.id),
        app=AppId(row.app),
        tenant=TenantId(row.tenant),
        uid=row.uid,
        url=shown_url(row.url, userinfo=row.userinfo is not None),
        description=row.description,
        disabled=row.disabled,
        disabled_why=row.disabled_why,
        throttle_rate=row.throttle_rate,
        event_types=texts(row.event_types),
        channels=texts(row.channels),
        metadata=text_map(row.metadata),
        settings=settings_of(row.settings),
        lane=LaneId(row.lane),
        svix_version=row.svix_version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        deleted_at=row.deleted_at,
    )


def as_event_type(row: sa.Row[Any]) -> EventType:
    """Build an event type from its row."""
    return EventType(
        name=EventTypeName(row.name),
        description=row.description,
        archived=row.archived,
        deprecated=row.deprecated,
        schemas=None if row.schemas is None else _OBJECT.decode(row.schemas),
        feature_flags=texts(row.feature_flags),
        group_name=row.group_name,
        schema_check=SchemaCheck(row.schema_check),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def as_message(
    row: sa.Row[Any], *, body: bytes | None = None, expunged: bool = False
) -> Message:
    """Build a message from the columns of its row."""
    return Message(
        id=MessageId(row.id),
        app=AppId(row.app),
        tenant=TenantId(row.tenant),
        event_id=row.event_id,
        event_type=row.event_type,
        channels=texts(row.channels),
        tags=texts(row.tags),
        headers=None if row.headers is None else text_map(row.headers),
        content_type=row.content_type,
        deliver_at=row.deliver_at,
        expires_at=row.expires_at,
        created_at=row.created_at,
        body=body,
        expunged=expunged,
    )


def contains_name(tx: Tx, column: sa.Column[Any], name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a JSON array of names holds this one, exactly.

    Names hold no quote and no backslash, so the quoted text is found where it is; LIKE
    would fold letter case on SQLite.
    """
    from sqlalchemy import func

    quoted = dump(name)
    match tx.dialect:
        case "sqlite":
            return func.instr(column, quoted) > 0
        case "postgresql":
            return func.strpos(column, quoted) > 0
