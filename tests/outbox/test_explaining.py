"""Explain: nothing waits without a reason, a rule, and the next instant if any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tenure.clock import SystemClock
from tenure.errors import NotFound
from tenure.outbox.explaining import Surroundings, why_waits
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.nodes import HEARD_US
from tests.outbox.world import ONE, OTHER, accept, make_app, make_endpoint, run

NOW = 1_000_000_000


def row(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "state": "ready",
        "phase": "due",
        "due_at": NOW,
        "reason": None,
        "claimed_by": None,
        "claimed_at": None,
        "deadline_at": None,
        "cancel_requested_at": None,
        "order_key": None,
        "lane_state": "open",
        "lane_reason": None,
        "breaker_until": None,
        "concurrency": None,
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


@pytest.mark.parametrize(
    ("changes", "around", "code", "next_at"),
    [
        ({}, {}, "due", NOW),
        ({"phase": "later", "due_at": NOW + 5}, {}, "not_due", NOW + 5),
        ({"phase": "asleep", "due_at": None}, {}, "asleep", None),
        (
            {"phase": "asleep", "due_at": None, "order_key": "k"},
            {},
            "head_of_line",
            None,
        ),
        ({}, {"capable_beat_at": None}, "no_capable_node", None),
        ({}, {"capable_beat_at": NOW - HEARD_US}, "due", NOW),
        ({}, {"capable_beat_at": NOW - HEARD_US - 1}, "no_capable_node", None),
        ({"concurrency": 2}, {"running": 2}, "no_room", None),
        ({"concurrency": 2}, {"running": 1}, "due", NOW),
        ({"lane_state": "paused"}, {}, "paused", None),
        ({"lane_state": "blocked", "lane_reason": "x"}, {}, "blocked", None),
        ({"lane_state": "deleted"}, {}, "deleted", None),
        ({"breaker_until": NOW + 3}, {}, "breaker", NOW + 3),
        ({"breaker_until": NOW - 3}, {}, "due", NOW),
        ({}, {"sending": False}, "off", None),
        (CLAIMED, {}, "in_flight", NOW + 9),
        (CLAIMED, {"holder_beat_at": NOW - HEARD_US}, "in_flight", NOW + 9),
        (CLAIMED, {"holder_beat_at": NOW - HEARD_US - 1}, "holder_silent", None),
        ({"state": "succeeded", "phase": None}, {}, "succeeded", None),
        ({"state": "dead", "phase": None}, {}, "dead", None),
        ({"state": "cancelled", "phase": None}, {}, "cancelled", None),
        ({"state": "parked", "phase": None, "reason": "x"}, {}, "parked", None),
    ],
)
def test_each_standing_has_its_code_sentence_rule_and_next_instant(
    changes: dict[str, Any], around: dict[str, Any], code: str, next_at: int | None
) -> None:
    waits = why_waits(row(**changes), about(**around))
    assert (waits.code, waits.next_at) == (code, next_at)
    assert waits.why
    assert waits.rule


def test_what_runs_names_its_holder_and_a_requested_cancel() -> None:
    named = why_waits(row(**CLAIMED), about(holder="node-a"))
    assert "node-a" in named.why
    unknown = why_waits(row(**CLAIMED, cancel_requested_at=NOW), about())  # type: ignore[arg-type]
    assert "node 7" in unknown.why
    assert "cancel was requested" in unknown.why


def test_a_retry_says_after_what_it_waits() -> None:
    waits = why_waits(row(phase="later", due_at=NOW + 5, reason="status_500"), about())
    assert waits.why.endswith("after: status_500")


async def test_a_due_row_waits_for_a_node_that_serves_its_lane(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)

    async def code() -> str:
        found = await outbox.explain(ONE, accepted.message.id)
        return found.deliveries[0].code

    async def open_node(serves: str) -> None:
        await backend.write(
            lambda tx: nodes.open_node(
                tx,
                name="n",
                host="h",
                pid=1,
                version="0",
                serves=serves,
                lock_path=None,
            )
        )

    assert await code() == "no_capable_node"
    await open_node("job:other deliveryman")
    assert await code() == "no_capable_node"
    await open_node("delivery job:other")
    assert await code() == "due"
    await run(backend, "UPDATE node SET beat_at = beat_at - 20 * 1000000")
    assert await code() == "no_capable_node"
    found = await outbox.explain(ONE, accepted.message.id)
    assert "has been heard for 2" in found.deliveries[0].why
    await run(backend, "UPDATE node SET beat_at = beat_at + 20 * 1000000")
    await run(backend, "UPDATE lane SET concurrency = 0")
    assert await code() == "no_room"


async def test_a_work_row_is_explained_by_its_own_id(outbox: Outbox) -> None:
    app = await make_app(outbox)
    first = await make_endpoint(outbox, app)
    await make_endpoint(outbox, app, channels=["x"])
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    whole = await outbox.explain(ONE, accepted.message.id)
    assert len(whole.deliveries) == 2
    assert len(whole.unmatched) == 1
    one = next(each for each in whole.deliveries if each.endpoint == first.id)
    alone = await outbox.explain(ONE, one.work)
    assert alone.deliveries == (one,)
    assert alone.unmatched == ()
    with pytest.raises(NotFound):
        await outbox.explain(OTHER, one.work)


async def test_a_deployment_that_sends_nothing_says_so(
    backend: Backend, ring: KeyRing, outbox: Outbox
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    quiet = Outbox(backend, OutboxSettings(), ring, SystemClock(), sending=False)
    found = await quiet.explain(ONE, accepted.message.id)
    assert found.deliveries[0].why == "off by deployment policy"
