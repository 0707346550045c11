from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import limits
from tenure.outbox.http import parse_url


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com:80/A", "http://example.com/A"),
        ("https://example.com:443/?a=1", "https://example.com/?a=1"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com?x=/?y", "http://example.com/?x=/?y"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
        (
            "http://\uff25\uff38\uff21\uff2d\uff30\uff2c\uff25。com/",
            "http://example.com/",
        ),
        ("http://my_service:8080/x", "http://my_service:8080/x"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/a/%2e%2E/c/..", "http://example.com/"),
        ("http://example.com/é?ü", "http://example.com/%C3%A9?%C3%BC"),
        ("http://example.com/%zz%41", "http://example.com/%zz%41"),
        ('http://example.com/"<>`{}', "http://example.com/%22%3C%3E%60%7B%7D"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
    ],
)
def test_a_url_is_normalised_as_browsers_do(text: str, normalised: str) -> None:
    url = parse_url(text)
    assert url.text == normalised
    assert parse_url(url.text) == url


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0X7F.1",
        "2130706433",
        "017700000001",
        "0177.0.0.01",
        "0x7f.0x0.0x0.0x1",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
    ],
)
def test_every_spelling_of_an_ipv4_address_is_that_address(host: str) -> None:
    url = parse_url(f"http://{host}/")
    assert url.address == ipaddress.IPv4Address("127.0.0.1")
    assert url.host == "127.0.0.1"
    assert url.authority == b"127.0.0.1"


def test_an_ipv6_literal_is_an_address_with_brackets_in_the_host_header() -> None:
    url = parse_url("http://[::ffff:127.0.0.1]:81/")
    assert url.address == ipaddress.IPv6Address("::ffff:127.0.0.1")
    assert url.authority == b"[::ffff:7f00:1]:81"
    assert url.host == "::ffff:7f00:1"


def test_user_info_is_split_off_and_never_in_the_text() -> None:
    url = parse_url("https://user:p%40ss@example.com/x")
    assert url.userinfo == "user:p%40ss"
    assert url.text == "https://example.com/x"
    assert url.authority == b"example.com"
    assert b"user" not in url.target


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not absolute"),
        ("example.com/x", "not absolute"),
        ("//example.com/x", "not absolute"),
        ("http:/example.com", "not absolute"),
        ("https:example.com", "not absolute"),
        ("ftp://example.com/", "not http or https"),
        ("javascript://example.com/", "not http or https"),
        ("http:///x", "no host"),
        ("http://:80/", "no host"),
        ("http://user@/", "no host"),
        ("http://a@b@example.com/", "more than one @"),
        ("http://example.com/#top", "fragment"),
        ("http://example.com/a b", "forbidden character"),
        ("http://example.com/a\r\nX: y", "forbidden character"),
        ("http://example.com\\@evil.example/", "forbidden character"),
        ("http://exam\tple.com/", "forbidden character"),
        ("http://example.com/\u2028", "forbidden character"),
        (" http://example.com/", "forbidden character"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:/", "port"),
        ("http://example.com:\uff180/", "port"),
        ("http://example.com:-1/", "port"),
        ("http://[::1/", "closing bracket"),
        ("http://[::1]x/", "closing bracket"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://[127.0.0.1]/", "invalid IPv6"),
        ("http://%31%32%37.0.0.1/", "percent escape"),
        ("http://1.2.3.256/", "no IPv4 address"),
        ("http://256.1/", "no IPv4 address"),
        ("http://1.2.3.4.5/", "no IPv4 address"),
        ("http://example.1/", "no IPv4 address"),
        ("http://1..1/", "no IPv4 address"),
        ("http://4294967296/", "no IPv4 address"),
        ("http://08/", "invalid number"),
        ("http://example.com./", "ends with a dot"),
        ("http://127.0.0.1./", "ends with a dot"),
        ("http://a..example/", "invalid label"),
        ("http://-a.example/", "invalid label"),
        ("http://ex$mple.com/", "invalid label"),
        ("http://" + "a" * 64 + ".example/", "invalid label"),
        ("http://" + ".".join(["a" * 60] * 5) + "/", "longer than 253"),
        ("http://xn--a.example/", "not a valid name"),
        ("http://example.com/\ud800", "lone surrogate"),
        ("http://example.com/" + "a" * limits.URL_MAX, "longer than"),
        ("http://example.com/" + "é" * (limits.URL_MAX // 3), "longer than"),
    ],
)
def test_a_bad_url_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(text)


@given(st.text(max_size=60), st.text(max_size=40))
def test_whatever_is_accepted_is_a_fixed_point_and_safe_to_write(
    host: str, rest: str
) -> None:
    try:
        url = parse_url(f"http://{host}/{rest}")
    except ValueError:
        return
    assert parse_url(url.text).text == url.text
    assert not set(url.target + url.authority) & set(b" \r\n\t\0\\#")
    assert url.target.startswith(b"/")


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{}", "0x{:x}", "0{:o}"]))
def test_any_number_is_read_as_the_address_it_is(number: int, form: str) -> None:
    url = parse_url(f"http://{form.format(number)}/")
    assert url.address == ipaddress.IPv4Address(number)
