"""Nobody reaches another tenant's data: every route of the document, tried."""

from typing import Any

import httpx
import pytest

from tests.inbox.world import hook, make_source, send
from tests.server.running import Service, Sink, until

BODIES: dict[str, Any] = {
    "ApplicationIn": {"name": "Taken over"},
    "ApplicationPatch": {"name": "Taken over"},
    "EndpointIn": {"url": "http://example.com"},
    "EndpointUpdate": {"url": "http://example.com"},
    "EndpointPatch": {"url": "http://example.com"},
    "EndpointHeadersIn": {"headers": {"x-a": "b"}},
    "EndpointHeadersPatchIn": {"headers": {"x-a": "b"}},
    "EndpointSecretRotateIn": {},
    "EventTypeIn": {"name": "strange", "description": ""},
    "EventTypeUpdate": {"description": "Taken over"},
    "EventTypePatch": {"description": "Taken over"},
    "MessageIn": {"eventType": "a", "payload": {}},
    "KeyIn": {"name": "Taken over"},
    "SourceIn": {"name": "Taken over", "verification": {"preset": "none"}},
    "SourcePatch": {"name": "Taken over"},
    "RotateIn": {"secret": "Taken over"},
    "TriggerIn": {"event": "push"},
    "ReplayIn": {},
    "CursorIn": {"cursor": "1."},
    "JobIn": {"name": "strange", "calls": "send"},
    "JobPatch": {"args": {"application": "Taken over"}},
    "PauseIn": {"note": "Taken over"},
    "TriggerJobIn": {},
    "SubmitIn": {"args": {"application": "a", "event_type": "a", "payload": {}}},
    "BackfillIn": {"since": "2027-01-01T00:00:00Z", "until": "2027-01-02T00:00:00Z"},
    "ReplayRunIn": {"force": True},
}
STREAMS = {"/api/v1/receipt/listen"}
"""What answers for as long as somebody listens: it has tests of its own."""
OPEN = {"/api/v1/health", "/api/v1/health/ping", "/api/v1/auth/logout"}


@pytest.fixture
async def ids(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
) -> dict[str, str]:
    """One of everything, of the tenant `default`."""
    root = f"/api/v1/app/{app}"
    body = {"url": sink.url, "uid": "ep-uid"}
    endpoint = (await client.post(f"{root}/endpoint", json=body)).json()["id"]
    await client.post("/api/v1/event-type", json={"name": "et1", "description": "ours"})
    body = {"eventType": "et1", "payload": {"secret": "ours"}}
    message = (await client.post(f"{root}/msg", json=body)).json()["id"]

    async def attempts() -> list[Any]:
        return (await client.get(f"{root}/attempt/msg/{message}")).json()["data"]

    (attempt,) = await until(attempts, bool)
    keys = (await client.post("/api/v1/key", json={"name": "k"})).json()
    gone = (await client.post("/api/v1/app", json={"name": "gone"})).json()["id"]
    await client.delete(f"/api/v1/app/{gone}")
    (task,) = (await client.get("/api/v1/background-task")).json()["data"]
    source = await make_source(service.engine.inbox, app=app)
    received = await send(service.engine.inbox, source.path, hook("ours"))
    now = (await client.get("/api/v1/receipt/next")).json()
    await client.put("/api/v1/listener/mine", json=now)
    given = {"application": app, "event_type": "et1", "payload": {"of": "ours"}}
    made = {"name": "ours", "calls": "builtin:send", "args": given}
    job = (await client.post("/api/v1/job", json=made)).json()["id"]
    run = (await client.post(f"/api/v1/job/{job}/run", json={"args": given})).json()
    return {
        "job": job,
        "run_id": run["id"],
        "package": "builtin",
        "source_id": source.id,
        "receipt_id": str(received.receipt),
        "number": "0",
        "name": "mine",
        "app_id": app,
        "endpoint_id": endpoint,
        "msg_id": message,
        "attempt_id": attempt["id"],
        "event_type_name": "et1",
        "key_id": keys["id"],
        "ref": message,
        "task_id": task["id"],
    }


