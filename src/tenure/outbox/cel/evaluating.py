"""Evaluating what may take long, in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.errors import QueueFull
from tenure.limits import (
    EXPRESSION_REST_SECONDS,
    EXPRESSION_SECONDS,
    EXPRESSION_WAIT_SECONDS,
    EXPRESSIONS_KEPT,
)
from tenure.outbox.cel.expressions import Outcome, evaluate, is_short

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Evaluator", "evaluate_blocking"]

_WORKER: Final = str(Path(__file__).with_name("worker.py"))
_START_SECONDS: Final = 5.0
_ANSWER: Final = msgspec.json.Decoder(tuple[Any, str | None])
_FAULT_MAX: Final = 150


def _exceeded(seconds: float) -> Outcome:
    return Outcome(
        fault=f"it ran past its bound of {seconds:g} s or its memory", exceeded=True
    )


def _command(seconds: float) -> tuple[str, ...]:
    return (sys.executable, "-I", _WORKER, str(seconds))


def _request(text: str, facts: Mapping[str, Any]) -> bytes:
    body = msgspec.json.encode([text, facts])
    return len(body).to_bytes(4, "big") + body


def _outcome(answer: bytes) -> Outcome:
    value, fault = _ANSWER.decode(answer)
    if fault is not None:
        return Outcome(fault=" ".join(fault.split())[:_FAULT_MAX])
    return Outcome(value=value)


class Evaluator:
    """Evaluates expressions, one at a time where they may take long.

    The process is started when it is first needed. It ends itself when an expression
    has used `seconds` of a processor: a busy machine makes no expression slow. For one
    event loop.
    """

    def __init__(self, seconds: float = EXPRESSION_SECONDS) -> None:
        self._seconds: Final = seconds
        self._lock: Final = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._resting: Final[dict[tuple[str, str], float]] = {}

    async def evaluate(
        self, text: str, facts: Mapping[str, Any], body_bytes: int, *, whose: str
    ) -> Outcome:
        """Return what an expression comes to; never raises for the expression.

        One that ran past its bound rests for a while: only that of `whose` it is, since
        the same text over another's messages may be quick. Raises QueueFull when no
        process can be started.
        """
        if is_short(text, body_bytes):
            return evaluate(text, facts)
        loop = asyncio.get_running_loop()
        key = whose, text
        if loop.time() < self._resting.get(key, 0.0):
            return _exceeded(self._seconds)
        async with self._lock:
            outcome = await self._evaluate(text, facts)
        if outcome.exceeded:
            # Asked again for each message, it would take the others' turns.
            if len(self._resting) >= EXPRESSIONS_KEPT:
                self._resting.clear()
            self._resting[key] = loop.time() + EXPRESSION_REST_SECONDS
        return outcome

    async def _evaluate(self, text: str, facts: Mapping[str, Any]) -> Outcome:
        try:
            process = await self._running()
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            await self._kill()
            raise QueueFull(
                "no process can be started to evaluate an expression",
                retry_after=_START_SECONDS,
            ) from error
        answered = False
        try:
            async with asyncio.timeout(EXPRESSION_WAIT_SECONDS):
                outcome = await _ask(process, _request(text, facts))
            answered = True
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return _exceeded(self._seconds)
        finally:
            if not answered:  # cancelled too: its answer would be the next one's
                await self._kill()
        return outcome

    async def aclose(self) -> None:
        """End the process."""
        async with self._lock:
            await self._kill()

    async def _running(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            process = await asyncio.create_subprocess_exec(
                *_command(self._seconds),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            self._process = process
            async with asyncio.timeout(_START_SECONDS):  # not charged to the first
                await _ask(process, _request("true", {}))
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _ask(process: asyncio.subprocess.Process, request: bytes) -> Outcome:
    if process.stdin is None or process.stdout is None:
        raise OSError
    process.stdin.write(request)
    await process.stdin.drain()
    size = await process.stdout.readexactly(4)
    return _outcome(await process.stdout.readexactly(int.from_bytes(size, "big")))


def evaluate_blocking(text: str, facts: Mapping[str, Any], body_bytes: int) -> Outcome:
    """As `Evaluator.evaluate`, for a thread that has no event loop."""
    if is_short(text, body_bytes):
        return evaluate(text, facts)
    try:
        done = subprocess.run(  # noqa: S603 -- our own file, by this interpreter
            _command(EXPRESSION_SECONDS),
            input=_request(text, facts),
            capture_output=True,
            timeout=_START_SECONDS + EXPRESSION_WAIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _exceeded(EXPRESSION_SECONDS)
    if len(done.stdout) < 4:
        return _exceeded(EXPRESSION_SECONDS)
    return _outcome(done.stdout[4:])
