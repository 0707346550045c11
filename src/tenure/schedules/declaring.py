"""What code says of its jobs: packages, the jobs in them, and the registry of both.

A job is registered before the engine starts, and the registry is sealed then: what two
processes of one release declare is the same, whatever the order in which they loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar

from tenure.errors import ConfigInvalid
from tenure.naming.coordinates import Coordinate, check_name, check_package
from tenure.naming.spellings import check_declarations, parse_formerly
from tenure.schedules.calendar.model import encode
from tenure.schedules.calendar.parsing import parse_duration, parse_zone
from tenure.schedules.model import Definition
from tenure.schedules.options import check_settings, schedule_of
from tenure.schedules.parameters import Parameters
from tenure.schedules.reminders import Due, Match, Source, calling

if TYPE_CHECKING:
    from datetime import datetime

    from tenure.schedules.options import Timing

__all__ = ["PACKAGE", "Bound", "Declared", "Job", "Package", "Packages", "registry"]

P = ParamSpec("P")
R = TypeVar("R")
PACKAGE: Final = "app"
"""The package of jobs that name none."""


class Bound(Protocol):
    """What carries out a job's `submit`: the schedules of a running engine."""

    async def submit_declared(
        self, coordinate: Coordinate, calls: Sequence[bytes], options: Mapping[str, Any]
    ) -> list[str]:
        """Submit one run for each call; return the ids of the runs."""
        ...

    def submit_within(
        self,
        into: Any,
        coordinate: Coordinate,
        calls: Sequence[bytes],
        options: Mapping[str, Any],
    ) -> list[str]:
        """As above, in a transaction of a blocking session or connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A job of this process: its definition, and the function that does it."""

    definition: Definition
    call: Callable[..., Any]
    parameters: Parameters
    match: Match | None = None
    """Set for a reminder: a window looks through its source, a reminder calls `call`."""


