from __future__ import annotations

import asyncio
import gzip
import socket

import pytest

from tenure.outbox.http import (
    Cause,
    Failure,
    HttpTransport,
    Phase,
    Request,
    Response,
    parse_url,
)
from tests.outbox.http.servers import (
    LOOPBACK,
    OK,
    Names,
    Peer,
    answering,
    answering_then_close,
    closed_port,
    policy,
    post,
    serving,
)


def answered(outcome: Response | Failure) -> Response:
    assert isinstance(outcome, Response), outcome
    return outcome


def failed(outcome: Response | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


async def test_a_request_is_written_byte_for_byte_and_its_answer_kept(
    transport: HttpTransport,
) -> None:
    body = '{"a":1e400,"a":9007199254740993,"z":"😀\u2028","b":[1, 2]}'.encode()
    headers = ((b"WeBhOoK-ID", b"msg_1"), (b"content-type", b"x/\xe9"))
    async with serving(answering(OK)) as server:
        request = post(server.url + "?q=%41", body, headers)
        response = answered(await transport.send(request, policy()))
        assert server.requests == [
            b"POST /hook?q=%%41 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Content-Length: %d\r\nWeBhOoK-ID: msg_1\r\ncontent-type: x/\xe9\r\n\r\n%b"
            % (server.port, len(body), body)
        ]
        assert response.status == 200
        assert response.headers == ((b"Content-Length", b"2"),)
        assert response.body == b"ok"
        assert response.address == f"127.0.0.1:{server.port}"
        assert response.http_version == "1.1"
        assert response.tls_version is None
        assert not response.reused
        assert not response.truncated


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_carries_its_body(
    transport: HttpTransport, method: str
) -> None:
    async with serving(answering(OK)) as server:
        request = Request(
            method=method, url=parse_url(server.url), headers=(), body=b"abc"
        )
        answered(await transport.send(request, policy()))
        assert server.requests[0].startswith(method.encode() + b" /hook ")
        assert server.requests[0].endswith(b"\r\n\r\nabc")


async def test_a_connection_is_reused_and_says_so(transport: HttpTransport) -> None:
    async with serving(answering(OK)) as server:
        first = answered(await transport.send(post(server.url), policy()))
        second = answered(await transport.send(post(server.url), policy()))
        assert (first.reused, second.reused) == (False, True)
        assert server.connections == 1
        assert first.timings.connect is not None
        assert second.timings.connect is None
        assert second.timings.first_byte is not None
        assert second.timings.total >= second.timings.first_byte


@pytest.mark.parametrize(
    "changes",
    [{"allow_networks": LOOPBACK[:1]}, {"verify_tls": False}],
    ids=["networks", "verify"],
)
async def test_a_connection_is_not_shared_between_policies(
    transport: HttpTransport, changes: dict[str, object]
) -> None:
    async with serving(answering(OK)) as server:
        answered(await transport.send(post(server.url), policy()))
        again = answered(await transport.send(post(server.url), policy(**changes)))
        assert not again.reused
        assert server.connections == 2


async def test_a_connection_is_not_shared_between_host_names(
    transport: HttpTransport,
) -> None:
    async with serving(answering(OK)) as server:
        answered(await transport.send(post(server.url), policy()))
        url = f"http://localhost:{server.port}/hook"
        assert not answered(await transport.send(post(url), policy())).reused


async def test_a_redirect_is_not_followed_and_its_location_is_kept(
    transport: HttpTransport,
) -> None:
    async with serving(answering(OK)) as inside:
        location = b"Location: http://127.0.0.1:%d/secret\r\n" % inside.port
        redirect = b"HTTP/1.1 302 Found\r\n" + location + b"Content-Length: 0\r\n\r\n"
        async with serving(answering(redirect)) as server:
            headers = ((b"authorization", b"Bearer secret"),)
            request = post(server.url, headers=headers)
            response = answered(await transport.send(request, policy()))
            assert response.status == 302
            assert (b"Location", location[10:-2]) in response.headers
            assert (server.connections, inside.connections) == (1, 0)


async def test_the_environment_does_not_redirect_requests(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    async with serving(answering(OK)) as server:
        answered(await transport.send(post(server.url), policy()))


async def test_cookies_are_not_kept(transport: HttpTransport) -> None:
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(cookie)) as server:
        for _ in range(2):
            answered(await transport.send(post(server.url), policy()))
        assert all(b"ookie" not in request for request in server.requests)


async def test_a_gzip_bomb_is_kept_as_it_came(transport: HttpTransport) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with serving(answering(head % len(bomb) + bomb)) as server:
        response = answered(await transport.send(post(server.url), policy()))
        assert response.body == bomb[:32768]


async def test_ten_thousand_headers_are_too_large(transport: HttpTransport) -> None:
    lines = b"".join(b"X-%d: y\r\n" % n for n in range(10_000))
    async with serving(answering(b"HTTP/1.1 200 OK\r\n", lines, b"\r\n")) as server:
        failure = failed(await transport.send(post(server.url), policy()))
        assert (failure.cause, failure.phase) == (Cause.TOO_LARGE, Phase.HEADERS)
        assert failure.bytes_received


async def test_a_megabyte_of_header_line_is_too_large(transport: HttpTransport) -> None:
    line = b"X: " + b"y" * 1_000_000 + b"\r\n\r\n"
    async with serving(answering(b"HTTP/1.1 200 OK\r\n", line)) as server:
        failure = failed(await transport.send(post(server.url), policy()))
        assert failure.cause is Cause.TOO_LARGE


async def test_a_huge_response_is_cut_at_the_cap_and_not_downloaded(
    transport: HttpTransport,
) -> None:
    size = 200 * 1024 * 1024

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        piece = b"x" * 65536
        for _ in range(size // len(piece)):
            await peer.write(piece)

    async with serving(script) as server:
        response = answered(await transport.send(post(server.url), policy()))
        assert response.truncated
        assert len(response.body) == 32768
        async with asyncio.timeout(5):
            await server.ended.wait()
        # The cap, and what the buffers of two kernels' sides and of the loop took.
        assert server.sent < 16 * 1024 * 1024


async def test_an_endless_chunked_response_is_cut_at_the_cap(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with serving(script) as server:
        response = answered(await transport.send(post(server.url), policy()))
        assert (response.truncated, len(response.body)) == (True, 32768)
        async with asyncio.timeout(5):
            await server.ended.wait()


@pytest.mark.parametrize(
    ("start", "phase"),
    [
        (b"", Phase.HEADERS),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", Phase.HEADERS),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", Phase.BODY),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n", Phase.BODY),
        (b"HTTP/1.1 200 OK\r\n\r\n", Phase.BODY),
    ],
    ids=["silent", "head", "length", "chunked", "until close"],
)
async def test_a_drip_of_bytes_does_not_move_the_deadline(
    transport: HttpTransport, start: bytes, phase: Phase
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        await peer.request()
        if start:
            await peer.write(start)
        while start:
            await peer.write(b"a")
            await asyncio.sleep(0.02)
        await peer.gone()

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy()))
        began = asyncio.get_running_loop().time()
        failure = failed(
            await transport.send(post(server.url), policy(deadline_seconds=0.5))
        )
        took = asyncio.get_running_loop().time() - began
        assert (failure.cause, failure.phase) == (Cause.TIMEOUT, phase)
        assert failure.began
        assert failure.bytes_received is bool(start)
        assert 0.45 <= took < 5
        async with asyncio.timeout(5):
            await server.ended.wait()  # the connection was closed


async def test_a_receiver_that_does_not_read_times_out_while_sending(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy()))
        request = post(server.url, b"x" * 32 * 1024 * 1024)
        failure = failed(await transport.send(request, policy(deadline_seconds=0.5)))
        assert (failure.cause, failure.phase) == (Cause.TIMEOUT, Phase.SEND)
        assert (failure.began, failure.reused) == (True, True)


