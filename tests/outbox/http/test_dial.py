from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Generator

import pytest

from tenure import limits
from tenure.outbox.http import Answer, Cause, Failure, HttpTransport, Phase, Response
from tenure.outbox.http import dial as dial_module
from tenure.outbox.http.dial import connect_first, interleave
from tests.outbox.http.servers import (
    LOOPBACK,
    OK,
    Names,
    answering,
    closed_port,
    policy,
    post,
    serving,
)


def failed(outcome: Response | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


@contextlib.contextmanager
def blackhole(port: int = 0) -> Generator[int]:
    """A listener whose queue is full: connecting to it hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.2", port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.2", port))
        yield port


async def test_a_name_is_resolved_and_the_dialled_address_told(
    transport: HttpTransport, names: Names
) -> None:
    names.names["hook.example"] = ["127.0.0.1"]
    async with serving(answering(OK)) as server:
        request = post(f"http://hook.example:{server.port}/")
        response = await transport.send(request, policy())
        assert isinstance(response, Response)
        assert response.address == f"127.0.0.1:{server.port}"
        assert response.timings.dns is not None
        assert b"Host: hook.example:%d\r\n" % server.port in server.requests[0]


async def test_a_name_that_does_not_resolve_is_a_dns_failure(
    transport: HttpTransport,
) -> None:
    failure = failed(await transport.send(post("http://nowhere.example/"), policy()))
    assert (failure.cause, failure.phase, failure.began) == (
        Cause.DNS,
        Phase.DNS,
        False,
    )
    assert "nowhere.example" in failure.detail
    assert failure.address is None


async def test_a_name_that_turns_private_after_save_is_refused_at_dial(
    transport: HttpTransport, names: Names
) -> None:
    async with serving(answering(OK)) as server:
        names.names["rebind.example"] = ["93.184.216.34"]
        at_save = await names.resolve("rebind.example")
        assert at_save.addresses == (ipaddress.ip_address("93.184.216.34"),)
        names.names["rebind.example"] = ["127.0.0.1"]
        request = post(f"http://rebind.example:{server.port}/")
        failure = failed(await transport.send(request, policy(allow_networks=())))
        assert (failure.cause, failure.began) == (Cause.ADDRESS_REFUSED, False)
        assert "loopback" in failure.detail
        assert server.connections == 0


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]"],
)
async def test_no_spelling_of_the_loopback_is_dialled(
    transport: HttpTransport, names: Names, host: str
) -> None:
    async with serving(answering(OK)) as server:
        request = post(f"http://{host}:{server.port}/")
        failure = failed(await transport.send(request, policy(allow_networks=())))
        assert failure.cause is Cause.ADDRESS_REFUSED
        assert server.connections == 0
        assert names.asked == []


async def test_of_mixed_answers_only_what_the_rule_passes_is_dialled(
    transport: HttpTransport, names: Names
) -> None:
    names.names["mixed.example"] = ["::1", "10.0.0.1", "127.0.0.1"]
    async with serving(answering(OK)) as server:
        request = post(f"http://mixed.example:{server.port}/")
        outcome = await transport.send(request, policy(allow_networks=LOOPBACK[:1]))
        assert isinstance(outcome, Response)
        assert outcome.address == f"127.0.0.1:{server.port}"


async def test_the_peer_of_the_socket_is_checked_too(
    transport: HttpTransport, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answering(OK)) as server:

        async def elsewhere(addresses: object, port: int) -> socket.socket:
            sock = socket.socket()
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", port))
            return sock

        monkeypatch.setattr(dial_module, "connect_first", elsewhere)
        names.names["public.example"] = ["93.184.216.34"]
        request = post(f"http://public.example:{server.port}/")
        failure = failed(await transport.send(request, policy(allow_networks=())))
        assert (failure.cause, failure.began) == (Cause.ADDRESS_REFUSED, False)
        assert server.requests == []


async def test_a_refused_connection_is_refused(transport: HttpTransport) -> None:
    port = closed_port()
    failure = failed(await transport.send(post(f"http://127.0.0.1:{port}/"), policy()))
    assert (failure.cause, failure.phase, failure.began) == (
        Cause.REFUSED,
        Phase.CONNECT,
        False,
    )
    assert failure.address == f"127.0.0.1:{port}"


async def test_an_unanswered_connect_times_out_in_its_phase(
    transport: HttpTransport,
) -> None:
    with blackhole() as port:
        request = post(f"http://127.0.0.2:{port}/")
        failure = failed(await transport.send(request, policy(deadline_seconds=0.2)))
    assert (failure.cause, failure.phase, failure.began) == (
        Cause.TIMEOUT,
        Phase.CONNECT,
        False,
    )


async def test_an_unanswered_lookup_times_out_in_its_phase() -> None:
    class Silent(Names):
        async def resolve(self, host: str) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

    transport = HttpTransport(resolver=Silent())
    failure = failed(
        await transport.send(post("http://a.example/"), policy(deadline_seconds=0.2))
    )
    assert (failure.cause, failure.phase) == (Cause.TIMEOUT, Phase.DNS)
    await transport.aclose()


async def test_closing_ends_a_dial_as_cut(names: Names) -> None:
    transport = HttpTransport(resolver=names)
    with blackhole() as port:
        request = post(f"http://127.0.0.2:{port}/")
        task = asyncio.create_task(transport.send(request, policy()))
        await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await transport.aclose()
            failure = failed(await task)
    assert (failure.cause, failure.began) == (Cause.CUT, False)


async def test_a_dead_first_family_does_not_stop_the_second(
    transport: HttpTransport, names: Names
) -> None:
    names.names["dual.example"] = ["::1", "127.0.0.1"]  # nothing listens on ::1
    async with serving(answering(OK)) as server:
        request = post(f"http://dual.example:{server.port}/")
        outcome = await transport.send(request, policy())
        assert isinstance(outcome, Response)
        assert outcome.address == f"127.0.0.1:{server.port}"


async def test_a_silent_first_address_costs_the_stagger_only(
    transport: HttpTransport, names: Names
) -> None:
    async with serving(answering(OK)) as server:
        names.names["dual.example"] = ["127.0.0.2", "127.0.0.1"]
        with blackhole(server.port):
            request = post(f"http://dual.example:{server.port}/")
            outcome = await transport.send(request, policy(deadline_seconds=5))
        assert isinstance(outcome, Response)
        assert outcome.address == f"127.0.0.1:{server.port}"
        assert outcome.timings.connect is not None
        assert 200_000 <= outcome.timings.connect < 3_000_000


async def test_a_host_with_only_ipv6_is_reached(
    transport: HttpTransport, names: Names
) -> None:
    names.names["six.example"] = ["::1"]
    try:
        serving_six = serving(answering(OK), host="::1")
        async with serving_six as server:
            request = post(f"http://six.example:{server.port}/")
            outcome = await transport.send(request, policy())
            assert isinstance(outcome, Response)
            assert outcome.address == f"[::1]:{server.port}"
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")


async def test_of_two_connections_made_in_the_same_turn_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = asyncio.Barrier(2)
    made: list[socket.socket] = []

    async def together(address: object, port: int) -> socket.socket:
        sock = socket.socket()
        made.append(sock)
        await both.wait()
        return sock

    monkeypatch.setattr(dial_module, "_connect", together)
    monkeypatch.setattr(limits, "DIAL_STAGGER_SECONDS", 0.0)
    addresses = [ipaddress.ip_address(text) for text in ("::1", "127.0.0.1")]
    winner = await connect_first(addresses, 80)
    await asyncio.sleep(0)
    assert isinstance(winner, socket.socket)
    assert [sock for sock in made if sock.fileno() != -1] == [winner]
    winner.close()


async def test_an_attempt_that_lost_the_race_is_given_up() -> None:
    async with serving(answering(OK)) as server:
        addresses = [ipaddress.ip_address(text) for text in ("127.0.0.2", "127.0.0.1")]
        before = len(asyncio.all_tasks())
        with blackhole(server.port):
            winner = await connect_first(addresses, server.port)
            assert isinstance(winner, socket.socket)
            winner.close()
            async with asyncio.timeout(5):
                await server.ended.wait()
            assert len(asyncio.all_tasks()) <= before


async def test_when_every_address_fails_the_most_telling_cause_is_told() -> None:
    port = closed_port()
    addresses = [ipaddress.ip_address(text) for text in ("::1", "127.0.0.1")]
    made = await connect_first(addresses, port)
    assert not isinstance(made, socket.socket)
    assert made.cause is Cause.REFUSED


def test_families_alternate_and_the_first_goes_first() -> None:
    texts = ["2001:db8::1", "2001:db8::2", "192.0.2.1", "2001:db8::3", "192.0.2.2"]
    mixed = interleave([ipaddress.ip_address(text) for text in texts])
    assert [str(address) for address in mixed] == [
        "2001:db8::1",
        "192.0.2.1",
        "2001:db8::2",
        "192.0.2.2",
        "2001:db8::3",
    ]
