"""Conformance checks 30, 35, 53 to 59 and 62 of the Svix API: what came of a message."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import httpx
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook as StandardWebhook
from svix.api import MessageIn
from svix.api.message import message_in_raw
from svix.webhooks import Webhook

from tests.server.running import BOTH, Service, Sink, until

pytestmark = BOTH

Json = dict[str, Any]

ED25519_SECRET = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9"
    "lMicMFs6Kvg=="
)


async def add_endpoint(
    client: httpx.AsyncClient, app: str, sink: Sink, **members: Any
) -> Json:
    body = {"url": f"{sink.url}/hook", "tenure": {"retrySeconds": [0, 0.01]}} | members
    answer = await client.post(f"/api/v1/app/{app}/endpoint", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def send(client: httpx.AsyncClient, app: str, **members: Any) -> Json:
    body: Json = {"eventType": "et1", "payload": {"a": 1}} | members
    answer = await client.post(f"/api/v1/app/{app}/msg", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def attempts(client: httpx.AsyncClient, path: str, count: int) -> list[Json]:
    """Return the attempts of a list once there are `count`, newest first."""

    async def ask() -> list[Json]:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    return await until(ask, lambda found: len(found) >= count)


async def test_053_a_message_goes_where_its_type_and_channels_match(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    for name in ("et1", "et2"):
        await client.post("/api/v1/event-type", json={"name": name, "description": ""})
    filters: list[Json] = [
        {"eventTypes": ["et1"]},
        {"eventTypes": ["et1", "et2"]},
        {},
        {"channels": ["news"]},
    ]
    for number, members in enumerate(filters):
        await add_endpoint(client, app, sink, url=f"{sink.url}/{number}", **members)

    async def reached(**members: Any) -> set[str]:
        sink.received.clear()
        made = await send(client, app, **members)
        path = f"/api/v1/app/{app}/msg/{made['id']}/explain"
        explained = (await client.get(path)).json()
        await sink.wait(len(explained["deliveries"]))
        return {request.path for request in sink.received}

    assert await reached(eventType="et1") == {"/0", "/1", "/2"}
    assert await reached(eventType="et2") == {"/1", "/2"}
    assert await reached(eventType="et3", channels=["news"]) == {"/2", "/3"}


async def test_054_a_failing_receiver_is_tried_until_the_schedule_ends(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = await add_endpoint(
        client, app, sink, tenure={"retrySeconds": [0, 0.01, 0.01]}
    )
    sink.statuses = [500, 500, 500]
    made = await send(client, app)
    path = f"/api/v1/app/{app}/attempt/msg/{made['id']}"
    found = await attempts(client, path, 3)
    assert [item["responseStatusCode"] for item in found] == [500, 500, 500]
    assert [item["number"] for item in found] == [3, 2, 1]
    assert {(item["status"], item["statusText"]) for item in found} == {(2, "fail")}
    assert {request.body for request in sink.received} == {b'{"a":1}'}
    dead = await client.get(
        f"/api/v1/app/{app}/endpoint/{endpoint['id']}/msg", params={"status": 2}
    )
    assert [item["id"] for item in dead.json()["data"]] == [made["id"]]


async def test_054_a_failure_then_a_success_send_the_same_bytes_twice(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(client, app, sink)
    sink.statuses = [500, 200]
    made = await send(client, app)
    path = f"/api/v1/app/{app}/attempt/msg/{made['id']}"
    later, earlier = await attempts(client, path, 2)
    assert (earlier["responseStatusCode"], earlier["status"]) == (500, 2)
    assert (later["responseStatusCode"], later["status"]) == (200, 0)
    first, second = sink.received
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize("status", [308, 403])
async def test_054_a_refusal_is_recorded_and_final_and_no_redirect_is_followed(
    client: httpx.AsyncClient, app: str, sink: Sink, status: int
):
    endpoint = await add_endpoint(client, app, sink)
    sink.statuses = [status]
    made = await send(client, app)
    dead = f"/api/v1/app/{app}/endpoint/{endpoint['id']}/msg?status=2"
    assert [item["id"] for item in await attempts(client, dead, 1)] == [made["id"]]
    path = f"/api/v1/app/{app}/attempt/msg/{made['id']}"
    (found,) = await attempts(client, path, 1)
    assert (found["responseStatusCode"], found["status"]) == (status, 2)
    assert len(sink.received) == 1


async def test_030_a_delivery_verifies_with_every_secret_that_still_lives(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = await add_endpoint(client, app, sink)
    path = f"/api/v1/app/{app}/endpoint/{endpoint['id']}/secret"
    keys = [(await client.get(path)).json()["key"]]
    for key in (None, ED25519_SECRET):
        rotated = await client.post(f"{path}/rotate", json={"key": key})
        keys.append(rotated.json()["key"])
    await send(client, app)
    (got,) = await sink.wait(1)
    for key in keys[:2]:
        Webhook(key).verify(got.body, got.headers)
    signatures = got.headers["webhook-signature"].split(" ")
    assert [each.partition(",")[0] for each in signatures] == ["v1a", "v1", "v1"]


async def test_062_an_ed25519_signature_verifies_with_the_public_key(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = await add_endpoint(client, app, sink, secret=ED25519_SECRET)
    path = f"/api/v1/app/{app}/endpoint/{endpoint['id']}/secret"
    public = (await client.get(path)).json()["key"].removeprefix("whpk_")
    await send(client, app)
    (got,) = await sink.wait(1)
    version, _, signature = got.headers["webhook-signature"].partition(",")
    assert version == "v1a"
    signed = "{webhook-id}.{webhook-timestamp}.".format_map(got.headers).encode()
    verifier = Ed25519PublicKey.from_public_bytes(b64decode(public))
    verifier.verify(b64decode(signature), signed + got.body)
    with pytest.raises(InvalidSignature):
        verifier.verify(b64decode(signature), signed + got.body + b" ")


async def test_054_a_port_where_nobody_listens_is_status_zero_with_the_cause(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(
        client, app, sink, url="http://127.0.0.1:9/", tenure={"retrySeconds": [0]}
    )
    made = await send(client, app)
    (found,) = await attempts(client, f"/api/v1/app/{app}/attempt/msg/{made['id']}", 1)
    assert (found["responseStatusCode"], found["cause"]) == (0, "refused")


async def test_055_attempts_are_listed_by_endpoint_message_and_filter(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = (await add_endpoint(client, app, sink, uid="ep-uid"))["id"]
    made: list[Json] = []
    for number, name in enumerate(("et1", "et2", "et3")):
        made.append(await send(client, app, eventType=name, channels=[f"c{number}"]))
        await sink.wait(number + 1)
        path = f"/api/v1/app/{app}/attempt/msg/{made[-1]['id']}"
        assert await attempts(client, path, 1)
    by_endpoint = f"/api/v1/app/{app}/attempt/endpoint/{endpoint}"
    whole = await attempts(client, by_endpoint, 3)
    assert [item["msgId"] for item in whole] == [item["id"] for item in reversed(made)]
    ids = [item["id"] for item in made]
    queries: dict[str, list[str]] = {
        "event_types=et1,et2": [ids[1], ids[0]],
        "event_types[]=et1": [ids[0]],
        "channel=c2": [ids[2]],
        "status=0": [ids[2], ids[1], ids[0]],
        "status=2": [],
        "status_code_class=200": [ids[2], ids[1], ids[0]],
        "status_code_class=500": [],
        "limit=2": [ids[2], ids[1]],
        f"iterator={whole[1]['id']}": [ids[0]],
        f"iterator=-{whole[1]['id']}": [ids[2]],
    }
    for query, wanted in queries.items():
        answer = await client.get(f"{by_endpoint}?{query}")
        assert answer.status_code == 200, (query, answer.text)
        assert [item["msgId"] for item in answer.json()["data"]] == wanted, query
    for query in ("status=4", "status=x", "status_code_class=201"):
        assert (await client.get(f"{by_endpoint}?{query}")).status_code == 400
    svix = service.svix.message_attempt
    listed = await svix.list_by_endpoint(app, "ep-uid")
    assert [item.msg_id for item in listed.data] == list(reversed(ids))
    by_message = f"/api/v1/app/{app}/attempt/msg/{ids[0]}"
    one = await client.get(by_message, params={"endpoint_id": "ep-uid"})
    assert len(one.json()["data"]) == 1
    unknown = await client.get(by_message, params={"endpoint_id": "unknown"})
    assert unknown.status_code == 404


async def test_056_an_endpoints_messages_say_how_they_stand(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(
        client, app, sink, uid="ep-uid", tenure={"retrySeconds": [0, 3600]}
    )
    delivered = await send(client, app)
    await sink.wait(1)
    sink.statuses = [500]
    retried = await send(client, app)
    await attempts(client, f"/api/v1/app/{app}/attempt/msg/{retried['id']}", 1)
    path = f"/api/v1/app/{app}/endpoint/ep-uid/msg"

    async def listed(status: int) -> list[Json]:
        answer = await client.get(path, params={"status": status})
        assert answer.status_code == 200
        return answer.json()["data"]

    (success,) = await until(lambda: listed(0), lambda found: len(found) == 1)
    (sending,) = await listed(3)
    assert success["id"] == delivered["id"]
    assert (sending["id"], sending["statusText"]) == (retried["id"], "sending")
    assert sending["nextAttempt"] > sending["timestamp"]
    assert await listed(2) == []
    whole = await service.svix.message_attempt.list_attempted_messages(app, "ep-uid")
    assert [item.id for item in whole.data] == [retried["id"], delivered["id"]]


async def test_057_a_messages_endpoints_are_listed_even_when_deleted(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    ids = sorted([(await add_endpoint(client, app, sink))["id"] for _ in range(3)])
    made = await send(client, app)
    await sink.wait(3)
    path = f"/api/v1/app/{app}/msg/{made['id']}/endpoint"

    async def statuses() -> list[int]:
        found = (await client.get(path)).json()["data"]
        return [item["status"] for item in found]

    await until(statuses, lambda found: found == [0, 0, 0])
    await client.delete(f"/api/v1/app/{app}/endpoint/{ids[0]}")
    listed = await service.svix.message_attempt.list_attempted_destinations(
        app, made["id"]
    )
    assert [item.id for item in listed.data] == ids
    first = (await client.get(path, params={"limit": 2})).json()
    assert [item["id"] for item in first["data"]] == ids[:2]
    rest = await client.get(path, params={"limit": 2, "iterator": first["iterator"]})
    assert [item["id"] for item in rest.json()["data"]] == ids[2:]
    back = await client.get(path, params={"iterator": f"-{ids[1]}"})
    assert [item["id"] for item in back.json()["data"]] == ids[:1]


async def test_058_a_response_is_kept_until_it_is_expunged(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(client, app, sink)
    made = await send(client, app)
    path = f"/api/v1/app/{app}/attempt/msg/{made['id']}"
    (found,) = await attempts(client, path, 1)
    assert found["response"] == "said the sink"
    hidden = await client.get(path, params={"with_content": "false"})
    assert hidden.json()["data"][0]["response"] == "{}"
    svix = service.svix.message_attempt
    await svix.expunge_content(app, made["id"], found["id"])
    again = await svix.get(app, made["id"], found["id"])
    assert again.response == "EXPUNGED"


async def test_059_a_resend_is_one_more_attempt_by_hand(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = await add_endpoint(client, app, sink, uid="ep-uid")
    made = await send(client, app)
    path = f"/api/v1/app/{app}/attempt/msg/{made['id']}"
    await attempts(client, path, 1)
    await service.svix.message_attempt.resend(app, made["id"], "ep-uid")
    found = await attempts(client, path, 2)
    assert [item["triggerType"] for item in found] == [1, 0]
    assert [item["number"] for item in found] == [2, 1]
    answer = await client.post(
        f"/api/v1/app/{app}/msg/{made['id']}/endpoint/{endpoint['id']}/resend"
    )
    assert (answer.status_code, answer.json()) == (202, {})


async def test_050_a_message_without_payload_cannot_be_sent_again(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = (await add_endpoint(client, app, sink))["id"]
    made = await send(client, app)
    await sink.wait(1)
    message = f"/api/v1/app/{app}/msg/{made['id']}"
    assert (await client.delete(f"{message}/content")).status_code == 204
    answer = await client.post(f"{message}/endpoint/{endpoint}/resend")
    assert (answer.status_code, answer.json()["code"]) == (400, "missing_payload")


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":"\N{GRINNING FACE}\u2028"}',
        '{ "b" : 18446744073709551615, "a":1e400, "a":2 }',
    ],
)
async def test_062_the_published_verifiers_accept_what_the_receiver_got(
    client: httpx.AsyncClient, app: str, sink: Sink, payload: str
):
    endpoint = (await add_endpoint(client, app, sink, tenure={"svixHeaders": True}))[
        "id"
    ]
    secret = (await client.get(f"/api/v1/app/{app}/endpoint/{endpoint}/secret")).json()
    raw = b'{"eventType":"et1","payload":' + payload.encode() + b"}"
    made = await client.post(f"/api/v1/app/{app}/msg", content=raw)
    assert made.status_code == 202
    (got,) = await sink.wait(1)
    assert got.body == payload.encode()
    assert got.headers["webhook-id"] == made.json()["id"]
    Webhook(secret["key"]).verify(got.body, got.headers)
    StandardWebhook(secret["key"]).verify(got.body, got.headers)


async def test_051_the_receiver_gets_the_raw_text_with_its_type(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(client, app, sink)
    await service.svix.message.create(
        app, message_in_raw("et1", "<a> \N{GRINNING FACE} </a>", "text/xml")
    )
    (got,) = await sink.wait(1)
    assert got.body == "<a> \N{GRINNING FACE} </a>".encode()
    assert got.headers["content-type"] == "text/xml"


async def test_035_the_receiver_gets_the_endpoints_own_headers(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(client, app, sink, headers={"Authorization": "Basic eDp5"})
    await send(client, app)
    (got,) = await sink.wait(1)
    assert got.headers["authorization"] == "Basic eDp5"


async def test_037_statistics_count_what_came_back(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = (await add_endpoint(client, app, sink, tenure={"retrySeconds": [0]}))[
        "id"
    ]
    sink.statuses = [500]
    for _ in range(2):
        made = await send(client, app)
        await attempts(client, f"/api/v1/app/{app}/attempt/msg/{made['id']}", 1)
    stats = await service.svix.endpoint.get_stats(app, endpoint)
    assert (stats.success, stats.fail) == (1, 1)


async def test_explain_says_why_a_message_waits(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    endpoint = await add_endpoint(client, app, sink, tenure={"retrySeconds": [0, 3600]})
    sink.statuses = [500]
    made = await send(client, app)
    await attempts(client, f"/api/v1/app/{app}/attempt/msg/{made['id']}", 1)
    answer = await client.get(f"/api/v1/app/{app}/msg/{made['id']}/explain")
    (delivery,) = answer.json()["deliveries"]
    assert delivery["endpointId"] == endpoint["id"]
    assert delivery["nextAt"] is not None
    assert delivery["why"]
    assert delivery["rule"]
    assert [item["statusCode"] for item in delivery["attempts"]] == [500]


async def test_many_clients_at_once_are_all_accepted_and_delivered(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    await add_endpoint(client, app, sink)
    made = await asyncio.gather(
        *(
            service.svix.message.create(
                app, MessageIn(event_type="et1", payload={"n": n})
            )
            for n in range(40)
        )
    )
    got = await sink.wait(40)
    assert {request.headers["webhook-id"] for request in got} == {m.id for m in made}
    assert sorted(json.loads(request.body)["n"] for request in got) == list(range(40))
