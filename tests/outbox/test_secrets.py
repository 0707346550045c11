import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitReached
from tenure.limits import OLD_SECRETS_MAX, SECRET_GRACE_MAX_SECONDS
from tenure.outbox.secrets import (
    OldSecret,
    Secret,
    SecretKind,
    SecretSet,
    dump_secrets,
    load_secrets,
    new_secret,
    parse_secret,
)

HMAC_TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ED25519_TEXT = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9l"
    "MicMFs6Kvg=="
)
ED25519_PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def whsec(size: int) -> str:
    return "whsec_" + base64.b64encode(bytes(range(size))).decode()


def test_published_secrets_are_read_and_shown_unchanged():
    hmac = parse_secret(HMAC_TEXT)
    assert (hmac.kind, len(hmac.key)) == (SecretKind.HMAC256, 24)
    assert hmac.secret_text() == hmac.public_text() == HMAC_TEXT
    pair = parse_secret(ED25519_TEXT)
    assert (pair.kind, len(pair.key)) == (SecretKind.ED25519, 64)
    assert pair.secret_text() == ED25519_TEXT
    assert pair.public_text() == ED25519_PUBLIC


@pytest.mark.parametrize("size", [24, 32, 60, 64, 75])
def test_hmac_keys_of_24_to_75_bytes_are_accepted(size: int):
    assert parse_secret(whsec(size)).secret_text() == whsec(size)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("whsec_", "nothing follows"),
        ("whsk_", "nothing follows"),
        (whsec(23), "too short (23 bytes)"),
        (whsec(76), "too long (76 bytes)"),
        (ED25519_PUBLIC, "public key"),
        (HMAC_TEXT.removeprefix("whsec_"), "no known prefix"),
        ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "no known prefix"),
        ("secret", "no known prefix"),
        (" " + HMAC_TEXT, "white space around"),
        (HMAC_TEXT + "\n", "white space"),
        ("whsec_not base64!", "white space in"),
        ("whsec_not~base64~at~all~~~~~~~~~~~~~~~~~", "not base64"),
        ("whsec_ünïcödé", "not base64"),
        ("whsec_this-is-my-raw-password-0123456789", "URL-safe"),
        (whsec(25).rstrip("="), "padding"),
        ("whsec_" + "A" * 33, "padding"),
        ("whsec_" + "A" * 33 + "B==", "stray bits"),
        ("whsk_" + base64.b64encode(bytes(32)).decode(), "holds 64 bytes"),
        ("whsk_" + base64.b64encode(bytes(64)).decode(), "does not belong"),
    ],
)
def test_a_wrong_form_is_refused_with_what_is_wrong_and_what_is_wanted(
    text: str, reason: str
):
    with pytest.raises(ValueError) as caught:
        parse_secret(text)
    message = str(caught.value)
    assert reason in message
    assert "wanted: whsec_" in message
    body = text.partition("_")[2].strip()
    assert not body or body not in message


@given(st.text())
def test_any_text_is_read_exactly_or_refused(text: str):
    try:
        secret = parse_secret(text)
    except ValueError:
        return
    assert secret.secret_text() == text


@given(st.binary(min_size=24, max_size=75))
def test_every_hmac_key_survives_its_text(key: bytes):
    secret = Secret(kind=SecretKind.HMAC256, key=key)
    assert parse_secret(secret.secret_text()) == secret


@pytest.mark.parametrize("kind", list(SecretKind))
def test_new_secrets_are_valid_and_differ(kind: SecretKind):
    made = [new_secret(kind) for _ in range(20)]
    assert len(set(made)) == 20
    assert all(parse_secret(each.secret_text()) == each for each in made)
    assert {each.kind for each in made} == {kind}


@pytest.mark.parametrize("text", [HMAC_TEXT, ED25519_TEXT])
def test_the_repr_shows_no_key(text: str):
    secret = parse_secret(text)
    shown = repr(
        SecretSet(current=secret, old=(OldSecret(secret=secret, expires_at=1),))
    )
    assert text[6:20] not in shown
    assert repr(secret.key) not in shown
    assert "masked" in shown


def test_the_former_secret_signs_until_its_grace_ends():
    first, second = new_secret(), new_secret()
    rotated = SecretSet(current=first).rotate(second, grace_seconds=60, now=NOW)
    assert rotated.live(NOW) == (second, first)
    assert rotated.live(NOW + 60 * SECOND - 1) == (second, first)
    assert rotated.live(NOW + 60 * SECOND) == (second,)


def test_a_second_rotation_keeps_both_former_secrets_newest_first():
    first, second, third = new_secret(), new_secret(), new_secret()
    rotated = (
        SecretSet(current=first)
        .rotate(second, grace_seconds=60, now=NOW)
        .rotate(third, grace_seconds=30, now=NOW + 10 * SECOND)
    )
    assert rotated.live(NOW + 10 * SECOND) == (third, second, first)
    assert rotated.live(NOW + 50 * SECOND) == (third, first)


def test_rotation_without_a_key_makes_one_of_the_current_or_the_given_kind():
    pair = SecretSet(current=new_secret(SecretKind.ED25519))
    same = pair.rotate(None, grace_seconds=1, now=NOW)
    assert same.current.kind is SecretKind.ED25519
    assert same.current != pair.current
    other = pair.rotate(None, grace_seconds=1, now=NOW, kind=SecretKind.HMAC256)
    assert [each.kind for each in other.live(NOW)] == ["hmac256", "ed25519"]


def test_grace_0_drops_the_former_secret_at_once():
    second = new_secret()
    rotated = SecretSet(current=new_secret()).rotate(second, grace_seconds=0, now=NOW)
    assert rotated == SecretSet(current=second)


def test_an_earlier_or_the_same_key_may_be_used_again_and_signs_once():
    first, second = new_secret(), new_secret()
    there = SecretSet(current=first).rotate(second, grace_seconds=60, now=NOW)
    back = there.rotate(first, grace_seconds=60, now=NOW)
    assert back.live(NOW) == (first, second)
    assert back.rotate(first, grace_seconds=60, now=NOW) == back


def test_ten_rotations_pass_the_eleventh_does_not_until_one_expires():
    secrets = SecretSet(current=new_secret())
    for step in range(OLD_SECRETS_MAX):
        secrets = secrets.rotate(None, grace_seconds=100 + step, now=NOW)
    assert len(secrets.live(NOW)) == 11
    with pytest.raises(LimitReached, match="10 former secrets"):
        secrets.rotate(None, grace_seconds=100, now=NOW)
    assert len(secrets.rotate(None, grace_seconds=0, now=NOW).live(NOW)) == 11
    later = NOW + 100 * SECOND
    assert len(secrets.rotate(None, grace_seconds=100, now=later).old) == 10


@pytest.mark.parametrize("grace", [-1, SECRET_GRACE_MAX_SECONDS + 1])
def test_a_grace_period_out_of_bounds_is_refused(grace: int):
    with pytest.raises(ValueError, match="wanted: 0 to 604800"):
        SecretSet(current=new_secret()).rotate(None, grace_seconds=grace, now=NOW)


def test_a_set_survives_its_stored_form():
    secrets = SecretSet(current=parse_secret(HMAC_TEXT)).rotate(
        parse_secret(ED25519_TEXT), grace_seconds=SECRET_GRACE_MAX_SECONDS, now=NOW
    )
    assert load_secrets(dump_secrets(secrets)) == secrets


@pytest.mark.parametrize("stored", [b"", b"{}", b'{"current":"plain"}', b"null"])
def test_a_stored_form_that_is_none_is_refused(stored: bytes):
    with pytest.raises(ValueError):
        load_secrets(stored)
