import base64
import json
from datetime import UTC, datetime

import pytest
import standardwebhooks
import svix.webhooks
from hypothesis import given
from hypothesis import strategies as st

from tenure.outbox.secrets import Secret, SecretKind, new_secret, parse_secret
from tenure.outbox.signing import (
    FindingCode,
    SignatureFault,
    SignatureRefused,
    diagnose,
    parse_public,
    sign,
    signature_header,
    verify,
)

# The published vectors of Standard Webhooks' reference implementations.
HMAC_TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ED25519_TEXT = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9l"
    "MicMFs6Kvg=="
)
PUBLIC_TEXT = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = (
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl"
    "8EM+m7TBAg=="
)
HMAC = parse_secret(HMAC_TEXT)
PAIR = parse_secret(ED25519_TEXT)


def headers_of(signatures: str, *, at: int | str = AT, family: str = "webhook"):
    return {
        f"{family}-id": MESSAGE,
        f"{family}-timestamp": str(at),
        f"{family}-signature": signatures,
    }


def test_the_published_vector_of_v1_is_made():
    assert sign(HMAC, MESSAGE, AT, BODY) == V1


def test_the_published_vector_of_v1a_is_made():
    assert sign(PAIR, MESSAGE, AT, BODY) == V1A


def test_one_signature_per_secret_in_order_kinds_mixed():
    assert signature_header([HMAC, PAIR], MESSAGE, AT, BODY) == f"{V1} {V1A}"
    assert signature_header([PAIR, HMAC], MESSAGE, AT, BODY) == f"{V1A} {V1}"


def test_nothing_is_signed_without_a_secret():
    with pytest.raises(ValueError, match=MESSAGE):
        signature_header([], MESSAGE, AT, BODY)


EXACT_BODIES = [
    BODY,
    '{"smile":"😀","line":"\u2028"}'.encode(),
    b'{"a":1e400,"a":2,"a":9223372036854775807,"z":1,"b":12345678901234567890123}',
    b'{ "spaced" :\t[1 , 2 ] ,\n "escaped":"\\u00e9\\ud83d\\ude00\\/" }',
    b"",
    b"not json at all",
    "ünïcödé".encode(),
]


@pytest.mark.parametrize("body", EXACT_BODIES)
@pytest.mark.parametrize("family", ["webhook", "svix"])
def test_the_published_libraries_verify_the_exact_bytes(body: bytes, family: str):
    now = int(datetime.now(UTC).timestamp())
    older = new_secret()
    headers = headers_of(
        signature_header([HMAC, PAIR, older], MESSAGE, now, body), at=now, family=family
    )
    for secret in (HMAC, older):
        text = secret.secret_text()
        svix.webhooks.Webhook(text).verify(body, headers)
        if family == "webhook":
            standardwebhooks.Webhook(text).verify(body, headers, json_parse=False)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        svix.webhooks.Webhook(HMAC_TEXT).verify(body + b" ", headers)


def test_what_the_published_library_signs_is_verified():
    body = BODY.decode()
    signature = standardwebhooks.Webhook(HMAC_TEXT).sign(
        MESSAGE, datetime.fromtimestamp(AT, UTC), body
    )
    verify([HMAC], headers_of(signature), BODY, now_s=AT)


@given(body=st.binary(), kind=st.sampled_from(SecretKind), flip=st.integers(0))
def test_any_bytes_verify_and_any_other_bytes_do_not(
    body: bytes, kind: SecretKind, flip: int
):
    secret = HMAC if kind is SecretKind.HMAC256 else PAIR
    headers = headers_of(sign(secret, MESSAGE, AT, body))
    verify([secret], headers, body, now_s=AT)
    other = bytearray(body or b"x")
    other[flip % len(other)] ^= 1
    with pytest.raises(SignatureRefused):
        verify([secret], headers, bytes(other), now_s=AT)


