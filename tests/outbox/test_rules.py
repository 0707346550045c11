"""Rules: fingerprints, cursors, statuses, and values that never show a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.errors import ValidationFailed
from tenure.ids import KeyId, TenantId
from tenure.kernel.states import State
from tenure.limits import Durations
from tenure.outbox.model import (
    ApiKey,
    AttemptStatus,
    EndpointIn,
    EndpointSettings,
    NewApiKey,
    OutboxSettings,
    PageIn,
    Scope,
    SecretRotation,
)
from tenure.outbox.rules import (
    check_endpoint,
    check_message,
    check_page,
    deadline_us,
    delivery_status,
    findable,
    fingerprint,
    message_hash,
    retry_policy,
    shown_url,
)
from tests.outbox.world import message

PLAIN = OutboxSettings()
parts = st.lists(st.one_of(st.text(), st.binary()), max_size=4)


@given(parts, parts)
def test_a_fingerprint_tells_apart_what_its_parts_tell_apart(
    one: list[str | bytes], other: list[str | bytes]
) -> None:
    def raw(each: str | bytes) -> bytes:
        return each.encode() if isinstance(each, str) else each

    same = [raw(each) for each in one] == [raw(each) for each in other]
    assert (fingerprint(*one) == fingerprint(*other)) == same


def test_a_message_hash_covers_every_field() -> None:
    base = message()
    changes: list[dict[str, object]] = [
        {"body": b"{}"},
        {"event_type": "other"},
        {"event_id": "e"},
        {"channels": ("a",)},
        {"tags": ("a",)},
        {"headers": {"a": "b"}},
        {"content_type": "text/plain"},
        {"deliver_at": 1},
        {"delay_us": 1},
        {"expires_at": 1},
        {"retention_seconds": 1.0},
    ]
    hashes = {
        message_hash(replace(base, **change))  # pyright: ignore[reportArgumentType]
        for change in changes
    }
    assert len(hashes | {message_hash(base)}) == len(changes) + 1
    assert message_hash(base) == message_hash(message())


@pytest.mark.parametrize("state", list(State))
def test_every_state_of_a_row_has_a_status(state: State) -> None:
    wanted = {
        State.READY: (AttemptStatus.PENDING, AttemptStatus.SENDING),
        State.CLAIMED: (AttemptStatus.SENDING, AttemptStatus.SENDING),
        State.SUCCEEDED: (AttemptStatus.SUCCESS, AttemptStatus.SUCCESS),
    }.get(state, (AttemptStatus.FAIL, AttemptStatus.FAIL))
    assert (delivery_status(state, 0), delivery_status(state, 1)) == wanted


@given(st.text(max_size=20))
def test_a_findable_reference_is_text_to_every_database(ref: str) -> None:
    if findable(ref):
        assert ref.isascii()
        assert ref.isprintable()
        assert 1 <= len(ref) <= 256


@given(st.text(max_size=40))
def test_a_cursor_is_either_refused_or_read_back(iterator: str) -> None:
    page = PageIn(iterator=iterator)
    cursor = check_page(page, lambda key: True)
    assert ("-" if cursor.backward else "") + (cursor.key or "") == iterator
    with pytest.raises(ValidationFailed):
        check_page(page, lambda key: False)


def test_user_info_is_masked_where_a_url_is_shown() -> None:
    assert shown_url("https://a.example/x", userinfo=True) == "https://***@a.example/x"
    assert shown_url("https://a.example/x", userinfo=False) == "https://a.example/x"


def test_a_masked_url_that_comes_back_keeps_what_is_stored() -> None:
    masked = check_endpoint(EndpointIn(url="https://***@a.example/"), PLAIN)
    assert masked.place.kept
    assert masked.given.url == "https://a.example/"
    given_anew = check_endpoint(EndpointIn(url="https://me:pw@a.example/"), PLAIN)
    assert not given_anew.place.kept
    assert given_anew.given.url == "https://a.example/"


def test_times_are_scaled_as_the_run_says() -> None:
    fast = OutboxSettings(durations=Durations(factor=10))
    own = EndpointSettings(timeout_seconds=5, retry_seconds=(0.0, 10.0))
    assert deadline_us(own, fast) == 500_000
    assert deadline_us(EndpointSettings(), PLAIN) == 15_000_000
    assert retry_policy(own, fast).schedule == (0.0, 1.0)
    assert retry_policy(EndpointSettings(), PLAIN).attempts == 8


def test_every_fault_of_a_request_is_named_at_once() -> None:
    with pytest.raises(ValidationFailed) as refused:
        check_message(message("", event_id="$", channels=[], delay_us=-1), PLAIN)
    assert {item.loc[1] for item in refused.value.items} == {
        "eventType",
        "eventId",
        "channels",
        "delay",
    }


def test_no_repr_shows_a_secret() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    key = ApiKey(
        id=KeyId("key_x"),
        tenant=TenantId("t"),
        name="n",
        scope=Scope.READ,
        app=None,
        created_at=0,
        expires_at=None,
        last_used_at=None,
        revoked_at=None,
    )
    for value in (
        EndpointIn(url="https://a.example/", secret=secret, headers={"x": secret}),
        SecretRotation(key=secret),
        NewApiKey(key=key, token=secret),
    ):
        assert secret not in repr(value)
