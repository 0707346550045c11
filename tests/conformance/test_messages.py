"""Conformance checks 45 to 52 and 63 of the Svix API: messages, and unknown routes."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from svix.api import (
    ApplicationIn,
    MessageCreateOptions,
    MessageIn,
    MessageListOptions,
)
from svix.api.message import MessageGetOptions, message_in_raw
from svix.exceptions import HttpError

from tenure.server import unoffered
from tests.server.running import Service


@pytest.fixture
def root(app: str) -> str:
    return f"/api/v1/app/{app}/msg"


async def send(client: httpx.AsyncClient, root: str, **members: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"eventType": "user.signup", "payload": {"a": 1}}
    answer = await client.post(root, json=body | members)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def test_045_a_message_is_accepted_found_and_listed(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    first = await service.svix.message.create(
        app,
        MessageIn(
            event_type="user.signup", payload={"b": 1, "a": 2}, channels=["news"]
        ),
        MessageCreateOptions(with_content=True),
    )
    assert first.payload == {"b": 1, "a": 2}
    await asyncio.sleep(0.002)
    second = await send(client, root)
    assert second["id"].startswith("msg_")
    found = await client.get(f"{root}/{second['id']}")
    assert found.json() == second
    listed = (await client.get(root)).json()["data"]
    assert [item["id"] for item in listed] == [second["id"], first.id]
    by_channel = await service.svix.message.list(
        app, MessageListOptions(channel="news")
    )
    assert [item.id for item in by_channel.data] == [first.id]


async def test_046_the_content_is_shown_when_asked_for(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    made = await service.svix.message.create(
        app, MessageIn(event_type="a", payload={"x": 1})
    )
    assert made.payload == {}
    for path in (root, f"{root}/{made.id}"):
        without = await client.get(path, params={"with_content": "false"})
        whole = await client.get(path)
        for answer, payload in ((without, {}), (whole, {"x": 1})):
            shown = answer.json()
            shown = shown["data"][0] if "data" in shown else shown
            assert shown["payload"] == payload
    found = await service.svix.message.get(
        app, made.id, MessageGetOptions(with_content=True)
    )
    assert found.payload == {"x": 1}


async def test_046_a_shown_payload_keeps_its_numbers_and_sorts_its_keys(
    client: httpx.AsyncClient, root: str
):
    raw = b'{"eventType":"a","payload":{ "b":18446744073709551615, "a":1e400 }}'
    made = await client.post(root, content=raw)
    assert made.status_code == 202
    assert b'"payload":{"a":1e400,"b":18446744073709551615}' in made.content


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"payload": "text"}, ["payload"]),
        ({"payload": [1]}, ["payload"]),
        ({"eventType": "a b"}, ["eventType"]),
        ({"eventType": ""}, ["eventType"]),
        ({"eventType": "x" * 257}, ["eventType"]),
        ({"eventId": "msg_x"}, ["eventId"]),
        ({"eventId": "$"}, ["eventId"]),
        ({"channels": ["a b"]}, ["channels"]),
        ({"channels": []}, ["channels"]),
        ({"channels": ["a", "b", "c", "d", "e", "f"]}, ["channels"]),
        ({"payloadRetentionPeriod": 4}, ["payloadRetentionPeriod"]),
        ({"payloadRetentionPeriod": 91}, ["payloadRetentionPeriod"]),
        ({"deliverAt": "tomorrow"}, ["deliverAt"]),
        ({"transformationsParams": {"headers": {"webhook-id": "1"}}}, ["headers"]),
    ],
)
async def test_047_a_bad_member_is_named_and_nothing_is_stored(
    client: httpx.AsyncClient, root: str, members: dict[str, Any], place: list[str]
):
    body: dict[str, Any] = {"eventType": "a", "payload": {}}
    answer = await client.post(root, json=body | members)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][1 : 1 + len(place)] == place
    assert (await client.get(root)).json()["data"] == []


async def test_048_an_event_id_is_used_once_and_names_its_message(
    client: httpx.AsyncClient, root: str
):
    made = await send(client, root, eventId="e-1")
    again = await client.post(
        root, json={"eventType": "a", "payload": {}, "eventId": "e-1"}
    )
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    found = await client.get(f"{root}/e-1")
    assert found.json() == made


async def test_049_a_payload_over_the_bound_is_refused(
    client: httpx.AsyncClient, root: str
):
    for size in (1_048_576, 8_000_000):
        body = {"eventType": "a", "payload": {"a": "x" * size}}
        answer = await client.post(root, json=body)
        assert answer.status_code == 413
        assert answer.json()["code"] == "payload_too_large"
    assert (await client.get(root)).json()["data"] == []


async def test_050_an_expunged_payload_is_gone(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    made = await send(client, root)
    await service.svix.message.expunge_content(app, made["id"])
    found = await client.get(f"{root}/{made['id']}")
    assert found.json()["payload"] == {"expired": True}


async def test_051_a_raw_payload_that_is_no_json_shows_as_expired(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    json_text = await service.svix.message.create(app, message_in_raw("a", '{"x" : 1}'))
    text = await service.svix.message.create(
        app, message_in_raw("a", "<x/>", content_type="text/xml")
    )
    assert (await client.get(f"{root}/{json_text.id}")).json()["payload"] == {"x": 1}
    assert (await client.get(f"{root}/{text.id}")).json()["payload"] == {
        "expired": True
    }


async def test_052_an_application_comes_with_its_first_message(
    service: Service, client: httpx.AsyncClient
):
    path = "/api/v1/app/fresh/msg"
    body: dict[str, Any] = {"eventType": "a", "payload": {}}
    assert (await client.post(path, json=body)).status_code == 404
    for block, kind in (
        ({"name": "F"}, "application_uid_missing"),
        ({"name": "F", "uid": "another"}, "application_uid_mismatch"),
    ):
        refused = await client.post(path, json=body | {"application": block})
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["loc"] == ["body", "application", "uid"]
        assert refused.json()["detail"][0]["type"] == kind
    for name in ("First", "Second"):
        await service.svix.message.create(
            "fresh",
            MessageIn(
                event_type="a",
                payload={},
                application=ApplicationIn(name=name, uid="fresh"),
            ),
        )
    assert (await client.get("/api/v1/app/fresh")).json()["name"] == "First"


async def test_the_same_key_makes_one_message_even_at_once(
    client: httpx.AsyncClient, root: str
):
    key = {"idempotency-key": "k-1"}
    body = {"eventType": "a", "payload": {}, "eventId": "e-1"}
    answers = await asyncio.gather(
        *(client.post(root, json=body, headers=key) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await client.post(root, json=body | {"payload": {"b": 2}}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert len((await client.get(root)).json()["data"]) == 1


async def test_a_message_that_matched_nothing_says_why(
    client: httpx.AsyncClient, root: str
):
    made = await send(client, root)
    explained = await client.get(f"{root}/{made['id']}/explain")
    assert explained.status_code == 200
    assert explained.json()["deliveries"] == []
    assert explained.json()["unmatched"][0]["reason"]


async def test_an_id_is_explained_without_its_application(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    made = await send(client, root)
    path = f"/api/v1/explain/{made['id']}"
    below = (await client.get(f"{root}/{made['id']}/explain")).json()
    assert (await client.get(path)).json() == below
    second = (await client.post("/api/v1/app", json={"name": "Second"})).json()["id"]
    for key, status in (
        (await service.make_key("read", app=app), 200),
        (await service.make_key("read", app=second), 404),
        (await service.make_key("admin", tenant="stranger"), 404),
        ("wrong", 401),
    ):
        async with service.connect(key) as caller:
            assert (await caller.get(path)).status_code == status
    for unknown in ("msg_unknown", "wrk_unknown", "%00"):
        assert (await client.get(f"/api/v1/explain/{unknown}")).status_code == 404


async def test_lists_are_narrowed_by_type_tag_and_time(
    client: httpx.AsyncClient, root: str
):
    made: list[dict[str, Any]] = []
    for name in ("a", "b", "c"):
        made.append(await send(client, root, eventType=name, tags=[f"t-{name}"]))
        await asyncio.sleep(0.003)
    middle = made[1]["timestamp"]
    wanted: dict[str, list[str]] = {
        "event_types=a,b": ["b", "a"],
        "event_types=a&event_types=c": ["c", "a"],
        "event_types[]=a": ["a"],
        "event_types[0]=c": ["c"],
        "tag=t-b": ["b"],
        f"after={middle}": ["c", "b"],
        f"before={middle}": ["a"],
        f"after={middle}&before={made[2]['timestamp']}": ["b"],
    }
    for query, names in wanted.items():
        answer = await client.get(f"{root}?{query}")
        assert answer.status_code == 200, (query, answer.text)
        assert [item["eventType"] for item in answer.json()["data"]] == names, query


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("event_types=", 422),
        ("event_types=a%20b", 422),
        ("with_content=yes", 400),
        ("with_content=true&with_content=false", 400),
        ("before=2026-01-01T00:00:00", 400),
        ("before=now", 400),
        ("channel=%00", 400),
        ("iterator=msg_nonsense", 422),
        ("iterator=", 422),
        ("unknown=1", 200),
        ("after=2026-01-01T00:00:00%2B02:00", 200),
        ("after=2026-01-01T00:00:00+02:00", 200),
        ("after=2026-01-01 00:00:00.5 UTC", 200),
        ("tag=%F0%9F%98%80", 422),
        ("tag=%FF", 422),
    ],
)
async def test_a_query_that_cannot_be_read_is_refused(
    client: httpx.AsyncClient, root: str, query: str, status: int
):
    answer = await client.get(f"{root}?{query}")
    assert answer.status_code == status, answer.text


async def test_063_an_unknown_route_raises_the_clients_own_error(
    service: Service, client: httpx.AsyncClient
):
    answer = await client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    with pytest.raises(HttpError) as caught:
        await service.svix.connector.list()
    assert (caught.value.status_code, caught.value.code) == (501, "not_offered")


async def test_063_every_route_that_is_not_offered_says_so(client: httpx.AsyncClient):
    count = 0
    for methods, path in unoffered.ROUTES:
        for method in methods.split():
            answer = await client.request(
                method, path.replace("{", "").replace("}", "")
            )
            assert answer.status_code == 501, (method, path)
            assert answer.json()["code"] == "not_offered"
            count += 1
    assert count > 100


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/v1/app", {"GET", "POST"}),
        ("POST", "/api/v1/app/a", {"DELETE", "GET", "PATCH", "PUT"}),
        ("PUT", "/api/v1/app/a/msg", {"GET", "POST"}),
        ("POST", "/api/v1/health/ping", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_names_the_right_ones(
    client: httpx.AsyncClient, method: str, path: str, allowed: set[str]
):
    answer = await client.request(method, path)
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"
    assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed


async def test_a_trailing_slash_is_the_same_route(client: httpx.AsyncClient, root: str):
    body = json.dumps({"eventType": "a", "payload": {}})
    assert (await client.post(f"{root}/", content=body)).status_code == 202
    assert (await client.get("/api/v1/app/")).status_code == 200


STRICT = {
    "1": {"type": "object", "required": ["old"]},
    "2": {
        "type": "object",
        "required": ["amount"],
        "properties": {"amount": {"type": "integer"}},
    },
}


@pytest.mark.parametrize("service_dialect", ["sqlite", "postgresql"])
async def test_a_payload_is_held_to_the_schema_when_its_event_type_enforces_it(
    client: httpx.AsyncClient, app: str
):
    one = "/api/v1/event-type/invoice.paid"
    path = f"/api/v1/app/{app}/msg"
    made = await client.post(
        "/api/v1/event-type",
        json={"name": "invoice.paid", "description": "", "schemas": STRICT},
    )
    assert made.json()["tenure"] == {"schemaCheck": "off"}

    async def send(payload: object, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"idempotency-key": key}
        body = {"eventType": "invoice.paid", "payload": payload}
        return await client.post(path, json=body, headers=headers)

    bad = {"amount": "4711-secret"}
    assert (await send(bad, "before")).status_code == 202
    for check, status in (("warn", 202), ("enforce", 422)):
        patched = await client.patch(one, json={"tenure": {"schemaCheck": check}})
        assert patched.status_code == 200, patched.text
        assert (await send(bad)).status_code == status
        assert (await send({"amount": 1})).status_code == 202
    refused = await send(bad)
    (fault,) = refused.json()["detail"]
    assert fault["loc"] == ["body", "payload", "amount"]
    assert fault["type"] == "value_error.schema"
    assert "4711" not in refused.text
    raw = {
        "eventType": "invoice.paid",
        "payload": {},
        "transformationsParams": {"rawPayload": "<amount/>"},
    }
    assert (await client.post(path, json=raw)).status_code == 422
    large = {"amount": 1, "more": ["x" * 100] * 1000}
    assert (await send(large)).status_code == 202
    assert (await send({**large, "amount": None})).status_code == 422
    # An answer that was given stays, and a refusal burns no key.
    assert (await send(bad, "before")).status_code == 202
    assert (await send(bad, "after")).status_code == 422
    assert (await send({"amount": 2}, "after")).status_code == 202
    # A client that does not know the setting leaves it as it is.
    put = await client.put(one, json={"description": "", "schemas": STRICT})
    assert put.json()["tenure"] == {"schemaCheck": "enforce"}
    wrong = await client.patch(one, json={"tenure": {"schemaCheck": "maybe"}})
    assert wrong.status_code == 422
    assert (await client.delete(one)).status_code == 204
    assert (await send(bad)).status_code == 202


@pytest.mark.parametrize("service_dialect", ["sqlite", "postgresql"])
async def test_052_a_refused_message_leaves_no_application_behind(
    client: httpx.AsyncClient, app: str
):
    once = {"idempotency-key": "k"}
    body: dict[str, object] = {"eventType": "et", "payload": {}}
    path = f"/api/v1/app/{app}/msg"
    assert (await client.post(path, json=body, headers=once)).status_code == 202
    body |= {"application": {"name": "A", "uid": "fresh"}}
    refused = await client.post("/api/v1/app/fresh/msg", json=body, headers=once)
    assert refused.status_code == 409
    assert (await client.get("/api/v1/app/fresh")).status_code == 404
    made = await client.post("/api/v1/app/fresh/msg", json=body)
    assert made.status_code == 202
