"""What every request passes: ids, cross-origin answers, bounds, broken clients."""

import asyncio
import contextlib
import json

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tenure.errors import DatabaseUnavailable
from tenure.server import serving
from tenure.server.app import Front, asgi
from tests.server.running import BOOTSTRAP, Service

PING = "/api/v1/health/ping"
BODY = json.dumps({"eventType": "a", "payload": {}}).encode()


async def test_a_request_id_is_echoed_or_made(client: httpx.AsyncClient):
    given = await client.get(PING, headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    made = (await client.get(PING)).headers["x-request-id"]
    assert made.startswith("req_")
    long = await client.get(PING, headers={"x-request-id": "x" * 500})
    assert long.headers["x-request-id"].startswith("req_")


async def test_another_origin_may_ask_the_api_but_not_the_pages(
    client: httpx.AsyncClient,
):
    origin = {"origin": "https://example.com"}
    preflight = await client.options(
        "/api/v1/app",
        headers=origin
        | {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, idempotency-key",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert (
        preflight.headers["access-control-allow-headers"]
        == "authorization, idempotency-key"
    )
    assert preflight.headers["access-control-max-age"] == "600"
    api = await client.get("/api/v1/app", headers=origin)
    page = await client.get("/", headers=origin)
    assert api.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in page.headers


async def raw(
    service: Service, rest: bytes, path: str, *, chunk: bytes = b"", times: int = 0
) -> bytes:
    """Send a request by hand and return what comes back."""
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {BOOTSTRAP}\r\n"
        )
        writer.write(head.encode() + rest)
        with contextlib.suppress(ConnectionError):
            for _ in range(times):
                writer.write(chunk)
                await writer.drain()
        if not chunk:
            writer.write_eof()
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                return await reader.read(65536)
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("target", ["msg", "endpoint"])
async def test_an_endless_body_is_cut_and_nothing_is_stored(
    service: Service, client: httpx.AsyncClient, app: str, target: str
):
    path = f"/api/v1/app/{app}/{target}"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = await raw(
        service, b"transfer-encoding: chunked\r\n\r\n", path, chunk=chunk, times=200
    )
    assert answer == b"" or b" 413 " in answer
    assert (await client.get(path)).json()["data"] == []


async def test_a_declared_length_over_the_bound_is_refused_before_it_is_read(
    service: Service, app: str
):
    rest = b"content-length: 99999999\r\n\r\n"
    answer = await raw(service, rest, f"/api/v1/app/{app}/msg", chunk=b"x", times=1)
    assert b" 413 " in answer
    assert b"payload_too_large" in answer
    assert b"connection: close" in answer


@pytest.mark.parametrize("target", ["msg", "endpoint"])
@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 1000\r\n\r\n" + BODY,
        b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n",
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["length", "chunked", "no chunk"],
)
async def test_a_client_that_leaves_in_the_middle_stores_nothing(
    service: Service, client: httpx.AsyncClient, app: str, target: str, rest: bytes
):
    path = f"/api/v1/app/{app}/{target}"
    answer = await raw(service, rest, path)
    assert b" 202 " not in answer
    assert b" 500 " not in answer
    assert (await client.get(path)).json()["data"] == []


async def test_headers_over_the_bound_are_refused(client: httpx.AsyncClient):
    answer = await client.get(PING, headers={"x-long": "x" * 40_000})
    assert answer.status_code == 431
    assert answer.json()["code"] == "headers_too_large"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"name":"a"',
        b'{"name":"a",}',
        b'{"name":NaN}',
        b'{"name":"\\ud800"}',
        b'{"name":"a\\u0000b"}',
        b'{"name":1e400}',
        b'{"name":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"name":"a"}{"name":"b"}',
    ],
)
@pytest.mark.parametrize(
    "path",
    ["/api/v1/app", "/api/v1/event-type", "/api/v1/key", "/api/v1/app/{app}/msg"],
)
async def test_a_body_that_is_no_good_is_422_with_a_place(
    client: httpx.AsyncClient, app: str, path: str, content: bytes
):
    answer = await client.post(path.replace("{app}", app), content=content)
    assert answer.status_code == 422, answer.text
    faults = answer.json()["detail"]
    assert all(fault["loc"][0] == "body" and fault["msg"] for fault in faults)
    assert all(isinstance(part, str) for fault in faults for part in fault["loc"])


async def test_malformed_json_says_where(client: httpx.AsyncClient):
    answer = await client.post("/api/v1/app", content=b'{"name": x}')
    fault = answer.json()["detail"][0]
    assert fault["type"] == "value_error.jsondecode"
    assert "byte 9" in fault["msg"]


@pytest.mark.parametrize("key", ["", "x" * 257, "a\tb"])
async def test_an_idempotency_key_that_is_none_is_refused(
    client: httpx.AsyncClient, app: str, key: str
):
    headers = {"idempotency-key": key}
    for path in ("/api/v1/app", f"/api/v1/app/{app}/msg"):
        answer = await client.post(path, content=b'{"name":"A"}', headers=headers)
        assert answer.status_code in {400, 422}


async def test_the_content_type_is_not_looked_at(client: httpx.AsyncClient):
    answer = await client.post(
        "/api/v1/app", content=b'{"name":"A"}', headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 201


@pytest.fixture
def broken(service: Service) -> Front:
    """The application, whose outbox fails as the test says."""
    return asgi(service.engine)


async def test_a_database_that_is_away_is_503_with_a_time_to_come_back(
    service: Service, broken: Front, monkeypatch: pytest.MonkeyPatch
):
    async def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("The database did not answer", retry_after=2.5)

    monkeypatch.setattr(type(service.engine.outbox), "list_applications", away)
    transport = httpx.ASGITransport(broken)
    headers = {"authorization": f"Bearer {BOOTSTRAP}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        answer = await client.get("/api/v1/app", headers=headers)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "3"
    assert answer.json()["code"] == "database_unavailable"


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", "/api/v1/app", "list_applications"),
        ("POST", "/api/v1/app/a/msg", "accept"),
    ],
)
async def test_what_nobody_foresaw_is_500_and_logged_once_with_the_request_id(
    service: Service,
    broken: Front,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    verb: str,
):
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(type(service.engine.outbox), verb, fail)
    transport = httpx.ASGITransport(broken)
    headers = {"authorization": f"Bearer {BOOTSTRAP}", "x-request-id": "abc-1"}
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        answer = await client.request(method, path, headers=headers, content=BODY)
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "secret of ours" not in answer.text
    (line,) = [each for each in caplog.messages if "request failed" in each]
    assert "abc-1" in line


async def test_it_can_be_mounted_inside_of_another_application(service: Service):
    front = asgi(service.engine)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        await front({**scope, "root_path": "/tenure"}, receive, send)

    running = await serving.start(outer)
    headers = {"authorization": f"Bearer {BOOTSTRAP}"}
    async with httpx.AsyncClient(base_url=running.url, headers=headers) as client:
        made = await client.post("/tenure/api/v1/app", json={"name": "A", "uid": "a"})
        sent = await client.post("/tenure/api/v1/app/a/msg", content=BODY)
        page = await client.get("/tenure/", auth=("x", BOOTSTRAP))
        beside = await client.get("/tenureapi/v1/app")
    await running.stop()
    assert beside.status_code == 404
    assert (made.status_code, sent.status_code, page.status_code) == (201, 202, 200)
    assert "/tenure/static/style.css" in page.text
