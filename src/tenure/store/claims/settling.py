"""The one settle: holders' answers become outcomes, or evidence that came too late.

A settlement's credential is (work, claim, node). It is compared under the row's lock,
whatever the row's state is; the comparison, the attempt's row, the kind's effects and
the wake of the next in line are one transaction. A repeated settlement finds the holder
cleared and is told so; a superseded one finds a higher number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tenure.errors import InvariantViolated
from tenure.ids import LaneId, WorkId
from tenure.kernel import transitions
from tenure.kernel.commands import Answer, Cut, Settlement
from tenure.kernel.states import Attempt, State, Work
from tenure.kernel.transitions import Change
from tenure.store.claims import ordering, rows
from tenure.store.claims.effects import KindSql, Settled, perform

if TYPE_CHECKING:
    from tenure.store.tx import Tx


def settle(
    tx: Tx, items: Sequence[Settlement], kinds: Mapping[str, KindSql]
) -> list[Answer]:
    """Settle a batch; return one answer for each item, in the items' order.

    Set-based: the number of statements does not grow with the batch, unless it names
    one row twice. Raises InvariantViolated for a kind that nobody registered.
    """
    answers = {
        at: answer
        for turn in _turns(items)
        for at, answer in _settle_turn(tx, turn, kinds)
    }
    return [answers[at] for at in range(len(items))]


def _turns(items: Sequence[Settlement]) -> list[list[tuple[int, Settlement]]]:
    """Split a batch so that no part names a row twice; the order of items is kept."""
    turns: list[list[tuple[int, Settlement]]] = []
    seen: dict[WorkId, int] = {}
    for at, item in enumerate(items):
        turn = seen.get(item.work, 0)
        seen[item.work] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append((at, item))
    return turns


def _settle_turn(
    tx: Tx, turn: Sequence[tuple[int, Settlement]], kinds: Mapping[str, KindSql]
) -> list[tuple[int, Answer]]:
    queues = {
        (item.lane, item.order_key) for _, item in turn if item.order_key is not None
    }
    orders = ordering.orders(tx, {lane for lane, _ in queues})
    ordering.lock_heads(tx, queues)
    locked = rows.lock(tx, [item.work for _, item in turn])
    earlier = _earlier(tx, [item for _, item in turn], locked)
    once = _at_most_once(
        tx, {item.lane for _, item in turn if isinstance(item.result, Cut)}
    )
    answers: list[tuple[int, Answer]] = []
    decided: list[tuple[Work, Change]] = []
    settled: list[Settled] = []
    for at, item in turn:
        before = locked.get(item.work)
        if before is None:
            answers.append((at, Answer.LOST))
            continue
        change = transitions.settle(
            before,
            item,
            earlier.get((item.work, item.claim)),
            tx.now,
            late_success=_kind(kinds, item.kind).late_success,
            order=orders.get(before.lane) if before.order_key is not None else None,
            at_most_once=before.lane in once,
        )
        answers.append((at, change.answer))
        decided.append((before, change))
        settled.append(
            Settled(
                settlement=item,
                answer=change.answer,
                before=before,
                after=change.work,
                attempt=change.attempt is not None or change.late is not None,
            )
        )
    rows.fill_late(
        tx,
        [
            (item.settlement.work, item.settlement.claim, change.late)
            for item, (_, change) in zip(settled, decided, strict=True)
            if change.late is not None
        ],
    )
    rows.write_changes(tx, decided)
    _perform(tx, settled, kinds)
    return answers


def _at_most_once(tx: Tx, lanes: Collection[LaneId]) -> set[LaneId]:
    """Return those lanes whose work is never done a second time."""
    if not lanes:
        return set()
    asked, params = tx.rows("b", {"id": "bigint"}, [(lane,) for lane in sorted(lanes)])
    found = tx.all(
        f"SELECT l.id FROM {asked} JOIN lane l ON l.id = b.id WHERE l.at_most_once",
        params,
    )
    return {row[0] for row in found}


def _earlier(
    tx: Tx, items: Sequence[Settlement], locked: Mapping[WorkId, Work]
) -> dict[tuple[WorkId, int], Attempt]:
    """Read the attempts of answers that are not simply a live claim's first."""
    odd = [
        (item.work, item.claim)
        for item in items
        if (row := locked.get(item.work)) is not None
        and not (
            row.state is State.CLAIMED and transitions.holds(row, item.claim, item.node)
        )
    ]
    return rows.attempts_of(tx, odd)


def _perform(tx: Tx, settled: Sequence[Settled], kinds: Mapping[str, KindSql]) -> None:
    """Let each kind add its evidence, and its effects where the claim was held."""
    for name in sorted({item.settlement.kind for item in settled}):
        kind = kinds[name]
        mine = [item for item in settled if item.settlement.kind == name]
        perform(tx, kind.evidence([item for item in mine if item.attempt]))
        applied = [item for item in mine if item.answer is Answer.APPLIED]
        perform(tx, kind.effects(applied))


def _kind(kinds: Mapping[str, KindSql], name: str) -> KindSql:
    try:
        return kinds[name]
    except KeyError:
        raise InvariantViolated(
            f"no kind {name!r} is registered, so nobody can settle its work: "
            f"known are {sorted(kinds)}"
        ) from None
