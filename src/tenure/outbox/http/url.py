"""Endpoint URLs: parsed once, at save, into what the client dials and writes.

Normalised as browsers do (WHATWG URL), so that every spelling of an address is seen
as that address, and stricter where a browser repairs: what a person did not mean to
write is refused with the reason instead of being mended.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import idna

from tenure import limits

if TYPE_CHECKING:
    from tenure.outbox.http.model import Address

_SHAPE: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[^?]*)(?P<query>\?.*)?",
    re.IGNORECASE | re.DOTALL,
)
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\\]")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_DOT: Final = re.compile(r"\.|%2e", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}
# What WHATWG leaves alone in a path and in the query of an http URL; `%` is kept, so
# escapes that are already there stay as they are.
_PATH_SAFE: Final = "/%!$&'()*+,;=:@~-._[]|"
QUERY_SAFE: Final = _PATH_SAFE.replace("'", "") + "?`{}^"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A normalised http(s) URL.

    `text` carries no user info; `userinfo` is the part before `@` as written (percent
    escapes kept), to be stored encrypted. `host` has no brackets; `address` is set
    when the host is an address in any spelling. `authority` is the Host header's
    value, `target` the path and query as they go on the request line.
    """

    text: str
    scheme: str
    host: str
    port: int
    target: bytes
    authority: bytes
    address: Address | None
    userinfo: str | None


def parse_url(text: str) -> Url:
    """Parse and normalise an absolute http(s) URL; ValueError says what is wrong."""
    if len(text) > limits.URL_MAX:
        raise ValueError(f"URL is longer than {limits.URL_MAX} characters")
    found = _FORBIDDEN.search(text)
    if found is not None:
        raise ValueError(f"URL has a forbidden character at {found.start()}")
    if "#" in text:
        raise ValueError("URL has a fragment, which no request would carry")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError("URL is not absolute: it must begin with http:// or https://")
    scheme = shape["scheme"].lower()
    if scheme not in _PORTS:
        raise ValueError(f"URL scheme {scheme!r} is not http or https")
    userinfo, host_text, port = _authority(shape["authority"], scheme)
    host, address = _host(host_text)
    authority = f"[{host}]" if address is not None and address.version == 6 else host
    if port != _PORTS[scheme]:
        authority = f"{authority}:{port}"
    try:
        path = quote(_path(shape["path"]), safe=_PATH_SAFE)
        query = quote(shape["query"] or "", safe=QUERY_SAFE)
    except UnicodeEncodeError:
        raise ValueError("URL has a lone surrogate") from None
    target = path + query
    normalised = f"{scheme}://{authority}{target}"
    if len(normalised) > limits.URL_MAX:
        raise ValueError(f"URL is longer than {limits.URL_MAX} once encoded")
    return Url(
        text=normalised,
        scheme=scheme,
        host=host,
        port=port,
        target=target.encode("ascii"),
        authority=authority.encode("ascii"),
        address=address,
        userinfo=userinfo,
    )


def _authority(text: str, scheme: str) -> tuple[str | None, str, int]:
    userinfo, at, place = text.rpartition("@")
    if "@" in userinfo:
        raise ValueError("URL has more than one @; write it as %40 in user info")
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("URL has an IPv6 address without its closing bracket")
        host, port_text = f"{host}]", rest[1:] if rest else None
    else:
        host, colon, tail = place.partition(":")
        port_text = tail if colon else None
    if not host:
        raise ValueError("URL has no host")
    if port_text is None:
        return (userinfo if at else None), host, _PORTS[scheme]
    if not re.fullmatch(r"[0-9]{1,5}", port_text) or not 1 <= int(port_text) <= 65535:
        raise ValueError("URL port is not a number from 1 to 65535")
    return (userinfo if at else None), host, int(port_text)


def _host(text: str) -> tuple[str, Address | None]:
    if text.startswith("["):
        if "%" in text:
            raise ValueError("URL has an IPv6 address with a zone")
        try:
            address = ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            raise ValueError("URL has an invalid IPv6 address") from None
        return str(address), address
    host = _domain(text)
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        literal = _ipv4(labels)
        return str(literal), literal
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ValueError(f"URL host has an invalid label: {label[:63]!r}")
    return host, None


def _domain(text: str) -> str:
    if "%" in text:
        raise ValueError("URL host has a percent escape")
    host = text.lower()
    if not host.isascii() or "xn--" in host:
        try:
            mapped = idna.uts46_remap(text, std3_rules=True, transitional=False)
            # Numbers are addresses, not names: IDNA has no say about them.
            digits = mapped.isascii() and "xn--" not in mapped
            host = mapped if digits else idna.encode(mapped, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError) as error:
            raise ValueError(f"URL host is not a valid name: {error}"[:200]) from None
    if host.endswith("."):
        raise ValueError("URL host ends with a dot")
    if not host or len(host) > 253:
        raise ValueError("URL host is empty or longer than 253 characters")
    return host


def _ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    """Read every spelling that browsers take for an IPv4 address (WHATWG §3.5)."""
    if len(labels) > 4:
        raise ValueError("URL host ends in a number but is no IPv4 address")
    numbers = [_ipv4_number(label) for label in labels]
    room = 256 ** (5 - len(numbers))
    if any(n > 255 for n in numbers[:-1]) or numbers[-1] >= room:
        raise ValueError("URL host ends in a number but is no IPv4 address")
    value = numbers[-1]
    for place, number in enumerate(numbers[:-1]):
        value += number << (8 * (3 - place))
    return ipaddress.IPv4Address(value)


def _ipv4_number(label: str) -> int:
    if not _NUMBER.fullmatch(label):
        raise ValueError("URL host ends in a number but is no IPv4 address")
    try:
        if label.startswith("0x"):
            return int(label[2:] or "0", 16)
        if len(label) > 1 and label.startswith("0"):
            return int(label, 8)
        return int(label)
    except ValueError:
        raise ValueError("URL host has an invalid number") from None


def _path(text: str) -> str:
    """Resolve dot segments as browsers do; an empty path becomes `/`."""
    kept: list[str] = []
    segments = text.split("/")[1:] or [""]
    for place, segment in enumerate(segments):
        plain = _DOT.sub(".", segment)
        last = place == len(segments) - 1
        if plain == "..":
            del kept[-1:]
        elif plain != ".":
            kept.append(segment)
            continue
        if last:
            kept.append("")
    return "/" + "/".join(kept)
