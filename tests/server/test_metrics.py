"""Metrics and health: what monitoring sees of a real server."""

from __future__ import annotations

import base64
import re
from math import isnan
from typing import Any

import httpx
import pytest

from tenure.errors import DatabaseUnavailable
from tenure.server import metrics, serving
from tenure.server.metrics import monitoring
from tests.outbox.world import run
from tests.server.running import BOTH, Service, Sink, until

LINE = re.compile(r"^(tenure_[a-z_]+)(?:\{(.*)\})? (\S+)$")


def read(text: str) -> dict[str, float]:
    """Return each sample by its name and labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            labels = f"{{{match[2]}}}" if match[2] else ""
            found[match[1] + labels] = float(match[3])
    return found


async def scraped(client: httpx.AsyncClient) -> dict[str, float]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return read(answer.text)


async def send_one(client: httpx.AsyncClient, app: str, sink: Sink) -> None:
    root = f"/api/v1/app/{app}"
    await client.post(f"{root}/endpoint", json={"url": sink.url})
    body = {"eventType": "a", "payload": {}}
    assert (await client.post(f"{root}/msg", json=body)).status_code == 202
    await sink.wait(1)


@BOTH
async def test_a_delivery_is_counted_and_timed(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    await send_one(client, app, sink)
    key = 'tenure_attempts_total{cause="2xx",kind="delivery",outcome="succeeded"}'
    seen = await until(lambda: scraped(client), lambda found: found.get(key) == 1)
    assert seen['tenure_delivery_seconds_count{attempt="first"}'] == 1
    assert seen['tenure_accept_seconds_count{status="202"}'] == 1
    assert seen["tenure_commit_seconds_count"] >= 2
    assert seen["tenure_claim_seconds_count"] >= 1
    assert seen['tenure_nodes{state="open"}'] == 1
    assert seen['tenure_events_total{event="node opened"}'] == 1
    assert seen["tenure_database_up"] == 1
    assert seen["tenure_ready"] == 1
    assert seen["tenure_fenced"] == 0
    assert seen["tenure_slots"] == service.engine.settings.slots


@BOTH
async def test_what_waits_is_seen_with_its_age_and_its_lane(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    root = f"/api/v1/app/{app}"
    made = await client.post(f"{root}/endpoint", json={"url": sink.url})
    assert made.status_code == 201
    backend = service.engine.backend
    await run(backend, "UPDATE lane SET state = 'paused'")
    for _ in range(3):
        await client.post(f"{root}/msg", json={"eventType": "a", "payload": {}})
    await run(backend, "UPDATE work SET due_at = due_at - 60000000")
    seen = await scraped(client)
    assert seen['tenure_due_rows{kind="delivery",lane="paused"}'] == 3
    assert seen['tenure_due_oldest_seconds{kind="delivery",lane="paused"}'] >= 60


async def test_scrapers_that_come_together_ask_the_database_once(
    service: Service, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    looks = 0
    read_once = service.engine.backend.read

    async def counted(fn: Any) -> Any:
        nonlocal looks
        looks += "gauges" in repr(fn)
        return await read_once(fn)

    monkeypatch.setattr(type(service.engine.backend), "read", lambda _, fn: counted(fn))
    for _ in range(5):
        await scraped(client)
    assert looks == 1


async def test_scrapers_of_a_database_that_is_away_do_not_each_wait_for_it(
    service: Service, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    assert (await client.get("/api/v1/app")).status_code == 200  # the key is known
    await service.engine.backend.aclose()
    looks = 0

    async def away(_: Any, fn: Any) -> Any:
        nonlocal looks
        looks += "gauges" in repr(fn)
        raise DatabaseUnavailable("forced")

    monkeypatch.setattr(type(service.engine.backend), "read", away)
    for _ in range(5):
        assert (await scraped(client))["tenure_database_up"] == 0
    assert looks == 1


async def test_metrics_take_a_key_of_the_tenant_as_bearer_or_password(
    service: Service, client: httpx.AsyncClient, app: str
):
    given = base64.b64encode(f"any:{service.key}".encode()).decode()
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        refused = await nobody.get("/metrics")
        assert refused.status_code == 401
        assert "Basic" in refused.headers["www-authenticate"]
        basic = {"authorization": f"Basic {given}"}
        assert (await nobody.get("/metrics", headers=basic)).status_code == 200
    narrow = await service.make_key("read", app=app)
    async with service.connect(narrow) as application:
        assert (await application.get("/metrics")).status_code == 403
    wide = await service.make_key("read")
    async with service.connect(wide) as reader:
        assert (await reader.get("/metrics")).status_code == 200


async def test_a_listener_of_its_own_takes_no_key(service: Service):
    running = await serving.start(monitoring(service.engine))
    try:
        async with httpx.AsyncClient(base_url=running.url) as client:
            assert "tenure_ready" in "".join(await scraped(client))
            assert (await client.get("/health/ready")).status_code == 200
            assert (await client.get("/health/live")).status_code == 200
            assert (await client.get("/api/v1/app")).status_code == 404
    finally:
        await running.stop()


async def test_a_well_node_is_alive_and_ready_without_a_key(service: Service):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        live = await nobody.get("/health/live")
        assert (live.status_code, live.json()["alive"]) == (200, True)
        ready = await nobody.get("/health/ready")
        assert ready.status_code == 200
        assert ready.json()["because"] == []
        assert ready.json()["node"]["id"] == service.engine.node


async def test_a_loop_that_died_is_red_and_says_so(service: Service):
    failed = ValueError("forced")
    service.engine._task_failed("engine.housekeeping", failed)
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        live = await nobody.get("/health/live")
        assert live.status_code == 503
        assert live.json()["because"] == ["engine.housekeeping has ended by an error"]
        assert (await nobody.get("/health/ready")).status_code == 503


async def test_a_database_that_does_not_answer_is_red_and_says_so(
    service: Service, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metrics, "METRICS_CACHE_SECONDS", 0.0)
    before = await scraped(client)
    assert before["tenure_database_up"] == 1
    await service.engine.backend.aclose()
    after = await scraped(client)
    assert after["tenure_database_up"] == 0
    # What was seen of the database is not shown as if it were still so.
    assert not [name for name in after if name.startswith("tenure_nodes")]
    for name in ("claimed_rows", "due_lanes", "overdue_seconds"):
        assert isnan(after[f"tenure_{name}"]), name
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        ready = await nobody.get("/health/ready")
        assert ready.status_code == 503
        assert "the database cannot be reached" in ready.json()["because"]
        assert ready.headers["retry-after"] == "1"
        live = await nobody.get("/health/live")
        assert live.status_code == 200
