import asyncio
import http.client

import pytest

from tenure.clock import US, SystemClock
from tenure.outbox.secrets import parse_secret
from tenure.outbox.signing import SignatureRefused, signature_header
from tenure.testing import Received, Receiver, Reply, receiving

SECRET = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def post(
    port: int, body: bytes = b"{}", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/hook?a=1", body=body, headers=named)
        response = connection.getresponse()
        got = {name.lower(): value for name, value in response.getheaders()}
        return response.status, got, response.read()
    finally:
        connection.close()


def test_it_keeps_each_request_with_its_time_and_exact_bytes():
    before = SystemClock().wall_us()
    with receiving() as receiver:
        body = '{"text":"\u2028 \U0001f600"}'.encode()
        assert post(receiver.port, body, webhook_id="msg_1")[0] == 200
        [received] = receiver.wait(1)
    assert (received.method, received.target) == ("POST", "/hook?a=1")
    assert received.body == body
    assert received.message_id == received.header("Webhook-Id") == "msg_1"
    assert received.header("x-missing") is None
    assert before <= received.at <= SystemClock().wall_us()


def test_it_answers_by_a_rule_that_can_change_while_it_runs():
    with receiving(Reply(status=503, headers=(("retry-after", "2"),))) as receiver:
        status, headers, _ = post(receiver.port)
        assert (status, headers["retry-after"]) == (503, "2")
        receiver.answer(lambda received: Reply(status=201, body=received.body[::-1]))
        status, _, body = post(receiver.port, b"abc")
        assert (status, body) == (201, b"cba")
        receiver.answer(Reply(status=204))
        assert post(receiver.port)[0] == 204
        receiver.answer(Reply(status=799))
        assert post(receiver.port)[0] == 799


def test_it_can_end_the_connection_without_an_answer():
    with receiving(Reply(close=True)) as receiver:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            post(receiver.port)
        assert len(receiver.requests) == 1


def test_it_ends_a_connection_that_speaks_no_http():
    with receiving() as receiver:
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=10)
        connection.connect()
        connection.sock.sendall(b"\x16\x03\x01 this is no request\r\n\r\n")
        assert connection.sock.recv(10) == b""
        connection.close()
        assert receiver.requests == []


def test_a_connection_is_reused_and_closed_when_asked():
    with receiving() as receiver:
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=10)
        for _ in range(3):
            connection.request("POST", "/", body=b"x")
            assert connection.getresponse().read() == b""
        sock = connection.sock
        connection.request("POST", "/", headers={"Connection": "close"})
        connection.getresponse().read()
        assert sock.recv(1) == b""
        connection.close()
        assert len(receiver.requests) == 4


def test_a_stopped_receiver_refuses_connections_and_returns_on_its_port():
    with receiving() as receiver:
        port = receiver.port
        receiver.stop()
        with pytest.raises(ConnectionRefusedError):
            post(port)
        receiver.start()
        assert receiver.port == port
        assert post(port)[0] == 200


def test_a_port_that_is_taken_is_an_error():
    with receiving() as first:  # noqa: SIM117 - the second must fail inside
        with pytest.raises(OSError, match="in use"), receiving(port=first.port):
            pass


async def test_it_lives_on_the_running_loop_and_waits_with_a_deadline():
    async with Receiver(Reply(delay_seconds=0.01)) as receiver:
        with pytest.raises(TimeoutError):
            await receiver.wait(1, seconds=0.01)
        status, _, _ = await asyncio.to_thread(post, receiver.port)
        assert status == 200
        assert len(await receiver.wait(1)) == 1
        assert receiver.url == f"http://127.0.0.1:{receiver.port}"


def test_it_says_whether_a_signature_holds():
    at = SystemClock().wall_us()
    signature = signature_header([parse_secret(SECRET)], "msg_1", at // US, b"body")
    headers = (
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", str(at // US)),
        ("webhook-signature", signature),
    )
    good = Received(at=at, method="POST", target="/", headers=headers, body=b"body")
    good.check_signature(SECRET)
    bad = Received(at=at, method="POST", target="/", headers=headers, body=b"Body")
    with pytest.raises(SignatureRefused):
        bad.check_signature(SECRET)
