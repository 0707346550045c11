import base64

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigInvalid, WrongKeyRing
from tenure.outbox.keyring import KeyRing, new_key

OLD, NEW = new_key(), new_key()


@given(st.binary())
def test_what_was_sealed_opens(plain: bytes):
    ring = KeyRing([NEW])
    sealed = ring.seal(plain)
    assert ring.open(sealed) == plain
    assert not plain or len(plain) < 4 or plain not in sealed


def test_equal_contents_are_sealed_differently():
    ring = KeyRing([NEW])
    assert ring.seal(b"same") != ring.seal(b"same")


def test_a_ring_opens_with_its_old_keys_and_seals_with_the_newest():
    before = KeyRing([OLD]).seal(b"secret")
    ring = KeyRing([NEW, OLD])
    assert ring.open(before) == b"secret"
    assert Fernet(NEW).decrypt(ring.seal(b"secret")) == b"secret"


def test_after_rotation_the_old_key_can_be_taken_away():
    before = KeyRing([OLD]).seal(b"secret")
    after = KeyRing([NEW, OLD]).rotate(before)
    assert KeyRing([NEW]).open(after) == b"secret"
    with pytest.raises(WrongKeyRing):
        KeyRing([OLD]).open(after)


@pytest.mark.parametrize(
    "sealed",
    [b"", b"not sealed", KeyRing([OLD]).seal(b"x")],
    ids=["nothing", "text", "other ring"],
)
def test_what_no_key_opens_is_a_wrong_key_ring_that_says_what_to_do(sealed: bytes):
    ring = KeyRing([NEW])
    for verb in (ring.open, ring.rotate):
        with pytest.raises(WrongKeyRing, match="add the key it was sealed with"):
            verb(sealed)


def test_a_changed_byte_is_noticed():
    ring = KeyRing([NEW])
    sealed = bytearray(ring.seal(b"secret"))
    sealed[20] ^= 1
    with pytest.raises(WrongKeyRing):
        ring.open(bytes(sealed))


def test_the_check_value_tells_the_right_ring_from_a_wrong_one():
    check = KeyRing([OLD]).check_value()
    assert KeyRing([OLD]).opens(check)
    assert KeyRing([NEW, OLD]).opens(check)
    assert not KeyRing([NEW]).opens(check)
    assert not KeyRing([OLD]).opens(KeyRing([OLD]).seal(b"another content"))
    assert not KeyRing([OLD]).opens(b"")


def test_an_empty_ring_is_refused():
    with pytest.raises(ConfigInvalid, match="at least one key"):
        KeyRing([])


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("correct horse battery staple", "not URL-safe base64"),
        (NEW[:-1], "not URL-safe base64"),
        (NEW[:20] + "!" + NEW[21:], "not URL-safe base64"),
        ("é" * 44, "not URL-safe base64"),
        (base64.urlsafe_b64encode(bytes(31)).decode(), "holds 31 bytes"),
        (base64.urlsafe_b64encode(bytes(33)).decode(), "holds 33 bytes"),
        (OLD, "same as key 1"),
    ],
    ids=[
        "empty",
        "blank",
        "prose",
        "cut",
        "wrong letter",
        "not ASCII",
        "short",
        "long",
        "double",
    ],
)
def test_a_wrong_key_is_named_by_its_position_and_never_printed(key: str, reason: str):
    with pytest.raises(ConfigInvalid) as caught:
        KeyRing([OLD, key])
    message = str(caught.value)
    assert "key 2 " in message
    assert reason in message
    assert not key.strip() or key not in message


def test_white_space_around_a_key_does_not_count():
    assert KeyRing([f" {OLD}\n"]).opens(KeyRing([OLD]).check_value())


def test_the_repr_shows_no_key():
    assert repr(KeyRing([NEW, OLD])) == "KeyRing(2 keys, masked)"


def test_new_keys_differ_and_are_accepted():
    keys = [new_key() for _ in range(5)]
    assert len(set(keys)) == 5
    KeyRing(keys)