async def operations(client: httpx.AsyncClient) -> list[tuple[str, str, Any]]:
    """Return (method, path, body) of every operation in the document."""
    document = (await client.get("/openapi.json")).json()
    found: list[tuple[str, str, Any]] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = None
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]
                body = BODIES[schema["schema"]["$ref"].rpartition("/")[2]]
            found.append((method.upper(), path, body))
    assert len(found) > 40
    return found


async def snapshot(client: httpx.AsyncClient, ids: dict[str, str]) -> list[Any]:
    """Return what another tenant must not be able to change."""
    root = f"/api/v1/app/{ids['app_id']}"
    paths = [
        "/api/v1/app",
        "/api/v1/event-type?with_content=true&include_archived=true",
        f"{root}/endpoint",
        f"{root}/endpoint/{ids['endpoint_id']}/secret",
        f"{root}/endpoint/{ids['endpoint_id']}/headers",
        f"/api/v1/source/{ids['source_id']}",
        f"/api/v1/receipt/{ids['receipt_id']}",
        "/api/v1/listener/mine",
        f"/api/v1/job/{ids['job']}",
        f"/api/v1/run/{ids['run_id']}",
        "/api/v1/package",
        f"{root}/msg",
        f"{root}/attempt/endpoint/{ids['endpoint_id']}",
    ]
    return [(await client.get(path)).json() for path in paths]


async def test_another_tenants_key_finds_nothing_and_changes_nothing(
    client: httpx.AsyncClient,
    other: httpx.AsyncClient,
    ids: dict[str, str],
    sink: Sink,
):
    before = await snapshot(client, ids)
    # Upserts last: they make what the others would then find, in their own tenant.
    ordered = sorted(await operations(client), key=lambda each: each[0] == "PUT")
    for method, path, body in ordered:
        if path in STREAMS:
            continue
        target = path.format(**ids)
        answer = await other.request(method, target, json=body)
        assert "ours" not in answer.text, (method, path)
        assert sink.url not in answer.text, (method, path)
        if "{" not in path or method == "PUT" or path in OPEN:
            # Own lists, creations and upserts act within the caller's own tenant.
            assert answer.status_code < 500
            continue
        assert answer.status_code == 404, (method, path, answer.text)
        assert answer.json()["code"] == "not_found"
    assert await snapshot(client, ids) == before


async def test_without_a_key_every_route_is_401(
    service: Service, client: httpx.AsyncClient, ids: dict[str, str]
):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        for method, path, body in await operations(client):
            answer = await nobody.request(method, path.format(**ids), json=body)
            if path in OPEN:
                assert answer.status_code in {200, 204}
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.json()["detail"] == "Invalid token"


async def test_another_applications_key_finds_nothing(
    service: Service, client: httpx.AsyncClient, ids: dict[str, str]
):
    second = (await client.post("/api/v1/app", json={"name": "B"})).json()["id"]
    before = await snapshot(client, ids)
    async with service.connect(await service.make_key("write", app=second)) as inside:
        for method, path, body in await operations(client):
            if path in OPEN:
                continue
            answer = await inside.request(method, path.format(**ids), json=body)
            allowed = {404} if "{app_id}/" in path else {200, 403, 404}
            assert answer.status_code in allowed, (method, path, answer.text)
    assert await snapshot(client, ids) == before


async def test_a_revoked_key_is_refused_at_once_here(
    service: Service, client: httpx.AsyncClient
):
    made = (await client.post("/api/v1/key", json={"name": "k"})).json()
    async with service.connect(made["token"]) as short:
        assert (await short.get("/api/v1/app")).status_code == 200
        revoked = await client.delete(f"/api/v1/key/{made['id']}")
        assert revoked.status_code == 204
        assert (await short.get("/api/v1/app")).status_code == 401


