"""Conformance checks 19 to 43 of the Svix API: endpoints and event types."""

import base64
from typing import Any

import httpx
import pytest
from svix.api import (
    EndpointHeadersIn,
    EndpointHeadersPatchIn,
    EndpointIn,
    EndpointSecretRotateIn,
    EventTypeIn,
)

from tests.server.running import Service, until

TYPES = "/api/v1/event-type"


@pytest.fixture
def root(app: str) -> str:
    return f"/api/v1/app/{app}/endpoint"


async def make(client: httpx.AsyncClient, root: str, **members: Any) -> dict[str, Any]:
    answer = await client.post(root, json={"url": "http://example.com"} | members)
    assert answer.status_code == 201, answer.text
    return answer.json()


def secret(size: int, prefix: str = "whsec_") -> str:
    return prefix + base64.b64encode(bytes(range(size))).decode()


async def test_019_an_endpoint_shows_every_name_that_clients_know(
    client: httpx.AsyncClient, root: str
):
    made = await make(client, root)
    assert made["id"].startswith("ep_")
    assert made["url"] == "http://example.com/"
    assert (made["version"], made["disabled"], made["description"]) == (1, False, "")
    for name in ("eventTypes", "filterTypes", "channels", "uid", "throttleRate"):
        assert made[name] is None
    assert made["rateLimit"] is None
    assert "secret" not in str(made)


async def test_020_an_endpoint_is_not_found_through_another_application(
    client: httpx.AsyncClient, root: str
):
    made = await make(client, root)
    second = (await client.post("/api/v1/app", json={"name": "B"})).json()["id"]
    answer = await client.get(f"/api/v1/app/{second}/endpoint/{made['id']}")
    assert answer.status_code == 404


async def test_021_a_put_creates_or_replaces_and_a_delete_ends(
    client: httpx.AsyncClient, root: str
):
    body = {"url": "http://example.com/a"}
    made = await client.put(f"{root}/fake-id", json=body)
    assert made.status_code == 201
    path = f"{root}/{made.json()['id']}"
    assert (await client.put(path, json=body)).status_code == 200
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404


async def test_022_a_uid_is_unique_within_an_application(
    client: httpx.AsyncClient, root: str
):
    await make(client, root, uid="u-1")
    body = {"url": "http://example.com", "uid": "u-1"}
    assert (await client.post(root, json=body)).status_code == 409
    second = await make(client, root)
    assert (await client.put(f"{root}/{second['id']}", json=body)).status_code == 409
    patched = await client.patch(f"{root}/{second['id']}", json={"uid": "u-1"})
    assert patched.status_code == 409
    other = (await client.post("/api/v1/app", json={"name": "B"})).json()["id"]
    await make(client, f"/api/v1/app/{other}/endpoint", uid="u-1")
    assert (await client.delete(f"{root}/u-1")).status_code == 204
    await make(client, root, uid="u-1")


async def test_023_a_patch_changes_one_member_only(
    client: httpx.AsyncClient, root: str
):
    await client.post(TYPES, json={"name": "et1", "description": ""})
    made = await make(client, root, uid="u-1", channels=["a"], metadata={"a": "b"})
    path = f"{root}/{made['id']}"
    aliases = {
        "rateLimit": ("rateLimit", "throttleRate"),
        "filterTypes": ("filterTypes", "eventTypes"),
    }
    expected = dict(made)
    steps: list[dict[str, Any]] = [
        {"url": "http://example.com/b"},
        {"version": 2},
        {"description": "d"},
        {"disabled": True},
        {"disabled": False},
        {"rateLimit": 5},
        {"rateLimit": None},
        {"filterTypes": ["et1"]},
        {"filterTypes": None},
        {"channels": ["b"]},
        {"channels": None},
        {"uid": "u-2"},
        {"uid": None},
        {"metadata": {}},
    ]
    for step in steps:
        answer = await client.patch(path, json=step)
        assert answer.status_code == 200, answer.text
        for name, value in step.items():
            for alias in aliases.get(name, (name,)):
                expected[alias] = value
        got = answer.json()
        got.pop("disabledReason", None)
        assert got | {"updatedAt": ""} == expected | {"updatedAt": ""}, step


