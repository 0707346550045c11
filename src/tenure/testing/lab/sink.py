"""The receiver of the crash lab: a process of its own that nothing is done to.

It writes a line for each request before it answers, so that what it answered was
counted. It ends when its standard input does, and with it ends every PostgreSQL of the
lab that still runs: a lab that was killed leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tenure.errors import ServerUnreachable
from tenure.limits import LAB_END_SECONDS, LAB_READY_SECONDS
from tenure.testing.lab.records import Record
from tenure.testing.receivers import Received, Receiver, Reply

__all__ = ["SinkProcess"]

OWNER_ONLY: Final = 0o600


class SinkProcess:
    """The sink as the lab sees it: where it listens, and its end."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process: Final = process
        self.url: Final = url

    @classmethod
    async def start(cls, file: Path, *, answer_seconds: float) -> SinkProcess:
        """Start it; it appends to `file` and answers 204 after `answer_seconds`.

        Raises ServerUnreachable when it does not say where it listens.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tenure.testing.lab.sink",
            str(file),
            str(answer_seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(LAB_READY_SECONDS):
                url = (await process.stdout.readline()).decode().strip()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if not url:
            await process.wait()
            raise ServerUnreachable("the receiver of the lab did not start")
        return cls(process, url)

    @property
    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.returncode

    async def stop(self) -> None:
        """End it; returns when it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(LAB_END_SECONDS):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()


async def serve(file: str, answer_seconds: float) -> None:
    """Receive until standard input ends; prints its address first."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(file, flags, OWNER_ONLY)
    receiver = Receiver()
    reply = Reply(status=204, delay_seconds=answer_seconds)

    def keep(received: Received) -> Reply:
        record = Record(
            at=received.at,
            endpoint=received.target,
            attempt=int(received.header("tenure-attempt") or 0),
            message=received.message_id or "-",
        )
        os.write(descriptor, record.line())
        receiver.requests.clear()  # the file keeps them
        return reply

    receiver.answer(keep)
    ended = asyncio.Event()
    # Nobody ever writes: it becomes readable when the lab has gone.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with receiver:
        print(receiver.url, flush=True)  # noqa: T201 - how the lab learns of it
        await ended.wait()
    os.close(descriptor)
    end_servers(Path(file).parent)


def end_servers(folder: Path) -> None:
    """Crash every PostgreSQL whose cluster lies below a lab's folder."""
    for found in folder.glob("*/data/postmaster.pid"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            os.kill(int(found.read_text().splitlines()[0]), signal.SIGQUIT)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
