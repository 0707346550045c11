from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.outbox.http import check_address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.8", "IETF"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmarking"),
        ("198.19.255.255", "benchmarking"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::127.0.0.1", r"IPv4-compatible form of 127\.0\.0\.1 \(loopback\)"),
        ("::ffff:10.0.0.1", r"IPv4-mapped form of 10\.0\.0\.1 \(private\)"),
        ("::ffff:8.8.8.8", r"IPv4-mapped form of 8\.8\.8\.8 \(public\)"),
        ("::ffff:0:10.0.0.1", r"IPv4-translated form of 10\.0\.0\.1"),
        ("64:ff9b::a9fe:a9fe", r"NAT64 form of 169\.254\.169\.254"),
        ("64:ff9b::808:808", r"NAT64 form of 8\.8\.8\.8 \(public\)"),
        ("64:ff9b:1::1", "local-use NAT64"),
        ("100::1", "discard"),
        ("100:0:0:1::1", "dummy"),
        ("2001::1", "Teredo"),
        ("2001:2::1", "benchmarking"),
        ("2001:10::1", "ORCHID"),
        ("2001:20::1", "ORCHID"),
        ("2001:30::1", "drone"),
        ("2001:1::1", "IETF"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::1", r"6to4 form of 127\.0\.0\.1 \(loopback\)"),
        ("2002:808:808::1", r"6to4 form of 8\.8\.8\.8 \(public\)"),
        ("3fff::1", "documentation"),
        ("5f00::1", "SRv6"),
        ("fc00::1", "unique local"),
        ("fd12::1", "unique local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "scoped"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("200::1", "not global unicast"),
        ("4000::1", "not global unicast"),
        ("1::1", "not global unicast"),
    ],
)
def test_what_is_not_public_unicast_is_refused_by_name(text: str, reason: str) -> None:
    found = check_address(ipaddress.ip_address(text), ())
    assert found is not None
    assert re.search(reason, found), found


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2003::1",
        "2606:4700::1111",
        "3ffe:ffff::1",
    ],
)
def test_public_unicast_may_be_dialled(text: str) -> None:
    assert check_address(ipaddress.ip_address(text), ()) is None


def test_an_allowed_network_wins_over_every_refusal() -> None:
    allow = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8"))
    assert check_address(ipaddress.ip_address("10.1.2.3"), allow) is None
    assert check_address(ipaddress.ip_address("fd00::1"), allow) is None
    assert check_address(ipaddress.ip_address("10.2.0.1"), allow) == "private"
    assert check_address(ipaddress.ip_address("fc00::1"), allow) == "unique local"


def test_an_allowed_network_matches_the_address_inside_a_mapped_one_only() -> None:
    allow = (ipaddress.ip_network("10.1.0.0/16"),)
    assert check_address(ipaddress.ip_address("::ffff:10.1.2.3"), allow) is None
    for text in ("::ffff:10.2.0.1", "64:ff9b::a01:203", "2002:a01:203::"):
        assert check_address(ipaddress.ip_address(text), allow) is not None


@given(st.integers(0, 2**32 - 1))
def test_no_address_that_python_calls_private_passes(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    if address.is_private or address.is_multicast or address.is_reserved:
        assert check_address(address, ()) is not None


@given(st.one_of(st.integers(0, 2**128 - 1), st.integers(0x2000 << 112, 2**126 - 1)))
def test_no_ipv6_address_that_python_calls_private_passes(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    if not address.is_global or address.is_multicast:
        assert check_address(address, ()) is not None
