"""Chat services: what a person reads, and what of the address nobody does."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from tenure.clock import SystemClock
from tenure.kernel.commands import Failed, Succeeded
from tenure.outbox.carriers.chat import ChatCarrier
from tenure.outbox.carriers.model import Job
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import EndpointPatch, EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.relayed import Relay, dump
from tenure.store.backend import Backend
from tenure.testing import Receiver, Reply
from tenure.work.kinds import Prepared
from tests.outbox.scripted import only_attempt
from tests.outbox.sending import Sender
from tests.outbox.world import ONE, accept, make_app, make_endpoint, rows


async def test_slack_is_posted_a_text_by_our_own_client_and_the_address_is_secret(
    outbox: Outbox, sender: Sender, backend: Backend, ring: KeyRing
) -> None:
    async with Receiver() as receiver:
        app = await make_app(outbox)
        slack = EndpointSettings(kind="slack")
        url = f"{receiver.url}/services/T0/s3cret"
        made = await make_endpoint(outbox, app, url, settings=slack)
        assert made.url == f"slack://127.0.0.1:{receiver.port}/***"
        relay = Relay(
            receipt="rcpt_1",
            source="src_a",
            method="PUT",
            query="",
            headers=(("Authorization", "Bearer cred"), ("X-Sig", "cred")),
        )
        body = b'{"password":"cred","n":"' + b"x" * 4000 + b'"}'
        sealed = dump(relay, ring.seal, ())
        accepted = await accept(outbox, app, body=body, relay=sealed)
        assert [ran.result for ran in await sender.work_off()] == [Succeeded()]
        (got,) = receiver.requests
        assert (got.method, got.target) == ("POST", "/services/T0/s3cret")
        assert (got.header("content-type") or "").startswith("application/json")
        text = json.loads(got.body)["text"]
        head, block = text.split("\n```\n", 1)
        assert head.startswith("invoice.paid: PUT, application/json, 20")
        assert head.endswith(f"{len(body)} bytes")
        assert block.startswith('{\n  "password": "***",\n  "n": "xxx')
        assert block.endswith("characters more\n```")
        assert "cred" not in text
        attempt = await only_attempt(outbox, app, accepted.message.id)
        assert (attempt.url, attempt.status_code) == (made.url, 200)
        for table in ("endpoint", "exchange", "work", "attempt"):
            assert "s3cret" not in repr(await rows(backend, f"SELECT * FROM {table}"))
        receiver.answer(Reply(status=500))
        await accept(outbox, app)
        (ran,) = await sender.work_off()
        assert isinstance(ran.result, Failed)
        assert ran.result.reason == "status_500"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:")  # of Apprise's own parts
async def test_a_chat_service_is_posted_to_through_apprise_off_the_loop(
    outbox: Outbox, sender: Sender
) -> None:
    async with Receiver() as receiver:
        app = await make_app(outbox)
        wanted = EndpointSettings(kind="chat", timeout_seconds=5)
        await make_endpoint(outbox, app, "discord://1/2", settings=wanted)
        await accept(outbox, app, body=b'{"n":1}')
        (claimed,) = await sender.claim()
        (loaded,) = await sender.load([claimed])
        assert isinstance(loaded, Prepared)
        job: Job = loaded.job
        # Apprise's own client for plain JSON, which no endpoint may name.
        place = f"json://127.0.0.1:{receiver.port}/s3cret"
        job = msgspec.structs.replace(job, target=replace(job.target, secret_url=place))
        carrier = ChatCarrier(SystemClock(), services={"json"})
        try:
            permit = sender.permit(claimed)
            fenced = await carrier.carry(job, sender.permit(claimed, yes=False), 1)
            assert not fenced.began
            assert receiver.requests == []
            taken = await carrier.carry(job, permit, 1)
            assert (taken.answer.status, permit.asked) == (200, 1)
            said = json.loads(receiver.requests[0].body)
            assert '{\n  "n": 1\n}' in said["message"]
            receiver.answer(Reply(status=302, headers=(("location", receiver.url),)))
            refused = await carrier.carry(job, permit, 1)
            assert refused.reason == "chat: it was not taken"
            assert len(receiver.requests) == 2  # redirects are not followed
            receiver.answer(Reply(delay_seconds=30))
            short = sender.permit(claimed)
            short.deadline = sender.clock.monotonic() + 0.1
            late = await carrier.carry(job, short, 1)
            assert late.answer.cause in {"timeout", "chat"}
        finally:
            carrier.close()
        strange = await ChatCarrier(SystemClock()).carry(job, permit, 1)
        assert strange.final
        assert "s3cret" not in repr((refused, late, strange))


async def test_a_masked_slack_address_that_comes_back_still_posts(
    outbox: Outbox, sender: Sender
) -> None:
    async with Receiver() as receiver:
        app = await make_app(outbox)
        slack = EndpointSettings(kind="slack")
        url = f"{receiver.url}/services/T0/s3cret"
        made = await make_endpoint(outbox, app, url, settings=slack)
        await outbox.patch_endpoint(
            ONE, app.id, made.id, EndpointPatch(url=made.url, description="ours")
        )
        await accept(outbox, app)
        await sender.work_off()
        assert receiver.requests[0].target == "/services/T0/s3cret"
