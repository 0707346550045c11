"""How a message's request body is read: the payload byte for byte."""

import json

import pytest

from tenure.errors import ValidationFailed
from tenure.server.hot import match, read_message


def body(**members: object) -> bytes:
    given: dict[str, object] = {"eventType": "user.signup", "payload": {}}
    return json.dumps(given | members).encode()


def faults(raw: bytes) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationFailed) as caught:
        read_message(raw)
    return [(item.loc, item.type) for item in caught.value.items]


PAYLOADS = {
    "spacing and order": '{ "b" : 1,\n "a":2 }',
    "emoji": '{"a":"\N{GRINNING FACE}"}',
    "an emoji's escape": r'{"a":"\ud83d\ude00"}',
    "a line separator": '{"a":"\u2028"}',
    "a 64-bit integer": '{"a":18446744073709551615}',
    "a number beyond doubles": '{"a":1e400}',
    "repeated keys": '{"a":1,"a":2}',
    "half of a surrogate pair": r'{"a":"\ud800"}',
    "deep nesting": '{"a":' + "[" * 200 + "]" * 200 + "}",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_payload_is_the_exact_text_of_the_request(payload: str):
    raw = b'{"payload": ' + payload.encode() + b', "eventType":"a.b","eventId":"e-1"}'
    message = read_message(raw)
    assert message.body == payload.encode()
    assert (message.event_type, message.event_id) == ("a.b", "e-1")


def test_a_raw_payload_replaces_the_payload_with_its_content_type():
    message = read_message(
        body(
            transformationsParams={
                "rawPayload": "<a>\u2028</a>",
                "headers": {"Content-Type": "text/xml", "x-trace": "1"},
            }
        )
    )
    assert message.body == "<a>\u2028</a>".encode()
    assert message.content_type == "text/xml"
    assert message.headers == {"x-trace": "1"}


def test_the_former_name_of_the_payload_is_read():
    assert read_message(b'{"eventType":"a","data":{"x":1}}').body == b'{"x":1}'


def test_instants_and_delays_become_microseconds():
    message = read_message(
        body(deliverAt="2026-01-02T03:04:05+02:00", delaySeconds=1.5)
    )
    assert message.deliver_at == 1_767_315_845_000_000
    assert message.delay_us == 1_500_000


def test_retention_is_read_in_days_and_in_hours():
    assert read_message(body(payloadRetentionPeriod=30)).retention_seconds == 2_592_000
    assert read_message(body(payloadRetentionHours=240)).retention_seconds == 864_000


def test_unknown_members_are_ignored():
    assert read_message(body(somethingNew={"a": 1})).event_type == "user.signup"


def test_an_inline_application_is_read_and_checked():
    message = read_message(body(application={"name": "A", "uid": "a", "rateLimit": 5}))
    assert message.application is not None
    assert message.application.throttle_rate == 5
    assert faults(body(application={"name": ""})) == [
        (("body", "application", "name"), "value_error")
    ]
    assert read_message(body(application=None)).application is None


JSON = "value_error.jsondecode"
BAD = {
    "empty": (b"", ("body", "", ""), JSON),
    "no JSON": (b"hello", ("body", "", ""), JSON),
    "an array": (b"[]", ("body", "", ""), JSON),
    "cut short": (b'{"eventType":"a","payload":{', ("body", "", ""), JSON),
    "NaN": (b'{"eventType":"a","payload":{"a":NaN}}', ("body", "", ""), JSON),
    "a trailing comma": (b'{"eventType":"a","payload":{},}', ("body", "", ""), JSON),
    "no UTF-8": (b'{"eventType":"a","payload":{"a":"\xff"}}', ("body", "", ""), JSON),
    "something behind": (b'{"eventType":"a","payload":{}}x', ("body", "", ""), JSON),
    "a bomb": (
        b'{"eventType":"a","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        ("body", "", ""),
        JSON,
    ),
    "no payload": (b'{"eventType":"a"}', ("body", "payload"), "value_error.missing"),
    "a string": (body(payload="x"), ("body", "payload"), "value_error"),
    "a list": (body(payload=[1]), ("body", "payload"), "value_error"),
    "a null": (body(payload=None), ("body", "payload"), "value_error"),
    "no event type": (b'{"payload":{}}', ("body", "eventType"), JSON),
    "a number as event type": (body(eventType=5), ("body", "eventType"), JSON),
    "a number among channels": (
        body(channels=["a", 1]),
        ("body", "channels", "[1]"),
        JSON,
    ),
    "a date without offset": (
        body(deliverAt="2026-01-02T03:04:05"),
        ("body", "deliverAt"),
        "value_error",
    ),
    "half a pair in the raw payload": (
        body(transformationsParams={"rawPayload": "\ud800"}),
        ("body", "", ""),
        JSON,
    ),
}


@pytest.mark.parametrize(("raw", "loc", "kind"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_named_with_its_place(
    raw: bytes, loc: tuple[str, ...], kind: str
):
    assert faults(raw)[0] == (loc, kind)


def test_malformed_json_says_at_which_byte():
    with pytest.raises(ValidationFailed, match="byte 28"):
        read_message(b'{"eventType":"a","payload":{x}}')


@pytest.mark.parametrize(
    ("path", "app"),
    [
        ("/api/v1/app/app_1/msg", "app_1"),
        ("/api/v1/app/a/b/msg", None),
        ("/api/v1/app//msg", None),
        ("/api/v1/app/a/msg/b", None),
        ("/api/v1/app/msg", None),
    ],
)
def test_only_the_create_route_is_hot(path: str, app: str | None):
    assert match(path) == app
