"""Every sample is believed by the preset that it is a sample of."""

from __future__ import annotations

import pytest

from tenure.errors import BadRequest
from tenure.inbox.arrivals import Arrival
from tenure.inbox.samples import EVENTS, new_secret, sample
from tenure.inbox.verification import (
    PRESETS,
    Verification,
    Verified,
    compile_check,
    event_type_of,
)
from tests.inbox.signed import NOW_US, URL

OPTIONS = {"ip-list": {"networks": ["0.0.0.0/0"]}}
ALL = [
    (preset, event) for preset in PRESETS for event in (*EVENTS.get(preset, ()), "a.b")
]


@pytest.mark.parametrize(("preset", "event"), ALL)
def test_a_sample_is_believed_and_is_another_event_each_time(preset: str, event: str):
    signs, verifies = new_secret(preset)
    options = OPTIONS.get(preset, {})
    check = compile_check(
        Verification(preset=preset, options=options), [verifies] if verifies else []
    )
    keys: list[str | None] = []
    for _ in range(2):
        made = sample(preset, event, signs, url=URL, now_us=NOW_US, options=options)
        arrival = Arrival(
            method="POST",
            url=URL,
            query=b"",
            headers=tuple((n.encode(), v.encode()) for n, v in made.headers.items()),
            body=made.body,
            address="203.0.113.7",
        )
        found = check.verify(arrival, NOW_US)
        assert isinstance(found, Verified), (found, made)
        keys.append(found.key)
        if event in EVENTS.get(preset, ()) and preset != "x":
            assert found.event_type == event_type_of(event)
    assert keys[0] is None or keys[0] != keys[1]


def test_what_cannot_be_signed_is_refused():
    with pytest.raises(BadRequest, match="no preset"):
        sample("nobody", "a", "s", url=URL, now_us=NOW_US)
    with pytest.raises(BadRequest, match="cannot be signed"):
        sample("discord", "a", "zz", url=URL, now_us=NOW_US)
