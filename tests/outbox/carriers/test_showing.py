"""Messages as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.ids import AppId, MessageId, TenantId
from tenure.outbox.carriers.model import Job
from tenure.outbox.carriers.showing import chat_text


def _job(body: bytes, content_type: str | None) -> Job:
    nowhere: Any = None  # what is shown does not depend on the target
    return Job(
        message=MessageId("msg_1"),
        app=AppId("app_1"),
        tenant=TenantId("org_1"),
        event_type="invoice.paid",
        created_at=0,
        body=body,
        content_type=content_type,
        headers=(),
        expires_at=None,
        target=nowhere,
    )


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        (
            b'[{"client-secret":{"a":1},"n":1}]',
            None,
            '[\n  {\n    "client-secret": "***",\n    "n": 1\n  }\n]',
        ),
        (b"{broken", "application/json", "{broken"),
        (b"a```\x00\xff", "text/plain", "a'''\ufffd\ufffd"),
    ],
)
def test_a_body_is_shown_readable_and_cannot_leave_its_block(
    body: bytes, content_type: str | None, shown: str
) -> None:
    text = chat_text(_job(body, content_type))
    kind = content_type or "application/json"
    facts = (
        f"invoice.paid: POST, {kind}, 1970-01-01T00:00:00.000000Z, {len(body)} bytes"
    )
    assert text == f"{facts}\n```\n{shown}\n```"
