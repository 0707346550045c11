"""What we rely on in granian's embedded server, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from starlette.types import Message, Receive, Scope, Send

from tenure.errors import ConfigInvalid
from tenure.limits import REQUEST_HEADERS_BYTES
from tenure.server import serving
from tenure.server.serving import Listening, Running

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"


class Recorder:
    """An ASGI application that keeps what it was given, and answers when told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.started.set()
        while True:
            message = await receive()
            self.messages.append(message)
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@pytest_asyncio.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture
async def server(recorder: Recorder) -> AsyncIterator[Running]:
    running = await serving.start(recorder)
    yield running
    recorder.gate.set()
    await running.stop()


async def exchange(
    server: Running, data: bytes, *, end: bool = False, seconds: float = 20
) -> bytes:
    reader, writer = await asyncio.open_connection(
        server.listening.host, server.listening.port
    )
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        async with asyncio.timeout(seconds):
            return await reader.read(65536)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_port_zero_picks_a_free_port_that_answers(server: Running):
    assert server.listening.port > 0
    assert b" 200 " in await exchange(server, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


async def test_a_taken_port_is_refused_with_what_to_change():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=f"port {port}.*choose another"):
            await serving.start(Recorder(), port=port)


async def test_a_request_in_flight_is_answered_before_the_server_ends(
    recorder: Recorder,
):
    running = await serving.start(recorder)
    recorder.gate.clear()
    request = asyncio.create_task(
        exchange(running, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    )
    await asyncio.wait_for(recorder.started.wait(), 10)
    stopping = asyncio.create_task(running.stop())
    await asyncio.sleep(0)
    recorder.gate.set()
    assert b"done" in await request
    await asyncio.wait_for(stopping, 10)
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", running.listening.port)


@pytest.mark.parametrize(
    "rest",
    [b"content-length: 100\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n5\r\nabc"],
    ids=["length", "chunked"],
)
async def test_a_body_cut_short_arrives_as_a_disconnect_and_not_as_a_whole_body(
    server: Running, recorder: Recorder, rest: bytes
):
    await exchange(server, HEAD + rest, end=True)
    assert recorder.messages[-1]["type"] == "http.disconnect"
    assert all(message.get("more_body") for message in recorder.messages[:-1])


async def test_a_chunk_that_is_no_chunk_arrives_as_a_disconnect(
    server: Running, recorder: Recorder
):
    await exchange(server, HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n")
    assert recorder.messages[-1]["type"] == "http.disconnect"


async def test_headers_that_never_end_are_cut(recorder: Recorder):
    running = await serving.start(recorder, header_seconds=0.3)
    assert await exchange(running, HEAD) == b""
    assert not recorder.started.is_set()
    await running.stop()


async def test_headers_far_over_the_bound_never_reach_the_application(
    server: Running, recorder: Recorder
):
    long = b"x: " + b"a" * (8 * REQUEST_HEADERS_BYTES) + b"\r\n\r\n"
    assert b" 431 " in await exchange(server, HEAD + long)
    assert not recorder.started.is_set()


async def test_a_connection_is_kept_for_the_next_request(server: Running):
    reader, writer = await asyncio.open_connection(
        server.listening.host, server.listening.port
    )
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.readuntil(b"done")
    writer.close()
    await writer.wait_closed()


async def test_serve_tells_where_it_listens_and_ends_when_told(recorder: Recorder):
    stop = asyncio.Event()
    told: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    tell: Callable[[Listening], Any] = told.set_result
    serve = asyncio.create_task(
        serving.serve(recorder, port=0, stop=stop, started=tell)
    )
    listening = await asyncio.wait_for(told, 10)
    assert listening.url == f"http://127.0.0.1:{listening.port}"
    stop.set()
    await asyncio.wait_for(serve, 10)


def test_the_shown_address_can_be_opened():
    assert Listening(host="0.0.0.0", port=8071).url == "http://127.0.0.1:8071"
    assert Listening(host="::", port=8071).url == "http://[::1]:8071"