async def test_a_keys_token_is_shown_once(client: httpx.AsyncClient):
    made = await client.post("/api/v1/key", json={"name": "k", "scope": "read"})
    assert made.status_code == 201
    token = made.json()["token"]
    listed = await client.get("/api/v1/key")
    assert token not in listed.text
    assert [item["name"] for item in listed.json()["data"]] == ["k"]


async def test_only_an_admin_of_the_tenant_reaches_keys_and_opens_networks(
    service: Service, client: httpx.AsyncClient, app: str
):
    body = {"url": "http://example.com", "tenure": {"allowNetworks": ["10.0.0.0/8"]}}
    path = f"/api/v1/app/{app}/endpoint"
    async with service.connect(await service.make_key("write")) as writer:
        assert (await writer.get("/api/v1/key")).status_code == 403
        assert (await writer.post("/api/v1/key", json={"name": "k"})).status_code == 403
        assert (await writer.post(path, json=body)).status_code == 403
    assert (await client.post(path, json=body)).status_code == 201


async def test_an_endpoint_with_open_networks_is_pointed_elsewhere_by_an_admin_only(
    service: Service, client: httpx.AsyncClient, app: str
):
    body = {"url": "http://10.1.2.3/a", "tenure": {"allowNetworks": ["10.0.0.0/8"]}}
    path = f"/api/v1/app/{app}/endpoint"
    one = f"{path}/{(await client.post(path, json=body)).json()['id']}"
    async with service.connect(await service.make_key("write", app=app)) as inside:
        for url in ("http://10.9.9.9/a", "http://10.1.2.3:6379/a"):
            assert (await inside.patch(one, json={"url": url})).status_code == 403
            assert (await inside.put(one, json={"url": url})).status_code == 403
        for method in ("PATCH", "PUT"):
            same = await inside.request(method, one, json={"url": "http://10.1.2.3/b"})
            assert same.status_code == 200, same.text
    moved = await client.patch(one, json={"url": "http://10.9.9.9/a"})
    assert moved.status_code == 200


async def test_a_key_ends_at_an_instant_with_an_offset(client: httpx.AsyncClient):
    for bad in (2**63, 1, 1.5, True, "2999-01-01", "2999-01-01T00:00:00"):
        refused = await client.post("/api/v1/key", json={"name": "k", "expiresAt": bad})
        assert refused.status_code == 422, bad
    made = await client.post(
        "/api/v1/key", json={"name": "k", "expiresAt": "2999-01-01T00:00:00Z"}
    )
    assert made.status_code == 201


async def test_the_nodes_are_listed(client: httpx.AsyncClient):
    (node,) = (await client.get("/api/v1/node")).json()["data"]
    assert node["state"] == "open"
    assert node["serves"]


async def test_the_doctor_answers_an_admin_of_the_whole_tenant_and_nobody_else(
    service: Service, client: httpx.AsyncClient, app: str
):
    for key in (
        await service.make_key("read"),
        await service.make_key("write"),
        await service.make_key("write", app=app),
    ):
        async with service.connect(key) as narrow:
            assert (await narrow.get("/api/v1/doctor")).status_code == 403
    report = await client.get("/api/v1/doctor")
    assert report.status_code == 200
    assert report.json()["clean"] is True


async def test_tasks_are_read_by_any_key_of_the_tenant_and_not_by_an_applications(
    service: Service, client: httpx.AsyncClient, app: str, ids: dict[str, str]
):
    del client
    one = f"/api/v1/background-task/{ids['task_id']}"
    async with service.connect(await service.make_key("read")) as reader:
        assert (await reader.get(one)).json()["id"] == ids["task_id"]
    async with service.connect(await service.make_key("read", app=app)) as narrow:
        assert (await narrow.get(one)).status_code == 403
        assert (await narrow.get("/api/v1/background-task")).status_code == 403
    key = await service.make_key("admin", tenant="stranger")
    async with service.connect(key) as other:
        assert (await other.get("/api/v1/background-task")).json()["data"] == []
