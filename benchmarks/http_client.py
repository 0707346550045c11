"""Requests per second of the outbound client, beside a floor and beside aiohttp.

One sink in a process of its own; then, interleaved in one process, three clients send
the same POST with 50 in flight: a bare asyncio + httptools loop with a timeout per
request (a floor, not a client), ours with every rule on, and aiohttp. Medians of the
rounds; only the ratios carry over to another machine.

    python benchmarks/http_client.py [--requests 10000] [--rounds 3] [--no-uvloop]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from multiprocessing.connection import Connection as Pipe
from typing import TypeAlias

import aiohttp
import httptools
import uvloop

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
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
Post: TypeAlias = Callable[[], Awaitable[None]]


class Sink(asyncio.Protocol):
    """Answers each complete request at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a parser for this connection."""
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Answer."""
        self.transport.write(ANSWER)  # type: ignore[attr-defined]


def sink(pipe: Pipe) -> None:
    """Serve until killed; tell the port."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Sink, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


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


def main() -> None:
    """Run the rounds and print medians and ratios."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--no-uvloop", action="store_true")
    chosen = options.parse_args()
    run = asyncio.run if chosen.no_uvloop else uvloop.run
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=sink, args=(there,), daemon=True)
    process.start()
    port = here.recv()
    clients = {"bare": bare, "tenure": ours, "aiohttp": with_aiohttp}
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for _ in range(chosen.rounds):
        for name, client in clients.items():
            count = chosen.requests // (4 if name == "aiohttp" else 1)
            figures[name].append(run(client(port, count)))
    process.terminate()
    rates = {n: statistics.median(r for r, _ in f) for n, f in figures.items()}
    for name, rate in rates.items():
        cpu = statistics.median(c for _, c in figures[name])
        print(f"{name:8} {rate:9,.0f} requests/s {cpu:7.1f} CPU µs each")
    print(f"tenure / bare    {rates['tenure'] / rates['bare']:.2f}")
    print(f"tenure / aiohttp {rates['tenure'] / rates['aiohttp']:.2f}")


if __name__ == "__main__":
    main()