async def test_the_deadline_of_an_earlier_send_does_not_end_a_later_one(
    transport: HttpTransport,
) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        await peer.request()
        await release.wait()
        await peer.write(OK)

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy(deadline_seconds=0.2)))
        asyncio.get_running_loop().call_later(0.4, release.set)
        again = answered(await transport.send(post(server.url), policy()))
        assert again.reused


async def test_a_shorter_deadline_on_a_kept_connection_is_kept(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        await peer.gone()

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy(deadline_seconds=60)))
        failure = failed(
            await transport.send(post(server.url), policy(deadline_seconds=0.2))
        )
        assert (failure.cause, failure.reused) == (Cause.TIMEOUT, True)


async def test_a_kept_connection_that_ends_without_a_byte_is_a_reset_sent_once(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        await peer.request()  # reads the second request, then closes without a word

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy()))
        failure = failed(await transport.send(post(server.url), policy()))
        assert (
            failure.cause,
            failure.reused,
            failure.began,
            failure.bytes_received,
        ) == (
            Cause.RESET,
            True,
            True,
            False,
        )
        assert len(server.requests) == 2
        assert server.connections == 1
        fresh = answered(await transport.send(post(server.url), policy()))
        assert not fresh.reused


async def test_a_fresh_connection_that_is_reset_is_a_reset_not_reused(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    async with serving(script) as server:
        failure = failed(await transport.send(post(server.url), policy()))
        assert (failure.cause, failure.reused, failure.began) == (
            Cause.RESET,
            False,
            True,
        )
        assert len(server.requests) == 1


async def test_an_idle_connection_that_has_ended_is_not_used(
    transport: HttpTransport,
) -> None:
    async with serving(answering_then_close(OK)) as server:
        for _ in range(3):
            response = answered(await transport.send(post(server.url), policy()))
            assert not response.reused
            async with asyncio.timeout(5):
                await server.ended.wait()
            server.ended.clear()
        assert server.connections == 3


async def test_an_idle_connection_on_which_bytes_arrived_is_not_used(
    transport: HttpTransport,
) -> None:
    said = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.write(OK)
            await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
            said.set()

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy()))
        async with asyncio.timeout(5):
            await said.wait()
        again = answered(await transport.send(post(server.url), policy()))
        assert (again.reused, again.body) == (False, b"ok")


