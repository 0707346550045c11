import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ValidationFailed
from tenure.limits import HEADER_VALUE_BYTES, HEADERS_BYTES, HEADERS_MAX
from tenure.outbox.headers import (
    build_headers,
    check_content_type,
    mask_headers,
    merge_headers,
    split_sensitive,
    validate_headers,
)

FORBIDDEN = [
    *("user-agent", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
    *("trailers", "transfer-encoding", "upgrade", "age", "cache-control"),
    *("clear-site-data", "expires", "pragma", "warning", "content-length"),
    *("content-type", "content-encoding", "content-language", "content-location"),
    *("host", "connection", "expect", "trailer", "proxy-connection"),
    *("webhook-id", "webhook-timestamp", "webhook-signature", "webhook-anything"),
    *("svix-id", "svix-foo", "tenure-attempt", "tenure-foo"),
    *("x-amz-foo", "x-amzn-foo", "x-google", "x-google-foo", "x-goog-foo", "x-gfe"),
    *("x-azure-foo", "x-fd-foo", "x-svix-foo"),
]


def fault(name: str, value: str = "x") -> str:
    with pytest.raises(ValidationFailed) as caught:
        validate_headers({"x-good": "1", name: value})
    [item] = caught.value.items
    assert item.loc == ("body", "headers", name)
    assert item.type == "value_error"
    return item.msg


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_headers_are_refused_in_any_letter_case(name: str):
    for spelled in (name, name.upper(), name.title(), name.swapcase()):
        assert "set by the system" in fault(spelled)


@pytest.mark.parametrize("name", ["Webhook-Signature", "content-LENGTH"])
def test_the_system_headers_of_the_field_reports_are_refused(name: str):
    assert "set by the system" in fault(name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "some:thing", "a b", "a\0", "a\r\nb", "x-é", "a\n", " a", "a/b", "(a)"],
)
def test_a_name_that_is_no_token_is_refused(name: str):
    assert "not an HTTP header name" in fault(name)


@pytest.mark.parametrize(
    "value", ["a\r\nEvil: 1", "a\r", "a\n", "\0", "a\x0bb", "\x7f", "a\x85b", "€", "😀"]
)
def test_a_value_with_control_characters_or_beyond_latin_1_is_refused(value: str):
    message = fault("x-test", value)
    assert "control character" in message
    assert value not in message


@pytest.mark.parametrize("value", [" a", "a ", "\ta", "a\t", " "])
def test_white_space_around_a_value_is_refused(value: str):
    assert "white space" in fault("x-test", value)


def test_a_value_of_4096_bytes_is_the_longest():
    longest = "v" * HEADER_VALUE_BYTES
    assert validate_headers({"x-test": longest}) == (("x-test", longest),)
    assert "4097 bytes" in fault("x-test", longest + "v")


def test_good_headers_keep_their_order_case_and_values():
    given_headers = {
        "X-Zebra": "1",
        "authorization": "Bearer abc",
        "x-Mixed-Case": "é ÿ \t mid",
        "x-empty": "",
        "Traceparent": "00-1-2-3",
        "x-amazing": "not x-amz-",
    }
    assert validate_headers(given_headers) == tuple(given_headers.items())


def test_the_same_header_in_two_letter_cases_is_refused():
    with pytest.raises(ValidationFailed) as caught:
        validate_headers({"X-Test": "1", "x-test": "2"})
    [item] = caught.value.items
    assert item.loc == ("body", "headers", "x-test")
    assert "same header as `X-Test`" in item.msg


def test_every_fault_is_listed():
    with pytest.raises(ValidationFailed) as caught:
        validate_headers({"host": "x", "x-ok": "1", "a b": "1", "x-bad": "\n"})
    assert [item.loc[-1] for item in caught.value.items] == ["host", "a b", "x-bad"]


def test_fifty_headers_are_the_most():
    most = {f"x-{number}": "v" for number in range(HEADERS_MAX)}
    assert len(validate_headers(most)) == HEADERS_MAX
    with pytest.raises(ValidationFailed) as caught:
        validate_headers(most | {"x-more": "v"})
    [item] = caught.value.items
    assert (item.loc, "50 headers" in item.msg) == (("body", "headers"), True)


def test_16_kib_of_names_and_values_are_the_most():
    most = {f"x-{number}": "v" * (HEADER_VALUE_BYTES - 3) for number in range(4)}
    assert sum(map(len, [*most, *most.values()])) == HEADERS_BYTES
    assert len(validate_headers(most)) == 4
    with pytest.raises(ValidationFailed, match="16384 bytes"):
        validate_headers(most | {"y": ""})


@pytest.mark.parametrize("headers", [{1: "a"}, {"a": 1}, {"a": None}])
def test_names_and_values_that_are_no_text_are_refused(headers: dict[str, str]):
    with pytest.raises(ValidationFailed, match="strings"):
        validate_headers(headers)


NAMES = st.text(st.sampled_from(string.printable), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, st.text(max_size=20), max_size=6))
def test_whatever_passes_makes_exactly_one_line_each(headers: dict[str, str]):
    try:
        pairs = validate_headers(headers)
    except ValidationFailed:
        return
    wire = build(custom=pairs)
    names = [name.lower() for name, _ in wire]
    assert len(set(names)) == len(names)
    for name, value in wire:
        assert not set(name + value) & set(b"\r\n\0")
        assert name
        assert b":" not in name


