"""Sources and receipts over HTTP: made, asked, refused, and nobody else's."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest

from tenure.errors import DatabaseUnavailable
from tenure.inbox.ledger.sources import opened_source
from tests.server.running import BOTH, Service, Sink

SECRET = "a-secret-of-the-tests"
SOURCE = {
    "name": "GitHub",
    "uid": "gh",
    "verification": {"preset": "github"},
    "secrets": [SECRET],
}


def signed(body: bytes, event: str = "d-1", **more: str) -> dict[str, str]:
    mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {
        "x-hub-signature-256": f"sha256={mac}",
        "x-github-event": "push",
        "x-github-delivery": event,
        "content-type": "application/json",
        **more,
    }


async def make(client: httpx.AsyncClient, **changes: Any) -> Any:
    made = await client.post("/api/v1/source", json=SOURCE | changes)
    assert made.status_code == 201, made.text
    return made.json()


@BOTH
async def test_what_a_source_receives_reaches_its_application_s_endpoints(
    client: httpx.AsyncClient, app: str, sink: Sink
):
    made = await make(client, appId=app)
    await client.post(f"/api/v1/app/{app}/endpoint", json={"url": sink.url})
    body = b'{"ref": "main",  "n": 1}'
    done = await client.post("/in/gh", content=body, headers=signed(body))
    assert done.status_code == 200
    receipt = done.json()["receipt"]
    (got,) = await sink.wait(1)
    assert got.body == body
    assert got.headers["tenure-source"] == "gh"
    assert got.headers["tenure-receipt"] == receipt
    assert got.headers["x-hub-signature-256"].startswith("sha256=")
    listed = (await client.get("/api/v1/receipt", params={"source": "gh"})).json()
    assert [each["id"] for each in listed["data"]] == [receipt]
    shown = (await client.get(f"/api/v1/receipt/{receipt}")).json()
    assert base64.b64decode(shown["body"]) == body
    assert shown["messageIds"] == [shown["messageId"]]
    replayed = await client.post(f"/api/v1/receipt/{receipt}/replay")
    assert replayed.status_code == 202
    assert len(replayed.json()["data"]) == 1
    await sink.wait(2)
    refused = await client.delete(f"/api/v1/app/{app}")
    assert refused.status_code == 409
    assert made["id"] in refused.text
    assert (await client.delete("/api/v1/source/gh")).status_code == 204
    assert (await client.delete(f"/api/v1/app/{app}")).status_code == 204


async def test_a_source_is_changed_and_never_tells_its_secret(
    client: httpx.AsyncClient, service: Service
):
    made = await make(client, settings={"rateCount": 5, "methods": ["POST", "PUT"]})
    assert SECRET not in json.dumps(made)
    assert (made["secretCount"], made["settings"]["rateCount"]) == (1, 5)
    again = await client.post("/api/v1/source", json=SOURCE)
    assert again.status_code == 409
    path = f"/api/v1/source/{made['id']}"
    rotated = await client.post(f"{path}/secret/rotate", json={"secret": "new"})
    assert rotated.json()["secretCount"] == 2
    removed = await client.delete(f"{path}/secret/1")
    assert removed.json()["secretCount"] == 1
    changed = await client.patch(path, json={"disabled": True, "name": "Other"})
    assert (changed.json()["disabled"], changed.json()["name"]) == (True, "Other")
    put = await client.put(path, json=SOURCE | {"name": "Put"})
    assert (put.status_code, put.json()["name"]) == (200, "Put")
    pulled = await client.patch(
        path,
        json={"pull": {"kind": "nats", "url": "nats://u:hidden@h:4222", "name": "s"}},
    )
    assert pulled.json()["pull"]["url"] == "nats://u:***@h:4222"
    # What a read shows can be written back: the password stays.
    again = await client.patch(path, json={"pull": pulled.json()["pull"]})
    assert again.status_code == 200
    opened = await service.engine.backend.read(
        lambda tx: opened_source(tx, made["id"], ring=service.engine.inbox._ring)
    )
    assert opened is not None
    assert opened.pull is not None
    assert opened.pull.url == "nats://u:hidden@h:4222"
    # The mask is no password of another broker's.
    elsewhere = pulled.json()["pull"] | {"url": "nats://u:***@other:4222"}
    masked = await client.patch(path, json={"pull": elsewhere})
    assert masked.status_code == 422
    assert "masked" in masked.text
    assert (await client.delete("/api/v1/source/a%00b")).status_code == 404
    async with service.connect(await service.make_key("write")) as writer:
        refused = await writer.patch(path, json={"pull": pulled.json()["pull"]})
        assert refused.status_code == 403


BAD: list[tuple[dict[str, Any], str]] = [
    ({"verification": {"preset": "nobody"}}, "preset"),
    ({"verification": {"preset": "github", "options": {"x": 1}}}, "x"),
    ({"secrets": []}, "secrets"),
    ({"settings": {"methods": ["BREW"]}}, "methods"),
    ({"settings": {"networks": ["10.0.0.0/99"]}}, "networks"),
    ({"settings": {"rateCount": 0}}, "rateCount"),
    ({"settings": {"dedupeKey": "cookie:x"}}, "dedupeKey"),
    ({"settings": {"responseStatus": 301}}, "responseStatus"),
    ({"settings": {"responseHeaders": {"a b": "c"}}}, "responseHeaders"),
    ({"settings": {"responseHeaders": {"Content-Type": "a\r\nb"}}}, "responseHeaders"),
    ({"settings": {"publicUrl": "ftp://x"}}, "publicUrl"),
    ({"settings": {"bodyBytesMax": 1 << 40}}, "bodyBytesMax"),
    ({"uid": "src_x"}, "uid"),
    ({"pull": {"kind": "nats", "url": "redis://h", "name": "s"}}, "url"),
]


@pytest.mark.parametrize(("changes", "place"), BAD, ids=lambda each: str(each)[:40])
async def test_what_cannot_be_is_a_422_with_its_place(
    client: httpx.AsyncClient, changes: dict[str, Any], place: str
):
    refused = await client.post("/api/v1/source", json=SOURCE | changes)
    assert refused.status_code == 422, refused.text
    assert any(place in fault["loc"] for fault in refused.json()["detail"])
    assert (await client.get("/api/v1/source")).json()["data"] == []


async def test_another_tenant_and_an_application_s_key_see_nothing(
    client: httpx.AsyncClient, other: httpx.AsyncClient, service: Service, app: str
):
    made = await make(client, appId=app)
    body = b"{}"
    done = await client.post("/in/gh", content=body, headers=signed(body))
    receipt = done.json()["receipt"]
    asked = [
        ("GET", f"/api/v1/source/{made['id']}"),
        ("GET", "/api/v1/source/gh"),
        ("PATCH", "/api/v1/source/gh"),
        ("DELETE", f"/api/v1/source/{made['id']}"),
        ("POST", f"/api/v1/source/{made['id']}/secret/rotate"),
        ("DELETE", f"/api/v1/source/{made['id']}/secret/0"),
        ("GET", f"/api/v1/source/{made['id']}/refused"),
        ("GET", f"/api/v1/receipt/{receipt}"),
        ("POST", f"/api/v1/receipt/{receipt}/replay"),
        ("GET", f"/api/v1/receipt?source={made['id']}"),
    ]
    for method, path in asked:
        given = {"secret": "x"} if path.endswith("rotate") else {}
        content = json.dumps(given) if method in {"POST", "PATCH"} else None
        answer = await other.request(method, path, content=content)
        assert answer.status_code == 404, (method, path, answer.text)
    assert (await other.get("/api/v1/receipt")).json()["data"] == []
    assert (await other.get("/api/v1/source")).json()["data"] == []
    async with service.connect(await service.make_key("write", app=app)) as limited:
        for method, path in asked:
            answer = await limited.request(method, path)
            assert answer.status_code == 403, (method, path)
    async with service.connect(await service.make_key("read")) as reader:
        assert (await reader.get("/api/v1/source/gh")).status_code == 200
        assert (await reader.delete("/api/v1/source/gh")).status_code == 403


async def test_a_refusal_is_shown_with_its_reason_and_what_to_look_at(
    client: httpx.AsyncClient,
):
    await make(client)
    secret = {"authorization": "Bearer hunter2", "cookie": "hunter2"}
    headers = signed(b"{}") | secret
    refused = await client.post("/in/gh", content=b"[]", headers=headers)
    assert refused.status_code == 401
    assert refused.json()["code"] == "bad_signature"
    shown = (await client.get("/api/v1/source/gh/refused")).json()
    assert shown["counts"] == {"bad_signature": 1}
    (kept,) = shown["data"]
    assert (kept["status"], kept["method"]) == (401, "POST")
    assert "tenure verify" in kept["hint"]
    assert "hunter2" not in json.dumps(shown)


async def raw(service: Service, request: bytes) -> bytes:
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_case_43_a_chunked_body_over_the_cap_is_413_and_nothing_is_stored(
    client: httpx.AsyncClient, service: Service
):
    await make(client, settings={"bodyBytesMax": 10})
    chunk = b"5\r\naaaaa\r\n"
    request = (
        b"POST /in/gh HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3 + b"0\r\n\r\n"
    )
    answer = await raw(service, request)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    fits = request.replace(chunk * 3, chunk)
    assert (await raw(service, fits)).startswith(b"HTTP/1.1 401 ")
    shown = (await client.get("/api/v1/source/gh/refused")).json()
    assert shown["counts"] == {"too_large": 1, "missing_header": 1}
    assert (await client.get("/api/v1/receipt")).json()["data"] == []


@pytest.fixture
def trusted(service_settings: dict[str, object]) -> None:
    service_settings["trusted_proxies"] = "127.0.0.0/8, 10.0.0.0/8"


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9, 10.1.1.1", "203.0.113.9"),
        ("nonsense, 10.1.1.1", "10.1.1.1"),
        ("", "127.0.0.1"),
    ],
)
async def test_case_50_a_configured_proxy_says_who_calls(
    trusted: None, client: httpx.AsyncClient, said: str, address: str
):
    del trusted
    await make(client, settings={"networks": [f"{address}/32"]})
    headers = signed(b"{}") | {"x-forwarded-for": said}
    done = await client.post("/in/gh", content=b"{}", headers=headers)
    assert done.status_code == 200, done.text
    found = (await client.get(f"/api/v1/receipt/{done.json()['receipt']}")).json()
    assert found["address"] == address


async def test_case_50_nobody_else_does(client: httpx.AsyncClient):
    await make(client, settings={"networks": ["203.0.113.0/24"]})
    headers = signed(b"{}") | {"x-forwarded-for": "203.0.113.9"}
    done = await client.post("/in/gh", content=b"{}", headers=headers)
    assert (done.status_code, done.json()["code"]) == (403, "address")


async def test_a_database_that_is_away_is_a_503_with_retry_after(
    client: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
):
    await make(client)

    async def away(*args: Any, **named: Any) -> Any:
        del args, named
        raise DatabaseUnavailable("gone", retry_after=5)

    monkeypatch.setattr(
        type(service.engine.outbox.acceptor._backend), "write", away, raising=True
    )
    done = await client.post("/in/gh", content=b"{}", headers=signed(b"{}"))
    assert (done.status_code, done.headers["retry-after"]) == (503, "5")
    monkeypatch.undo()
    done = await client.post("/in/gh", content=b"{}", headers=signed(b"{}"))
    assert done.status_code == 200
