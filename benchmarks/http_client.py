"""The outbound client beside a floor and beside aiohttp, to one sink on loopback.

The same POST of 1 KiB with 50 in flight, on uvloop, in turn: a bare asyncio + httptools
loop with a timeout per request (a floor, not a client), ours with every rule on, and
aiohttp.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
import httptools

from benchmarks.figures import Figure, Result, median, ratio_of, spread
from benchmarks.processes import Actor, child
from benchmarks.sink import Sink
from tenure.outbox.http import HttpTransport, Policy, Request, Response, parse_url

IN_FLIGHT = 50
BODY = b'{"id":"msg_01","text":"' + b"x" * 1000 + b'"}'
HEADERS = (
    (b"content-type", b"application/json"),
    (b"webhook-id", b"msg_01h455vb4pex5vsknk084sn02q"),
    (b"webhook-timestamp", b"1700000000"),
    (b"webhook-signature", b"v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    (b"tenure-attempt", b"1"),
)
SHOWN = {"bare": "bare loop", "with_aiohttp": "aiohttp"}
if TYPE_CHECKING:  # a child needs no database to send requests
    from benchmarks.runs import Run

Post: TypeAlias = Callable[[], Awaitable[None]]


class Bare(asyncio.Protocol):
    """The floor: one request at a time, a timer each, nothing else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        """End the request."""
        self.timer.cancel()
        if not self.waiter.done():
            self.waiter.set_result(self.parser.get_status_code())

    async def post(self, data: bytes) -> int:
        """Send and wait for the status."""
        self.parser = httptools.HttpResponseParser(self)
        self.waiter = self.loop.create_future()
        self.timer = self.loop.call_later(15, self.waiter.cancel)
        self.transport.write(data)  # type: ignore[attr-defined]
        return await self.waiter


async def drive(post: Post, requests: int) -> tuple[float, float]:
    """Send with 50 in flight; return requests per second and CPU µs each."""
    left = iter(range(requests))

    async def worker() -> None:
        for _ in left:
            await post()

    started, cpu = time.perf_counter(), _cpu()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())
    seconds = time.perf_counter() - started
    return requests / seconds, (_cpu() - cpu) * 1e6 / requests


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def bare(port: int, requests: int) -> tuple[float, float]:
    """Measure the floor."""
    head = b"POST /hook HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n" % (
        port,
        len(BODY),
    )
    data = head + b"".join(b"%b: %b\r\n" % h for h in HEADERS) + b"\r\n" + BODY
    loop = asyncio.get_running_loop()
    idle: list[Bare] = []
    for _ in range(IN_FLIGHT):
        _, made = await loop.create_connection(Bare, "127.0.0.1", port)
        idle.append(made)

    async def post() -> None:
        connection = idle.pop()
        if await connection.post(data) != 200:
            raise AssertionError
        idle.append(connection)

    try:
        return await drive(post, requests)
    finally:
        for connection in idle:
            connection.transport.close()


async def ours(port: int, requests: int) -> tuple[float, float]:
    """Measure the client with every rule on."""
    transport = HttpTransport()
    policy = Policy(deadline_seconds=15, allow_networks=(ip_network("127.0.0.0/8"),))
    url = parse_url(f"http://127.0.0.1:{port}/hook")

    async def post() -> None:
        request = Request(method="POST", url=url, headers=HEADERS, body=BODY)
        outcome = await transport.send(request, policy, _yes)
        if not isinstance(outcome, Response) or outcome.status != 200:
            raise AssertionError(outcome)

    try:
        return await drive(post, requests)
    finally:
        await transport.aclose()


def _yes() -> bool:
    return True


async def with_aiohttp(port: int, requests: int) -> tuple[float, float]:
    """Measure aiohttp with one total timeout."""
    url = f"http://127.0.0.1:{port}/hook"
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    timeout = aiohttp.ClientTimeout(total=15)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def post() -> None:
            async with session.post(url, data=BODY, headers=headers) as response:
                await response.read()
                if response.status != 200:
                    raise AssertionError

        return await drive(post, requests)


class Clients(Actor):
    """The three in one process; each method returns (requests/s, CPU µs of each)."""

    async def bare(self, port: int, requests: int) -> tuple[float, float]:
        """Measure the floor."""
        return await bare(port, requests)

    async def ours(self, port: int, requests: int) -> tuple[float, float]:
        """Measure Tenure's client, every rule on."""
        return await ours(port, requests)

    async def with_aiohttp(self, port: int, requests: int) -> tuple[float, float]:
        """Measure aiohttp."""
        return await with_aiohttp(port, requests)


async def run(given: Run) -> Result:
    """Measure the three in turn."""
    requests = given.pick(tiny=200, quick=10_000, full=30_000)
    found: dict[str, list[tuple[float, float]]] = {}
    result = Result()
    async with child(Sink) as sink, child(Clients) as clients:
        port = await sink.call("listen")
        for _ in range(given.rounds):
            for name in ("bare", "ours", "with_aiohttp"):
                count = requests // (4 if name == "with_aiohttp" else 1)
                found.setdefault(name, []).append(await clients.call(name, port, count))
        if given.profile:
            await clients.call("start_profile")
            await clients.call("ours", port, requests)
            result.tables["Tenure's HTTP client"] = await clients.call("stop_profile")
    rates = {name: [rate for rate, _ in rounds] for name, rounds in found.items()}
    cpu = {name: median(each for _, each in rounds) for name, rounds in found.items()}
    for name, at_least in (("bare", 0.6), ("with_aiohttp", None)):
        ratio = ratio_of(rates["ours"], rates[name])
        result.figures.append(
            Figure(
                mark="client",
                what=f"Tenure's HTTP client / {SHOWN[name]}",
                measured=f"{ratio:.2f}: {spread(rates['ours'])}/s,"
                f" {cpu['ours']:.0f} µs CPU each, beside {spread(rates[name])}/s,"
                f" {cpu[name]:.0f} µs",
                ratio=ratio,
                at_least=at_least,
            )
        )
    return result