@pytest.mark.parametrize("name", ["url", "description", "disabled"])
async def test_023_a_patch_cannot_clear_what_has_no_null(
    client: httpx.AsyncClient, root: str, name: str
):
    made = await make(client, root)
    answer = await client.patch(f"{root}/{made['id']}", json={name: None})
    assert answer.status_code == 422


async def test_024_event_types_of_an_endpoint_must_exist(
    client: httpx.AsyncClient, root: str
):
    body: dict[str, Any] = {"url": "http://example.com"}
    assert (await client.post(root, json=body | {"filterTypes": []})).status_code == 422
    unknown = await client.post(root, json=body | {"eventTypes": ["et1"]})
    assert unknown.status_code == 422
    fault = unknown.json()["detail"][0]
    assert fault["loc"] == ["body", "eventTypes"]
    assert "et1" in fault["msg"]
    await client.post(TYPES, json={"name": "et1", "description": ""})
    made = await make(client, root, eventTypes=["et1"])
    assert made["eventTypes"] == made["filterTypes"] == ["et1"]
    put = await client.put(f"{root}/{made['id']}", json=body)
    assert put.json()["eventTypes"] is None
    both = body | {"eventTypes": ["et1"], "filterTypes": ["et1"]}
    assert (await client.post(root, json=both)).status_code == 422


async def test_025_channels_are_one_to_ten(client: httpx.AsyncClient, root: str):
    body: dict[str, Any] = {"url": "http://example.com"}
    for channels in ([], [f"c{n}" for n in range(11)], ["a b"]):
        answer = await client.post(root, json=body | {"channels": channels})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"][:2] == ["body", "channels"]
    made = await make(client, root, channels=["b", "a", "a"])
    assert set(made["channels"]) == {"a", "b"}
    put = await client.put(f"{root}/{made['id']}", json=body)
    assert put.json()["channels"] is None


