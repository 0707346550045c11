"""The log: one line per message, cut and masked."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.kernel.commands import Succeeded
from tenure.limits import LOGGED_BODY
from tenure.outbox.model import EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.telemetry.events import Event, Events
from tests.outbox.scripted import only_attempt
from tests.outbox.sending import Sender
from tests.outbox.world import accept, make_app, make_endpoint


async def test_each_message_is_one_line_cut_and_masked(
    outbox: Outbox, sender: Sender, events: Events
) -> None:
    heard: list[Mapping[str, object]] = []
    events.listen(lambda event, fields: heard.append({"event": event, **fields}))
    app = await make_app(outbox)
    wanted = EndpointSettings(kind="log")
    endpoint = await make_endpoint(outbox, app, "log", settings=wanted)
    body = b'{"api_key":"s3cret","n":1}'
    accepted = await accept(outbox, app, body=body)
    assert [ran.result for ran in await sender.work_off()] == [Succeeded()]
    (line,) = heard
    assert line["event"] is Event.MESSAGE_LOGGED
    assert (line["endpoint"], line["message"]) == (endpoint.id, accepted.message.id)
    assert (line["body"], line["size"]) == ('{"api_key":"***","n":1}', len(body))
    attempt = await only_attempt(outbox, app, accepted.message.id)
    assert (attempt.url, attempt.status_code, attempt.cause) == ("log", 0, None)
    await accept(outbox, app, body=b"x" * 10_000, content_type="text/plain")
    await sender.work_off()
    assert len(str(heard[-1]["body"])) < LOGGED_BODY + 50
    assert "8000 characters more" in str(heard[-1]["body"])
