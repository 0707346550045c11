from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator

import psutil
import pytest

from tenure.outbox.http import Cause, Failure, HttpTransport, Phase, Response
from tests.outbox.http.certificates import Authority, authority
from tests.outbox.http.servers import OK, Names, Peer, answering, policy, post, serving


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def trusting(signer: Authority, names: Names) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(resolver=names, extra_ca_pem=signer.pem)
    yield transport
    await transport.aclose()


def failed(outcome: Response | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_trusted_receiver_is_reached_and_its_connection_kept(
    trusting: HttpTransport, signer: Authority, host: str
) -> None:
    async with serving(answering(OK), tls=signer.server()) as server:
        request = post(f"https://{host}:{server.port}/")
        first = await trusting.send(request, policy())
        assert isinstance(first, Response), first
        assert first.tls_version == "TLSv1.3"
        assert first.timings.tls is not None
        second = await trusting.send(request, policy())
        assert isinstance(second, Response)
        assert second.timings.tls is None
        assert second.tls_version == "TLSv1.3"


async def test_the_name_sent_to_the_receiver_is_the_host_of_the_url(
    trusting: HttpTransport, signer: Authority
) -> None:
    asked: list[str | None] = []
    context = signer.server()
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    async with serving(answering(OK), tls=context) as server:
        await trusting.send(post(f"https://localhost:{server.port}/"), policy())
    assert asked == ["localhost"]


@pytest.mark.parametrize(
    ("host", "days", "signed", "detail"),
    [
        ("localhost", -1, True, "expired"),
        ("other.example", 1, True, "for another host"),
        ("localhost", 1, False, "self-signed"),
    ],
)
async def test_a_bad_certificate_is_a_named_failure(
    trusting: HttpTransport,
    signer: Authority,
    host: str,
    days: int,
    signed: bool,
    detail: str,
) -> None:
    context = signer.server(host=host, days=days, signed=signed)
    async with serving(answering(OK), tls=context) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await trusting.send(post(url), policy()))
        assert (failure.cause, failure.phase, failure.began) == (
            Cause.TLS,
            Phase.TLS,
            False,
        )
        assert detail in failure.detail
        assert server.requests == []
        insecure = await trusting.send(post(url), policy(verify_tls=False))
        assert isinstance(insecure, Response)


async def test_an_authority_that_nobody_trusts_is_a_named_failure(
    transport: HttpTransport, signer: Authority
) -> None:
    async with serving(answering(OK), tls=signer.server()) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await transport.send(post(url), policy()))
        assert "unknown issuer" in failure.detail


async def test_an_insecure_connection_does_not_serve_a_verified_send(
    transport: HttpTransport, signer: Authority
) -> None:
    async with serving(answering(OK), tls=signer.server()) as server:
        url = f"https://localhost:{server.port}/"
        outcome = await transport.send(post(url), policy(verify_tls=False))
        assert isinstance(outcome, Response)
        failed(await transport.send(post(url), policy()))


async def test_a_receiver_with_tls_1_0_only_is_a_named_failure(
    trusting: HttpTransport, signer: Authority
) -> None:
    # In a thread: asyncio's server drops the alert that a blocking one sends.
    context = signer.old_server()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted, pytest.raises(ssl.SSLError):
            context.wrap_socket(accepted, server_side=True)

    with listener:
        serving_old = asyncio.create_task(asyncio.to_thread(serve))
        url = f"https://localhost:{listener.getsockname()[1]}/"
        failure = failed(await trusting.send(post(url), policy()))
        assert failure.cause is Cause.TLS
        assert "TLS version" in failure.detail
        await serving_old


async def test_a_receiver_that_does_not_speak_tls_is_a_named_failure(
    trusting: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(100)
        await peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await trusting.send(post(url), policy()))
        assert failure.cause is Cause.TLS
        assert "does not speak TLS" in failure.detail


async def test_a_handshake_that_never_ends_times_out_in_its_phase(
    trusting: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async with serving(script) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await trusting.send(post(url), policy(deadline_seconds=0.3)))
        assert (failure.cause, failure.phase) == (Cause.TIMEOUT, Phase.TLS)
        async with asyncio.timeout(5):
            await server.ended.wait()


async def test_a_handshake_that_is_cut_off_is_a_reset_in_its_phase(
    trusting: HttpTransport,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(100)
        peer.reset()

    async with serving(script) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await trusting.send(post(url), policy()))
        assert failure.phase is Phase.TLS
        assert failure.cause in {Cause.RESET, Cause.TLS}
        assert not failure.began


async def test_a_trust_store_that_cannot_be_read_is_a_failure(names: Names) -> None:
    transport = HttpTransport(resolver=names, extra_ca_pem="not a certificate")
    async with serving(answering(OK)) as server:
        url = f"https://localhost:{server.port}/"
        failure = failed(await transport.send(post(url), policy()))
        assert failure.cause is Cause.TLS
        assert "trust store" in failure.detail
    await transport.aclose()


async def test_a_body_over_tls_is_cut_at_the_cap(
    trusting: HttpTransport, signer: Authority
) -> None:
    body = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(body)
        await peer.gone()

    async with serving(script, tls=signer.server()) as server:
        outcome = await trusting.send(
            post(f"https://localhost:{server.port}/"), policy()
        )
        assert isinstance(outcome, Response)
        assert (outcome.truncated, len(outcome.body)) == (True, 32768)


def test_no_context_goes_below_tls_1_2() -> None:
    from tenure.outbox.http.tls import TlsContexts

    async def both() -> list[ssl.SSLContext]:
        contexts = TlsContexts()
        return [await contexts.context(verify=verify) for verify in (True, False)]

    for context in asyncio.run(both()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_send_cancelled_at_any_turn_of_the_loop_leaves_no_socket_open(
    trusting: HttpTransport, signer: Authority
) -> None:
    process = psutil.Process()
    async with serving(answering(OK), tls=signer.server()) as server:
        request = post(f"https://localhost:{server.port}/")
        await trusting.send(request, policy(verify_tls=False))  # opens what stays open
        before = ours_to(process, server.port)
        answers = 0
        for turns in range(60):
            task = asyncio.create_task(trusting.send(request, policy()))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            [outcome] = await asyncio.gather(task, return_exceptions=True)
            answers += isinstance(outcome, Response)
            assert isinstance(outcome, Response | asyncio.CancelledError)
        async with asyncio.timeout(5):
            # Sockets close some turns of the loop later.
            while ours_to(process, server.port) - before > min(answers, 1):  # noqa: ASYNC110
                await asyncio.sleep(0)


def ours_to(process: psutil.Process, port: int) -> int:
    connections = process.net_connections("tcp")
    return sum(1 for c in connections if c.raddr and c.raddr[1] == port)
