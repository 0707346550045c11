"""The examination: walk, look again, heal, look again.

Theory. A page is read in one snapshot, and every invariant holds at every commit, so a
page shows no fault that is only a moment of somebody's work. What depends on time (a
node that was closed just now, a row that came due just now) may still look odd; so every
suspect is looked at again, in a new snapshot, before it is called a fault. Nothing is
locked and no transaction is longer than one page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tenure.clock import SystemClock
from tenure.doctor import deployment, inbox, outbox, schedules, waiting, work
from tenure.doctor.model import (
    About,
    Check,
    Finding,
    Grade,
    Heal,
    Key,
    Report,
    Scope,
    Suspect,
)
from tenure.doctor.pages import Page, look, page
from tenure.limits import (
    DOCTOR_BATCH_ROWS,
    DOCTOR_PAGE_ROWS,
    DOCTOR_RELOOK_SECONDS,
    DOCTOR_SHOWN_MAX,
    DOCTOR_SUSPECTS_MAX,
)

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.doctor.model import Progress, Table
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

__all__ = ["CHECKS", "estimate", "examine", "examine_snapshot"]

CHECKS: Final[tuple[Check, ...]] = (
    *deployment.CHECKS,
    *waiting.CHECKS,
    *work.CHECKS,
    *outbox.CHECKS,
    *inbox.CHECKS,
    *schedules.CHECKS,
)
"""Every invariant that is looked at, the quick ones first."""

_WHOLE: Final = tuple(check for check in CHECKS if check.table is None)
_WALKED: Final[dict[Table, list[Check]]] = {}
for _check in CHECKS:
    if _check.table is not None:
        _WALKED.setdefault(_check.table, []).append(_check)

_NOTHING: Final = About()
_Name: TypeAlias = tuple[Key, str | None]


async def examine(
    backend: Backend,
    *,
    heal: bool = False,
    about: About = _NOTHING,
    deep: bool = True,
    page_rows: int = DOCTOR_PAGE_ROWS,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Report:
    """Examine a live database; with `heal` mend what is safe to mend.

    Takes no lock and holds no transaction longer than one page, whatever the size of
    the database. Without `deep` history is not walked: what is left costs the same
    for any size. Raises DatabaseUnavailable.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    found = _Found()
    for check in _WHOLE:
        found.add(check, await backend.read(partial(_whole, check=check, about=about)))
    for table in _WALKED if deep else ():
        after: Key | None = None
        while True:
            seen = await backend.read(
                partial(
                    page,
                    table=table,
                    checks=_WALKED[table],
                    about=about,
                    after=after,
                    rows=page_rows,
                )
            )
            found.turn(table, seen)
            if progress is not None:
                progress(table.name, found.examined[table.name])
            if seen.last is None:
                break
            after = seen.last
    if found.suspects:
        await clock.sleep(about.durations.scaled(DOCTOR_RELOOK_SECONDS))
    for check, suspects in found.suspects.items():
        await _judge(backend, check, suspects, about, found, heal=heal)
    return found.report(clock.monotonic() - started)


def examine_snapshot(tx: Tx, about: About = _NOTHING) -> Report:
    """Examine a database in one snapshot: for one that nobody else uses just now."""
    found = _Found()
    for check in _WHOLE:
        found.add(check, _whole(tx, check, about))
    for table, checks in _WALKED.items():
        after: Key | None = None
        while True:
            seen = page(tx, table, checks, about, after=after, rows=DOCTOR_PAGE_ROWS)
            found.turn(table, seen)
            if seen.last is None:
                break
            after = seen.last
    for check, suspects in found.suspects.items():
        found.judged(check, suspects, healed=())
    return found.report(0.0)


class _Found:
    """What was seen so far; only so many rows of one check are kept."""

    def __init__(self) -> None:
        self.suspects: Final[dict[Check, list[Suspect]]] = {}
        self.examined: Final[Counter[str]] = Counter()
        self._findings: Final[list[Finding]] = []
        self._more: Final[Counter[str]] = Counter()

    def add(self, check: Check, suspects: Sequence[Suspect]) -> None:
        """Remember what a check suspects."""
        if not suspects:
            return
        kept = self.suspects.setdefault(check, [])
        room = DOCTOR_SUSPECTS_MAX - len(kept)
        kept += suspects[:room]
        self._more[check.code] += len(suspects[room:])

    def turn(self, table: Table, seen: Page) -> None:
        """Remember what one page showed."""
        self.examined[table.name] += seen.rows
        for check, suspect in seen.suspects:
            self.add(check, [suspect])

    def judged(
        self, check: Check, faults: Sequence[Suspect], healed: Collection[_Name]
    ) -> None:
        """Keep those suspects that are faults, a bounded number of them in full."""
        shown = faults[:DOCTOR_SHOWN_MAX]
        self._more[check.code] += len(faults) - len(shown)
        self._findings.extend(
            Finding(
                code=check.code,
                invariant=fault.invariant or check.invariant,
                grade=fault.grade or check.grade,
                what=fault.what,
                where=tuple(str(part) for part in fault.key),
                todo=check.todo,
                healed=_name(fault) in healed,
            )
            for fault in shown
        )

    def report(self, took_seconds: float) -> Report:
        """Return everything as it is reported, broken invariants first."""
        self._findings.sort(key=lambda finding: finding.grade is not Grade.BROKEN)
        return Report(
            findings=tuple(self._findings),
            more={code: count for code, count in self._more.items() if count},
            examined=dict(self.examined),
            took_seconds=took_seconds,
        )


def estimate(tx: Tx) -> dict[str, int]:
    """Return about how many rows an examination will walk, by table."""
    if tx.dialect == "postgresql":
        asked, params = tx.rows("b", {"name": "text"}, [(t.name,) for t in _WALKED])
        found = tx.all(
            "SELECT c.relname, CAST(greatest(c.reltuples, 0) AS bigint)"
            f" FROM {asked} JOIN pg_class c ON c.relname = b.name"
            " WHERE pg_table_is_visible(c.oid)",
            params,
        )
        return {row[0]: row[1] for row in found}
    return {t.name: tx.scalar(f"SELECT count(*) FROM {t.name}") for t in _WALKED}


def _whole(tx: Tx, check: Check, about: About) -> list[Suspect]:
    return check.find(tx, Scope(), about)


async def _judge(
    backend: Backend,
    check: Check,
    suspects: Sequence[Suspect],
    about: About,
    found: _Found,
    *,
    heal: bool,
) -> None:
    """Look again at what one check suspects, heal it, and keep what is a fault."""
    faults: list[Suspect] = []
    healed: set[_Name] = set()
    for at in range(0, len(suspects), DOCTOR_BATCH_ROWS):
        batch = suspects[at : at + DOCTOR_BATCH_ROWS]
        again = partial(look, check=check, about=about)
        still = await backend.read(partial(again, suspects=batch))
        faults += still
        if not still or not heal or check.heal is None:
            continue
        await backend.write(_healing(check.heal, still, about))
        left = await backend.read(partial(again, suspects=still))
        healed |= {_name(fault) for fault in still} - {_name(fault) for fault in left}
    found.judged(check, faults, healed)


def _healing(
    heal: Heal, suspects: Sequence[Suspect], about: About
) -> Callable[[Tx], None]:
    return lambda tx: heal(tx, suspects, about)


def _name(suspect: Suspect) -> _Name:
    return suspect.key, suspect.invariant
