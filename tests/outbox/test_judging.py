"""Payloads against schemas: what is found, what is said, what is never repeated."""

import pytest

from tenure.clock import SystemClock
from tenure.ids import TenantId
from tenure.outbox import judging
from tenure.outbox.fields import compile_schema
from tenure.outbox.judging import SchemaJudge, faults_of
from tenure.outbox.ledger import eventtypes
from tenure.outbox.model import EventTypeIn, NewMessage, SchemaCheck
from tenure.store.backend import Backend

TENANT = TenantId("default")
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"a":1}', []),
        (b'{"a":1,"a":123456789012345678901234567890}', []),
        (b"[]", [("body", "payload")]),
        (b'{"a":"\\ud800"}', [("body", "payload")]),
        (b"<a/>", [("body", "payload")]),
        (b"\xff", [("body", "payload")]),
        (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", [("body", "payload")]),
    ],
)
def test_faults_name_their_place(body: bytes, wanted: list[tuple[str, ...]]):
    found = faults_of(compile_schema(OBJECT), body)
    assert [item.loc for item in found] == wanted


def test_no_fault_repeats_a_value_and_their_number_is_bounded():
    schema = {"items": {"enum": ["shown"]}}
    body = b"[" + b",".join([b'"secret-1"'] * 100) + b"]"
    found = faults_of(compile_schema(schema), body)
    assert len(found) == 20
    assert not any("secret-1" in item.msg for item in found)


async def test_the_highest_version_counts_and_a_warning_is_one_line_without_values(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    schemas = {"9": False, "10": OBJECT}
    given = EventTypeIn(
        name="et", description="", schemas=schemas, schema_check=SchemaCheck.WARN
    )
    await backend.write(lambda tx: eventtypes.create_event_type(tx, TENANT, given))
    lines: list[dict[str, object]] = []

    class Lines:
        def log(self, level: int, event: str, **fields: object) -> None:
            lines.append({"event": event, **fields})

    monkeypatch.setattr(judging, "log", Lines())
    judge = SchemaJudge(backend, SystemClock())
    for body in (b'{"a":1}', b'{"a":"secret"}'):
        assert (
            await judge.misfit(TENANT, NewMessage(event_type="et", body=body)) is None
        )
    (line,) = lines
    assert line["event"] == "payload misses its schema"
    assert "secret" not in str(line)
    assert "payload/a" in str(line)
