"""What an examination is told, what it finds, and how a check is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from tenure.limits import Durations

if TYPE_CHECKING:
    from tenure.outbox.keyring import KeyRing
    from tenure.store.tx import ColumnType, Tx

__all__ = [
    "About",
    "Check",
    "Find",
    "Finding",
    "Grade",
    "Heal",
    "Key",
    "Progress",
    "Report",
    "Scope",
    "Suspect",
    "Table",
]

Key: TypeAlias = tuple[Any, ...]
"""The key of one row, in the order of its table's key columns."""

Progress: TypeAlias = "Callable[[str, int], None]"
"""Called with a table's name and how many of its rows were looked at so far."""


class Grade(StrEnum):
    """How bad a finding is."""

    BROKEN = "broken"
    """An invariant does not hold: a defect, or somebody changed rows by hand."""
    ATTENTION = "attention"
    """Everything holds, but something waits for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row, or one fact of the deployment, that is not as it must be.

    `where` is the row's key, as text; `what` says how it stands, `todo` what to do.
    """

    code: str
    invariant: str
    grade: Grade
    what: str
    where: tuple[str, ...]
    todo: str
    healed: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the finding as the API and the command line show it."""
        return {
            "code": self.code,
            "grade": str(self.grade),
            "invariant": self.invariant,
            "what": self.what,
            "where": list(self.where),
            "todo": self.todo,
            "healed": self.healed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an examination found.

    `more` counts, by code, what was found beyond the rows that are listed; `examined`
    counts the rows that were looked at, by table.
    """

    findings: tuple[Finding, ...]
    more: Mapping[str, int]
    examined: Mapping[str, int]
    took_seconds: float

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that break an invariant and were not healed."""
        return tuple(
            finding
            for finding in self.findings
            if finding.grade is Grade.BROKEN and not finding.healed
        )

    @property
    def clean(self) -> bool:
        """Whether every invariant holds (now, where something was healed)."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Return the report as the API and the command line show it."""
        return {
            "clean": self.clean,
            "findings": [finding.as_json() for finding in self.findings],
            "more": dict(self.more),
            "examined": dict(self.examined),
            "tookSeconds": round(self.took_seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What an examination knows of the deployment beside its database.

    Without a `ring` secrets are not opened; without a `deployment` the identity is not
    compared; without a `host` (`work.filelock.host_name`) no lock file is tried, because
    that touches the disk on the thread of the examination. `ring_fault` says why there is no ring that opens the database; `off` why
    nothing is sent, None where it is.
    """

    durations: Durations = field(default_factory=Durations)
    ring: KeyRing | None = None
    ring_fault: str | None = None
    deployment: str | None = None
    off: str | None = None
    host: str | None = None

    def scaled_us(self, seconds: float) -> int:
        """Return seconds as this deployment counts them, in microseconds."""
        return round(self.durations.scaled(seconds) * 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row that does not hold an invariant in one snapshot.

    `invariant` and `grade` are given where they are not those of the check.
    """

    key: Key
    what: str
    invariant: str | None = None
    grade: Grade | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that is walked by its key; `alias` names it in the checks' queries."""

    name: str
    alias: str
    keys: tuple[tuple[str, ColumnType], ...]

    @property
    def columns(self) -> str:
        """The key's columns, for SELECT and ORDER BY."""
        return ", ".join(f"{self.alias}.{name}" for name, _ in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows of a table to look at: a condition on its alias, and parameters."""

    where: str = "true"
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


Find: TypeAlias = "Callable[[Tx, Scope, About], list[Suspect]]"
"""Returns the rows in scope that break an invariant, in one snapshot."""

Heal: TypeAlias = "Callable[[Tx, Sequence[Suspect], About], None]"
"""Mends what it safely can, deciding again under the rows' locks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One invariant and how to find what breaks it.

    `table` None is for what is small or has an index of its own: it is looked at as a
    whole, at each examination.
    """

    code: str
    invariant: str
    todo: str
    find: Find
    table: Table | None = None
    grade: Grade = Grade.BROKEN
    heal: Heal | None = None
