"""Endpoints of the kind `handler`: a Python function in the application is called.

A function is registered under a coordinate (`package.name`) before the engine starts;
the registry is sealed then. An endpoint names the coordinate, its lane needs it, and
only a node that has the function claims from that lane.

The function is called with a `Received`. To return is success; to raise is a failure
that is tried again. `Retry` asks for another time without being charged, `Stop` for
none. A function that runs past the endpoint's timeout is cancelled; one that is not
asynchronous runs in a thread, which nothing can stop: its result is not looked at.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tenure.errors import ConfigInvalid
from tenure.limits import HANDLER_THREADS
from tenure.outbox.carriers.answers import Stopwatch
from tenure.outbox.carriers.naming import Coordinate, parse_coordinate
from tenure.outbox.carriers.showing import content_type
from tenure.outbox.carriers.threads import NotBegunError, Threads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.clock import Clock
    from tenure.outbox.carriers.model import Carried, Job
    from tenure.work.kinds import Guard

__all__ = [
    "Function",
    "FunctionCarrier",
    "Functions",
    "Received",
    "Retry",
    "Stop",
    "registry",
]

F = TypeVar("F", bound=Callable[["Received"], Any])
PACKAGE: Final = "app"
"""The package of functions that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as a function is given it: `body` byte for byte, `attempt` from 1.

    `source` and `receipt` say where it arrived when it came as a webhook; `headers` are
    that request's then, in order and with repeats, else the message's own.
    """

    id: str
    type: str
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...]
    attempt: int
    source: str | None = None
    receipt: str | None = None

    def json(self) -> Any:
        """Return the body read as JSON; raises ValueError when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the body is no JSON: {error}") from None

    def header(self, name: str) -> str | None:
        """Return the first header of this name in any letter case, or None."""
        wanted = name.lower()
        return next((v for key, v in self.headers if key.lower() == wanted), None)


class Retry(Exception):
    """Try again, `after` seconds from now at the earliest; charges nothing."""

    def __init__(self, after: float = 0.0, reason: str = "asked to be retried") -> None:
        super().__init__(reason)
        self.after: Final = after


class Stop(Exception):
    """Never try this message again here: it is dead with this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A registered function and what it is called for."""

    coordinate: Coordinate
    call: Callable[[Received], Any]
    event_types: tuple[str, ...]
    source: str | None

    def wants(self, received: Received) -> bool:
        """Tell whether it is called for this message; no pattern means any type."""
        if self.source is not None and received.source != self.source:
            return False
        types = self.event_types
        return not types or any(fnmatchcase(received.type, each) for each in types)


class Functions:
    """Functions by their coordinate, until it is sealed."""

    __slots__ = ("_found", "_sealed")

    def __init__(self) -> None:
        self._found: Final[dict[Coordinate, Function]] = {}
        self._sealed = False

    def on(
        self,
        *event_types: str,
        source: str | None = None,
        package: str = PACKAGE,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Register a function for event types (`invoice.*` too), or for a source.

        Its coordinate is the package and the function's own name unless told. Raises
        ConfigInvalid for a name that may not be, one that is taken, or once sealed.
        """

        def register(call: F) -> F:
            said = f"{package}.{name or getattr(call, '__name__', '')}"
            try:
                coordinate = parse_coordinate(said)
            except ValueError as error:
                raise ConfigInvalid(f"the function {said!r}: {error}") from None
            if self._sealed:
                raise ConfigInvalid(
                    f"{said} came after the engine's start: register functions before"
                )
            if coordinate in self._found:
                raise ConfigInvalid(f"two functions are named {said}: rename one")
            self._found[coordinate] = Function(
                coordinate=coordinate, call=call, event_types=event_types, source=source
            )
            return call

        return register

    def seal(self) -> Mapping[Coordinate, Function]:
        """Take nothing more, and return what there is."""
        self._sealed = True
        return MappingProxyType(self._found)


@lru_cache(maxsize=1)
def registry() -> Functions:
    """Return this process's own, which `tenure.on` fills."""
    return Functions()


class FunctionCarrier:
    """Calls functions; those that block at most `HANDLER_THREADS` at a time."""

    __slots__ = ("_clock", "_functions", "_threads")

    def __init__(self, functions: Mapping[Coordinate, Function], clock: Clock) -> None:
        self._functions: Final = functions
        self._clock: Final = clock
        self._threads: Final = Threads(HANDLER_THREADS, name="handler")

    @property
    def needs(self) -> frozenset[str]:
        """What lanes may ask of this node, one for each function."""
        return frozenset(f"handler:{coordinate}" for coordinate in self._functions)

    async def carry(self, job: Job, guard: Guard, number: int) -> Carried:
        """See `Carrier`."""
        watch = Stopwatch(self._clock, "CALL")
        coordinate = job.target.handler
        found = None if coordinate is None else self._functions.get(coordinate)
        if found is None:  # its lane was pointed elsewhere after the claim
            return watch.fenced()
        received = _received(job, number)
        if not found.wants(received):
            return watch.done("not called: the function asks for other messages")
        left = max(0.0, guard.deadline - self._clock.monotonic())
        bound = asyncio.timeout(left)
        try:
            async with bound:
                await self._call(found, received, guard)
        except NotBegunError:
            return watch.fenced()
        except TimeoutError as error:
            if not bound.expired():
                return watch.failed("raised", _said(error))
            return watch.failed("timeout", "the function did not return", phase="call")
        except Retry as asked:
            return watch.later(asked.after, str(asked))
        except Stop as asked:
            return watch.stopped(str(asked) or "stopped by the function")
        except Exception as error:  # noqa: BLE001 - the function's own, and its text
            return watch.failed("raised", _said(error))
        return watch.done()

    def close(self) -> None:
        """Take nothing more; calls under way end by themselves."""
        self._threads.close()

    async def _call(self, function: Function, received: Received, guard: Guard) -> None:
        if inspect.iscoroutinefunction(function.call):
            if not guard.may_begin():
                raise NotBegunError
            await function.call(received)
            return
        call = partial(function.call, received)
        made = await self._threads.run(call, guard.may_begin)
        if isinstance(made, Awaitable):  # what was called was made of a coroutine
            await made


def _said(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _received(job: Job, number: int) -> Received:
    relay = job.relay
    return Received(
        id=job.message,
        type=job.event_type,
        body=job.body,
        content_type=content_type(job),
        headers=job.headers if relay is None else relay.headers,
        attempt=number,
        source=None if relay is None else relay.source,
        receipt=None if relay is None else relay.receipt,
    )
