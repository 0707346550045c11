"""Processes of our own: each runs one actor on its own event loop and answers calls.

An actor is a class whose async methods are called by name through a pipe, one after the
other, while its sockets and tasks go on. A process ends when its pipe closes, so none
outlives the run, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import importlib
import os
import pstats
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.figures import table

ROOT: Final = Path(__file__).parents[1]
RUN: Final = "from benchmarks.processes import main; main()"
PATIENCE: Final = 600.0  # seconds for one call
END_SECONDS: Final = 20.0  # for a process to end by itself
PROFILE_LINES: Final = 25


class Actor:
    """What a process runs; its methods are what its parent may call."""

    _profile: cProfile.Profile | None = None

    async def aclose(self) -> None:
        """End what was begun."""

    async def cpu(self) -> float:
        """Return the processor seconds that this process has used, all threads."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    async def start_profile(self) -> None:
        """Begin to profile the event loop's thread, by its own processor time."""
        self._profile = cProfile.Profile(time.thread_time)
        self._profile.enable()

    async def stop_profile(self) -> str:
        """Return what took most of its own time, as a Markdown table."""
        assert self._profile is not None
        self._profile.disable()
        return profile_table(self._profile)


def profile_table(profile: cProfile.Profile) -> str:
    """Return the functions with most own time, and their share."""
    profile.create_stats()
    found: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = (
        pstats.Stats(profile).stats  # type: ignore[attr-defined]
    )
    whole = sum(own for _, _, own, _, _ in found.values()) or 1.0
    top = sorted(found.items(), key=lambda item: -item[1][2])[:PROFILE_LINES]
    rows = [
        (
            f"{100 * own / whole:.1f} %",
            f"{own * 1e6 / calls:.1f}",
            f"{calls:,}",
            f"`{_place(file, line, name)}`",
        )
        for (file, line, name), (_, calls, own, _, _) in top
    ]
    return "\n".join(table(("own CPU", "µs a call", "calls", "function"), rows))


def _place(file: str, line: int, name: str) -> str:
    for mark in ("/site-packages/", "/src/", "/python3"):
        file = file.rpartition(mark)[2]
    return name if file == "~" else f"{file}:{line} {name}"


class Child:
    """A process that answers calls."""

    def __init__(self, actor: type[Actor]) -> None:
        self._pipe, theirs = Pipe()
        self._turn = asyncio.Lock()
        self.name: Final = actor.__name__
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process: Final = subprocess.Popen(
            [
                sys.executable,
                "-c",
                RUN,
                actor.__module__,
                self.name,
                str(theirs.fileno()),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
        theirs.close()

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method; raise RuntimeError with the other side's traceback."""
        async with self._turn, asyncio.timeout(PATIENCE):
            self._pipe.send((name, args, kwargs))
            good, value = await asyncio.to_thread(self._pipe.recv)
        if not good:
            raise RuntimeError(f"{self.name}.{name} failed:\n{value}")
        return value

    async def end(self) -> None:
        """Close the pipe and wait for the process; kill it when it does not end."""
        self._pipe.close()
        try:
            await asyncio.to_thread(self.process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


@contextlib.asynccontextmanager
async def child(actor: type[Actor]) -> AsyncGenerator[Child]:
    """Run an actor in a process of its own, and end it afterwards."""
    made = Child(actor)
    try:
        yield made
    finally:
        await made.end()


def main() -> None:
    """Run the actor that the arguments name until its pipe closes."""
    _, module, name, descriptor = sys.argv
    pipe: Connection[Any, Any] = Connection(int(descriptor))
    actor: type[Actor] = getattr(importlib.import_module(module), name)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_answer_all(pipe, actor()))


async def _answer_all(pipe: Connection[Any, Any], actor: Actor) -> None:
    arrived = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), arrived.set)
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            while pipe.poll():
                name, args, kwargs = pipe.recv()
                try:
                    answer = True, await getattr(actor, name)(*args, **kwargs)
                except Exception:  # noqa: BLE001 - the parent raises it
                    answer = False, traceback.format_exc()
                pipe.send(answer)
    except (EOFError, ConnectionError, BrokenPipeError):
        pass
    finally:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        await actor.aclose()
