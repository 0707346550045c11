"""Conformance checks 1 to 18 of the Svix API: applications, lists, keys, health."""

import asyncio
from typing import Any

import httpx
import pytest
from svix.api import ApplicationIn, ApplicationListOptions, ApplicationPatch
from svix.api.application import ApplicationCreateOptions

from tests.server.running import Service

APP = "/api/v1/app"


async def make(client: httpx.AsyncClient, **members: Any) -> dict[str, Any]:
    answer = await client.post(APP, json={"name": "A"} | members)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_001_an_application_is_created_with_an_id_and_without_a_uid(
    client: httpx.AsyncClient,
):
    made = await make(client)
    assert made["id"].startswith("app_")
    assert len(made["id"]) == len("app_") + 26
    assert made["metadata"] == {}
    assert "uid" not in made
    assert made["throttleRate"] is None


async def test_002_a_uid_is_unique_within_a_tenant(
    client: httpx.AsyncClient, other: httpx.AsyncClient
):
    await make(client, uid="u-1")
    again = await client.post(APP, json={"name": "B", "uid": "u-1"})
    assert again.status_code == 409
    assert again.json()["code"] == "conflict"
    await make(other, uid="u-1")


async def test_003_get_if_exists_returns_the_stored_one_unchanged(
    service: Service, client: httpx.AsyncClient
):
    made = await make(client, uid="u-1", name="First")
    found = await service.svix.application.get_or_create(
        ApplicationIn(name="Second", uid="u-1"), ApplicationCreateOptions()
    )
    assert (found.id, found.name) == (made["id"], "First")
    answer = await client.post(
        APP, params={"get_if_exists": "true"}, json={"name": "Third", "uid": "u-1"}
    )
    assert answer.status_code == 200
    assert answer.json() == made


async def test_004_a_put_creates_or_replaces(client: httpx.AsyncClient):
    made = await client.put(f"{APP}/unknown-id", json={"name": "A"})
    assert made.status_code == 201
    path = f"{APP}/{made.json()['id']}"
    changed = await client.put(path, json={"name": "B"})
    assert changed.status_code == 200
    assert (await client.get(path)).json() == changed.json()


async def test_005_a_put_without_a_uid_removes_it(client: httpx.AsyncClient):
    made = await make(client, uid="u-1")
    changed = await client.put(f"{APP}/{made['id']}", json={"name": "A"})
    assert changed.status_code == 200
    assert "uid" not in changed.json()
    assert (await client.get(f"{APP}/u-1")).status_code == 404


async def test_006_a_put_with_anothers_uid_is_a_conflict(client: httpx.AsyncClient):
    await make(client, uid="u-1")
    second = await make(client, uid="u-2")
    path = f"{APP}/{second['id']}"
    taken = await client.put(path, json={"name": "A", "uid": "u-1"})
    own = await client.put(path, json={"name": "A", "uid": "u-2"})
    assert (taken.status_code, own.status_code) == (409, 200)


async def test_007_a_deleted_application_is_gone_and_its_uid_free(
    client: httpx.AsyncClient,
):
    await make(client, uid="u-1")
    assert (await client.delete(f"{APP}/u-1")).status_code == 204
    assert (await client.get(f"{APP}/u-1")).status_code == 404
    assert (await client.delete(f"{APP}/u-1")).status_code == 404
    await make(client, uid="u-1")


@pytest.mark.parametrize("rate", ["rateLimit", "throttleRate"])
async def test_008_a_patch_changes_one_member_only(
    client: httpx.AsyncClient, rate: str
):
    made = await make(client, uid="u-1")
    path = f"{APP}/{made['id']}"
    steps: list[dict[str, Any]] = [
        {"name": "B"},
        {rate: 5},
        {"uid": "u-2"},
        {"metadata": {"a": "b"}},
        {rate: None},
        {"uid": None},
        {"metadata": {}},
    ]
    expected = dict(made)
    for step in steps:
        answer = await client.patch(path, json=step)
        assert answer.status_code == 200, answer.text
        for name, value in step.items():
            for alias in ("rateLimit", "throttleRate") if name == rate else (name,):
                expected[alias] = value
        shown = {name: value for name, value in expected.items() if value is not None}
        got = {
            name: value for name, value in answer.json().items() if value is not None
        }
        assert got | {"updatedAt": ""} == shown | {"updatedAt": ""}


