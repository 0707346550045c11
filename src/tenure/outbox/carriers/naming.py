"""The kinds of an endpoint and their addresses, read without a network.

An address that is a secret (a chat service's) is stored sealed; what is stored openly
in its place ends with a mask and has a scheme that no HTTP endpoint can have, so that
neither can ever be taken for the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.limits import COORDINATE_MAX, URL_MAX
from tenure.outbox.http.url import parse_url

if TYPE_CHECKING:
    from tenure.outbox.http.url import Url

__all__ = [
    "KINDS",
    "OWN",
    "SERVICES",
    "Coordinate",
    "Place",
    "check_kind",
    "parse_coordinate",
    "place_of",
]

HTTP: Final = "http"
LOG: Final = "log"
ARCHIVE: Final = "archive"
SLACK: Final = "slack"
CHAT: Final = "chat"
HANDLER: Final = "handler"

KINDS: Final = {
    HTTP: "a signed request to its URL",
    LOG: "one line of this node's log",
    ARCHIVE: "one row of the table `archived`, in the commit that settles the delivery",
    SLACK: "a post to an incoming webhook of Slack, or of what speaks as it does",
    CHAT: "a post to a chat service, by its Apprise URL",
    HANDLER: "a call of a Python function in the application, `handler:package.name`",
}
"""Every kind, and what one attempt of it does."""

OWN: Final = frozenset({ARCHIVE, HANDLER, LOG})
"""Kinds that act inside of the deployment, so that only its operator may ask for them."""

SERVICES: Final = {
    "discord": None,
    "gchat": None,
    "pover": None,
    "tgram": None,
    "webex": None,
    "workflows": (".logic.azure.com", ".api.powerplatform.com"),
    "wxteams": None,
}
"""Services of the kind `chat` by the scheme of their URL: None = the host that is dialled
is the service's own and written into its client; else what the host in the URL must end
with. No other scheme is taken: Apprise dials by itself, so no address rule of ours would
hold for a host that somebody chose."""

MASK: Final = "***"
_CHAT: Final = re.compile(r"([a-z]+)://([^/?#\s]+)(/[^?#\s]*)?")
_HOST: Final = re.compile(r"[a-z0-9.-]+")
_PACKAGE: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_TAKEN: Final = frozenset({"builtin", "env"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """Who a function belongs to and how it is called there."""

    package: str
    name: str

    def __str__(self) -> str:
        return f"{self.package}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an endpoint's messages go: `text` is stored and shown.

    `url` is what the HTTP client dials, None when it dials nothing. `secret` is sealed
    beside the text: user info of an http URL, or a chat service's whole address; `kept`
    says that the mask of a read came back, so that what is sealed stays.
    """

    text: str
    url: Url | None = None
    secret: str | None = None
    kept: bool = False


def check_kind(kind: str) -> str:
    """Return the first word of a kind; ValueError says what is wrong with it."""
    word, colon, rest = kind.partition(":")
    if word == HANDLER and colon:
        parse_coordinate(rest)
    elif kind not in KINDS or kind == HANDLER:
        known = ", ".join(name for name in KINDS if name != HANDLER)
        raise ValueError(f"a kind is one of {known}, or handler:package.name")
    return word


def parse_coordinate(text: str) -> Coordinate:
    """Read `package.name`; ValueError when its words may not be."""
    package, _, name = text.rpartition(".")
    checks = ((package, _PACKAGE, "package"), (name, _NAME, "name"))
    for word, shape, what in checks:
        if len(word) > COORDINATE_MAX or not shape.fullmatch(word):
            raise ValueError(f"{word[:50]!r} is no {what}: write package.name")
    if package in _TAKEN:
        raise ValueError(f"the package {package!r} is reserved")
    return Coordinate(package=package, name=name)


def place_of(kind: str, url: str) -> Place:
    """Read an endpoint's address as its kind takes it; ValueError says what is wrong."""
    match check_kind(kind):
        case "http":
            parsed = parse_url(url)
            kept = parsed.userinfo == MASK
            return Place(
                text=parsed.text, url=parsed, secret=parsed.userinfo, kept=kept
            )
        case "slack":
            return _slack(url)
        case "chat":
            return _chat(url)
        case _:
            if url != kind:
                raise ValueError(f"this kind dials nothing: its URL is {kind!r}")
            return Place(text=kind)


def _slack(url: str) -> Place:
    scheme, _, rest = url.partition("://")
    if scheme == SLACK and rest.endswith(f"/{MASK}"):
        return Place(text=url, kept=True)
    parsed = parse_url(url)
    if parsed.userinfo is not None:
        raise ValueError("an incoming webhook's URL has no user info")
    authority = parsed.authority.decode("ascii")
    return Place(text=f"slack://{authority}/{MASK}", url=parsed, secret=url)


def _chat(url: str) -> Place:
    if len(url) > URL_MAX:
        raise ValueError(f"URL is longer than {URL_MAX} characters")
    found = _CHAT.fullmatch(url)
    if found is None:
        raise ValueError(
            "not a chat service's URL: service://token/…, without parameters"
        )
    scheme, host, _ = found.groups()
    if scheme not in SERVICES:
        raise ValueError(f"a chat service is one of {', '.join(SERVICES)}")
    if url == f"{scheme}://{MASK}":
        return Place(text=url, kept=True)
    ends = SERVICES[scheme]
    if ends is not None and not (_HOST.fullmatch(host) and host.endswith(ends)):
        raise ValueError(f"the host of {scheme} ends with {' or '.join(ends)}")
    return Place(text=f"{scheme}://{MASK}", secret=url)
