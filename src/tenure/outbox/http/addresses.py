"""The address rule: only public unicast is dialled, unless a network is allowed.

The tables are our own. `ipaddress.is_global` follows the IANA registries of the day
the interpreter was built and changed its answers between patch releases; a rule that
keeps requests out of an internal network may not depend on that.

IPv6 is judged the other way round: only 2000::/3 is global unicast (RFC 4291), so
whatever lies outside it is refused even if it has no line here.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.outbox.http.model import Address, Network

_Range: TypeAlias = tuple[int, int, str]

# Source of each line: IANA special-purpose registry and the RFC named.
_V4: Final = (
    ("0.0.0.0/8", "unspecified, 'this network'"),  # RFC 791, RFC 1122
    ("10.0.0.0/8", "private"),  # RFC 1918
    ("100.64.0.0/10", "carrier-grade NAT"),  # RFC 6598
    ("127.0.0.0/8", "loopback"),  # RFC 1122
    ("169.254.0.0/16", "link-local"),  # RFC 3927
    ("172.16.0.0/12", "private"),  # RFC 1918
    ("192.0.0.0/24", "IETF protocol assignments"),  # RFC 6890
    ("192.0.2.0/24", "documentation"),  # RFC 5737
    ("192.88.99.0/24", "6to4 relay anycast"),  # RFC 7526
    ("192.168.0.0/16", "private"),  # RFC 1918
    ("198.18.0.0/15", "benchmarking"),  # RFC 2544
    ("198.51.100.0/24", "documentation"),  # RFC 5737
    ("203.0.113.0/24", "documentation"),  # RFC 5737
    ("224.0.0.0/4", "multicast"),  # RFC 5771
    ("240.0.0.0/4", "reserved or broadcast"),  # RFC 1112, RFC 919
)
_V6: Final = (
    ("64:ff9b::/96", "NAT64"),  # RFC 6052
    ("64:ff9b:1::/48", "local-use NAT64"),  # RFC 8215
    ("100::/64", "discard-only"),  # RFC 6666
    ("100:0:0:1::/64", "dummy prefix"),  # RFC 9780
    ("2001::/32", "Teredo"),  # RFC 4380
    ("2001:2::/48", "benchmarking"),  # RFC 5180
    ("2001:10::/28", "ORCHID"),  # RFC 4843
    ("2001:20::/28", "ORCHID version 2"),  # RFC 7343
    ("2001:30::/28", "drone remote identification"),  # RFC 9374
    ("2001:db8::/32", "documentation"),  # RFC 3849
    ("2002::/16", "6to4"),  # RFC 3056
    ("3fff::/20", "documentation"),  # RFC 9637
    ("5f00::/16", "SRv6 segment identifiers"),  # RFC 9602
    ("fc00::/7", "unique local"),  # RFC 4193
    ("fe80::/10", "link-local"),  # RFC 4291
    ("fec0::/10", "site-local"),  # RFC 3879
    ("ff00::/8", "multicast"),  # RFC 4291
)
_PROTOCOL_ASSIGNMENTS: Final = ipaddress.IPv6Network("2001::/23")  # RFC 2928
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # RFC 4291
_METADATA: Final = int(ipaddress.IPv4Address("169.254.169.254"))


def _ranges(lines: Iterable[tuple[str, str]]) -> tuple[_Range, ...]:
    networks = ((ipaddress.ip_network(text), reason) for text, reason in lines)
    return tuple(
        sorted(
            (int(net.network_address), int(net.broadcast_address), reason)
            for net, reason in networks
        )
    )


_V4_RANGES: Final = _ranges(_V4)
_V6_RANGES: Final = _ranges(_V6)
_V4_STARTS: Final = tuple(start for start, _, _ in _V4_RANGES)
_V6_STARTS: Final = tuple(start for start, _, _ in _V6_RANGES)


def check_address(address: Address, allow_networks: tuple[Network, ...]) -> str | None:
    """Return why this address may not be dialled, or None when it may.

    An allowed network wins over every refusal; it also matches the IPv4 address
    inside an IPv4-mapped one. Forms that embed an IPv4 address are refused as a form,
    and the reason says what the embedded address is.
    """
    reason = _judge(address)
    if reason is None or not allow_networks:
        return reason
    if any(address in network for network in allow_networks):
        return None
    inner = address.ipv4_mapped if address.version == 6 else None
    if inner is not None and any(inner in network for network in allow_networks):
        return None
    return reason


def _judge(address: Address) -> str | None:
    number = int(address)
    if address.version == 4:
        reason = _find(number, _V4_STARTS, _V4_RANGES)
        return "cloud metadata" if number == _METADATA else reason
    if address.scope_id is not None:
        return "scoped to an interface"
    if number == 0:
        return "unspecified"
    if number == 1:
        return "loopback"
    form, embedded = _embedded(address, number)
    if embedded is not None:
        inner = _find(int(embedded), _V4_STARTS, _V4_RANGES) or "public"
        return f"{form} form of {embedded} ({inner})"
    reason = _find(number, _V6_STARTS, _V6_RANGES)
    if reason is not None:
        return reason
    if address in _PROTOCOL_ASSIGNMENTS:
        return "IETF protocol assignments"
    return None if address in _GLOBAL_UNICAST else "not global unicast"


def _find(
    number: int, starts: tuple[int, ...], ranges: tuple[_Range, ...]
) -> str | None:
    place = bisect_right(starts, number) - 1
    if place >= 0 and number <= ranges[place][1]:
        return ranges[place][2]
    return None


def _embedded(
    address: ipaddress.IPv6Address, number: int
) -> tuple[str, ipaddress.IPv4Address | None]:
    """Name the form and return the IPv4 address that a gateway or stack would use."""
    if address.ipv4_mapped is not None:  # ::ffff:0:0/96, RFC 4291
        return "IPv4-mapped", address.ipv4_mapped
    if number >> 32 == 0:  # ::/96, RFC 4291
        return "IPv4-compatible", ipaddress.IPv4Address(number)
    if number >> 32 == 0xFFFF0000:  # ::ffff:0:0:0/96, RFC 2765
        return "IPv4-translated", ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if number >> 32 == 0x0064FF9B << 64:
        return "NAT64", ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour is not None:
        return "6to4", address.sixtofour
    if address.teredo is not None:
        return "Teredo", address.teredo[1]
    return "", None
