"""Work rows between the database and the kernel: lock, decide, write back.

Every verb but the claim itself goes through `decide_rows`: order heads are locked, then
the rows, both in the order of their keys; the kernel decides on what the lock shows; one
statement writes all changes. So there is no rule about states in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tenure.ids import LaneId, WorkId
from tenure.kernel.states import Attempt, AttemptOutcome, Phase, State, Work
from tenure.kernel.transitions import Change, Late
from tenure.store import schema
from tenure.store.claims import ordering

if TYPE_CHECKING:
    from tenure.store.tx import ColumnType, Tx

WORK_COLUMNS: Final = tuple(column.name for column in schema.work.columns)
ATTEMPT_COLUMNS: Final = tuple(column.name for column in schema.attempt.columns)

_STATES: Final = {str(state): state for state in State}
_PHASES: Final = {str(phase): phase for phase in Phase}

_WRITTEN: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "state": "text",
    "phase": "text",
    "due_at": "bigint",
    "claimed_by": "bigint",
    "alone": "bool",
    "tries": "bigint",
    "failures": "bigint",
    "losses": "bigint",
    "releases": "bigint",
    "first_attempt_at": "bigint",
    "replay_claim": "bigint",
    "success_claim": "bigint",
    "cancel_requested_at": "bigint",
    "wakes": "bigint",
    "trigger": "bigint",
    "reason": "text",
    "settled_at": "bigint",
}
"""What a decision may change. The claim's own columns change in `taking` alone."""
_written: Final[Callable[[Work], tuple[Any, ...]]] = attrgetter(*_WRITTEN)
_evidence: Final[Callable[[Attempt], tuple[Any, ...]]] = attrgetter(*ATTEMPT_COLUMNS)


def work_columns(alias: str) -> str:
    """Return the column list of a work row, as `as_work` expects it."""
    return ", ".join(f"{alias}.{name}" for name in WORK_COLUMNS)


def as_work(row: Sequence[Any]) -> Work:
    """Build the kernel's row from the columns of `work_columns`, in their order."""
    return Work(
        id=row[0],
        lane=row[1],
        kind=row[2],
        tenant=row[3],
        subject=row[4],
        state=_STATES[row[5]],
        phase=None if row[6] is None else _PHASES[row[6]],
        priority=row[7],
        due_at=row[8],
        claim=row[9],
        claimed_by=row[10],
        claimed_at=row[11],
        deadline_at=row[12],
        alone=bool(row[13]),
        tries=row[14],
        failures=row[15],
        losses=row[16],
        releases=row[17],
        first_attempt_at=row[18],
        replay_claim=row[19],
        success_claim=row[20],
        cancel_requested_at=row[21],
        order_key=row[22],
        sequence=row[23],
        wakes=row[24],
        trigger=row[25],
        reason=row[26],
        created_at=row[27],
        settled_at=row[28],
    )


def as_attempt(row: Sequence[Any]) -> Attempt:
    """Build the kernel's attempt from the columns of `ATTEMPT_COLUMNS`, in order."""
    named: dict[str, Any] = dict(zip(ATTEMPT_COLUMNS, row, strict=True))
    late: str | None = named["late_outcome"]
    named["outcome"] = AttemptOutcome(named["outcome"])
    named["state_after"] = State(named["state_after"])
    named["late_outcome"] = None if late is None else AttemptOutcome(late)
    return Attempt(**named)


def read(tx: Tx, ids: Iterable[WorkId]) -> dict[WorkId, Work]:
    """Return rows by id as this snapshot shows them; missing ids are left out."""
    return _fetch(tx, ids, lock="")


def lock(tx: Tx, ids: Iterable[WorkId]) -> dict[WorkId, Work]:
    """Lock rows in the order of their ids and return them as they are now."""
    return _fetch(
        tx, ids, lock=" FOR NO KEY UPDATE OF w" if tx.dialect == "postgresql" else ""
    )


def _fetch(tx: Tx, ids: Iterable[WorkId], *, lock: str) -> dict[WorkId, Work]:
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in wanted])
    found = tx.all(
        f"SELECT {work_columns('w')} FROM {asked} JOIN work w ON w.id = b.id"
        f" ORDER BY w.id{lock}",
        params,
    )
    return {row[0]: as_work(row) for row in found}


