"""Whom a command asks: a running server by HTTP, or the database itself.

Both answer the same API: opened directly, the server's own application runs inside the
command, without a socket and without a worker. So each verb exists once, and whatever a
server refuses is refused in the same words.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tenure.errors import (
    AuthenticationFailed,
    BadRequest,
    InvariantViolated,
    NotFound,
    TenureError,
    Unavailable,
    ValidationFailed,
    ValidationItem,
    leaves,
)
from tenure.limits import LIST_MAX

if TYPE_CHECKING:
    from tenure.config import Settings

__all__ = ["Answered", "Api", "Transport", "find_app", "open_api"]

APPS_SEARCHED_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A status and a body."""

    status: int
    body: bytes


class Transport(Protocol):
    """How a request reaches the API."""

    @property
    def where(self) -> str:
        """What is asked, in words."""
        ...

    def send(self, method: str, target: str, body: bytes | None) -> Answered:
        """Return the answer. Raises Unavailable when there is none."""
        ...


class Api:
    """The API as verbs use it: decoded JSON in and out, errors as exceptions."""

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport

    @property
    def where(self) -> str:
        """What is asked, in words."""
        return self._transport.where

    def get(self, path: str, **query: object) -> Any:
        """Return what a GET answers; parameters that are None are left out."""
        return self._call("GET", path, query, None)

    def post(self, path: str, body: object = None, **query: object) -> Any:
        """Return what a POST answers; `body` is encoded unless it is bytes."""
        return self._call("POST", path, query, body)

    def put(self, path: str, body: object) -> Any:
        """Return what a PUT answers."""
        return self._call("PUT", path, {}, body)

    def patch(self, path: str, body: object) -> Any:
        """Return what a PATCH answers."""
        return self._call("PATCH", path, {}, body)

    def delete(self, path: str) -> None:
        """DELETE something."""
        self._call("DELETE", path, {}, None)

    def pages(self, path: str, most: int, **query: object) -> Iterator[Any]:
        """Yield the items of a list, at most `most`, page by page."""
        iterator: str | None = None
        while most > 0:
            size = min(most, LIST_MAX)
            page = self.get(path, limit=size, iterator=iterator, **query)
            yield from page["data"]
            most -= len(page["data"])
            iterator = page["iterator"]
            if page["done"] or iterator is None:
                return

    def _call(
        self, method: str, path: str, query: Mapping[str, object], body: object
    ) -> Any:
        given = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        answered = self._transport.send(method, target_of(path, query), given)
        if answered.status >= 400:
            raise _error(answered)
        return msgspec.json.decode(answered.body) if answered.body else None


def target_of(path: str, query: Mapping[str, object]) -> str:
    """Return the target of a request; parameters that are None are left out."""
    from urllib.parse import quote, urlencode

    given = [(name, _text(value)) for name, value in query.items() if value is not None]
    text = urlencode(given)
    return quote(path, safe="/") + (f"?{text}" if text else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(answered: Answered) -> TenureError:
    """Return the error that the server raised, or the nearest thing to it."""
    try:
        problem = msgspec.json.decode(answered.body)
        detail = problem["detail"]
    except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
        shown = answered.body[:200].decode(errors="replace")
        return _unknown(answered.status, f"the server answered {shown!r}")
    if isinstance(detail, list):
        return ValidationFailed([_fault(item) for item in detail])
    known = {leaf.code: leaf for leaf in leaves()}.get(problem.get("code", ""))
    if known is None or known is ValidationFailed:
        return _unknown(answered.status, str(detail))
    if known is AuthenticationFailed:
        return AuthenticationFailed(
            f"the server refuses this API key ({detail}): give one with --key or"
            " TENURE_API_KEY; `tenure keys create` on its machine makes one"
        )
    return known(str(detail))


def _unknown(status: int, text: str) -> TenureError:
    shown = f"{text} (status {status})"
    if status in {502, 503, 504}:
        return Unavailable(shown)
    return InvariantViolated(shown) if status >= 500 else BadRequest(shown)


def _fault(item: Any) -> ValidationItem:
    return ValidationItem(loc=tuple(item["loc"]), msg=item["msg"], type=item["type"])


@contextmanager
def open_api(
    settings: Settings, *, server: str | None, key: str | None
) -> Generator[Api]:
    """Ask the server when there is a key, else the database itself."""
    if key:
        from tenure.cli.remote import Remote

        yield Api(Remote(server or _address(settings), key))
        return
    if server:
        raise AuthenticationFailed(
            f"the server at {server} wants an API key: give --key or TENURE_API_KEY"
        )
    from tenure.cli.direct import direct

    with direct(settings) as transport:
        yield Api(transport)


def _address(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def find_app(api: Api, app: str | None, path: str) -> tuple[str, Any]:
    """Return the application below which `path` exists, and what is there.

    Without `app` every application is asked, up to a bound. Raises NotFound.
    """
    if app is not None:
        return app, api.get(f"/api/v1/app/{app}{path}")
    for found in api.pages("/api/v1/app", APPS_SEARCHED_MAX):
        try:
            return found["id"], api.get(f"/api/v1/app/{found['id']}{path}")
        except NotFound:
            continue
    raise NotFound(
        f"{path.split('/')[2]} is in none of the applications;"
        " `tenure messages list` shows what is there, --app names an application"
    )