@pytest.mark.parametrize(
    "key",
    [
        secret(23),
        secret(76),
        secret(32, "whsep_"),
        secret(32, "whpk_"),
        secret(32, ""),
        "whsec_",
        "whsec_%%%%",
        "",
    ],
)
async def test_026_a_bad_secret_is_refused(
    client: httpx.AsyncClient, root: str, key: str
):
    body = {"url": "http://example.com", "secret": key}
    answer = await client.post(root, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", "secret"]
    assert (await client.get(root)).json()["data"] == []


@pytest.mark.parametrize("size", [24, 64])
async def test_026_a_given_secret_is_returned_unchanged(
    service: Service, client: httpx.AsyncClient, app: str, root: str, size: int
):
    made = await make(client, root, secret=secret(size))
    found = await service.svix.endpoint.get_secret(app, made["id"])
    assert found.key == secret(size)


async def test_027_nulls_of_the_client_mean_absent(service: Service, app: str):
    made = await service.svix.endpoint.create(
        app,
        EndpointIn(
            url="http://example.com",
            metadata=None,
            channels=None,
            secret=None,
            event_types=None,
            uid=None,
            description=None,
            disabled=None,
        ),
    )
    assert made.channels is None
    assert made.metadata == {}


async def test_028_a_secret_is_rotated_and_back(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    endpoint = (await make(client, root))["id"]
    svix = service.svix.endpoint
    first = (await svix.get_secret(app, endpoint)).key
    await svix.rotate_secret(app, endpoint, EndpointSecretRotateIn(key=None))
    assert (await svix.get_secret(app, endpoint)).key != first
    await svix.rotate_secret(app, endpoint, EndpointSecretRotateIn(key=first))
    assert (await svix.get_secret(app, endpoint)).key == first


async def test_029_ten_old_secrets_live_and_the_next_rotation_is_refused(
    client: httpx.AsyncClient, root: str
):
    path = f"{root}/{(await make(client, root))['id']}/secret/rotate"
    for _ in range(10):
        assert (await client.post(path, json={"key": None})).status_code == 200
    refused = await client.post(path, json={"key": None})
    assert refused.status_code == 400
    assert refused.json()["code"] == "limit_reached"


async def test_029_once_an_old_secret_has_ended_another_rotation_is_possible(
    client: httpx.AsyncClient, root: str
):
    path = f"{root}/{(await make(client, root))['id']}/secret/rotate"
    for grace in (1, *(86_400 for _ in range(9))):
        rotated = await client.post(path, json={"gracePeriodSeconds": grace})
        assert rotated.status_code == 200

    async def rotate() -> int:
        return (await client.post(path, json={"key": None})).status_code

    await until(rotate, lambda status: status == 200)


async def test_031_an_asymmetric_secret_shows_its_public_half(
    client: httpx.AsyncClient, root: str
):
    path = f"{root}/{(await make(client, root))['id']}/secret"
    key = (
        "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9"
        "lMicMFs6Kvg=="
    )
    assert (await client.post(f"{path}/rotate", json={"key": key})).status_code == 200
    shown = (await client.get(path)).json()["key"]
    assert shown == "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


async def test_032_a_grace_is_zero_to_seven_days(client: httpx.AsyncClient, root: str):
    path = f"{root}/{(await make(client, root))['id']}/secret/rotate"
    good = await client.post(path, json={"gracePeriodSeconds": 0})
    bad = await client.post(path, json={"gracePeriodSeconds": 604_801})
    assert (good.status_code, bad.status_code) == (200, 422)
    assert bad.json()["detail"][0]["loc"] == ["body", "gracePeriodSeconds"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-length", "1"),
        ("some:thing", "1"),
        ("a\0b", "1"),
        ("svix-foo", "1"),
        ("x-svix-foo", "1"),
        ("x-amzn-foo", "1"),
        ("Webhook-Signature", "1"),
        ("x-a", "line\r\nbreak"),
        ("x-a", "\N{GRINNING FACE}"),
        ("", "1"),
    ],
)
async def test_033_a_header_that_cannot_be_sent_is_refused(
    client: httpx.AsyncClient, root: str, name: str, value: str
):
    path = f"{root}/{(await make(client, root))['id']}/headers"
    answer = await client.put(path, json={"headers": {name: value}})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", "headers"]
    assert (await client.get(path)).json() == {"headers": {}, "sensitive": []}


async def test_034_headers_are_put_and_patched(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    endpoint = (await make(client, root))["id"]
    svix = service.svix.endpoint
    await svix.patch_headers(
        app, endpoint, EndpointHeadersPatchIn(headers={"x-test-0": "0"})
    )
    await svix.set_headers(
        app, endpoint, EndpointHeadersIn(headers={"X-Test-1": "1", "x-test-2": "2"})
    )
    found = await svix.get_headers(app, endpoint)
    assert found.headers == {"X-Test-1": "1", "x-test-2": "2"}
    path = f"{root}/{endpoint}/headers"
    patch = {"headers": {"x-test-3": "4", "x-test-2": None}}
    assert (await client.patch(path, json=patch)).status_code == 204
    shown = (await client.get(path)).json()["headers"]
    assert shown == {"X-Test-1": "1", "x-test-3": "4"}
    removed = {"headers": {}, "deleteHeaders": ["x-test-3"]}
    assert (await client.patch(path, json=removed)).status_code == 204
    assert (await client.get(path)).json()["headers"] == {"X-Test-1": "1"}


async def test_035_sensitive_headers_show_their_names_only(
    client: httpx.AsyncClient, root: str
):
    path = f"{root}/{(await make(client, root))['id']}/headers"
    headers = {"Authorization": "Basic c2VjcmV0", "X-Plain": "p"}
    assert (await client.put(path, json={"headers": headers})).status_code == 204
    answer = await client.get(path)
    assert answer.json() == {
        "headers": {"X-Plain": "p"},
        "sensitive": ["Authorization"],
    }
    assert "c2VjcmV0" not in answer.text


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "example.com",
        "http://",
        "",
        "http://exa mple.com",
        "http://example.com:99999",
        "javascript:alert(1)",
        "http://example.com/\r\nx: y",
        5,
        None,
    ],
)
async def test_036_a_url_that_cannot_be_called_is_refused(
    client: httpx.AsyncClient, root: str, url: object
):
    answer = await client.post(root, json={"url": url})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", "url"]
    assert (await client.get(root)).json()["data"] == []


