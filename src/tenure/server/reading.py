"""What a route is given: the body as a checked value, the idempotency key, the site."""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Depends, Header, Request
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from tenure.errors import BadRequest, ValidationFailed, ValidationItem
from tenure.limits import IDEMPOTENCY_KEY_MAX
from tenure.outbox.model import Idempotency
from tenure.server.bounds import read_body
from tenure.server.site import Site

M = TypeVar("M", bound=BaseModel)

MALFORMED: Final = "value_error.jsondecode"
BODY: Final = "tenure.body"
MODEL: Final = "x-tenure-body"


def site_of(request: Request) -> Site:
    """Return what this application serves."""
    site: Site = request.app.state.site
    return site


Here = Annotated[Site, Depends(site_of)]


async def body_bytes(request: Request) -> bytes:
    """Return the request's whole body, read once."""
    held: bytes | None = request.scope.get(BODY)
    if held is None:
        most = site_of(request).body_bytes_max
        held = await read_body(request.scope, request.receive, most)
        request.scope[BODY] = held
    return held


Raw = Annotated[bytes, Depends(body_bytes)]


def body_of(
    body: type[M], *, optional: bool = False
) -> Callable[[Request], Awaitable[M]]:
    """Return a dependency that reads the body as `body`.

    The content type is not looked at. Malformed JSON is a 422 with its position. With
    `optional` an empty body means that every member is absent.
    """

    async def read(request: Request) -> M:
        data = await body_bytes(request)
        if optional and not data.strip():
            data = b"{}"
        return parse(body, data)

    return read


def parse(body: type[M], data: bytes, *within: str) -> M:
    """Return the JSON text as a value, or raise ValidationFailed with every fault."""
    try:
        return body.model_validate(decode(data))
    except ValidationError as error:
        raise ValidationFailed(body_items(error, within)) from None


def decode(data: bytes) -> Any:
    """Return decoded JSON, or raise ValidationFailed with what is wrong and where."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise _malformed("the JSON is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from None


def _malformed(msg: str) -> ValidationFailed:
    return ValidationFailed.at("body", "", "", msg=msg, type=MALFORMED)


def body_items(
    error: ValidationError, within: Sequence[str] = ()
) -> list[ValidationItem]:
    """Return pydantic's faults as the API shows them."""
    items: list[ValidationItem] = []
    for fault in error.errors(include_url=False, include_input=False):
        loc: tuple[str | int, ...] = ("body", *within, *fault["loc"])
        of_value = fault["type"] == "value_error" and fault["loc"]
        items.append(
            ValidationItem(
                loc=loc if fault["loc"] else ("body", *within, "", ""),
                msg=fault["msg"].removeprefix("Value error, "),
                type="value_error" if of_value else MALFORMED,
            )
        )
    return items


def idempotency(scope: Scope, key: str | None, body: bytes) -> Idempotency | None:
    """Return the key with a hash of the operation and its body.

    The hash covers method, path, query and body: a key belongs to one call.
    """
    if key is None:
        return None
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not key.isprintable():
        raise BadRequest(
            f"The Idempotency-Key has 1 to {IDEMPOTENCY_KEY_MAX} printable characters"
        )
    digest = sha256()
    for part in (
        str(scope["method"]).encode(),
        str(scope["path"]).encode(),
        bytes(scope["query_string"]),
        body,
    ):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return Idempotency(key=key, body_hash=digest.hexdigest())


async def once_of(
    request: Request,
    body: Raw,
    idempotency_key: Annotated[
        str | None,
        Header(description="The same key and body again return the same answer"),
    ] = None,
) -> Idempotency | None:
    """Return the caller's wish that this call happens once."""
    return idempotency(request.scope, idempotency_key, body)


Once = Annotated[Idempotency | None, Depends(once_of)]