def test_a_public_key_verifies_and_another_does_not():
    verify([parse_public(PUBLIC_TEXT)], headers_of(V1A), BODY, now_s=AT)
    stranger = parse_public(new_secret(SecretKind.ED25519).public_text())
    with pytest.raises(SignatureRefused):
        verify([stranger], headers_of(V1A), BODY, now_s=AT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HMAC_TEXT, "starts with whpk_"),
        ("whpk_***", "not base64"),
        ("whpk_" + base64.b64encode(bytes(31)).decode(), "this one 31"),
    ],
)
def test_a_wrong_public_key_is_refused(text: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_public(text)


def test_a_signature_under_the_other_version_does_not_hold():
    swapped = V1.replace("v1,", "v1a,")
    with pytest.raises(SignatureRefused):
        verify([HMAC, PAIR], headers_of(swapped), BODY, now_s=AT)


def test_header_names_match_in_any_letter_case_and_webhook_is_preferred():
    good = {name.title(): value for name, value in headers_of(V1).items()}
    bad = headers_of("v1,AAAA", family="SVIX")
    verify([HMAC], bad | good, BODY, now_s=AT)


@pytest.mark.parametrize(
    ("headers", "now", "fault"),
    [
        ({}, AT, SignatureFault.MISSING_HEADER),
        (headers_of(""), AT, SignatureFault.MISSING_HEADER),
        (headers_of(V1, at="soon"), AT, SignatureFault.BAD_TIMESTAMP),
        (headers_of(V1, at="-1"), AT, SignatureFault.BAD_TIMESTAMP),
        (headers_of(V1, at="1e9"), AT, SignatureFault.BAD_TIMESTAMP),
        (headers_of(V1, at="9" * 5000), AT, SignatureFault.BAD_TIMESTAMP),
        (headers_of(V1), AT + 301, SignatureFault.TOO_OLD),
        (headers_of(V1), AT - 301, SignatureFault.TOO_NEW),
        (headers_of("v1"), AT, SignatureFault.MISMATCH),
        (headers_of("v1,%%%"), AT, SignatureFault.MISMATCH),
        (headers_of("v1," + "A" * 43 + "="), AT, SignatureFault.MISMATCH),
        (headers_of(V1.replace("v1,", "v2,")), AT, SignatureFault.MISMATCH),
    ],
)
def test_each_fault_has_its_code(
    headers: dict[str, str], now: int, fault: SignatureFault
):
    with pytest.raises(SignatureRefused) as caught:
        verify([HMAC], headers, BODY, now_s=now)
    assert caught.value.fault is fault


@pytest.mark.parametrize("age", [-300, 0, 300])
def test_five_minutes_of_clock_difference_are_accepted(age: int):
    verify([HMAC], headers_of(V1), BODY, now_s=AT + age)


# The signature debugger.


def codes(
    secret: str, headers: dict[str, str], body: bytes, now: float = AT
) -> list[FindingCode]:
    findings = diagnose(secret, headers, body, now_s=now)
    assert all(
        secret.partition("_")[2][:12] not in each.message
        for each in findings
        if secret.startswith("wh")
    )
    return [each.code for each in findings]


@pytest.mark.parametrize(
    ("secret", "signature"),
    [(HMAC_TEXT, V1), (ED25519_TEXT, V1A), (PUBLIC_TEXT, V1A)],
)
def test_a_good_request_is_found_verified(secret: str, signature: str):
    assert codes(secret, headers_of(signature), BODY) == [FindingCode.VERIFIED]


def test_a_wrong_clock_is_found_beside_a_good_signature():
    assert codes(HMAC_TEXT, headers_of(V1), BODY, AT + 4000) == [
        FindingCode.CLOCK,
        FindingCode.VERIFIED,
    ]


def test_milliseconds_are_named():
    findings = diagnose(HMAC_TEXT, headers_of(V1, at=AT * 1000), BODY, now_s=AT)
    assert "milliseconds" in findings[0].message


def test_a_timestamp_that_is_no_number_is_a_wrong_header():
    assert codes(HMAC_TEXT, headers_of(V1, at="Thu"), BODY)[0] == "wrong_header"


def test_missing_headers_are_named_with_what_was_there_instead():
    [finding] = diagnose(
        HMAC_TEXT, {"X-Signature": V1, "webhook-id": MESSAGE}, BODY, now_s=AT
    )
    assert finding.code is FindingCode.WRONG_HEADER
    assert "webhook-signature, webhook-timestamp; there is x-signature" in (
        finding.message
    )


def test_a_secret_of_the_wrong_form_is_found():
    found = codes(HMAC_TEXT.removeprefix("whsec_"), headers_of(V1), BODY)
    assert found == [FindingCode.SECRET_FORM]


@pytest.mark.parametrize("text", [HMAC_TEXT, HMAC_TEXT.removeprefix("whsec_")])
def test_a_secret_whose_text_was_used_as_the_key_is_found(text: str):
    wrong = Secret(kind=SecretKind.HMAC256, key=text.encode())
    headers = headers_of(sign(wrong, MESSAGE, AT, BODY))
    assert codes(HMAC_TEXT, headers, BODY) == [FindingCode.SECRET_AS_BYTES]


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b'{"test":1,"a":2}', b'{"test": 1, "a": 2}'),
        (b'{"test": 1, "a": 2}', b'{"test":1,"a":2}'),
        (b'{"a":2,"test":1}', b'{"test": 1, "a": 2}'),
        (b'{"e":"\\u00e9"}', '{"e":"é"}'.encode()),
        ('{"e":"é"}'.encode(), b'{"e":"\\u00e9"}'),
        (b'{\n  "e": 1\n}', b'{"e":1}'),
        (b'{"e":1}', b'{"e":1}\n'),
        (b'{"e":1}\n', b'{"e":1}'),
        (b"plain", b" plain "),
    ],
)
def test_a_body_that_was_encoded_again_is_found(sent: bytes, received: bytes):
    headers = headers_of(sign(HMAC, MESSAGE, AT, sent))
    assert codes(HMAC_TEXT, headers, received) == [FindingCode.REENCODED_BODY]


def test_any_other_difference_is_a_mismatch():
    stranger = new_secret().secret_text()
    assert codes(stranger, headers_of(V1), BODY) == [FindingCode.MISMATCH]
    assert codes(HMAC_TEXT, headers_of(V1), b"other") == [FindingCode.MISMATCH]


def test_a_hostile_body_does_not_break_the_debugger():
    deep = b"[" * 100_000
    assert codes(HMAC_TEXT, headers_of(V1), deep) == [FindingCode.MISMATCH]
    nested = b"[" * 900 + b"]" * 900
    assert codes(HMAC_TEXT, headers_of(V1), nested) == [FindingCode.MISMATCH]
    surrogate = json.dumps({"a": "\ud800"}).encode()
    assert codes(HMAC_TEXT, headers_of(V1), surrogate) == [FindingCode.MISMATCH]