async def test_bytes_that_arrive_while_idle_close_the_connection(
    transport: HttpTransport,
) -> None:
    speak = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(OK)
        await speak.wait()
        await peer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await peer.gone()

    async with serving(script) as server:
        answered(await transport.send(post(server.url), policy()))
        speak.set()
        async with asyncio.timeout(5):
            await server.ended.wait()


async def test_an_end_that_only_the_kernel_has_seen_is_noticed(
    transport: HttpTransport,
) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    loop = asyncio.get_running_loop()
    request = post(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    first = asyncio.create_task(transport.send(request, policy()))
    accepted, _ = await loop.sock_accept(listener)
    await loop.sock_recv(accepted, 65536)
    await loop.sock_sendall(accepted, OK)
    answered(await first)
    accepted.close()  # the loop has no turn before the next send
    second = asyncio.create_task(transport.send(request, policy()))
    again, _ = await loop.sock_accept(listener)
    await loop.sock_recv(again, 65536)
    await loop.sock_sendall(again, OK)
    assert not answered(await second).reused
    again.close()
    listener.close()


async def test_the_guard_is_asked_last_and_its_no_writes_nothing(
    transport: HttpTransport,
) -> None:
    async with serving(answering(OK)) as server:
        failure = failed(
            await transport.send(post(server.url), policy(), lambda: False)
        )
        assert (failure.cause, failure.began) == (Cause.FENCED, False)
        assert failure.address == f"127.0.0.1:{server.port}"  # after the dial
        response = answered(
            await transport.send(post(server.url), policy(), lambda: True)
        )
        assert response.reused  # the unused connection was kept
        assert len(server.requests) == 1


async def test_a_guard_that_cannot_tell_refuses(transport: HttpTransport) -> None:
    def broken() -> bool:
        raise RuntimeError

    async with serving(answering(OK)) as server:
        failure = failed(await transport.send(post(server.url), policy(), broken))
        assert failure.cause is Cause.FENCED
        assert server.requests == []


async def test_a_request_that_cannot_be_written_is_a_value(
    transport: HttpTransport,
) -> None:
    request = post("http://127.0.0.1:1/", headers=((b"x", b"a\r\nb: c"),))
    failure = failed(await transport.send(request, policy()))
    assert (failure.cause, failure.phase, failure.began) == (
        Cause.PROTOCOL,
        Phase.SEND,
        False,
    )


async def test_a_cancelled_send_closes_its_connection(transport: HttpTransport) -> None:
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.gone()

    async with serving(script) as server:
        task = asyncio.create_task(transport.send(post(server.url), policy()))
        async with asyncio.timeout(5):
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.ended.wait()


async def test_closing_ends_sends_in_flight_as_cut(names: Names) -> None:
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.gone()

    transport = HttpTransport(resolver=names)
    async with serving(script) as server:
        task = asyncio.create_task(transport.send(post(server.url), policy()))
        async with asyncio.timeout(5):
            await arrived.wait()
            await transport.aclose()
            failure = failed(await task)
            await server.ended.wait()
        assert (failure.cause, failure.began) == (Cause.CUT, True)
        later = failed(await transport.send(post(server.url), policy()))
        assert (later.cause, later.began) == (Cause.CUT, False)


async def test_an_answer_before_the_whole_request_was_read_is_kept(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await peer.gone()

    async with serving(script) as server:
        request = post(server.url, b"x" * 16 * 1024 * 1024)
        response = answered(await transport.send(request, policy()))
        assert response.status == 413
        async with asyncio.timeout(5):
            await server.ended.wait()  # half a request leaves no usable connection
        assert not answered(await transport.send(post(server.url), policy())).reused


async def test_fifty_sends_at_once_each_get_their_own_answer(
    transport: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        while data := await peer.request():
            body = data.partition(b"\r\n\r\n")[2]
            await peer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )

    async def one(url: str, number: int) -> bool:
        body = b"body %d" % number
        response = answered(await transport.send(post(url, body), policy()))
        return response.body == body

    async with serving(script) as server:
        for _ in range(4):
            sends = (one(server.url, number) for number in range(50))
            assert all(await asyncio.gather(*sends))


async def test_the_first_status_line_alone_is_not_an_answer(
    transport: HttpTransport,
) -> None:
    async with serving(answering_then_close(b"HTTP/1.1 200 OK\r\n")) as server:
        failure = failed(await transport.send(post(server.url), policy()))
        assert (failure.cause, failure.phase) == (Cause.PROTOCOL, Phase.HEADERS)
        assert failure.bytes_received
