"""The OpenAPI document, and the server held to it by generated requests."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tenure.config import load
from tenure.engine import Engine
from tenure.server import serving
from tenure.server.app import asgi
from tenure.server.openapi import document
from tests.server.running import BOOTSTRAP

DOCUMENT = document(asgi(Engine(load({}, environ={}))).control)
# A stream answers for as long as somebody listens; it has tests of its own.
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT).exclude(path="/api/v1/receipt/listen")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
KEY = {"authorization": f"Bearer {BOOTSTRAP}"}
WITH_BODY = {"POST", "PUT", "PATCH"}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_hot_route_is_in_the_same_document():
    assert DOCUMENT["openapi"].startswith("3.1")
    assert "202" in DOCUMENT["paths"]["/api/v1/app/{app_id}/msg"]["post"]["responses"]


def test_every_operation_names_every_error_that_it_can_give():
    for method, path, operation in operations():
        named = set(operation["responses"])
        if operation["security"]:
            assert named >= {"400", "401", "403", "404", "405", "429", "503"}, path
        if "requestBody" in operation:
            assert named >= {"408", "409", "413", "422"}, (method, path)


def test_every_operation_that_makes_something_takes_an_idempotency_key():
    without = {"/api/v1/auth/logout", "/api/v1/key"}
    for method, path, operation in operations():
        if method == "POST" and path not in without:
            names = {item["name"] for item in operation["parameters"]}
            assert "idempotency-key" in names, path


def test_every_reference_leads_somewhere():
    def references(value: object) -> Iterator[str]:
        match value:
            case {"$ref": str(target)}:
                yield target
            case dict():
                for part in value.values():
                    yield from references(part)
            case list():
                for part in value:
                    yield from references(part)
            case _:
                return

    known = DOCUMENT["components"]["schemas"]
    found = set(references(DOCUMENT))
    assert found
    assert {name for name in found if name.rpartition("/")[2] not in known} == set()


class Running:
    """A server on a thread of its own, for callers that block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ready: Future[str] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return self._ready.result(60)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        given = {
            "database_url": self._url,
            "bootstrap_key": BOOTSTRAP,
            "sending": False,
        }
        async with Engine(load(given, environ={})) as engine:
            running = await serving.start(asgi(engine))
            self._ready.set_result(running.url)
            await self._stop.wait()
            await running.stop()


@pytest.fixture(scope="module")
def served(
    sqlite_template: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    path = tmp_path_factory.mktemp("served") / "tenure.db"
    path.write_bytes(sqlite_template.read_bytes())
    with Running(f"sqlite:///{path}") as url:
        yield url


@pytest.fixture(scope="module")
def ids(served: str) -> dict[str, str]:
    """Things that exist, so that generated requests get past the first 404."""
    with httpx.Client(base_url=served, headers=KEY) as client:
        app = client.post("/api/v1/app", json={"name": "A"}).json()["id"]
        root = f"/api/v1/app/{app}"
        endpoint = client.post(f"{root}/endpoint", json={"url": "http://example.com"})
        body = {"eventType": "et1", "payload": {}}
        message = client.post(f"{root}/msg", json=body).json()["id"]
        body = {"name": "et1", "description": ""}
        assert client.post("/api/v1/event-type", json=body).status_code == 201
    return {
        "app_id": app,
        "endpoint_id": endpoint.json()["id"],
        "msg_id": message,
        "event_type_name": "et1",
    }


@SCHEMA.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_generated_request_breaks_the_server_or_the_document(
    case: schemathesis.Case[Any], served: str, ids: dict[str, str]
):
    given = dict(case.path_parameters or {})
    for parameters in (given, {name: ids.get(name, given[name]) for name in given}):
        if case.method == "DELETE" and parameters is not given:
            continue  # what exists is needed by the next case
        case.path_parameters = parameters
        response = case.call(base_url=served, headers=KEY)
        case.validate_response(response, checks=CHECKS)