def build(**changes: object) -> tuple[tuple[bytes, bytes], ...]:
    facts: dict[str, object] = {
        "message_id": "msg_1",
        "timestamp": 1614265330,
        "signatures": "v1,a v1a,b",
        "attempt_number": 3,
        "content_type": "application/json",
        "custom": (),
        "user_agent": "Tenure/1",
    }
    return build_headers(**(facts | changes))  # pyright: ignore[reportArgumentType]


def test_the_system_headers_stand_first_and_custom_ones_keep_their_case():
    assert build(custom=(("X-MiXed", "é"), ("x-b", ""))) == (
        (b"webhook-id", b"msg_1"),
        (b"webhook-timestamp", b"1614265330"),
        (b"webhook-signature", b"v1,a v1a,b"),
        (b"tenure-attempt", b"3"),
        (b"content-type", b"application/json"),
        (b"user-agent", b"Tenure/1"),
        (b"accept", b"*/*"),
        (b"X-MiXed", b"\xe9"),
        (b"x-b", b""),
    )


def test_svix_headers_are_sent_as_well_when_asked():
    plain, doubled = dict(build()), dict(build(svix_headers=True))
    assert not any(name.startswith(b"svix-") for name in plain)
    for part in (b"id", b"timestamp", b"signature"):
        assert doubled[b"svix-" + part] == doubled[b"webhook-" + part]


@pytest.mark.parametrize(
    "name",
    [
        "Webhook-Signature",
        "WEBHOOK-ID",
        "content-LENGTH",
        "Host",
        "content-Type",
        "User-Agent",
        "Tenure-Attempt",
        "svix-id",
        "Transfer-Encoding",
    ],
)
def test_a_stored_custom_header_never_replaces_or_doubles_a_system_header(name: str):
    assert build(custom=((name, "evil"),)) == build()


def test_a_custom_header_stored_twice_is_sent_once():
    wire = build(custom=(("X-A", "1"), ("x-a", "2")))
    assert [pair for pair in wire if pair[0].lower() == b"x-a"] == [(b"X-A", b"1")]


def test_a_custom_accept_takes_the_place_of_the_default():
    wire = build(custom=(("Accept", "text/plain"),))
    assert [p for p in wire if p[0].lower() == b"accept"] == [
        (b"Accept", b"text/plain")
    ]


def test_user_info_of_the_url_becomes_basic_auth():
    wire = dict(build(userinfo="us%20er:p%C3%A9:ss%3A"))
    expected = base64.b64encode("us er:pé:ss:".encode())
    assert wire[b"authorization"] == b"Basic " + expected
    alone = dict(build(userinfo="token"))
    assert alone[b"authorization"] == b"Basic " + base64.b64encode(b"token:")


def test_a_custom_authorization_wins_over_user_info():
    wire = build(userinfo="a:b", custom=(("AUTHORIZATION", "Bearer x"),))
    found = [pair for pair in wire if pair[0].lower() == b"authorization"]
    assert found == [(b"AUTHORIZATION", b"Bearer x")]


def test_only_what_tenure_wrote_is_stored_in_clear():
    wire = build(
        svix_headers=True, userinfo="a:secret1", custom=(("X-Custom", "secret2"),)
    )
    stored = mask_headers(((b"Host", b"example.com"), *wire))
    assert [name for name, _ in stored] == [b"Host", *(name for name, _ in wire)]
    assert b"secret" not in b"".join(value for _, value in stored)
    shown = dict(stored)
    assert shown[b"X-Custom"] == shown[b"authorization"] == b"***"
    for name in (b"webhook-id", b"svix-signature", b"content-type", b"tenure-attempt"):
        assert shown[name] == dict(wire)[name]
    assert shown[b"Host"] == b"example.com"


def test_a_messages_headers_stand_over_the_endpoints_in_any_letter_case():
    endpoint = (("X-A", "1"), ("x-b", "2"))
    message = (("x-a", "3"), ("X-C", "4"))
    assert merge_headers(endpoint, message) == (
        ("x-b", "2"),
        ("x-a", "3"),
        ("X-C", "4"),
    )


def test_sensitive_values_are_withheld_and_their_names_told_as_written():
    shown, sensitive = split_sensitive(
        (
            ("X-Test", "1"),
            ("Authorization", "s"),
            ("X-API-Key", "s"),
            ("x-auth-token", "s"),
            ("WWW-Authenticate", "s"),
        )
    )
    assert shown == {"X-Test": "1"}
    assert sensitive == (
        *("Authorization", "X-API-Key", "x-auth-token", "WWW-Authenticate"),
    )


@pytest.mark.parametrize("value", ["application/json", "text/plain; charset=utf-8"])
def test_content_types_are_accepted(value: str):
    assert check_content_type(value) == value


@pytest.mark.parametrize("value", ["", "a\r\nb", " text/plain", "text/€"])
def test_content_types_that_are_no_header_value_are_refused(value: str):
    with pytest.raises(ValueError, match="not a content type"):
        check_content_type(value)
