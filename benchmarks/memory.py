"""T6: what a node holds in memory beside a large backlog, with much in flight.

The process is `tenure serve` as it is installed. The backlog is loaded by SQL before it
starts; the sink answers after 1.2 s, which is not slow enough for the bulkhead, so a
thousand slots stay full. Memory is the resident set as the kernel counts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from benchmarks.databases import SHOWN, Dialect
from benchmarks.figures import Figure, Result, median
from benchmarks.node import KEY, RING, Node
from benchmarks.processes import child
from benchmarks.runs import Run
from benchmarks.sink import Sink

ENDPOINTS: Final = 10
SLOTS: Final = 1_000
ANSWER_MS: Final = 1_200
START_SECONDS: Final = 60.0
MB: Final = 1_000_000
_RESIDENT: Final = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        result.figures += await _one(given, dialect)
    return result


async def _one(given: Run, dialect: Dialect) -> list[Figure]:
    backlog = given.pick(tiny=3_000, quick=200_000, full=1_000_000)
    slots = given.pick(tiny=40, quick=SLOTS, full=SLOTS)
    seconds = given.pick(tiny=2.0, quick=12.0, full=60.0)
    url = await given.databases.fresh(dialect)
    async with child(Sink) as sink, child(Node) as node:
        port = await sink.call("listen")
        await node.call("open", url, works=False)
        (app,) = await node.call(
            "make",
            [f"http://127.0.0.1:{port}/wait/{ANSWER_MS}/{n}" for n in range(ENDPOINTS)],
        )
        loaded = await node.call("load", app, backlog)
        await node.call("close")
        given.say(f"memory: {backlog:,} messages loaded in {loaded:.0f} s")
        await given.databases.settle()
        samples: list[int] = []
        async with _serving(given, url, slots) as pid:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                samples.append(_resident(pid))
                await asyncio.sleep(0.1)
        _, sent, live = await sink.call("counted")
    third = len(samples) // 3
    first, last = median(samples[third : 2 * third]), median(samples[2 * third :])
    where = f"{SHOWN[dialect]}, backlog {backlog:,}"
    return [
        Figure(
            mark="T6",
            what=f"resident MB at most, {where}",
            measured=f"{max(samples) / MB:.0f}; {live:,} in flight at most,"
            f" {sent:,} sent",
            ratio=max(samples) / MB,
            at_most=200,
        ),
        Figure(
            mark="T6",
            what=f"last third of {seconds:.0f} s / second third, {where}",
            measured=f"{last / first:.2f}: {last / MB:.0f} MB beside {first / MB:.0f}",
        ),
    ]


@contextlib.asynccontextmanager
async def _serving(given: Run, url: str, slots: int) -> AsyncGenerator[int]:
    """Run `tenure serve` on a free port; give its process id once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environ = {
        **os.environ,
        "TENURE_DATABASE_URL": url,
        "TENURE_BOOTSTRAP_KEY": KEY,
        "TENURE_SECRET_KEYS": RING,
        "TENURE_ALLOW_NETWORKS": "127.0.0.0/8",
        "TENURE_SLOTS": str(slots),
        "TENURE_DRAIN_SECONDS": "1",
        **given.settings,
    }
    log = given.databases.folder / f"serve-{port}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure.cli", "serve", "--port", str(port)),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=given.databases.folder,
        )
    try:
        await _answers(port, process, log)
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(START_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _answers(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise RuntimeError(f"it did not start: {log.read_text(encoding='utf-8')}")


def _resident(pid: int) -> int:
    found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) * 1024
