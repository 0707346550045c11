"""The pages: who may see them, what they say, and that they say no secret."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from tenure.clock import US
from tenure.ids import AppId, TenantId
from tenure.outbox.outbox import DEFAULT_TENANT as TENANT
from tenure.server.dashboard.figures import Overview, read_overview
from tenure.store import nodes
from tenure.store.nodes import HEARD_US
from tenure.store.tx import Tx
from tests.server.running import Service, Sink, until


def page(service: Service, key: str | None = None) -> httpx.AsyncClient:
    """Return a client as a browser with this key as the password."""
    auth = ("anybody", service.key if key is None else key)
    return httpx.AsyncClient(base_url=service.url, auth=auth)


async def send(
    client: httpx.AsyncClient, app: str, sink: Sink, **endpoint: Any
) -> dict[str, Any]:
    root = f"/api/v1/app/{app}"
    made = await client.post(f"{root}/endpoint", json={"url": sink.url} | endpoint)
    assert made.status_code == 201, made.text
    body = {
        "eventType": "user.signup",
        "payload": {"name": "<script>alert(1)</script>"},
    }
    return (await client.post(f"{root}/msg", json=body)).json()


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize("path", ["/", "/app/a/msg/b"])
async def test_a_page_asks_for_a_key(service: Service, path: str):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        answer = await nobody.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    async with page(service, "wrong") as stranger:
        assert (await stranger.get(path)).status_code == 401


async def test_an_empty_overview_says_what_to_do(service: Service):
    async with page(service) as browser:
        answer = await browser.get("/")
    assert answer.status_code == 200
    assert "No application yet" in answer.text
    assert "No endpoint yet" in answer.text


async def test_many_at_once_share_one_pass_over_the_rows(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    passes: list[str] = []

    def counted(tx: Tx, tenant: TenantId, app: AppId | None) -> Overview:
        passes.append(tenant)
        return read_overview(tx, tenant, app)

    monkeypatch.setattr("tenure.server.dashboard.page.read_overview", counted)
    async with page(service) as browser:
        answers = await asyncio.gather(*(browser.get("/") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert passes == ["default"]


async def test_pages_run_no_script_and_are_kept_nowhere(service: Service):
    async with page(service) as browser:
        answer = await browser.get("/")
    assert "<script" not in answer.text
    assert " style=" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


async def test_the_overview_counts_and_leads_to_each_message(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    made = await send(client, app, sink)
    async with page(service) as browser:

        async def look() -> str:
            return (await browser.get("/")).text

        shown = await until(look, lambda html: "1 delivered" in text_of(html))
        assert "Accepted 1 message" in text_of(shown)
        assert "Delivered 1 delivery" in text_of(shown)
        assert sink.url in shown
        link = re.search(rf'href="([^"]+{made["id"]})"', shown)
        assert link is not None
        message = await browser.get(link.group(1))
    assert message.status_code == 200
    assert made["id"] in message.text
    assert "said the sink" in message.text
    assert "&lt;script&gt;" in message.text
    assert "<script" not in message.text
    assert re.search(r'<time datetime="[^"]+Z" title="[^"]+Z"', message.text)


async def test_the_pages_say_why_something_waits(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    sink.statuses = [500]
    made = await send(client, app, sink, tenure={"retrySeconds": [0, 3600]})
    await sink.wait(1)
    async with page(service) as browser:

        async def look() -> str:
            return (await browser.get(f"/app/{app}/msg/{made['id']}")).text

        message = await until(look, lambda html: ">500<" in html)
        assert "Next:" in message

        async def overview() -> str:
            return (await browser.get("/")).text

        assert await until(overview, lambda html: "Next try at" in html)


async def test_a_node_that_was_not_heard_lately_is_no_node_at_work(service: Service):
    backend = service.engine.backend

    def silent(tx: Tx) -> None:
        nodes.open_node(
            tx,
            name="silent",
            host="elsewhere",
            pid=1,
            version="0",
            serves="delivery",
            lock_path=None,
        )
        tx.run(
            "UPDATE node SET beat_at = beat_at - :much WHERE name = 'silent'",
            {"much": HEARD_US + US},
        )

    await backend.write(silent)
    async with page(service) as browser:
        shown = text_of((await browser.get("/")).text)
    assert "not heard" in shown
    assert "No node is at work" not in shown
    found = await backend.read(partial(read_overview, tenant=TENANT, app=None))
    assert found.at_work
    alone = [node for node in found.nodes if node.name == "silent"]
    assert not replace(found, nodes=alone).at_work


async def test_a_disabled_endpoint_and_a_dead_delivery_are_named(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    sink.statuses = [410]
    await send(client, app, sink)
    async with page(service) as browser:

        async def look() -> str:
            return (await browser.get("/")).text

        html = await until(look, lambda html: "Will not go on by itself" in html)
    assert "Disabled" in html


async def test_pages_show_no_secret(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    url = sink.url.replace("http://", "http://user:hunter2@")
    made = await send(
        client, app, sink, url=url, headers={"Authorization": "Bearer hunter2"}
    )
    await sink.wait(1)
    root = f"/api/v1/app/{app}/endpoint"
    endpoint = (await client.get(root)).json()["data"][0]["id"]
    secret = (await client.get(f"{root}/{endpoint}/secret")).json()["key"]
    async with page(service) as browser:
        for path in ("/", f"/app/{app}/msg/{made['id']}"):
            html = (await browser.get(path)).text
            for word in ("hunter2", secret, service.key, "dXNlcjpodW50ZXIy"):
                assert word not in html


async def test_pages_show_one_tenant_and_one_application_only(
    service: Service, client: httpx.AsyncClient, app: str, sink: Sink
):
    made = await send(client, app, sink)
    second = (await client.post("/api/v1/app", json={"name": "Second"})).json()["id"]
    keys = {
        "stranger": await service.make_key("admin", tenant="stranger"),
        "application": await service.make_key("read", app=second),
    }
    for key in keys.values():
        async with page(service, key) as browser:
            overview = await browser.get("/")
            assert overview.status_code == 200
            assert made["id"] not in overview.text
            assert sink.url not in overview.text
            assert "Accepted 0 messages" in text_of(overview.text)
            message = await browser.get(f"/app/{app}/msg/{made['id']}")
            assert message.status_code == 404


async def test_the_style_sheet_is_asked_for_once(service: Service):
    async with httpx.AsyncClient(base_url=service.url) as nobody:
        first = await nobody.get("/static/style.css")
        again = await nobody.get(
            "/static/style.css", headers={"if-none-match": first.headers["etag"]}
        )
    assert first.headers["content-type"].startswith("text/css")
    assert (first.status_code, again.status_code) == (200, 304)
