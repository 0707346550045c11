"""Nothing waits without a reason, a rule, and the next instant if there is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.limits import EXPLAIN_AHEAD_MAX
from tenure.outbox.waiting import CODES, Standing, Surroundings, why_waits
from tenure.store.claims import CERTAIN
from tenure.store.claims.parking import HELD
from tenure.store.nodes import HEARD_US

SECOND = 1_000_000
NOW = 1_000_000_000


def row(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "state": "ready",
        "phase": "due",
        "priority": 2,
        "due_at": NOW,
        "reason": None,
        "claimed_by": None,
        "claimed_at": None,
        "deadline_at": None,
        "alone": False,
        "losses": 0,
        "cancel_requested_at": None,
        "order_key": None,
        "lane_state": "open",
        "lane_reason": None,
        "breaker_until": None,
        "half_open": False,
        "concurrency": None,
        "rate_per_second": None,
        "tat": None,
        "needs": "delivery",
    }
    return SimpleNamespace(**(fields | changes))


def about(**changes: Any) -> Surroundings:
    fields: dict[str, Any] = {
        "now": NOW,
        "holder": None,
        "capable_beat_at": NOW,
        "running": 0,
    }
    return Surroundings(**(fields | changes))


CLAIMED = {
    "state": "claimed",
    "phase": None,
    "claimed_by": 7,
    "claimed_at": NOW,
    "deadline_at": NOW + 9,
}
ASLEEP = {"phase": "asleep", "due_at": None}
CLOSED = {"holder_state": "closed", "holder_why": "silent"}


@pytest.mark.parametrize(
    ("changes", "around", "code", "next_at"),
    [
        ({}, {}, "due", NOW),
        ({"phase": "later", "due_at": NOW + 5}, {}, "not_due", NOW + 5),
        ({"phase": "later", "due_at": NOW - 5}, {}, "due", NOW),
        (ASLEEP, {}, "asleep", None),
        (ASLEEP | {"order_key": "k"}, {}, "head_of_line", None),
        ({}, {"capable_beat_at": None}, "no_capable_node", None),
        ({}, {"capable_beat_at": NOW - HEARD_US}, "due", NOW),
        ({}, {"capable_beat_at": NOW - HEARD_US - 1}, "no_capable_node", None),
        ({"concurrency": 2}, {"running": 2}, "no_room", None),
        ({"concurrency": 2}, {"running": 1}, "due", NOW),
        ({"half_open": True}, {"running": 1}, "probing", None),
        ({"half_open": True}, {"running": 0}, "due", NOW),
        ({"rate_per_second": 0}, {}, "rate", None),
        (
            {"rate_per_second": 5, "tat": NOW + 2 * SECOND},
            {},
            "rate",
            NOW + 2 * SECOND,
        ),
        ({"rate_per_second": 5, "tat": NOW + SECOND}, {}, "due", NOW),
        ({"losses": 2}, {}, "suspect", NOW),
        ({"losses": 1}, {}, "due", NOW),
        ({}, {"running": 1, "running_since": NOW - 3 * SECOND}, "slow_lane", None),
        ({}, {"running": 1, "running_since": NOW - SECOND}, "due", NOW),
        ({}, {"standing": Standing(slots=4), "least_held": 4}, "node_full", None),
        ({}, {"standing": Standing(slots=4), "least_held": 3}, "due", NOW),
        ({}, {"ahead": 3}, "behind", NOW),
        ({"lane_state": "paused"}, {}, "paused", None),
        ({"lane_state": "blocked", "lane_reason": "x"}, {}, "blocked", None),
        ({"lane_state": "deleted"}, {}, "deleted", None),
        ({"breaker_until": NOW + 3}, {}, "breaker", NOW + 3),
        ({"breaker_until": NOW - 3}, {}, "due", NOW),
        ({}, {"standing": Standing(off="a copy")}, "off", None),
        (CLAIMED, {}, "in_flight", NOW + 9),
        (CLAIMED | {"alone": True}, {}, "alone", NOW + 9),
        (CLAIMED | {"cancel_requested_at": NOW}, {}, "cancelling", NOW + 9),
        (CLAIMED, {"holder_beat_at": NOW - HEARD_US}, "in_flight", NOW + 9),
        (CLAIMED, {"holder_beat_at": NOW - HEARD_US - 1}, "holder_silent", None),
        (CLAIMED, CLOSED, "holder_closed", NOW + 9),
        (CLAIMED, CLOSED | {"holder_why": CERTAIN}, "holder_closed", NOW),
        ({"state": "succeeded", "phase": None}, {}, "succeeded", None),
        ({"state": "dead", "phase": None}, {}, "dead", None),
        ({"state": "cancelled", "phase": None}, {}, "cancelled", None),
        ({"state": "parked", "phase": None, "reason": "x"}, {}, "parked", None),
        ({"state": "parked", "phase": None, "reason": HELD}, {}, "held", None),
    ],
)
def test_each_standing_has_its_code_sentence_rule_and_next_instant(
    changes: dict[str, Any], around: dict[str, Any], code: str, next_at: int | None
) -> None:
    waits = why_waits(row(**changes), about(**around))
    assert (waits.code, waits.next_at) == (code, next_at)
    assert waits.code in CODES
    assert waits.why
    assert waits.rule


MAYBE = st.none() | st.integers(NOW - 99 * SECOND, NOW + 99 * SECOND)
READY = st.one_of(
    st.fixed_dictionaries(
        {
            "phase": st.sampled_from(["due", "later"]),
            "due_at": st.integers(NOW - 99, NOW + 99),
        }
    ),
    st.just(ASLEEP),
)
STATES = st.one_of(
    READY,
    st.just(CLAIMED),
    st.sampled_from(["succeeded", "dead", "cancelled", "parked"]).map(
        lambda state: {"state": state, "phase": None, "due_at": None}
    ),
)
LANES = st.fixed_dictionaries(
    {
        "lane_state": st.sampled_from(["open", "paused", "blocked", "deleted"]),
        "breaker_until": MAYBE,
        "half_open": st.booleans(),
        "concurrency": st.none() | st.integers(0, 3),
        "rate_per_second": st.none() | st.integers(0, 3),
        "tat": MAYBE,
        "losses": st.integers(0, 5),
        "order_key": st.sampled_from([None, "k"]),
        "reason": st.sampled_from([None, "status_500", HELD]),
        "cancel_requested_at": MAYBE,
        "alone": st.booleans(),
    }
)
AROUND = st.fixed_dictionaries(
    {
        "capable_beat_at": MAYBE,
        "holder_beat_at": MAYBE,
        "holder_state": st.sampled_from([None, "open", "closed", "draining"]),
        "running": st.integers(0, 4),
        "running_since": MAYBE,
        "least_held": st.integers(0, 4),
        "ahead": st.integers(0, EXPLAIN_AHEAD_MAX + 1),
        "standing": st.builds(
            Standing,
            off=st.sampled_from([None, "off"]),
            slots=st.none() | st.integers(1, 4),
        ),
    }
)


@given(state=STATES, lane=LANES, around=AROUND)
def test_whatever_a_row_is_it_has_a_known_reason(
    state: dict[str, Any], lane: dict[str, Any], around: dict[str, Any]
):
    waits = why_waits(row(**(lane | state)), about(**around))
    assert waits.code in CODES
    assert waits.why
    assert waits.rule
    terminal = row(**state).state in {"succeeded", "dead", "cancelled"}
    assert terminal == (waits.code in {"succeeded", "dead", "cancelled"})


def test_what_runs_names_its_holder_and_a_requested_cancel() -> None:
    named = why_waits(row(**CLAIMED), about(holder="node-a"))
    assert "node-a" in named.why
    unknown = why_waits(row(**CLAIMED, cancel_requested_at=NOW), about())
    assert "node 7" in unknown.why
    assert "cancel was requested" in unknown.why


def test_a_retry_says_after_what_it_waits() -> None:
    waits = why_waits(row(phase="later", due_at=NOW + 5, reason="status_500"), about())
    assert waits.why.endswith("after: status_500")


def test_rows_before_it_are_counted_to_a_bound() -> None:
    some = why_waits(row(), about(ahead=EXPLAIN_AHEAD_MAX))
    assert f"; {EXPLAIN_AHEAD_MAX} rows" in some.why
    many = why_waits(row(), about(ahead=EXPLAIN_AHEAD_MAX + 1))
    assert f"more than {EXPLAIN_AHEAD_MAX} rows" in many.why
