"""One request as it arrived, before anybody judged it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

__all__ = ["Arrival", "is_within"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Method, URL as called (without its query), raw query, header lines, raw body.

    Header lines stand in order, with repeats; the server gives names in lower case.
    `address` is who calls, as far as that can be known.
    """

    method: str
    url: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    address: str | None

    def all(self, name: str) -> list[str]:
        """Return every value of a header, which is named in lower case."""
        wanted = name.encode("latin-1")
        return [value.decode("latin-1") for key, value in self.headers if key == wanted]

    def first(self, name: str) -> str | None:
        """Return the first value of a header; None when it is missing or empty."""
        wanted = name.encode("latin-1")
        for key, value in self.headers:
            if key == wanted:
                return value.decode("latin-1") or None
        return None


def is_within(
    address: str | None, networks: Iterable[IPv4Network | IPv6Network]
) -> bool:
    """Tell whether an address lies in one of the networks; no address lies nowhere."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    found = found if mapped is None else mapped
    return any(found in network for network in networks)
