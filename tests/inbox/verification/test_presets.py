"""Every preset believes what its provider signs, and nothing that was touched."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from tenure.errors import ValidationFailed
from tenure.inbox.arrivals import Arrival
from tenure.inbox.verification import (
    PRESETS,
    Check,
    Handshake,
    Outcome,
    Refusal,
    RefusalReason,
    Verification,
    Verified,
    compile_check,
)
from tests.inbox.signed import (
    ED25519,
    NOW_S,
    NOW_US,
    SIGNED,
    URL,
    Signed,
    compact,
    mac,
    of_stripe,
    slack,
)

EVERY = pytest.mark.parametrize("name", SIGNED)
WITHOUT_PROOF = {"none", "ip-list"}


def check_of(signed: Signed, *secrets: str) -> Check:
    verification = Verification(preset=signed.preset, options=signed.options)
    return compile_check(verification, secrets or (signed.secret,))


def reason(outcome: Outcome) -> RefusalReason:
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


def flipped(text: str, at: int) -> str:
    """Change one character to another of hex and base64 alike."""
    at = at % len(text)
    return text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]


def test_every_preset_has_a_request_of_its_provider():
    assert {*SIGNED} == {*PRESETS} - WITHOUT_PROOF


@EVERY
def test_what_the_provider_signs_is_believed(name: str):
    signed = SIGNED[name](NOW_S)
    found = check_of(signed).verify(signed.arrival(), NOW_US)
    assert isinstance(found, Verified), found
    assert (found.event_type, found.key) == (signed.event_type, signed.key)


@EVERY
def test_any_of_several_secrets_may_fit_and_another_does_not(name: str):
    signed = SIGNED[name](NOW_S)
    both = check_of(signed, signed.other, signed.secret)
    assert isinstance(both.verify(signed.arrival(), NOW_US), Verified)
    wrong = check_of(signed, signed.other)
    found = reason(wrong.verify(signed.arrival(), NOW_US))
    assert found is RefusalReason.BAD_SIGNATURE


@EVERY
def test_a_changed_body_is_refused_where_bodies_are_signed(name: str):
    signed = SIGNED[name](NOW_S)
    check = check_of(signed)
    for at in range(len(signed.body)):
        body = bytearray(signed.body)
        body[at] ^= 1
        found = check.verify(signed.arrival(body=bytes(body)), NOW_US)
        if signed.body_is_proved:
            assert isinstance(found, Refusal), (at, bytes(body))


@EVERY
def test_a_body_written_anew_is_refused_where_bodies_are_signed(name: str):
    signed = SIGNED[name](NOW_S)
    try:
        again = json.dumps(json.loads(signed.body)).encode()
    except ValueError:
        again = signed.body + b"\n"
    assert again != signed.body or not signed.body_is_proved or again == b"{}"
    found = check_of(signed).verify(signed.arrival(body=again), NOW_US)
    assert isinstance(found, Refusal) == (
        signed.body_is_proved and again != signed.body
    )


@EVERY
def test_a_changed_or_missing_proof_is_refused(name: str):
    signed = SIGNED[name](NOW_S)
    if not signed.proof:
        body = signed.body.replace(b'"signature":"', b'"signature":"0', 1)
        found = check_of(signed).verify(signed.arrival(body=body), NOW_US)
        assert isinstance(found, Refusal)
        empty = check_of(signed).verify(signed.arrival(body=b"{}"), NOW_US)
        assert reason(empty) is RefusalReason.MISSING_HEADER
        return
    check, value = check_of(signed), signed.headers[signed.proof]
    without = check.verify(signed.with_header(signed.proof, None), NOW_US)
    assert reason(without) is RefusalReason.MISSING_HEADER
    # Stripe's last signature is its ignored v0.
    end = value.index(",v0") if ",v0" in value else len(value.rstrip("="))
    for at in range(end - 20, end - 2):
        touched = signed.with_header(signed.proof, flipped(value, at))
        assert isinstance(check.verify(touched, NOW_US), Refusal), at


DATED = [name for name in SIGNED if SIGNED[name](NOW_S).moment is not None]


@pytest.mark.parametrize("name", DATED)
def test_a_changed_instant_is_refused_where_one_is_signed(name: str):
    signed = SIGNED[name](NOW_S)
    assert signed.moment is not None
    value = signed.headers[signed.moment]
    other = value.replace(str(NOW_S), str(NOW_S + 1)).replace("22:13:20", "22:13:21")
    assert other != value
    found = check_of(signed).verify(signed.with_header(signed.moment, other), NOW_US)
    assert reason(found) is RefusalReason.BAD_SIGNATURE
    gone = check_of(signed).verify(signed.with_header(signed.moment, None), NOW_US)
    assert isinstance(gone, Refusal)


AGED = sorted(
    {*SIGNED}
    - {"github", "gitlab", "shopify", "twilio", "square", "meta", "x"}
    - {"basic", "bearer", "api-key", "mtls-header"}
)


@pytest.mark.parametrize("name", AGED)
def test_case_45_an_instant_too_far_off_is_refused_on_both_sides(name: str):
    check = check_of(SIGNED[name](NOW_S))
    for at, wanted in (
        (NOW_S - 301, RefusalReason.TOO_OLD),
        (NOW_S + 301, RefusalReason.TOO_NEW),
    ):
        assert reason(check.verify(SIGNED[name](at).arrival(), NOW_US)) is wanted
    for at in (NOW_S - 300, NOW_S + 300):
        found = check.verify(SIGNED[name](at).arrival(), NOW_US)
        assert isinstance(found, Verified)


@pytest.mark.parametrize("name", AGED)
def test_what_signs_an_instant_has_a_nonce_of_its_own(name: str):
    check = check_of(SIGNED[name](NOW_S))
    nonces: list[bytes | None] = []
    for at in (NOW_S, NOW_S, NOW_S + 1):
        found = check.verify(SIGNED[name](at).arrival(), NOW_US)
        assert isinstance(found, Verified)
        nonces.append(found.nonce)
    if name != "sendgrid":  # ECDSA signs differently each time: the content counts
        assert nonces[0] == nonces[1]
    assert None not in nonces
    assert nonces[0] != nonces[2]


def test_case_48_any_v1_of_stripe_may_match_and_v0_counts_for_nothing():
    signed = of_stripe(NOW_S)
    moment, good, old = signed.headers["stripe-signature"].split(",")
    wrong = f"v1={'0' * 64}"
    check = check_of(signed)

    def judged(*parts: str) -> Outcome:
        header = ",".join(parts)
        return check.verify(signed.with_header("stripe-signature", header), NOW_US)

    assert isinstance(judged(moment, wrong, good), Verified)
    assert isinstance(judged(moment, good, wrong), Verified)
    only_v0 = good.replace("v1=", "v0=")
    assert reason(judged(moment, wrong, only_v0)) is RefusalReason.BAD_SIGNATURE
    assert reason(judged(moment, only_v0, old)) is RefusalReason.MALFORMED
    assert reason(judged(moment, "t=1", good)) is RefusalReason.MALFORMED


def test_case_49_slack_s_challenge_is_answered_when_its_signature_holds():
    body = compact({"type": "url_verification", "challenge": "3eZbrw1a"})
    secret = slack(NOW_S).secret
    signature = "v0=" + mac(secret.encode(), f"v0:{NOW_S}:".encode() + body).hex()
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": str(NOW_S)}
    asked = Signed(
        preset="slack",
        secret=secret,
        other="",
        headers=headers,
        body=body,
        event_type="",
        key=None,
    )
    found = check_of(asked).verify(asked.arrival(), NOW_US)
    assert isinstance(found, Handshake)
    assert (found.status, found.body) == (200, b"3eZbrw1a")
    wrong = check_of(asked, "other").verify(asked.arrival(), NOW_US)
    assert reason(wrong) is RefusalReason.BAD_SIGNATURE


def got(query: bytes, *headers: tuple[bytes, bytes], method: str = "GET") -> Arrival:
    return Arrival(
        method=method, url=URL, query=query, headers=headers, body=b"", address=None
    )


def test_case_49_meta_s_challenge_is_answered_for_the_right_token_only():
    check = check_of(SIGNED["meta"](NOW_S), "app", "verify:meatyhamhock")
    query = b"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
    found = check.verify(got(query + b"meatyhamhock"), NOW_US)
    assert isinstance(found, Handshake)
    assert found.body == b"1158201444"
    assert isinstance(check.verify(got(query + b"wrong"), NOW_US), Refusal)
    without = compile_check(Verification(preset="meta"), ["app"])
    assert isinstance(without.verify(got(query), NOW_US), Refusal)


def test_x_s_challenge_response_check_is_answered():
    check = check_of(SIGNED["x"](NOW_S))
    found = check.verify(got(b"crc_token=abc&nonce=1"), NOW_US)
    assert isinstance(found, Handshake)
    said = base64.b64encode(mac(b"consumer", b"abc")).decode()
    assert json.loads(found.body) == {"response_token": f"sha256={said}"}


def test_discord_s_ping_is_answered_after_its_signature():
    body = compact({"type": 1, "token": "t", "id": "1"})
    signature = ED25519.sign(str(NOW_S).encode() + body).hex()
    signed = SIGNED["discord"](NOW_S)
    arrival = signed.with_header("x-signature-ed25519", signature)
    asked = Arrival(
        method="POST",
        url=URL,
        query=b"",
        headers=arrival.headers,
        body=body,
        address=None,
    )
    found = check_of(signed).verify(asked, NOW_US)
    assert isinstance(found, Handshake)
    assert json.loads(found.body) == {"type": 1}
    assert isinstance(check_of(signed, signed.other).verify(asked, NOW_US), Refusal)


def test_twilio_s_json_is_verified_by_its_hash_and_the_public_url():
    public = "https://public.example.com:443/in/x"
    validator, body = RequestValidator("12345"), b'{"a": 1}'
    query = f"bodySHA256={RequestValidator.compute_hash(validator, body.decode())}"
    signature = validator.compute_signature(f"{public}?{query}", {})
    arrival = Arrival(
        method="POST",
        url="http://10.0.0.1:8071/in/x",
        query=query.encode(),
        headers=((b"x-twilio-signature", signature.encode()),),
        body=body,
        address=None,
    )
    preset = Verification(preset="twilio")
    seen = compile_check(preset, ["12345"])
    assert reason(seen.verify(arrival, NOW_US)) is RefusalReason.BAD_SIGNATURE
    told = compile_check(preset, ["12345"], public_url=public)
    assert isinstance(told.verify(arrival, NOW_US), Verified)
    without = public.replace(":443", "")
    told = compile_check(preset, ["12345"], public_url=without)
    assert isinstance(told.verify(arrival, NOW_US), Verified)
    other = msgspec.structs.replace(arrival, body=b'{"a":1}')
    assert reason(told.verify(other, NOW_US)) is RefusalReason.BAD_SIGNATURE


def test_networks_believe_who_calls_from_them():
    preset = Verification(preset="ip-list", options={"networks": ["203.0.113.0/24"]})
    check = compile_check(preset, [])
    signed = SIGNED["github"](NOW_S)
    assert isinstance(check.verify(signed.arrival(), NOW_US), Verified)
    mapped = signed.arrival(address="::ffff:203.0.113.9")
    assert isinstance(check.verify(mapped, NOW_US), Verified)
    for address in ("198.51.100.1", None, "nonsense"):
        found = check.verify(signed.arrival(address=address), NOW_US)
        assert isinstance(found, Refusal)
        assert (found.reason, found.status) == (RefusalReason.ADDRESS, 403)


def test_strict_replay_makes_a_signature_of_a_body_a_nonce():
    signed = SIGNED["github"](NOW_S)
    plain = check_of(signed).verify(signed.arrival(), NOW_US)
    assert isinstance(plain, Verified)
    assert plain.nonce is None
    preset = Verification(preset="github", options={"strict_replay": True})
    strict = compile_check(preset, [signed.secret]).verify(signed.arrival(), NOW_US)
    assert isinstance(strict, Verified)
    assert strict.nonce is not None


@pytest.mark.parametrize("name", [each for each in SIGNED if each != "mailgun"])
def test_a_doubled_proof_is_refused(name: str):
    signed = SIGNED[name](NOW_S)
    line = (signed.proof.encode(), b"0")
    doubled = signed.arrival(headers=(line, *signed.arrival().headers))
    found = reason(check_of(signed).verify(doubled, NOW_US))
    assert found is RefusalReason.MALFORMED


BAD = [
    ("github", {}, [], "secrets"),
    ("github", {}, [""], "secrets"),
    ("github", {}, [" abcdef"], "secrets"),
    ("github", {"header": "x"}, ["a"], "header"),
    ("none", {}, ["a"], "secrets"),
    ("nobody", {}, ["a"], "preset"),
    ("standard-webhooks", {}, ["not-a-secret"], "secrets"),
    ("discord", {}, ["zz"], "secrets"),
    ("sendgrid", {}, ["zz"], "secrets"),
    ("basic", {}, ["hunter2"], "secrets"),
    ("ip-list", {}, [], "networks"),
    ("ip-list", {"networks": ["300.0.0.0/8"]}, [], "networks"),
    ("hmac", {"signed": "{timestamp}"}, ["a"], "signed"),
    ("hmac", {"signed": "{body}{odd}"}, ["a"], "signed"),
    ("hmac", {"timestamp": "header:x-at"}, ["a"], "timestamp"),
    ("hmac", {"algorithm": "md5"}, ["a"], "algorithm"),
    ("hmac", {"secret_encoding": "hex"}, ["xyz"], "secrets"),
    ("github", {"tolerance_seconds": -1}, ["a"], "tolerance_seconds"),
    ("github", {"tolerance_seconds": float("nan")}, ["a"], "tolerance_seconds"),
    ("github", {"strict_replay": "yes"}, ["a"], "strict_replay"),
]


@pytest.mark.parametrize(("preset", "options", "secrets", "place"), BAD)
def test_what_cannot_work_is_refused_with_its_place(
    preset: str, options: dict[str, object], secrets: list[str], place: str
):
    with pytest.raises(ValidationFailed) as refused:
        compile_check(Verification(preset=preset, options=options), secrets)
    assert any(place in item.loc for item in refused.value.items)
    assert all(
        len(secret) < 2 or secret not in item.msg
        for item in refused.value.items
        for secret in secrets
    )


CHECKS = [check_of(SIGNED[name](NOW_S)) for name in SIGNED]
PROOFS = sorted({SIGNED[name](NOW_S).proof for name in SIGNED} - {""})
MOMENTS = ["webhook-timestamp", "webhook-id", "x-slack-request-timestamp", "x-at"]
texts = st.one_of(
    st.text(max_size=50).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=50),
    st.sampled_from([b"t=1,t=2,v1=", b"-1", b"NaN", "٣".encode(), b"9" * 30, b"v1,"]),
)


@given(
    headers=st.lists(
        st.tuples(st.sampled_from([*PROOFS, *MOMENTS, "content-type"]), texts),
        max_size=6,
    ),
    body=st.one_of(texts, st.sampled_from([b"[" * 5_000, b'{"type":1}', b"\xff"])),
    query=texts,
    method=st.sampled_from(["POST", "GET", "OPTIONS"]),
)
def test_hostile_requests_are_refused_and_never_raise(
    headers: list[tuple[str, bytes]], body: bytes, query: bytes, method: str
):
    arrival = Arrival(
        method=method,
        url=URL,
        query=query,
        headers=tuple((name.encode(), value) for name, value in headers),
        body=body,
        address=None,
    )
    for check in CHECKS:
        assert not isinstance(check.verify(arrival, NOW_US), Verified)


def test_a_header_of_very_many_signatures_is_refused_at_once():
    signed = SIGNED["standard-webhooks"](NOW_S)
    many = " ".join(["v1,AAAA"] * 1000)
    check = check_of(signed)
    found = reason(check.verify(signed.with_header("webhook-signature", many), NOW_US))
    assert found is RefusalReason.MALFORMED
    huge = "v1," + "A" * 1_000_000
    found = reason(check.verify(signed.with_header("webhook-signature", huge), NOW_US))
    assert found is RefusalReason.MALFORMED


def test_a_body_hash_that_is_no_hash_is_refused():
    arrival = msgspec.structs.replace(
        got(b"bodySHA256=%C3%A9", (b"x-twilio-signature", b"AAAA")), method="POST"
    )
    check = check_of(SIGNED["twilio"](NOW_S))
    assert reason(check.verify(arrival, NOW_US)) is RefusalReason.BAD_SIGNATURE


def test_a_key_of_sendgrid_s_that_is_damaged_anywhere_is_a_refusal_at_save():
    good = base64.b64decode(SIGNED["sendgrid"](NOW_S).secret)
    for at in range(len(good)):
        bad = good[:at] + bytes([good[at] ^ 0x11]) + good[at + 1 :]
        text = base64.b64encode(bad).decode()
        with pytest.raises(ValidationFailed):
            compile_check(Verification(preset="sendgrid"), [text])


EVENT = b'{"specversion":"1.0","type":"a.b","source":"/s","id":"\xc3\xa9"}'
CLOUD = compile_check(
    Verification(preset="bearer", options={"format": "cloudevents"}), ["t"]
)


def cloud(kind: bytes, body: bytes, *lines: tuple[bytes, bytes]) -> Outcome:
    headers = ((b"authorization", b"Bearer t"), (b"content-type", kind), *lines)
    arrival = got(b"", *headers, method="POST")
    return CLOUD.verify(msgspec.structs.replace(arrival, body=body), NOW_US)


def test_an_event_is_the_same_in_all_three_modes():
    binary = cloud(
        b"text/plain",
        b"hello",
        (b"ce-specversion", b"1.0"),
        (b"ce-type", b"a.b"),
        (b"ce-source", b"/s"),
        (b"ce-id", b"%C3%A9"),
    )
    structured = cloud(b"application/cloudevents+json; charset=utf-8", EVENT)
    batch = cloud(b"application/cloudevents-batch+json", b"[ " + EVENT + b" ]")
    assert isinstance(binary, Verified)
    assert isinstance(structured, Verified)
    assert isinstance(batch, Verified)
    assert batch.events is not None
    assert {binary.key, structured.key, batch.events[0].key} == {binary.key}
    assert {binary.event_type, structured.event_type, batch.event_type} == {"a.b"}
    assert batch.events[0].body == EVENT


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/cloudevents+json", b"[]"),
        (b"application/cloudevents+json", b'{"specversion":"9","type":"a"}'),
        (b"application/cloudevents-batch+json", b'[{"id":"1"}]'),
        (b"application/cloudevents-batch+json", b"[" * 3000),
        (b"text/plain", b"hello"),
    ],
)
def test_what_is_no_cloudevent_is_a_400(kind: bytes, body: bytes):
    found = cloud(kind, body)
    assert isinstance(found, Refusal)
    assert found.status == 400


def test_case_49_who_asks_by_options_may_send():
    asked = got(
        b"",
        (b"webhook-request-origin", b"events.example.com"),
        (b"webhook-request-rate", "\u00b2".encode("latin-1")),
        method="OPTIONS",
    )
    found = CLOUD.verify(asked, NOW_US)
    assert isinstance(found, Handshake)
    assert found.headers["webhook-allowed-origin"] == "events.example.com"
    assert found.headers["webhook-allowed-rate"] == "*"
    assert isinstance(CLOUD.verify(got(b"", method="OPTIONS"), NOW_US), Refusal)
