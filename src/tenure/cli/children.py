"""`tenure serve --processes N`: N nodes that share one port, kept running.

Each child is a node of its own in a process of its own. One that dies comes back, after
a pause that doubles while it keeps dying. A stop is passed on, and a second one too. A
parent that is killed tells nobody, so each child holds the read end of a pipe whose
write end only the parent has: when it reads the end, the child stops as on SIGTERM.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tenure.clock import SystemClock
from tenure.errors import EXIT_CONFIG
from tenure.limits import (
    CHILD_BACKOFF_MAX_SECONDS,
    CHILD_BACKOFF_MIN_SECONDS,
    CHILD_HEALTHY_SECONDS,
)

__all__ = ["Children", "reserve_port"]


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a bound socket that listens to nothing and keeps the port for children."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kept = socket.socket(family, socket.SOCK_STREAM)
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind((host, port))
    except BaseException:
        kept.close()
        raise
    return kept


class Children:
    """Keeps `count` processes running; `arguments` follow the name of the command.

    Each gets the number of the pipe that tells it of our end as its last argument, and
    the variables that `own` says for its number, counted from 0.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        count: int,
        note: Callable[[str], None],
        own: Callable[[int], Mapping[str, str]] = lambda _number: {},
    ) -> None:
        self._own: Final = own
        self._arguments: Final = tuple(arguments)
        self._count: Final = count
        self._note: Final = note
        self._stopping = asyncio.Event()
        self._running: Final[dict[int, asyncio.subprocess.Process]] = {}
        self._code = 0
        self._read, self._write = os.pipe()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(process.pid for process in self._running.values())

    async def run(self) -> int:
        """Run until every child has ended after a stop; return the exit code."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._keep(number))
        finally:
            os.close(self._read)
            os.close(self._write)
        return self._code

    def stop(self) -> None:
        """Pass a stop on; the second one cuts what is in flight."""
        self._stopping.set()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every process that runs now."""
        for process in self._running.values():
            process.send_signal(number)

    async def _keep(self, number: int) -> None:
        clock = SystemClock()
        pause = CHILD_BACKOFF_MIN_SECONDS
        while not self._stopping.is_set():
            began = clock.monotonic()
            code = await self._run_once(number)
            if self._stopping.is_set():
                # One that had not got as far as listening to signals held nothing.
                clean = code in {0, -signal.SIGTERM}
                self._code = max(self._code, 0 if clean else 1)
                return
            if code == EXIT_CONFIG:
                self._code = code  # it said why; the next one would say the same
                self.stop()
                return
            if clock.monotonic() - began >= CHILD_HEALTHY_SECONDS:
                pause = CHILD_BACKOFF_MIN_SECONDS
            self._note(
                f"process {number + 1} ended with {_ending(code)}; another one starts"
                f" in {pause:g} s"
            )
            await self._pause(pause)
            pause = min(pause * 2, CHILD_BACKOFF_MAX_SECONDS)

    async def _run_once(self, number: int) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tenure.cli",
            *self._arguments,
            str(self._read),
            pass_fds=(self._read,),
            env={**os.environ, **self._own(number)},
            # Ctrl-C goes to a whole group; a child must get it from us, once.
            start_new_session=True,
        )
        self._running[number] = process
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            del self._running[number]

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
