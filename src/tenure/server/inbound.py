"""Bodies of the inbox's routes: what a source is made of, what is shown of receipts."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET
from pydantic import Field, JsonValue

from tenure import limits
from tenure.clock import to_rfc3339
from tenure.inbox import model
from tenure.inbox.ledger.listening import Cursor
from tenure.inbox.verification import HINTS, RefusalReason
from tenure.server.schemas import Out
from tenure.server.wire import In, Metadata, Name, unset_or

if TYPE_CHECKING:
    from tenure.server.shapes import Json

Texts = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=200)]
Uid = Annotated[str, Field(min_length=1, max_length=limits.UID_MAX)]


class VerificationIn(In):
    """How requests are verified: a preset and its options (`docs/reference`)."""

    preset: Annotated[str, Field(max_length=100)]
    options: dict[str, JsonValue] = Field(default_factory=dict)

    def value(self) -> model.Verification:
        """Return it as the inbox takes it."""
        return model.Verification(preset=self.preset, options=self.options)


class SourceSettingsIn(In):
    """How a source treats what arrives; places are `header:NAME`, `body:/pointer`."""

    methods: Annotated[list[str], Field(min_length=1, max_length=10)] = Field(
        default_factory=lambda: ["POST"]
    )
    networks: Texts = Field(default_factory=list)
    rate_count: int | None = None
    rate_seconds: Annotated[float, Field(strict=False, allow_inf_nan=False)] = 1.0
    body_bytes_max: int | None = None
    dedupe_key: Annotated[str, Field(max_length=600)] | None = None
    dedupe_seconds: Annotated[float, Field(strict=False, allow_inf_nan=False)] = (
        limits.DEDUPE_SECONDS
    )
    event_type: Annotated[str, Field(max_length=600)] | None = None
    response_status: int = 200
    response_body: str | None = None
    response_headers: dict[str, str] = Field(default_factory=dict)
    public_url: Annotated[str, Field(max_length=limits.URL_MAX)] | None = None

    def value(self) -> model.SourceSettings:
        """Return it as the inbox takes it."""
        given = self.model_dump()
        given["methods"] = tuple(self.methods)
        given["networks"] = tuple(self.networks)
        return model.SourceSettings(**given)


class PullIn(In):
    """Where a source pulls from: a broker's URL, and what is read there."""

    kind: Literal["nats", "redis", "amqp"]
    url: Annotated[str, Field(min_length=1, max_length=limits.URL_MAX)]
    name: Annotated[str, Field(max_length=200)]
    group: Annotated[str, Field(max_length=64)] = "tenure"

    def value(self) -> model.Pull:
        """Return it as the inbox takes it."""
        return model.Pull(
            kind=model.PullKind(self.kind),
            url=self.url,
            name=self.name,
            group=self.group,
        )


class SourceIn(In):
    """A source to make or put in place; secrets count when it is made."""

    name: Name
    uid: Uid | None = None
    app_id: Annotated[str, Field(max_length=limits.UID_MAX)] | None = None
    verification: VerificationIn
    secrets: Texts = Field(default_factory=list)
    settings: SourceSettingsIn = Field(default_factory=SourceSettingsIn)
    pull: PullIn | None = None
    metadata: Metadata = Field(default_factory=dict)
    disabled: bool = False

    def value(self) -> model.SourceIn:
        """Return it as the inbox takes it."""
        return model.SourceIn(
            name=self.name,
            uid=self.uid,
            app=self.app_id,
            verification=self.verification.value(),
            secrets=tuple(self.secrets),
            settings=self.settings.value(),
            pull=None if self.pull is None else self.pull.value(),
            metadata=self.metadata,
            disabled=self.disabled,
        )


class SourcePatch(In):
    """A partial change of a source; settings are replaced, never merged."""

    name: Name | None = None
    uid: Uid | None = None
    verification: VerificationIn | None = None
    secrets: Texts | None = None
    settings: SourceSettingsIn | None = None
    pull: PullIn | None = None
    metadata: Metadata | None = None
    disabled: bool | None = None

    def value(self) -> model.SourcePatch:
        """Return it as the inbox takes it; what is absent stays."""
        given = unset_or(self, "uid", "metadata", "pull")
        if self.pull is not None:
            given["pull"] = self.pull.value()
        return model.SourcePatch(
            **given,
            name=UNSET if self.name is None else self.name,
            disabled=UNSET if self.disabled is None else self.disabled,
            secrets=UNSET if self.secrets is None else tuple(self.secrets),
            verification=UNSET
            if self.verification is None
            else self.verification.value(),
            settings=UNSET if self.settings is None else self.settings.value(),
        )


class RotateIn(In):
    """A secret that counts from now on; the former ones count until the grace ends."""

    secret: Annotated[str, Field(min_length=1, max_length=4096)]
    grace_period_seconds: Annotated[
        int, Field(ge=0, le=limits.SECRET_GRACE_MAX_SECONDS)
    ] = limits.SECRET_GRACE_SECONDS


class TriggerIn(In):
    """A sample to let arrive: an event by its provider's name."""

    event: Annotated[str, Field(min_length=1, max_length=256)]


class CursorIn(In):
    """How far a listener has got: what it was told last."""

    cursor: Annotated[str, Field(max_length=100)]


