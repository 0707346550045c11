import pytest

from tenure.cli.sending import channel_of, message_of
from tenure.testing import Reply
from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, tenure, tenure_json


def test_a_message_is_delivered_signed_and_the_answer_is_told(
    served: Served, receiver: Receiving
):
    url = f"{receiver.url}/hook"
    done = tenure("send", url, '{"hello":1}', *served.access)
    assert done.code == 0
    assert "accepted msg_" in done.out
    assert f"delivered: {url} answered 200" in done.out
    [received] = receiver.wait(1)
    assert received.body == b'{"hello":1}'
    [endpoint] = [
        e for e in tenure_json("endpoints", "list", *served.access) if e["url"] == url
    ]
    found = tenure_json("endpoints", "secret", endpoint["id"], *served.access)
    received.check_signature(found["secret"])


def test_without_a_key_the_database_is_opened_and_the_server_delivers(
    served: Served, receiver: Receiving
):
    done = tenure("send", receiver.url, '{"direct":true}', *served.database)
    assert done.code == 0
    assert "directly (no --key)" in done.err
    assert receiver.wait(1)[0].body == b'{"direct":true}'


def test_a_url_keeps_its_endpoint_and_hears_nothing_for_other_urls(
    served: Served, receiver: Receiving
):
    first, second = (
        tenure_json("send", f"{receiver.url}/{path}", "{}", *served.access)
        for path in ("a", "b")
    )
    again = tenure_json("send", f"{receiver.url}/a", "{}", *served.access)
    assert again["endpoint"] == first["endpoint"] != second["endpoint"]
    assert [r.target for r in receiver.wait(3)] == ["/a", "/b", "/a"]


def test_a_failure_is_told_with_its_status_and_the_next_attempt(
    served: Served, receiver: Receiving
):
    receiver.answer(Reply(status=503))
    done = tenure("send", receiver.url, "{}", *served.access)
    assert done.code == 69
    assert "failed: 503" in done.out
    assert "next attempt at 20" in done.out
    assert "tenure explain msg_" in done.err


def test_what_is_final_ends_with_another_exit_code(served: Served, receiver: Receiving):
    receiver.answer(Reply(status=400))
    assert tenure("send", receiver.url, "{}", *served.access).code == 1


def test_an_address_that_is_not_public_is_refused_with_the_setting_that_allows_it(
    served: Served,
):
    done = tenure("send", "http://10.1.2.3/hook", "{}", *served.access)
    assert done.code == 1
    assert "TENURE_ALLOW_NETWORKS=10.1.2.0/24" in done.err
    dialled = tenure("send", "http://10.1.2.3/hook", "{}", *served.database)
    assert dialled.code == 69
    assert "address_refused" in dialled.out
    assert "--allow-networks 10.1.2.0/24" in dialled.err


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("plain text", "text/plain; charset=utf-8"),
        ("[1, 2]", "application/json"),
        ('{ "spaced" :  1 }', "application/json"),
        ("{}", "application/json"),
    ],
)
def test_any_text_is_delivered_byte_for_byte(
    served: Served, receiver: Receiving, body: str, kind: str
):
    assert tenure("send", receiver.url, body, *served.access).code == 0
    [received] = receiver.wait(1)
    assert received.body == body.encode()
    assert received.header("content-type") == kind


def test_a_body_can_come_from_standard_input(served: Served, receiver: Receiving):
    body = '{"stdin":"\u2028"}'.encode()
    done = tenure("send", receiver.url, "-", *served.access, stdin=body)
    assert done.code == 0
    assert receiver.wait(1)[0].body == body


def test_without_a_node_the_message_waits_and_the_reason_is_told(
    served: Served, receiver: Receiving, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("idle")
    database = ("--database-url", f"sqlite:///{folder / 'tenure.db'}")
    assert tenure("migrate", "apply", *database).code == 0
    done = tenure("send", receiver.url, "{}", *database)
    assert done.code == 69
    assert "no open node" in done.out
    assert "`tenure serve` starts one" in done.err
    assert receiver.requests == []


def test_a_channel_names_one_url():
    assert channel_of("http://a") == channel_of("http://a") != channel_of("http://b")


def test_an_object_travels_as_the_payload_itself():
    body = message_of("a.b", "to-x", b'{"n":12345678901234567890}')
    assert b'"payload":{"n":12345678901234567890}' in body
