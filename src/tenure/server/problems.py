"""Answers, and how every error becomes one.

The shapes are those of the Svix API, because its published clients parse them: an error
is `{"code", "detail"}` and the request's id, a validation failure (422) is `{"detail": [{"loc", "msg",
"type"}]}` and nothing else will do there. The status and the code come from the error's
own class, so they are written once, in `tenure.errors`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.responses import Response

from tenure.errors import (
    DatabaseUnavailable,
    RateLimited,
    TenureError,
    Unavailable,
    ValidationFailed,
    ValidationItem,
)
from tenure.telemetry.logs import REQUEST_ID

JSON_TYPE: Final = "application/json"
INTERNAL_ERROR: Final = "internal_error"
_JSON_HEADER: Final = (b"content-type", JSON_TYPE.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer as plain values, before any framework sees it."""

    status: int
    body: bytes = b""
    media_type: str | None = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def response(self) -> Response:
        """Return the answer as FastAPI's routes return it."""
        return Response(
            self.body,
            status_code=self.status,
            media_type=self.media_type,
            headers=dict(self.headers),
        )

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the header block as ASGI sends it."""
        pairs = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in self.headers.items()
        ]
        if self.media_type is JSON_TYPE:
            pairs.append(_JSON_HEADER)
        elif self.media_type is not None:
            pairs.append((b"content-type", self.media_type.encode("latin-1")))
        if self.status != 204:
            pairs.append((b"content-length", b"%d" % len(self.body)))
        return pairs


NO_CONTENT: Final = Answer(status=204, media_type=None)


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    """Return `value` as JSON; members that are `msgspec.Raw` are copied verbatim."""
    return Answer(status=status, body=msgspec.json.encode(value), headers=headers or {})


def problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """Return the answer of an error that is not about one field."""
    body = {"code": code, "detail": detail}
    request_id = REQUEST_ID.get()
    if request_id is not None:
        body["requestId"] = request_id
    return json_answer(body, status, headers)


def error_answer(error: TenureError) -> Answer:
    """Return what the caller sees of an error: its status, code and message."""
    match error:
        case ValidationFailed():
            return validation_answer(error.items)
        case Unavailable() | RateLimited():
            return problem(
                error.status, error.code, shown_message(error), wait_headers(error)
            )
        case _:
            headers: dict[str, str] = {}
            if error.status == 401:
                headers["www-authenticate"] = "Bearer"
            if error.status in {408, 413, 431}:
                # What is still under way will not be read.
                headers["connection"] = "close"
            return problem(error.status, error.code, error.message, headers)


def shown_message(error: TenureError) -> str:
    """Return what a caller may read of an error.

    How the database is reached is not for everybody who can connect: the log has it.
    """
    if isinstance(error, DatabaseUnavailable):
        return "The database cannot be reached now: come back in a moment"
    return error.message


def wait_headers(error: TenureError) -> dict[str, str]:
    """Return when to come back, for errors that pass."""
    if not isinstance(error, Unavailable | RateLimited):
        return {}
    return {"retry-after": str(max(1, math.ceil(error.retry_after)))}


def validation_answer(items: Sequence[ValidationItem]) -> Answer:
    """Return a 422 with one entry per fault; positions in lists are `[i]`."""
    detail = [
        {"loc": [_part(part) for part in item.loc], "msg": item.msg, "type": item.type}
        for item in items
    ]
    return json_answer({"detail": detail}, 422)


def internal_answer(request_id: str) -> Answer:
    """Return the answer of a fault of ours; the log holds the rest."""
    return problem(
        500,
        INTERNAL_ERROR,
        f"Something failed here; the log has it under request id {request_id}",
    )


def _part(part: str | int) -> str:
    return f"[{part}]" if isinstance(part, int) else part