class ReplayIn(In):
    """Hand a receipt on again: to one endpoint, or to all that would get it."""

    endpoint_id: Annotated[str, Field(max_length=limits.UID_MAX)] | None = None


class TriggeredOut(Out):
    """What the sample's sender was told, and its receipt."""

    status: int
    receipt_id: str | None
    body: str


class SourceOut(Out):
    """A source; `path` is the last part of its URL, secrets are only counted."""

    id: str
    uid: str | None
    name: str
    app_id: str
    path: str
    verification: dict[str, Any]
    secret_count: int
    settings: dict[str, Any]
    pull: dict[str, str] | None
    metadata: dict[str, str]
    disabled: bool
    created_at: datetime
    updated_at: datetime


class ReceiptOut(Out):
    """One accepted request."""

    id: str
    source_id: str
    app_id: str
    message_id: str | None
    messages: int
    event_type: str
    event_id: str | None
    method: str
    address: str | None
    size: int
    received_at: datetime


class ReceiptDetailOut(ReceiptOut):
    """A receipt whole: header lines in order, credentials masked; body in base64."""

    query: str
    headers: list[list[str]]
    body: str | None
    message_ids: list[str]


class ListenedOut(ReceiptDetailOut):
    """A receipt whole, and the cursor of who has taken it."""

    cursor: str


class NextOut(Out):
    """Receipts after a cursor in the order of their commits, and where to go on."""

    cursor: str
    data: list[ListenedOut]


class CursorOut(Out):
    """How far a listener has got."""

    cursor: str


class RefusedOut(Out):
    """One refused request, and what to look at."""

    id: str
    reason: str
    detail: str
    hint: str
    status: int
    method: str
    query: str
    address: str | None
    headers: list[list[str]]
    body: str
    size: int
    received_at: datetime


class RefusalsOut(Out):
    """What a source refused since it exists, and the newest ones whole."""

    counts: dict[str, int]
    data: list[RefusedOut]


class ReplayedOut(Out):
    """What became of each delivery: `ready`, `woken` or `in flight`."""

    data: list[dict[str, str]]


def source_out(source: model.Source) -> Json:
    """Return SourceOut."""
    settings, pull = source.settings, source.pull
    return {
        "id": source.id,
        "uid": source.uid,
        "name": source.name,
        "appId": source.app,
        "path": source.path,
        "verification": {
            "preset": source.verification.preset,
            "options": dict(source.verification.options),
        },
        "secretCount": source.secret_count,
        "settings": {
            "methods": list(settings.methods),
            "networks": list(settings.networks),
            "rateCount": settings.rate_count,
            "rateSeconds": settings.rate_seconds,
            "bodyBytesMax": settings.body_bytes_max,
            "dedupeKey": settings.dedupe_key,
            "dedupeSeconds": settings.dedupe_seconds,
            "eventType": settings.event_type,
            "responseStatus": settings.response_status,
            "responseBody": settings.response_body,
            "responseHeaders": dict(settings.response_headers),
            "publicUrl": settings.public_url,
        },
        "pull": None
        if pull is None
        else {
            "kind": str(pull.kind),
            "url": pull.url,
            "name": pull.name,
            "group": pull.group,
        },
        "metadata": dict(source.metadata),
        "disabled": source.disabled,
        "createdAt": to_rfc3339(source.created_at),
        "updatedAt": to_rfc3339(source.updated_at),
    }


def receipt_out(receipt: model.Receipt) -> Json:
    """Return ReceiptOut."""
    return {
        "id": receipt.id,
        "sourceId": receipt.source,
        "appId": receipt.app,
        "messageId": receipt.message,
        "messages": receipt.messages,
        "eventType": receipt.event_type,
        "eventId": receipt.event_id,
        "method": receipt.method,
        "address": receipt.address,
        "size": receipt.size,
        "receivedAt": to_rfc3339(receipt.received_at),
    }


def receipt_detail_out(found: model.ReceiptDetail) -> Json:
    """Return ReceiptDetailOut."""
    return receipt_out(found.receipt) | {
        "query": found.query,
        "headers": [list(line) for line in found.headers],
        "body": None if found.body is None else _base64(found.body),
        "messageIds": list(found.made),
    }


def listened_out(found: model.ReceiptDetail) -> Json:
    """Return ListenedOut."""
    cursor = str(Cursor.after(found.receipt))
    return receipt_detail_out(found) | {"cursor": cursor}


def refusals_out(found: model.Refusals) -> Json:
    """Return RefusalsOut."""
    return {
        "counts": dict(found.counts),
        "data": [_refused_out(each) for each in found.kept],
    }


def _refused_out(refused: model.Refused) -> Json:
    return {
        "id": refused.id,
        "reason": refused.reason,
        "detail": refused.detail,
        "hint": _hint(refused.reason),
        "status": refused.status,
        "method": refused.method,
        "query": refused.query,
        "address": refused.address,
        "headers": [list(line) for line in refused.headers],
        "body": _base64(refused.body),
        "size": refused.size,
        "receivedAt": to_rfc3339(refused.received_at),
    }


def _hint(reason: str) -> str:
    try:
        return HINTS[RefusalReason(reason)]
    except ValueError:
        return ""


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
