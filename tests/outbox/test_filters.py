import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.outbox.filters import EndpointFilter, MatchReason, matches

NAMES = st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1)


def wanted(
    types: set[str] | None = None,
    channels: set[str] | None = None,
    *,
    disabled: bool = False,
) -> EndpointFilter:
    return EndpointFilter(
        event_types=None if types is None else frozenset(types),
        channels=None if channels is None else frozenset(channels),
        disabled=disabled,
    )


@pytest.mark.parametrize(
    ("endpoint", "event_type", "channels", "reason"),
    [
        (wanted(), "a", [], "matched"),
        (wanted(), "a", ["x"], "matched"),
        (wanted({"a"}), "a", [], "matched"),
        (wanted({"a", "b"}), "b", [], "matched"),
        (wanted({"a"}), "b", [], "event_type"),
        (wanted({"a"}), "A", [], "event_type"),
        (wanted({"a"}), "a.b", [], "event_type"),
        (wanted(None, {"x"}), "a", ["x"], "matched"),
        (wanted(None, {"x", "y"}), "a", ["y", "z"], "matched"),
        (wanted(None, {"x"}), "a", ["y"], "channel"),
        (wanted(None, {"x"}), "a", [], "channel"),
        (wanted({"a"}, {"x"}), "b", [], "event_type"),
        (wanted({"a"}, {"x"}), "a", ["x"], "matched"),
        (wanted(disabled=True), "a", [], "disabled"),
        (wanted({"b"}, {"x"}, disabled=True), "a", [], "disabled"),
        (wanted(set()), "a", [], "event_type"),
    ],
)
def test_who_gets_a_message_and_why_not(
    endpoint: EndpointFilter, event_type: str, channels: list[str], reason: str
):
    match = matches(endpoint, event_type, channels)
    assert (match.reason, match.matched) == (reason, reason == "matched")


@given(types=st.none() | NAMES, wants=st.none() | NAMES, has=NAMES | st.just(()))
def test_a_match_is_the_type_and_a_shared_channel(
    types: frozenset[str] | None,
    wants: frozenset[str] | None,
    has: frozenset[str],
):
    match = matches(EndpointFilter(event_types=types, channels=wants), "a", has)
    type_fits = types is None or "a" in types
    channel_fits = wants is None or any(each in wants for each in has)
    assert match.matched == (type_fits and channel_fits)
    assert match.matched == (match.reason is MatchReason.MATCHED)
