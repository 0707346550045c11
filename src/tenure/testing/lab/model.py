"""What a run of the crash lab is asked for, what it counted, and what is a broken promise.

The promise in numbers: nothing that was accepted is lost, nobody is quarantined for the
company it keeps, and a receiver sees at most as many requests twice as were in flight
when something was killed. Restarts that nobody forced are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tenure.errors import ConfigInvalid
from tenure.limits import (
    LAB_BACKENDS_SECONDS,
    LAB_KILL_SECONDS,
    LAB_SQLITE_KILLS,
)

__all__ = [
    "SCENARIOS",
    "Database",
    "Fault",
    "Figures",
    "Plan",
    "Scenario",
    "broken",
    "planned",
]


class Database(StrEnum):
    """Which database the lab starts for itself."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Scenario(StrEnum):
    """What happens to a service under traffic."""

    KILL = "kill"
    RESTART_DATABASE = "restart-database"
    BACKENDS = "backends"
    FAILOVER = "failover"
    ROLLING = "rolling"


SCENARIOS: Final[Mapping[Database, tuple[Scenario, ...]]] = MappingProxyType(
    {
        Database.SQLITE: (Scenario.KILL, Scenario.ROLLING),
        Database.POSTGRESQL: tuple(Scenario),
    }
)
"""What each database can be put through: SQLite has no server that could fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One scenario, its size, and the seed of everything that it leaves to chance.

    Faults come every `every_seconds` until everything has arrived; with `faults` set,
    that many are spread evenly over the requests instead.
    """

    scenario: Scenario
    database: Database
    messages: int
    endpoints: int
    processes: int
    seed: int
    faults: int | None = None
    every_seconds: float | None = None

    @property
    def deliveries(self) -> int:
        """How many (message, endpoint) pairs have to arrive."""
        return self.messages * self.endpoints


def planned(
    scenario: Scenario,
    database: Database,
    *,
    messages: int,
    endpoints: int,
    processes: int,
    seed: int,
    faults: int | None = None,
    every_seconds: float | None = None,
) -> Plan:
    """Return the plan with what was not given filled in.

    Raises ConfigInvalid for what this database cannot be put through.
    """
    if scenario not in SCENARIOS[database]:
        possible = ", ".join(SCENARIOS[database])
        raise ConfigInvalid(
            f"{scenario} needs a database server: take --database postgresql, or one of"
            f" {possible} on {database}"
        )
    if faults is not None and every_seconds is not None:
        raise ConfigInvalid(
            "--faults spreads faults over the requests, --every over time: give one"
        )
    count = 1 if database is Database.SQLITE else processes
    if faults is None and every_seconds is None:
        match scenario:
            case Scenario.KILL if database is Database.SQLITE:
                faults = LAB_SQLITE_KILLS
            case Scenario.KILL:
                every_seconds = LAB_KILL_SECONDS
            case Scenario.BACKENDS:
                every_seconds = LAB_BACKENDS_SECONDS
            case Scenario.ROLLING:
                faults = max(3, 2 * count)
            case Scenario.RESTART_DATABASE:
                faults = 4
            case Scenario.FAILOVER:
                faults = 2
    return Plan(
        scenario=scenario,
        database=database,
        messages=messages,
        endpoints=endpoints,
        processes=count,
        seed=seed,
        faults=faults,
        every_seconds=every_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that was done to the service; `at` is microseconds since the epoch.

    `in_flight` is how many claims may have been cut by it: of a killed process, those
    that it held; of a database, all that were held. The seconds run from `at` to the
    first request that began afterwards: on any other process (or on all, when none was
    killed), and on the process that came back. None where none began.
    """

    what: str
    at: int
    in_flight: int
    others_seconds: float | None
    restarted_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one scenario came to."""

    plan: Plan
    factor: float
    """What the kernel's durations were divided by."""
    seconds: float
    accepted: int
    asked_again: int
    """Submits that got no 202 and were repeated with the same idempotency key."""
    stored: int
    """Messages in the database: as many as were accepted."""
    requests: int
    """Requests that the sink saw."""
    lost: int
    """Accepted (message, endpoint) pairs that the sink never saw."""
    duplicated: int
    """Requests beyond the first of their (message, endpoint)."""
    quarantined: int
    unsettled: int
    """Deliveries that have not succeeded at the end, quarantined ones included."""
    attempts: int
    attempts_lost: int
    unclean: int
    """Processes that were asked to end and did not end with exit code 0."""
    faults: tuple[Fault, ...]
    doubled: tuple[str, ...]
    """Some messages of `duplicated`, with the endpoint and the attempts' numbers."""
    findings: tuple[str, ...]
    """What the doctor says of the database afterwards."""

    @property
    def in_flight(self) -> int:
        """Claims in flight at the faults, all together."""
        return sum(fault.in_flight for fault in self.faults)


def broken(figures: Figures) -> list[str]:
    """Return each part of the promise that a run did not keep, in words."""
    plan = figures.plan
    exact = plan.scenario is Scenario.ROLLING
    allowed = 0 if exact else figures.in_flight
    told = {
        f"{figures.accepted} of {plan.messages} messages were accepted": (
            figures.accepted != plan.messages
        ),
        f"{figures.stored} messages are stored, {figures.accepted} were accepted": (
            figures.stored != figures.accepted
        ),
        f"{figures.lost} deliveries were lost": figures.lost > 0,
        f"{figures.quarantined} deliveries were quarantined": figures.quarantined > 0,
        f"{figures.unsettled} deliveries have not succeeded": figures.unsettled > 0,
        f"{figures.duplicated} requests came twice, {allowed} may": (
            figures.duplicated > allowed
        ),
        f"{figures.attempts} attempts made {figures.requests} requests": (
            exact and figures.attempts != figures.requests
        ),
        f"{figures.unclean} processes did not end cleanly": figures.unclean > 0,
        "everything had arrived before anything happened: take more messages": (
            not figures.faults
        ),
    }
    return [words for words, true in told.items() if true] + [
        f"the doctor found: {finding}" for finding in figures.findings
    ]
