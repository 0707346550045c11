"""Real `tenure serve` processes: started, terminated and killed by their pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenure.clock import Clock, SystemClock
from tenure.errors import ServerUnreachable
from tenure.limits import (
    CONNECT_SECONDS,
    LAB_END_SECONDS,
    LAB_LOOK_SECONDS,
    LAB_READY_SECONDS,
)

__all__ = ["NodeProcess", "Orphans", "free_port"]

HEALTH: Final = (
    b"GET /api/v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
)
LOG_TAIL: Final = 2_000  # characters that an error shows


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Orphans:
    """A pipe whose end tells children that the process that started them has gone."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()

    def close(self) -> None:
        """Let go of both ends."""
        os.close(self.read)
        os.close(self._write)


@dataclass(slots=True, kw_only=True)
class NodeProcess:
    """One `tenure serve` on one port, which may be restarted any number of times.

    `environ` is laid over this process's environment. With `orphans` it ends by itself
    when this process is gone, and gets no signal that is meant for a terminal.
    """

    port: int
    environ: Mapping[str, str]
    log: Path
    cwd: Path
    inherited: Mapping[str, str] = field(default_factory=lambda: os.environ)
    orphans: Orphans | None = None
    process: asyncio.subprocess.Process | None = None
    pids: list[int] = field(default_factory=list[int])
    """Of every process that it was, oldest first."""
    ready: bool = False
    """Whether it has answered since it was started last."""
    clock: Clock = field(default_factory=SystemClock)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, *, seconds: float = LAB_READY_SECONDS) -> float:
        """Start it and wait until it answers; return after how many seconds.

        Raises ServerUnreachable with the end of its log when it does not.
        """
        began = self.clock.monotonic()
        log = await asyncio.to_thread(self.log.open, "ab")
        try:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tenure.cli",
                "serve",
                "--port",
                str(self.port),
                *self._supervised(),
                cwd=self.cwd,
                env={**self.inherited, **self.environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=() if self.orphans is None else (self.orphans.read,),
                start_new_session=self.orphans is not None,
            )
        finally:
            log.close()
        self.pids.append(self.process.pid)
        while self.clock.monotonic() < began + seconds:
            if self.process is None or self.process.returncode is not None:
                break
            if await _answers(self.port):
                self.ready = True
                return self.clock.monotonic() - began
            await asyncio.sleep(LAB_LOOK_SECONDS)
        said = await asyncio.to_thread(self.log.read_text)
        code = None if self.process is None else self.process.returncode
        how = f"ended with {code}" if code is not None else "did not answer"
        took = self.clock.monotonic() - began
        raise ServerUnreachable(
            f"the node on port {self.port} {how} within {took:.0f} s:"
            f" {said[-LOG_TAIL:]}"
        )

    def _supervised(self) -> Sequence[str]:
        if self.orphans is None:
            return ()
        return ("--supervised", str(self.orphans.read))

    async def terminate(self) -> int:
        """Send SIGTERM; return the exit code once it has ended by itself."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> int:
        """Send SIGKILL: no cleaning up, no drain, no last word."""
        return await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> int:
        process = self.process
        assert process is not None
        self.ready = False
        self.signal(number)
        async with asyncio.timeout(LAB_END_SECONDS):
            code = await process.wait()
        self.process = None
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


async def _answers(port: int) -> bool:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(HEALTH)
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return b" 200 " in line
