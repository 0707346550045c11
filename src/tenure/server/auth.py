"""Who calls, and what they may.

`Authorization: Bearer <key>` everywhere but health and logout; the page takes the same
key as the password of HTTP Basic. Only the SHA-256 of a key is stored and looked up, so
nothing is compared byte by byte that an attacker could time. A verified key is
remembered for `KEY_CACHE_SECONDS`, so that the hot route reads no key from the database;
that is also how long a revoked key may still work on another node.

The order of checks is: route, key, scope, query, body. Another tenant's id, and another
application's id for an application key, is 404: as if it did not exist.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from hashlib import sha256
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Request
from starlette.types import Scope as AsgiScope

from tenure.errors import AuthenticationFailed, Forbidden, NotFound
from tenure.limits import KEY_CACHE_MAX, KEY_CACHE_SECONDS
from tenure.outbox.model import Caller, Scope
from tenure.outbox.outbox import Outbox
from tenure.server.reading import site_of
from tenure.server.site import Site

Headers: TypeAlias = dict[bytes, bytes]
"""Values by name in lower case, as ASGI spells them."""

KEY_BYTES_MAX: Final = 512
_READING: Final = frozenset({"GET", "HEAD"})


class KeyDoor:
    """Verifies keys; remembers those that were good for a moment."""

    __slots__ = ("_known", "_site")

    def __init__(self, site: Site) -> None:
        self._site: Final = site
        self._known: Final[OrderedDict[bytes, tuple[float, Caller]]] = OrderedDict()

    def remembered(self, token: str) -> Caller | None:
        """Return who holds this key, if it was good a moment ago."""
        held = self._known.get(_name(token))
        if held is not None and self._site.clock.monotonic() < held[0]:
            return held[1]
        return None

    async def caller(self, token: str) -> Caller:
        """Return who holds this key. Raises AuthenticationFailed."""
        known = self.remembered(token)
        if known is not None:
            return known
        name = _name(token)
        now = self._site.clock.monotonic()
        self._known.pop(name, None)
        caller = await self._site.outbox.verify_api_key(token)
        if caller is None:
            raise invalid()
        self._known[name] = (now + KEY_CACHE_SECONDS, caller)
        while len(self._known) > KEY_CACHE_MAX:
            self._known.popitem(last=False)
        return caller

    def forget(self) -> None:
        """Look every key up again: one was revoked here."""
        self._known.clear()


def _name(token: str) -> bytes:
    return sha256(token.encode()).digest()


def invalid() -> AuthenticationFailed:
    """Return the one answer to every key that is no good, whatever the reason."""
    return AuthenticationFailed("Invalid token")


def first_of_each(scope: AsgiScope) -> Headers:
    """Return the request's headers by name; of those that repeat, the first."""
    return dict(reversed(scope["headers"]))


def header(scope: AsgiScope, wanted: bytes) -> str | None:
    """Return a request header's value, or None; the first one counts."""
    for name, value in scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


def bearer(scope: AsgiScope) -> str:
    """Return the key of the Authorization header. Raises AuthenticationFailed."""
    return bearer_token(header(scope, b"authorization"))


def bearer_token(authorization: str | None) -> str:
    """Return the key that an Authorization header says. Raises AuthenticationFailed."""
    kind, _, token = (authorization or "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not _well_formed(token):
        raise invalid()
    return token


def basic(scope: AsgiScope) -> str:
    """Return the password of HTTP Basic. Raises AuthenticationFailed."""
    kind, _, encoded = (header(scope, b"authorization") or "").partition(" ")
    if kind.lower() != "basic":
        raise invalid()
    try:
        pair = b64decode(encoded.strip(), validate=True).decode()
    except (Base64Error, ValueError):
        raise invalid() from None
    token = pair.partition(":")[2]
    if not _well_formed(token):
        raise invalid()
    return token


def _well_formed(token: str) -> bool:
    return 0 < len(token) <= KEY_BYTES_MAX and token.isascii() and token.isprintable()


def check_scope(caller: Caller, method: str) -> None:
    """Raise Forbidden unless the key may use this method."""
    if method not in _READING and caller.scope is Scope.READ:
        raise Forbidden("This key may only read: use one with scope write or admin")


async def check_app(outbox: Outbox, caller: Caller, app_ref: str) -> None:
    """Raise NotFound unless the key reaches this application."""
    if caller.app is None or caller.app == app_ref:
        return
    app = await outbox.get_application(caller.tenant, app_ref)
    if app.id != caller.app:
        raise NotFound("Entity not found")


async def any_caller(request: Request) -> Caller:
    """Whoever holds a key; writes need more than the scope `read`."""
    door: KeyDoor = request.app.state.door
    caller = await door.caller(bearer(request.scope))
    check_scope(caller, request.method)
    return caller


async def tenant_caller(caller: Annotated[Caller, Depends(any_caller)]) -> Caller:
    """A key of the whole tenant, not of one application."""
    if caller.app is not None:
        raise Forbidden("This key is limited to one application")
    return caller


async def app_caller(
    request: Request, caller: Annotated[Caller, Depends(any_caller)]
) -> Caller:
    """A key of the tenant, or of the application in the path."""
    app_ref = str(request.path_params["app_id"])
    await check_app(site_of(request).outbox, caller, app_ref)
    return caller


async def app_owner(
    request: Request, caller: Annotated[Caller, Depends(app_caller)]
) -> Caller:
    """A key of the whole tenant, for an operation inside an application.

    Another application is 404 to an application key, its own is 403.
    """
    del request
    if caller.app is not None:
        raise Forbidden("This key is limited to its application's own endpoints")
    return caller


async def admin_caller(caller: Annotated[Caller, Depends(tenant_caller)]) -> Caller:
    """An admin key of the whole tenant."""
    if caller.scope is not Scope.ADMIN:
        raise Forbidden("This needs a key with scope admin")
    return caller


AnyCaller = Annotated[Caller, Depends(any_caller)]
TenantCaller = Annotated[Caller, Depends(tenant_caller)]
AppCaller = Annotated[Caller, Depends(app_caller)]
AppOwner = Annotated[Caller, Depends(app_owner)]
AdminCaller = Annotated[Caller, Depends(admin_caller)]