class Job(Generic[P, R]):
    """A registered function. To call it calls the function; `submit` makes a run.

    What `submit` takes beside the function's own arguments: ``delay`` (timedelta or
    seconds) or ``at`` (an aware datetime), ``key`` (while a run of this key is open, the
    same run is returned), ``priority`` (0 first, 3 last), ``into`` (an AsyncSession or
    AsyncConnection of SQLAlchemy: the run exists once its transaction has committed).
    """

    __slots__ = ("__wrapped__", "_declared", "_packages")

    def __init__(
        self, declared: Declared, packages: Packages, call: Callable[P, R]
    ) -> None:
        self._declared: Final = declared
        self._packages: Final = packages
        self.__wrapped__ = call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now: no run, nothing is stored."""
        return self.__wrapped__(*args, **kwargs)

    @property
    def coordinate(self) -> Coordinate:
        """Who the job belongs to and how it is called there."""
        return self._declared.definition.coordinate

    async def submit(self, *args: Any, **kwargs: Any) -> str:
        """Make a run; return its id once it is stored. See `Job` for the options.

        Raises ValidationFailed for arguments that the function does not take,
        ConfigInvalid without a started engine, and Unavailable when the database is.
        """
        options = self._options(kwargs)
        call = self._declared.parameters.encode(args, kwargs)
        bound = self._packages.bound_for(self.coordinate)
        (run,) = await bound.submit_declared(self.coordinate, [call], options)
        return run

    async def submit_many(
        self, calls: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[str]:
        """Make a run for each mapping of arguments, all in one commit or none.

        Options as for `submit`, for all alike; without ``key``. Returns the ids in order.
        """
        chosen = self._options(options)
        if options or "key" in chosen:
            raise ConfigInvalid("submit_many takes delay, at, priority and into only")
        encode_call = self._declared.parameters.encode
        encoded = [encode_call((), call) for call in calls]
        bound = self._packages.bound_for(self.coordinate)
        return await bound.submit_declared(self.coordinate, encoded, chosen)

    def submit_blocking(self, into: Any, *args: Any, **kwargs: Any) -> str:
        """As `submit` with ``into`` a Session or Connection of SQLAlchemy."""
        options = self._options(kwargs)
        call = self._declared.parameters.encode(args, kwargs)
        bound = self._packages.bound_for(self.coordinate)
        (run,) = bound.submit_within(into, self.coordinate, [call], options)
        return run

    @staticmethod
    def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
        names = ("at", "delay", "into", "key", "priority")
        return {name: kwargs.pop(name) for name in names if name in kwargs}


class Package:
    """One contributor of jobs, by its name."""

    __slots__ = ("_formerly", "_packages", "name")

    def __init__(
        self, name: str, packages: Packages, formerly: Sequence[str] = ()
    ) -> None:
        try:
            self.name: Final = check_package(name)
            self._formerly: Final = tuple(check_package(each) for each in formerly)
        except ValueError as error:
            raise ConfigInvalid(str(error)) from None
        self._packages: Final = packages

    def _before(self, own: str, formerly: Sequence[str]) -> tuple[str, ...]:
        """Return every coordinate that a job had before. Raises ValueError."""
        said = {str(parse_formerly(text, self.name)) for text in formerly}
        return tuple(sorted(said | {f"{package}:{own}" for package in self._formerly}))

    def job(
        self,
        *,
        name: str | None = None,
        formerly: Sequence[str] = (),
        cron: str | None = None,
        every: timedelta | float | str | None = None,
        at: datetime | None = None,
        instants: Sequence[datetime] | None = None,
        zone: str = "UTC",
        args: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> Callable[[Callable[P, R]], Job[P, R]]:
        """Register a function as a job.

        One of ``cron``, ``every``, ``at`` and ``instants`` schedules it; without one it
        is submitted only. ``args`` are what a window's run is called with. ``formerly``
        names what it was called before, ``"old_name"`` or ``"package:old_name"``. The
        rest are `tenure.schedules.options.Timing` (gap, overlap_hour, jitter, catch_up,
        …) and the fields of `JobSettings` (overlap, timeout, attempts, group, …), which
        may be given as timedeltas where they end in seconds.

        Raises ConfigInvalid, naming the job and what to change.
        """
        timing: Timing = {
            "cron": cron,
            "every": every,
            "at": at,
            "instants": instants,
            "zone": zone,
        }

        def register(call: Callable[P, R]) -> Job[P, R]:
            return self._register(call, name, formerly, timing, dict(args), more)

        return register

    def reminder(
        self,
        *,
        of: Source,
        offsets: Sequence[timedelta | str] = (),
        within: timedelta | str | None = None,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
        name: str | None = None,
        formerly: Sequence[str] = (),
        zone: str = "UTC",
        cron: str = "0 * * * *",
        **more: Any,
    ) -> Callable[[Callable[[Due], R]], Callable[[Due], R]]:
        """Register a function that is told of records relative to an instant of theirs.

        ``of`` is the source of records; ``offsets`` (``"-3d"``, ``"2h"``) or ``within``
        say when, on the days of ``zone``; ``where`` narrows the records. The source is
        looked through by ``cron``. Each (offset, matched local day, record) is told
        once; a failure is retried as a submitted job's. Raises ConfigInvalid.
        """
        match = _match(of, offsets, within, where, zone)

        def register(call: Callable[[Due], R]) -> Callable[[Due], R]:
            self._remind(call, name, formerly, match, {"cron": cron, **more})
            return call

        return register

    def _remind(
        self,
        call: Callable[[Due], Any],
        name: str | None,
        formerly: Sequence[str],
        match: Match,
        more: dict[str, Any],
    ) -> None:
        said = f"{self.name}:{name or getattr(call, '__name__', '')}"
        try:
            own = check_name(said.partition(":")[2])
            before = self._before(own, formerly)
            schedule, rest = schedule_of({"zone": match.zone}, more)
            # Looking twice changes nothing, and must not hold reminders up.
            settings = check_settings({"overlap": "allow", **rest}, scheduled=True)
        except ValueError as error:
            raise ConfigInvalid(f"reminder {said}: {error}") from None
        wrapped = calling(call)
        declared = Declared(
            definition=Definition(
                package=self.name,
                name=own,
                formerly=before,
                schedule=None if schedule is None else encode(schedule),
                settings=settings,
                doc=(call.__doc__ or "").strip().partition("\n")[0],
                reminder=f"offsets {match.offsets_us}, within {match.within_us} µs",
            ),
            call=wrapped,
            parameters=Parameters(wrapped, said),
            match=match,
        )
        self._packages.add(declared)

    def _register(
        self,
        call: Callable[P, R],
        name: str | None,
        formerly: Sequence[str],
        timing: Timing,
        args: dict[str, Any],
        more: dict[str, Any],
    ) -> Job[P, R]:
        said = f"{self.name}:{name or getattr(call, '__name__', '')}"
        try:
            own = check_name(said.partition(":")[2])
            before = self._before(own, formerly)
            schedule, rest = schedule_of(timing, more)
            settings = check_settings(rest, scheduled=schedule is not None)
        except ValueError as error:
            raise ConfigInvalid(f"job {said}: {error}") from None
        parameters = Parameters(call, said)
        encoded = parameters.encode((), args) if schedule or args else b"{}"
        doc = (call.__doc__ or "").strip().partition("\n")[0]
        declared = Declared(
            definition=Definition(
                package=self.name,
                name=own,
                formerly=before,
                schedule=None if schedule is None else encode(schedule),
                settings=settings,
                args=encoded.decode(),
                doc=doc,
            ),
            call=call,
            parameters=parameters,
        )
        self._packages.add(declared)
        return Job(declared, self._packages, call)


def _match(
    of: Source,
    offsets: Sequence[timedelta | str],
    within: timedelta | str | None,
    where: Callable[[Mapping[str, Any]], bool] | None,
    zone: str,
) -> Match:
    """Return what a reminder matches. Raises ConfigInvalid."""
    if bool(offsets) == (within is not None):
        raise ConfigInvalid("a reminder has offsets, or within: give one of them")
    try:
        return Match(
            source=of,
            offsets_us=tuple(sorted(_offset(each) for each in offsets)),
            within_us=None if within is None else parse_duration(within, name="within"),
            zone=parse_zone(zone),
            where=where,
        )
    except ValueError as error:
        raise ConfigInvalid(f"a reminder: {error}") from None


def _offset(given: timedelta | str) -> int:
    """Return µs; `-3d` is before the instant."""
    if isinstance(given, timedelta):
        return given // timedelta(microseconds=1)
    before = given.startswith("-")
    size = parse_duration(given.removeprefix("-"), name="offsets", zero=True)
    return -size if before else size


class Packages:
    """The jobs of a process by their coordinate, until it is sealed."""

    __slots__ = ("_bound", "_found", "_sealed")

    def __init__(self) -> None:
        self._found: Final[dict[Coordinate, Declared]] = {}
        self._sealed = False
        self._bound: Bound | None = None

    def package(self, name: str, *, formerly: Sequence[str] = ()) -> Package:
        """Return the package of that name; `formerly` are names that it had before.

        Raises ConfigInvalid for a name that may not be.
        """
        return Package(name, self, formerly)

    def add(self, declared: Declared) -> None:
        """Register one job. Raises ConfigInvalid when sealed or taken."""
        coordinate = declared.definition.coordinate
        if self._sealed:
            raise ConfigInvalid(
                f"job {coordinate} came after the engine's start: register jobs before"
            )
        if coordinate in self._found:
            raise ConfigInvalid(f"two jobs are named {coordinate}: rename one")
        self._found[coordinate] = declared

    def seal(self) -> Mapping[Coordinate, Declared]:
        """Take nothing more, and return what there is, in the order of coordinates.

        Raises ConfigInvalid where former names contradict each other.
        """
        self._sealed = True
        said = {c: each.definition.formerly for c, each in self._found.items()}
        try:
            check_declarations(said)
        except ValueError as error:
            raise ConfigInvalid(str(error)) from None
        return self.found

    @property
    def found(self) -> Mapping[Coordinate, Declared]:
        """What is registered so far; nothing is sealed by asking."""
        return MappingProxyType(dict(sorted(self._found.items())))

    def bind(self, bound: Bound | None) -> None:
        """Say who carries out `submit` from now on; None: nobody."""
        self._bound = bound

    def bound_for(self, coordinate: Coordinate) -> Bound:
        """Return who carries out `submit`. Raises ConfigInvalid when nobody does."""
        if self._bound is None:
            raise ConfigInvalid(
                f"job {coordinate} cannot be submitted: no engine is started in this"
                " process (`async with tenure.Engine()`, or `tenure serve`)"
            )
        return self._bound


@lru_cache(maxsize=1)
def registry() -> Packages:
    """Return this process's own, which `tenure.package` and `tenure.job` fill."""
    return Packages()
