"""How a message arrived that came as a webhook, and how that is stored.

A receipt's header lines belong to what is handed on, so they are stored with the message
and live as long. Values that are a credential by themselves (a bearer token, a cookie)
are sealed; everything else stays readable. Text is latin-1, which loses no byte.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["CREDENTIALS", "Relay", "dump", "load", "shown"]

CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Header names whose values are always sealed, in lower case."""
MASKED: Final = "***"


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived: `headers` in order, with repeats, names as received.

    `receipt` and `source` are what targets are told (`tenure-receipt`,
    `tenure-source`). `stored` is the text that `dump` made of the rest.
    """

    receipt: str
    source: str
    method: str
    query: str
    headers: tuple[tuple[str, str], ...] = msgspec.field(default=())
    stored: str = ""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    receipt: str
    source: str
    method: str
    query: str
    headers: tuple[tuple[Any, ...], ...]  # (name, value) or (name, None, sealed)


_DECODER: Final = msgspec.json.Decoder(_Stored)


def dump(
    relay: Relay, seal: Callable[[bytes], bytes], credentials: Collection[str]
) -> Relay:
    """Return it with its stored text; values of these names are sealed there.

    `credentials` are lower-case names beyond `CREDENTIALS`.
    """
    stored = _Stored(
        receipt=relay.receipt,
        source=relay.source,
        method=relay.method,
        query=relay.query,
        headers=tuple(
            (name, None, _sealed(value, seal))
            if (folded := name.lower()) in CREDENTIALS or folded in credentials
            else (name, value)
            for name, value in relay.headers
        ),
    )
    text = msgspec.json.encode(stored).decode()
    return msgspec.structs.replace(relay, stored=text)


def load(text: str, unseal: Callable[[bytes], bytes]) -> Relay:
    """Read what `dump` stored.

    Raises ValueError or msgspec's error for what it did not write, WrongKeyRing for
    what this key ring does not open.
    """
    return _relay(
        text, lambda sealed: unseal(base64.b64decode(sealed)).decode("latin-1")
    )


def shown(text: str) -> Relay:
    """Read it for people: sealed values are masked."""
    return _relay(text, lambda _: MASKED)


def _relay(text: str, unseal: Callable[[str], str]) -> Relay:
    stored = _DECODER.decode(text)
    return Relay(
        receipt=stored.receipt,
        source=stored.source,
        method=stored.method,
        query=stored.query,
        headers=tuple(
            (line[0], line[1] if len(line) == 2 else unseal(line[2]))
            for line in stored.headers
        ),
        stored=text,
    )


def _sealed(value: str, seal: Callable[[bytes], bytes]) -> str:
    return base64.b64encode(seal(value.encode("latin-1"))).decode()
