import asyncio
import http.client
from pathlib import Path

from tenure.testing.lab.records import Records
from tenure.testing.lab.sink import SinkProcess


def post(url: str, message: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        headers = {"webhook-id": message, "tenure-attempt": "2"}
        connection.request("POST", "/e7", body=b"{}", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


async def test_a_request_that_was_answered_is_written_down(tmp_path: Path):
    file = tmp_path / "requests"
    sink = await SinkProcess.start(file, answer_seconds=0.0)
    try:
        assert await asyncio.to_thread(post, sink.url, "msg_a") == 204
        records = Records(file)
        await asyncio.to_thread(records.look)
        assert records.requests == 1
        assert records.missing({"msg_a"}, 1) == 0
        assert records.missing({"msg_b"}, 1) == 1
    finally:
        await sink.stop()


async def test_it_ends_when_its_input_does(tmp_path: Path):
    sink = await SinkProcess.start(tmp_path / "requests", answer_seconds=0.0)
    await sink.stop()
    assert sink.code == 0
