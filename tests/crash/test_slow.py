"""Receivers that take long: an answer that is slow is not an answer that is lost.

Real processes with every kernel duration divided by ten: a receiver that takes 45 s of
an endpoint's 60 s is held longer than a silent node may live.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.fleet import fleet
from tests.crash.restarts import attempts_of, wait_settled
from tests.crash.sink import Sink

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

FACTOR = 10


@pytest.mark.parametrize("seconds", [pytest.param(7, marks=pytest.mark.long), 45])
async def test_case_04_three_nodes_send_one_request_to_a_slow_receiver(
    postgres_url: str, tmp_path: Path, seconds: int
) -> None:
    settings = {"TENURE_TEST_TIME_FACTOR": str(FACTOR)}
    async with (
        Sink(delay=seconds / FACTOR) as sink,
        fleet(postgres_url, tmp_path, nodes=3, settings=settings) as running,
    ):
        app: str = (await running.api("POST", "/app", json={"name": "slow"}))["id"]
        slow = {"url": f"{sink.url}/slow", "tenure": {"timeoutSeconds": 60}}
        await running.api("POST", f"/app/{app}/endpoint", json=slow)
        await running.submit_all(app, ["only"])
        await wait_settled(postgres_url, 1)
        assert sink.total == 1
        assert await attempts_of(postgres_url, "outcome = 'succeeded'") == 1
        assert await attempts_of(postgres_url) == 1
