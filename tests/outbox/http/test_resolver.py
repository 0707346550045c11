from __future__ import annotations

import asyncio
import ipaddress

import pytest

from tenure import limits
from tenure.clock import SettableClock
from tenure.outbox.http import Answer, CachingResolver, DnsResolver

ONE = ipaddress.ip_address("192.0.2.1")


class Zone:
    """A name server of a test: counts, and answers when told."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.running = 0
        self.most = 0
        self.open = asyncio.Event()
        self.open.set()
        self.arrivals: asyncio.Queue[str] = asyncio.Queue()
        self.closed = False

    async def resolve(self, host: str) -> Answer:
        self.asked.append(host)
        self.arrivals.put_nowait(host)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return self.answer

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("ttl", "kept"),
    [
        (0, limits.DNS_TTL_MIN_SECONDS),
        (20, 20),
        (86_400, limits.DNS_TTL_MAX_SECONDS),
    ],
)
async def test_an_answer_is_kept_for_its_time_within_bounds(
    ttl: float, kept: float
) -> None:
    clock = SettableClock()
    zone = Zone(Answer(addresses=(ONE,), ttl_seconds=ttl))
    resolver = CachingResolver(zone, clock=clock)
    for _ in range(3):
        assert (await resolver.resolve("a.example")).addresses == (ONE,)
    clock.advance(kept - 0.1)
    await resolver.resolve("a.example")
    assert len(zone.asked) == 1
    clock.advance(0.2)
    await resolver.resolve("a.example")
    assert len(zone.asked) == 2
    await resolver.aclose()
    assert zone.closed


async def test_a_failure_is_kept_for_a_short_time() -> None:
    clock = SettableClock()
    zone = Zone(Answer(error="Domain name not found"))
    resolver = CachingResolver(zone, clock=clock)
    for _ in range(2):
        assert (await resolver.resolve("a.example")).error == "Domain name not found"
    assert len(zone.asked) == 1
    clock.advance(limits.DNS_NEGATIVE_SECONDS + 0.1)
    await resolver.resolve("a.example")
    assert len(zone.asked) == 2
    await resolver.aclose()


async def test_many_sends_share_one_lookup_and_one_may_give_up() -> None:
    zone = Zone(Answer(addresses=(ONE,), ttl_seconds=9))
    zone.open.clear()
    resolver = CachingResolver(zone, clock=SettableClock())
    waiting = [asyncio.create_task(resolver.resolve("a.example")) for _ in range(10)]
    await zone.arrivals.get()
    waiting[0].cancel()
    await asyncio.sleep(0)
    zone.open.set()
    answers = await asyncio.gather(*waiting[1:])
    assert all(answer.addresses == (ONE,) for answer in answers)
    assert waiting[0].cancelled()
    assert zone.asked == ["a.example"]
    await resolver.aclose()


async def test_lookups_at_once_are_bounded() -> None:
    zone = Zone(Answer(addresses=(ONE,), ttl_seconds=9))
    resolver = CachingResolver(zone, clock=SettableClock())
    names = [f"{number}.example" for number in range(limits.DNS_LOOKUPS_MAX * 2)]
    zone.open.clear()
    waiting = asyncio.gather(*(resolver.resolve(name) for name in names))
    for _ in range(limits.DNS_LOOKUPS_MAX):
        await zone.arrivals.get()
    for _ in range(10):
        await asyncio.sleep(0)
    zone.open.set()
    await waiting
    assert zone.most == limits.DNS_LOOKUPS_MAX
    await resolver.aclose()


async def test_the_cache_is_bounded() -> None:
    zone = Zone(Answer(addresses=(ONE,), ttl_seconds=9))
    resolver = CachingResolver(zone, clock=SettableClock())
    for number in range(limits.DNS_CACHE_MAX + 10):
        await resolver.resolve(f"{number}.example")
    assert len(resolver._cache) == limits.DNS_CACHE_MAX
    assert "0.example" not in resolver._cache
    await resolver.aclose()


async def test_a_resolver_that_breaks_is_an_answer_too() -> None:
    class Broken(Zone):
        async def resolve(self, host: str) -> Answer:
            raise RuntimeError(host)

    resolver = CachingResolver(Broken(Answer()), clock=SettableClock())
    assert "RuntimeError" in (await resolver.resolve("a.example")).error
    await resolver.aclose()


async def test_closing_ends_lookups_and_answers_who_waits() -> None:
    zone = Zone(Answer(addresses=(ONE,)))
    zone.open.clear()
    resolver = CachingResolver(zone, clock=SettableClock())
    waiting = asyncio.create_task(resolver.resolve("a.example"))
    await zone.arrivals.get()
    await resolver.aclose()
    assert (await waiting).error == "lookup was given up"


async def test_the_hosts_file_and_localhost_are_answered_by_the_real_resolver() -> None:
    resolver = DnsResolver()
    answer = await resolver.resolve("localhost")
    assert ipaddress.ip_address("127.0.0.1") in answer.addresses
    malformed = await resolver.resolve("a..b")
    assert malformed.error
    assert malformed.addresses == ()
    await resolver.aclose()


async def test_a_real_lookup_reads_addresses_and_times_from_the_wire() -> None:
    asked: list[bytes] = []

    class NameServer(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            end = data.index(b"\0", 12) + 5
            question, kind = data[12:end], data[end - 4 : end - 2]
            asked.append(kind)
            record, count = b"", 0
            if kind == b"\0\1":
                count = 1
                record = b"\xc0\x0c\0\1\0\1\0\0\0\x07\0\4" + ONE.packed
            reply = data[:2] + b"\x81\x80\0\1" + count.to_bytes(2, "big") + b"\0\0\0\0"
            self.transport.sendto(reply + question + record, addr)  # type: ignore[attr-defined]

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    port = transport.get_extra_info("sockname")[1]
    resolver = DnsResolver([f"127.0.0.1:{port}"])
    answer = await resolver.resolve("hook.example")
    assert answer == Answer(addresses=(ONE,), ttl_seconds=7)
    assert sorted(set(asked)) == [b"\0\1", b"\0\x1c"]
    await resolver.aclose()
    transport.close()