async def test_037_statistics_start_at_zero_and_reach_28_days_back(
    service: Service, client: httpx.AsyncClient, app: str, root: str
):
    endpoint = (await make(client, root))["id"]
    stats = await service.svix.endpoint.get_stats(app, endpoint)
    assert (stats.success, stats.pending, stats.sending, stats.fail) == (0, 0, 0, 0)
    path = f"{root}/{endpoint}/stats"
    for query, status in (
        ({"since": "2020-01-01T00:00:00Z"}, 400),
        ({"since": "2020-01-01T00:00:00"}, 400),
        ({"since": "yesterday"}, 400),
        ({"until": "2999-01-01T00:00:00Z"}, 400),
    ):
        answer = await client.get(path, params=query)
        assert answer.status_code == status, query
        assert answer.json()["detail"]


async def test_040_an_event_type_is_put_under_the_name_of_the_path(
    service: Service, client: httpx.AsyncClient
):
    body = {"name": "other", "description": "d"}
    made = await client.put(f"{TYPES}/et1", json=body)
    assert (made.status_code, made.json()["name"]) == (201, "et1")
    assert (await client.put(f"{TYPES}/et1", json=body)).status_code == 200
    again = await client.post(TYPES, json={"name": "et1", "description": ""})
    assert again.status_code == 409
    assert again.json()["code"] == "event_type_exists"
    made = await service.svix.event_type.create(
        EventTypeIn(name="et2", description="d", feature_flags=["f"], group_name="g")
    )
    assert (made.feature_flags, made.group_name) == (["f"], "g")


async def test_041_an_event_type_is_archived_revived_and_expunged(
    client: httpx.AsyncClient,
):
    path = f"{TYPES}/et1"
    made = (await client.post(TYPES, json={"name": "et1", "description": "d"})).json()
    expected = dict(made)
    steps: list[dict[str, Any]] = [
        {"description": "e"},
        {"schemas": {"1": {"type": "object"}}},
        {"schemas": {}},
        {"schemas": None},
        {"archived": True},
    ]
    for step in steps:
        answer = await client.patch(path, json=step)
        assert answer.status_code == 200, answer.text
        expected |= step
        assert answer.json() | {"updatedAt": ""} == expected | {"updatedAt": ""}
    assert (await client.get(path)).json()["archived"] is True
    revived = await client.post(TYPES, json={"name": "et1", "description": "f"})
    assert (revived.status_code, revived.json()["archived"]) == (201, False)
    assert (await client.delete(path)).status_code == 204
    assert (await client.delete(path)).status_code == 204
    assert (await client.delete(path, params={"expunge": "true"})).status_code == 204
    assert (await client.get(path)).status_code == 404


async def test_042_lists_hide_schemas_and_archived_types_until_asked(
    client: httpx.AsyncClient,
):
    schemas = {"1": {"type": "object"}}
    for name in ("b", "a"):
        body = {"name": name, "description": "", "schemas": schemas}
        assert (await client.post(TYPES, json=body)).status_code == 201
    await client.delete(f"{TYPES}/b")
    plain = (await client.get(TYPES)).json()["data"]
    assert [(item["name"], item["schemas"]) for item in plain] == [("a", None)]
    query = {"include_archived": "true", "with_content": "true"}
    whole = (await client.get(TYPES, params=query)).json()["data"]
    assert [(item["name"], item["schemas"]) for item in whole] == [
        ("a", schemas),
        ("b", schemas),
    ]


@pytest.mark.parametrize(
    "schemas",
    [
        {"1": {"readOnly": 15}},
        {"1": {"$ref": "http://example.com/schema.json"}},
        {"1": 5},
        [],
    ],
)
async def test_043_a_schema_that_is_none_is_refused(
    client: httpx.AsyncClient, schemas: object
):
    body = {"name": "et1", "description": "", "schemas": schemas}
    answer = await client.post(TYPES, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][:2] == ["body", "schemas"]