async def test_008_the_client_patches(service: Service, client: httpx.AsyncClient):
    made = await make(client)
    patched = await service.svix.application.patch(
        made["id"], ApplicationPatch(name="B")
    )
    assert patched.name == "B"


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"name": ""}, "name"),
        ({"uid": "$$x"}, "uid"),
        ({"uid": "app_x"}, "uid"),
        ({"uid": "x" * 300}, "uid"),
        ({"throttleRate": 0}, "throttleRate"),
        ({"throttleRate": "5"}, "throttleRate"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 5000}}, "metadata"),
    ],
)
async def test_009_a_bad_member_is_named(
    client: httpx.AsyncClient, members: dict[str, Any], place: str
):
    answer = await client.post(APP, json={"name": "A"} | members)
    assert answer.status_code == 422
    fault = answer.json()["detail"][0]
    assert fault["loc"][:2] == ["body", place]
    assert set(fault) == {"loc", "msg", "type"}
    assert (await client.get(APP)).json()["data"] == []


async def pages(client: httpx.AsyncClient, count: int) -> list[str]:
    made: list[str] = []
    for number in range(count):
        made.append((await make(client, uid=f"u-{number}"))["id"])
        await asyncio.sleep(0.002)
    return made


async def test_010_lists_say_whether_more_is_there(
    service: Service, client: httpx.AsyncClient
):
    made = await pages(client, 10)
    first = await service.svix.application.list(ApplicationListOptions(limit=6))
    assert ([item.id for item in first.data], first.done) == (made[:6], False)
    rest = await service.svix.application.list(
        ApplicationListOptions(limit=6, iterator=first.iterator)
    )
    assert ([item.id for item in rest.data], rest.done) == (made[6:], True)
    whole = await client.get(APP, params={"limit": 10})
    assert whole.json()["done"] is True
    empty = (await client.get(APP, params={"limit": 0})).json()
    assert empty["data"] == []


@pytest.mark.parametrize("order", ["ascending", "descending"])
async def test_011_a_list_goes_back_to_the_items_before_the_page(
    client: httpx.AsyncClient, order: str
):
    made = await pages(client, 8)
    if order == "descending":
        made.reverse()
    page: dict[str, Any] = {"limit": 6, "order": order}
    first = (await client.get(APP, params=page)).json()
    second = (
        await client.get(APP, params=page | {"iterator": first["iterator"]})
    ).json()
    assert [item["id"] for item in second["data"]] == made[6:]
    assert second["prevIterator"] == f"-{made[6]}"
    back = {"limit": 3, "order": order, "iterator": second["prevIterator"]}
    before = (await client.get(APP, params=back)).json()
    assert [item["id"] for item in before["data"]] == made[3:6]
    assert before["done"] is False


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"iterator": "BAD-$$$ITERATOR"}, 422, None),
        ({"limit": "300"}, 422, None),
        ({"limit": "-1"}, 400, "generic_error"),
        ({"limit": "many"}, 400, "generic_error"),
        ({"order": "sideways"}, 400, "generic_error"),
    ],
)
async def test_012_bad_paging_is_refused(
    client: httpx.AsyncClient, query: dict[str, str], status: int, code: str | None
):
    answer = await client.get(APP, params=query)
    assert answer.status_code == status
    assert answer.json().get("code") == code
    if status == 422:
        assert answer.json()["detail"][0]["loc"][0] == "query"


async def test_012_a_limit_over_the_bound_has_the_place_that_clients_know(
    client: httpx.AsyncClient,
):
    fault = (await client.get(APP, params={"limit": 300})).json()["detail"][0]
    assert fault["loc"] == ["query", "limit", "limit"]