def write(tx: Tx, rows: Sequence[Work]) -> None:
    """Write decided rows back. Their locks are held, so each one exists."""
    if not rows:
        return
    records = [_written(row) for row in rows]
    written = tx.update(schema.work, ("id",), _WRITTEN, records)
    assert written == len(rows), "a locked row vanished"


def insert_attempts(tx: Tx, attempts: Sequence[Attempt]) -> None:
    """Insert evidence; (work, claim) is its key, so a second insert is an error."""
    tx.insert_records(
        schema.attempt, ATTEMPT_COLUMNS, [_evidence(attempt) for attempt in attempts]
    )


def fill_late(tx: Tx, lates: Sequence[tuple[WorkId, int, Late]]) -> None:
    """Complete lost attempts with what their holders said; each at most once."""
    if not lates:
        return
    given, params = tx.rows(
        "b",
        {
            "work": "text",
            "claim": "bigint",
            "at": "bigint",
            "outcome": "text",
            "reason": "text",
        },
        [
            (work, claim, late.at, str(late.outcome), late.reason)
            for work, claim, late in lates
        ],
    )
    tx.run(
        "UPDATE attempt SET late_at = b.at, late_outcome = b.outcome,"
        f" late_reason = b.reason FROM {given}"
        " WHERE attempt.work = b.work AND attempt.claim = b.claim"
        " AND attempt.late_at IS NULL",
        params,
    )


def attempts_of(
    tx: Tx, claims: Iterable[tuple[WorkId, int]]
) -> dict[tuple[WorkId, int], Attempt]:
    """Return the attempt rows of these claims, where they exist."""
    wanted = sorted(set(claims))
    if not wanted:
        return {}
    asked, params = tx.rows("b", {"work": "text", "claim": "bigint"}, wanted)
    columns = ", ".join(f"a.{name}" for name in ATTEMPT_COLUMNS)
    found = tx.all(
        f"SELECT {columns} FROM {asked}"
        " JOIN attempt a ON a.work = b.work AND a.claim = b.claim",
        params,
    )
    return {(row[0], row[1]): as_attempt(row) for row in found}


def decide_rows(
    tx: Tx,
    ids: Iterable[WorkId],
    decide: Callable[[Work], Change | None],
) -> dict[WorkId, tuple[Work, Change]]:
    """Lock rows, let `decide` say what becomes of each, write it, pass order heads.

    Returns what was decided with the row as it was before; a row that is missing or
    for which `decide` says None is left out.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    ordering.lock_heads(tx, heads_of(tx, wanted))
    decided: dict[WorkId, tuple[Work, Change]] = {}
    for id_, before in lock(tx, wanted).items():
        change = decide(before)
        if change is not None:
            decided[id_] = (before, change)
    write_changes(tx, decided.values())
    return decided


def write_changes(tx: Tx, decided: Iterable[tuple[Work, Change]]) -> None:
    """Write rows, attempts and order lines of decisions made under their locks."""
    changes = list(decided)
    write(tx, [change.work for _, change in changes if change.work is not None])
    insert_attempts(tx, [c.attempt for _, c in changes if c.attempt is not None])
    passed = [
        before
        for before, change in changes
        if change.passes_head and before.order_key is not None
    ]
    woken = ordering.pass_heads(tx, passed)
    while woken:
        fronts = lock(tx, woken)
        write(
            tx,
            [ordering.woken(row, woken[id_], tx.now) for id_, row in fronts.items()],
        )
        missing = woken.keys() - fronts.keys()
        # A line whose row somebody deleted by hand must not stop all behind it.
        lines = {(row.lane, row.order_key or "") for row in passed}
        woken = ordering.pass_missing(tx, lines, missing) if missing else {}


def heads_of(tx: Tx, ids: Sequence[WorkId]) -> set[tuple[LaneId, str]]:
    """Return the ordered queues that these rows stand in."""
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in ids])
    found = tx.all(
        f"SELECT w.lane, w.order_key FROM {asked} JOIN work w ON w.id = b.id"
        " WHERE w.order_key IS NOT NULL",
        params,
    )
    return {(row[0], row[1]) for row in found}
