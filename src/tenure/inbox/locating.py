"""Where in a request a value is found: what a source may say instead of its preset."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

import msgspec

if TYPE_CHECKING:
    from tenure.inbox.arrivals import Arrival

__all__ = ["Locator", "Place", "locate", "parse_locator"]

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_POINTER_MAX: Final = 500  # characters of a JSON pointer
_STEPS_MAX: Final = 20  # parts of a JSON pointer


class Place(StrEnum):
    """Which part of a request."""

    HEADER = "header"
    QUERY = "query"
    BODY = "body"
    FIXED = "="


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """A parsed locator: `name` is a header's or query's name, or the fixed text."""

    place: Place
    name: str = ""
    steps: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def parse_locator(text: str, *, fixed: bool = False) -> Locator:
    """Read `header:NAME`, `query:NAME`, `body:/json/pointer` or (`fixed`) `=text`.

    Raises ValueError that says what can be written.
    """
    if fixed and text.startswith("=") and len(text) > 1:
        return Locator(place=Place.FIXED, name=text[1:])
    kind, _, rest = text.partition(":")
    if kind in {"header", "query"} and _NAME.fullmatch(rest):
        name = rest.lower() if kind == "header" else rest
        return Locator(place=Place(kind), name=name)
    if kind == "body" and rest.startswith("/") and len(rest) <= _POINTER_MAX:
        steps = tuple(
            step.replace("~1", "/").replace("~0", "~") for step in rest[1:].split("/")
        )
        if len(steps) <= _STEPS_MAX:
            return Locator(place=Place.BODY, steps=steps)
    also = ", or `=name` for always the same" if fixed else ""
    raise ValueError(
        f"{text[:100]!r} names no place: write `header:NAME`, `query:NAME` or"
        f" `body:/path/in/the/json`{also}"
    )


def locate(locator: Locator, arrival: Arrival) -> str | None:
    """Return the text, number or boolean that is there; None when nothing is."""
    match locator.place:
        case Place.FIXED:
            return locator.name
        case Place.HEADER:
            wanted = locator.name.encode("latin-1")
            found = next((v for name, v in arrival.headers if name == wanted), b"")
            return found.decode("latin-1") or None
        case Place.QUERY:
            return _in_query(locator.name, arrival.query.decode("latin-1"))
        case Place.BODY:
            return _in_body(locator.steps, arrival.body)


def _in_query(name: str, query: str) -> str | None:
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if unquote_plus(key) == name:
            return unquote_plus(value) or None
    return None


def _in_body(steps: tuple[str, ...], body: bytes) -> str | None:
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    for step in steps:
        match value:
            case dict():
                value = value.get(step)
            case list() if step.isascii() and step.isdigit() and len(step) < 10:
                at = int(step)
                value = value[at] if at < len(value) else None
            case _:
                return None
    match value:
        case str():
            return value or None
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return None
