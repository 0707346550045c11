"""Every answer, problem and line says which request it belongs to."""

from __future__ import annotations

import httpx
import pytest

from tenure.server.requests import HEADER, request_id
from tenure.telemetry.logs import REQUEST_ID
from tests.server.running import Service


def test_a_short_printable_id_is_kept_and_any_other_replaced():
    assert request_id({HEADER: b"abc-1"}) == "abc-1"
    for bad in (b"", b"a\nb", b"\xff", b"x" * 129):
        assert request_id({HEADER: bad}).startswith("req_")
    assert request_id({}) != request_id({})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/app/nothing"),
        ("POST", "/api/v1/app/nothing/msg"),
        ("GET", "/x"),
    ],
)
async def test_a_problem_carries_the_id_in_its_body_and_its_header(
    client: httpx.AsyncClient, method: str, path: str
):
    body = {"eventType": "a", "payload": {}} if method == "POST" else None
    headers = {"x-request-id": "mine-7"}
    answer = await client.request(method, path, json=body, headers=headers)
    assert answer.status_code == 404
    assert answer.headers["x-request-id"] == "mine-7"
    assert answer.json()["requestId"] == "mine-7"


async def test_an_id_is_made_for_whoever_gives_none(client: httpx.AsyncClient):
    first = await client.get("/api/v1/app/nothing")
    second = await client.get("/api/v1/app/nothing")
    assert first.json()["requestId"] == first.headers["x-request-id"]
    assert first.json()["requestId"] != second.json()["requestId"]


async def test_after_a_request_no_id_is_left_behind(
    service: Service, client: httpx.AsyncClient
):
    await client.get("/api/v1/app/nothing")
    assert REQUEST_ID.get() is None