async def test_013_an_empty_list_is_parsed_by_the_client(
    service: Service, client: httpx.AsyncClient
):
    assert (await client.get(APP)).json() == {
        "data": [],
        "iterator": None,
        "done": True,
    }
    assert (await service.svix.application.list()).data == []


async def test_014_an_idempotency_key_gives_the_first_answer_again(
    client: httpx.AsyncClient,
):
    key = {"idempotency-key": "k-1"}
    first = await client.post(APP, json={"name": "A"}, headers=key)
    again = await client.post(APP, json={"name": "A"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    other = await client.post(APP, json={"name": "B"}, headers=key)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_key_reused"
    fresh = await client.post(
        APP, json={"name": "A"}, headers={"idempotency-key": "k-2"}
    )
    assert fresh.json()["id"] != first.json()["id"]
    assert len((await client.get(APP, headers=key)).json()["data"]) == 2


async def test_014_an_error_is_not_kept_under_its_key(client: httpx.AsyncClient):
    key = {"idempotency-key": "k-1"}
    assert (await client.post(APP, json={}, headers=key)).status_code == 422
    good = await client.post(APP, json={"name": "A"}, headers=key)
    assert good.status_code == 201


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer nonsense", "Basic eDp5", "Bearer \xff", "x", "Bearer a b"],
)
async def test_015_a_bad_key_is_refused_in_one_way(
    service: Service, authorization: str
):
    headers = [(b"authorization", authorization.encode("latin-1"))]
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        answer = await nobody.get(APP, headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {
        "code": "authentication_failed",
        "detail": "Invalid token",
        "requestId": answer.headers["x-request-id"],
    }
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_016_an_application_key_reaches_its_application_only(
    service: Service, client: httpx.AsyncClient
):
    own, strange = await make(client, uid="own"), await make(client)
    async with service.connect(
        await service.make_key("write", app=own["id"])
    ) as inside:
        statuses = [
            (await inside.post(APP, json={"name": "B"})).status_code,
            (await inside.put(f"{APP}/{own['id']}", json={"name": "B"})).status_code,
            (await inside.delete(f"{APP}/{own['id']}")).status_code,
            (await inside.get(APP)).status_code,
            (await inside.get(f"{APP}/{own['id']}")).status_code,
            (await inside.get(f"{APP}/own")).status_code,
            (await inside.get(f"{APP}/{strange['id']}")).status_code,
            (await inside.get(f"{APP}/{strange['id']}/endpoint")).status_code,
            (await inside.get("/api/v1/key")).status_code,
        ]
    assert statuses == [403, 403, 403, 403, 200, 200, 404, 404, 403]


async def test_016_a_reading_key_reads_only(
    service: Service, client: httpx.AsyncClient
):
    app = await make(client)
    async with service.connect(await service.make_key("read")) as reader:
        assert (await reader.get(f"{APP}/{app['id']}")).status_code == 200
        answer = await reader.post(
            f"{APP}/{app['id']}/msg", json={"eventType": "a", "payload": {}}
        )
        assert answer.status_code == 403
        assert answer.json()["code"] == "insufficient_access"
        assert (await reader.patch(f"{APP}/{app['id']}", json={})).status_code == 403


@pytest.mark.parametrize("path", ["/api/v1/health/ping", "/api/v1/health/ping/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_018_ping_answers_without_a_key_and_without_a_body(
    service: Service, method: str, path: str
):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        answer = await nobody.request(method, path)
    assert (answer.status_code, answer.content) == (204, b"")


async def test_018_health_names_each_part(service: Service):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        answer = await nobody.get("/api/v1/health")
        head = await nobody.head("/api/v1/health")
    assert answer.status_code == head.status_code == 200
    assert answer.json()["database"] == {"status": "ok"}
    await service.svix.health.get()


async def test_039_logout_ends_nothing_and_says_so(client: httpx.AsyncClient):
    answer = await client.post("/api/v1/auth/logout")
    assert (answer.status_code, answer.content) == (204, b"")
